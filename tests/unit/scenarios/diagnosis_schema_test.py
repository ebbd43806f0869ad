"""Validates what `nanscope diagnose --format json` writes against docs/diagnosis.schema.json.

Usage: diagnosis_schema_test.py NANSCOPE. Exits 77 (skipped) without python3-jsonschema.
"""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/diagnosis.schema.json").read_text())
DIAGNOSIS = ROOT / "instrument/diagnosis"
NANSCOPE = sys.argv.pop(1)


def diagnose(*targets):
    """The document, and the exit code."""
    done = subprocess.run([NANSCOPE, "diagnose", "--format", "json", *map(str, targets)], capture_output=True)
    return json.loads(done.stdout), done.returncode


def names_in(path, macro):
    return [line.split('"')[1] for line in path.read_text().splitlines() if line.startswith(macro)]


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        cls.validator = jsonschema.Draft202012Validator(SCHEMA)
        cls.folder = tempfile.TemporaryDirectory()
        cls.recordings = []
        for name in ["kv-scale-lock", "two-pass-variance", "f16", "outlier-squash"]:
            for file in sorted((ROOT / "scenarios").glob(f"*{name}.toml")):
                out = pathlib.Path(cls.folder.name) / (file.stem + ".nanscope")
                subprocess.run([NANSCOPE, "run", file, "-o", out], capture_output=True)
                cls.recordings.append(out)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, document):
        errors = [f"{list(e.absolute_path)}: {e.message[:300]}" for e in self.best(document)]
        self.assertEqual(errors, [])

    def best(self, document):
        # oneOf hides what is wrong: the definition that the document says it is of tells.
        name = "diagnoses" if document.get("schema") == "nanscope.diagnoses/1" else "diagnosis"
        inner = {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}
        yield from jsonschema.Draft202012Validator(inner).iter_errors(document)

    def test_recordings(self):
        self.assertGreaterEqual(len(self.recordings), 4)
        verdicts = set()
        for path in self.recordings:
            with self.subTest(path.stem):
                document, _ = diagnose(path)
                self.check(document)
                verdicts.add(document["verdict"])
        self.assertEqual(verdicts, {"no-fault-found", "fault"})

    def test_dumps(self):
        dumps = sorted(path for path in (ROOT / "tests/golden/dumps").iterdir())
        self.assertTrue(dumps)
        for path in dumps:
            with self.subTest(path.name):
                document, _ = diagnose(path)
                if document["verdict"] == "error":
                    self.assertTrue(self.validator.is_valid(document))
                else:
                    self.check(document)

    def test_several_targets(self):
        document, code = diagnose(self.recordings[0], "no-such-dump")
        self.assertEqual(code, 2)
        self.assertEqual([one["verdict"] for one in document["targets"]], ["fault", "error"])
        self.check(document)

    def test_what_is_wrong_is_refused(self):
        document, _ = diagnose(self.recordings[0])

        def refused(change):
            wrong = copy.deepcopy(document)
            change(wrong)
            self.assertFalse(self.validator.is_valid(wrong))

        self.assertTrue(self.validator.is_valid(document))
        refused(lambda d: d.update(verdict="fine"))
        refused(lambda d: d.pop("checks"))
        refused(lambda d: d.update(more=1))
        refused(lambda d: d["faults"][0].update({"class": "no-such-class"}))
        refused(lambda d: d["faults"][0]["evidence"].update({"no such key": 1}))
        refused(lambda d: d["faults"][0]["evidence"].update({"headroom": "low"}))
        refused(lambda d: d["chain"][0].update(kind="no-such-kind"))
        refused(lambda d: d["chain"][0].update(because=-1))

    def test_names_are_those_of_the_registries(self):
        defs = SCHEMA["$defs"]
        classes = names_in(DIAGNOSIS / "detectors/detectors.def", "NANSCOPE_DETECTOR(")
        self.assertEqual(defs["fault_class"]["enum"], classes)
        warnings = names_in(DIAGNOSIS / "warnings/warnings.def", "NANSCOPE_WARNING(")
        self.assertEqual(defs["warning"]["properties"]["kind"]["enum"], warnings)

    def test_evidence_keys_are_one_vocabulary(self):
        known = SCHEMA["$defs"]["evidence"]["properties"]
        used = set()
        for path in [*DIAGNOSIS.glob("detectors/*.cpp"), *DIAGNOSIS.glob("warnings/*.cpp"),
                     *DIAGNOSIS.glob("chain*.cpp"), DIAGNOSIS / "diagnose.cpp"]:
            for statement in re.findall(r"evidence[^;]*;", path.read_text()):
                used |= set(re.findall(r'\{"([^"]+)",', statement))
        self.assertEqual(used - set(known), set(), "in the detectors, not in docs/diagnosis.schema.json")
        self.assertEqual(set(known) - used, set(), "in docs/diagnosis.schema.json alone")
        for key in known:
            self.assertRegex(key, r"^[a-z][a-z0-9_]*$")

    def test_the_documentation_has_every_key(self):
        table = (ROOT / "docs/diagnosis.md").read_text().split("## Evidence")[1]
        rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.M))
        properties = SCHEMA["$defs"]["evidence"]["properties"]
        self.assertEqual(rows, {key: value["description"] for key, value in properties.items()})


if __name__ == "__main__":
    unittest.main()
