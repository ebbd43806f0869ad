"""Tries check_transformers.py with a script in the place of nanscope. usage: check_transformers_test.py

Each case's dump holds the answer that the script gives for it.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

NANSCOPE = """#!/bin/sh
cat "$2/answer.json" && exit $(cat "$2/exit")
"""
PLACE = "step_00002/model.layers.1.mlp.down_proj.output"
HEALTHY = {"class": "clean", "acceptable": [], "verdict": "clean", "first_bad_tensor": None, "acceptable_tensors": [],
           "layer": None, "note": ""}
PLANTED = {"class": "scale-misapplied", "acceptable": ["wrong-result"], "verdict": "fault", "first_bad_tensor": PLACE,
           "acceptable_tensors": ["step_00002/model.layers.1.mlp.output"], "layer": 1, "region": "row 7", "note": "",
           "measured": {"of": [9, 1, 32], "rows": {"any": "6 to 7", "clear": "7"}, "heads": {"any": "0", "clear": "0"},
                        "columns": {"any": "0 to 31", "clear": "1, 4 to 30"}}}
ROW_7 = {"region": "row 7", "wrong_rows": "7"}


def clean(explained=1000, elements=1000):
    recomputation = {"ops": 12, "ops_with_inputs": 11, "elements": elements, "explained": explained,
                     "not_recomputed": [{"tensor": "model.norm.output", "reason": "no weight"}]}
    return {"verdict": "clean", "root_cause": None, "spread": None, "recomputation": recomputation}


def fault(tensor, kind="wrong-result", spread=None, evidence=None, channels=None):
    root = {"class": kind, "tensor": tensor, "evidence": evidence or ROW_7, "channels": channels}
    return {"verdict": "fault", "root_cause": root, "spread": spread and {"first_bad_tensor": spread}}


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.nanscope = os.path.join(self.folder, "nanscope")
        with open(self.nanscope, "w", encoding="utf-8") as file:
            file.write(NANSCOPE)
        os.chmod(self.nanscope, 0o755)

    def case(self, name, expected, answer, code=None):
        dump = os.path.join(self.folder, "cases", name, "dump")
        os.makedirs(dump)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        if code is None:
            code = 0 if answer["verdict"] == "clean" else 1
        for path, content in ((os.path.join(dump, "answer.json"), text), (os.path.join(dump, "exit"), str(code)),
                              (os.path.join(dump, "..", "expected.json"), json.dumps(expected))):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)

    def check(self, code):
        """The lines that it prints."""
        done = subprocess.run([sys.executable, os.path.join(HERE, "check_transformers.py"),
                               os.path.join(self.folder, "cases"), "--nanscope", self.nanscope],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def planted_is(self, code, answer):
        self.case("healthy", HEALTHY, clean())
        self.case("planted", PLANTED, answer)
        return self.check(code)

    def test_all_right(self):
        said = self.planted_is(0, fault(PLACE, "scale-misapplied"))
        self.assertIn("1 of 1 at the right tensor, 1 of them with the right class", said)
        self.assertIn("100.00 % of 1000 elements in healthy dumps, 12 operations, 11 with their inputs", said)
        self.assertIn("1 tensors of healthy dumps not computed again: no weight", said)
        self.assertNotIn("NOT MET", said)

    def test_the_first_bad_tensor_counts_before_the_root(self):
        self.planted_is(1, fault(PLACE, spread="step_00002/model.norm.output"))

    def test_a_neighbour_and_an_acceptable_class_are_right(self):
        said = self.planted_is(0, fault("step_00000/weight_scale", spread="step_00002/model.layers.1.mlp.output"))
        self.assertIn("1 of them with the right class", said)

    def test_a_wrong_class_at_the_right_tensor_is_said(self):
        said = self.planted_is(0, fault(PLACE, "f16-overflow"))
        self.assertIn("1 of 1 at the right tensor, 0 of them with the right class", said)

    def test_the_same_name_in_another_step_is_wrong(self):
        self.planted_is(1, fault(PLACE.replace("step_00002", "step_00001")))

    def test_a_name_without_folders_is_compared_by_its_key(self):
        self.planted_is(0, fault("model.layers.1.mlp.down_proj.output"))

    def test_a_longer_key_is_another_tensor(self):
        self.planted_is(1, fault(PLACE + ".1"))

    def test_what_differs_by_little_may_be_in_the_region(self):
        said = self.planted_is(0, fault(PLACE, evidence={"region": "rows 6 to 7", "wrong_rows": "6 to 7"},
                                        channels=[0, 30]))
        self.assertIn("1 of 1 named at the right tensor, 1 of 1 with the right region", said)

    def test_regions_that_are_wrong(self):
        for wrong, evidence, channels in (("rows", {"wrong_rows": "6"}, None), ("rows", {"wrong_rows": "7 to 8"}, None),
                                          ("rows", {}, None), ("columns", ROW_7, [2, 31]), ("columns", ROW_7, [0, 29]),
                                          ("heads", ROW_7 | {"wrong_heads": "1"}, None),
                                          ("k", ROW_7 | {"explained_by": "k 8 to 15 left out of the sums"}, None)):
            with self.subTest(wrong=wrong, evidence=evidence, channels=channels):
                self.setUp()
                said = self.planted_is(1, fault(PLACE, evidence=evidence | {"region": "there"}, channels=channels))
                self.assertIn("row 7; said: there, wrong: " + wrong + "\n", said)
                self.assertIn("NOT MET  planted faults: 1 of 1 named at the right tensor, 0 of 1 with the right", said)

    def test_a_missed_fault(self):
        said = self.planted_is(1, clean())
        self.assertRegex(said, r"planted +WRONG +clean")
        self.assertIn("wanted: scale-misapplied at " + PLACE + ", row 7", said)

    def test_a_false_alarm(self):
        self.case("healthy", HEALTHY, fault(PLACE))
        self.assertIn("NOT MET  false alarms: 1 of 1 healthy dumps", self.check(1))

    def test_explained_is_not_rounded_up(self):
        self.case("one", HEALTHY, clean(explained=998_999, elements=1_000_000))
        self.assertIn("NOT MET  explained: 99.89 % of", self.check(1))

    def test_enough_is_explained(self):
        self.case("one", HEALTHY, clean(explained=999_000, elements=1_000_000))
        self.check(0)

    def test_what_a_planted_dump_explains_does_not_count(self):
        self.planted_is(0, fault(PLACE) | {"recomputation": clean(explained=1)["recomputation"]})

    def test_without_a_recomputation_nothing_is_explained(self):
        self.case("healthy", HEALTHY, {"verdict": "clean", "root_cause": None, "spread": None})
        said = self.check(1)
        self.assertRegex(said, r"healthy +right +clean +-\n")
        self.assertIn("NOT MET  explained: - of 0 elements", said)

    def test_no_answer_is_wrong(self):
        self.case("crash", HEALTHY, "", code=139)
        self.case("text", HEALTHY, "clean", code=0)
        self.case("torn", HEALTHY, clean() | {"root_cause": {"class": "wrong-result"}})
        said = self.check(1)
        self.assertIn("exit 139", said)
        self.assertIn("not a diagnosis", said)
        self.assertIn("contradict each other", said)
        self.assertIn("false alarms: 3 of 3", said)


if __name__ == "__main__":
    unittest.main()
