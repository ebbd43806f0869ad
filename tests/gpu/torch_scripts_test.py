"""Tries torch_decode.py and watch_bench.py where there is no GPU.

usage: torch_scripts_test.py [CLASS...]; TorchDecodeTest needs torch. watch_bench.py is tried with a script in the place of
nanscope, and one in the place of Python that prints what torch_decode.py would.
"""

import os
import py_compile
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

NANSCOPE = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
WATCHED=yes "$@"
echo "nanscope: watched {watched} of 40 launches that match, 40 in all" >&2
"""
PYTHON = """#!/bin/sh
if [ -n "$WATCHED" ]; then echo "digest {digest}"; echo "seconds {seconds}"; else echo "digest 12ab"; echo "seconds 0.001"; fi
"""


def run(script, *arguments):
    command = [sys.executable, os.path.join(HERE, script), *arguments]
    # The cores are shared with other tests.
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})


class ScriptTest(unittest.TestCase):
    def is_refused(self, script, *arguments):
        refused = run(script, *arguments)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertRegex(refused.stderr, rf"\A{script}: [^\n]+\n\Z")
        self.assertEqual(refused.stdout, "")


class CompileTest(unittest.TestCase):
    def test_all_are_python(self):
        with tempfile.TemporaryDirectory() as folder:
            for script in ("torch_decode.py", "watch_bench.py"):
                py_compile.compile(os.path.join(HERE, script), os.path.join(folder, script + "c"), doraise=True)


class DecodeTest(ScriptTest):
    def test_refuses_bad_arguments_in_one_line(self):
        for arguments in (["--fault", "nan"], ["--width", "100"], ["--tokens", "0"], ["--tokens", "8", "--warm-up", "8"],
                          ["--graph", "--device", "cpu"], ["more"]):
            self.is_refused("torch_decode.py", *arguments)


class TorchDecodeTest(ScriptTest):
    def decode(self, *arguments):
        done = run("torch_decode.py", "--device", "cpu", "--layers", "2", "--tokens", "8", "--warm-up", "2", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = re.fullmatch(r"digest ([0-9a-f]{64})\nnon-finite (\d+) of 4096\nseconds [0-9.]+\n", done.stdout)
        self.assertIsNotNone(printed, done.stdout)
        return printed[1], int(printed[2])

    def test_is_finite_and_depends_on_the_seed_alone(self):
        digest, bad = self.decode()
        self.assertEqual(bad, 0)
        self.assertEqual(self.decode(), (digest, 0))
        self.assertNotEqual(self.decode("--seed", "2")[0], digest)

    def test_every_fault_reaches_the_logits(self):
        self.assertEqual(self.decode("--fault", "overflow")[1], 4096)
        self.assertEqual(self.decode("--fault", "softmax")[1], 1024)  # one request of four
        self.assertEqual(self.decode("--fault", "kv")[1], 4096)


class BenchTest(ScriptTest):
    def bench(self, watched=12, digest="12ab", seconds="0.00104"):
        with tempfile.TemporaryDirectory() as folder:
            programs = {"nanscope": NANSCOPE.format(watched=watched), "python": PYTHON.format(digest=digest, seconds=seconds)}
            for name, text in programs.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(file.name, 0o755)
            return run("watch_bench.py", os.path.join(folder, "nanscope"), "--python", os.path.join(folder, "python"),
                       "--pairs", "5")

    def test_passes_at_the_limit_and_misses_beyond_it(self):
        met = self.bench()
        self.assertEqual(met.returncode, 0, met.stderr)
        self.assertRegex(met.stdout, r"watched / alone +\| +1\.040 \| +<= 1\.05 \| yes \| 1040 / 1000 us a token, "
                                     r"60 of 200 launches watched, digests equal\n\Z")
        missed = self.bench(seconds="0.00106")
        self.assertEqual(missed.returncode, 1)
        self.assertRegex(missed.stdout, r"1\.060 \| +<= 1\.05 \| NO ")

    def test_fails_when_results_differ(self):
        differs = self.bench(digest="34cd")
        self.assertEqual(differs.returncode, 1)
        self.assertEqual(differs.stderr, "watch_bench.py: digest 12ab alone, 34cd watched\n")

    def test_fails_when_nothing_was_watched(self):
        blind = self.bench(watched=0)
        self.assertEqual(blind.returncode, 1)
        self.assertIn("nothing was watched: nanscope: watched 0 of 40", blind.stderr)

    def test_refuses_bad_arguments_in_one_line(self):
        for arguments in ([], ["no-such-program"], ["sh", "--pairs", "4"], ["sh", "--limit", "x"]):
            self.is_refused("watch_bench.py", *arguments)


if __name__ == "__main__":
    unittest.main()
