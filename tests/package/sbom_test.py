"""Compares the bill of materials of a program with docs/licences.md, which is written by hand.

Usage: sbom_test.py NANSCOPE
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()


def make_sbom(*arguments):
    return subprocess.run([ROOT / "scripts/make-sbom", *arguments], capture_output=True, text=True, check=False)


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ran = make_sbom(PROGRAM)
        assert ran.returncode == 0, ran.stderr
        cls.bill = json.loads(ran.stdout)
        cls.page = (ROOT / "docs/licences.md").read_text(encoding="utf-8")

    def parts(self, use):
        return [part for part in self.bill["components"] if {"name": "nanscope:use", "value": use} in part["properties"]]

    def test_is_cyclonedx(self):
        self.assertEqual((self.bill["bomFormat"], self.bill["specVersion"]), ("CycloneDX", "1.5"))
        own = self.bill["metadata"]["component"]
        said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertIn(f'{own["version"]} ({own["properties"][0]["value"]},', said)
        self.assertRegex(self.bill["serialNumber"], r"^urn:uuid:[0-9a-f-]{36}$")
        references = [part["bom-ref"] for part in self.bill["components"]]
        self.assertEqual(len(references), len(set(references)))
        self.assertEqual(self.bill["dependencies"][0]["dependsOn"], references)

    def test_names_each_library_that_the_page_lists(self):
        if "bookworm" not in pathlib.Path("/etc/os-release").read_text(encoding="utf-8"):
            return  # the page is about Debian 12
        libraries = {prop["value"].split()[0] for part in self.parts("linked") for prop in part["properties"]
                     if prop["name"] == "nanscope:file"}
        listed = {name for name in re.findall(r"`(lib[A-Za-z0-9_.+-]+\.so(?:\.\d+)+)`", self.page)}
        runtime = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6"}  # the page names their packages
        self.assertEqual(libraries - runtime, listed - runtime)

    def test_names_each_package_that_is_compiled_in(self):
        table = self.page[self.page.index("## Compiled in"):self.page.index("## Used by the window")]
        self.assertEqual({part["name"] for part in self.parts("compiled in")}, set(re.findall(r"^\| `([a-z0-9-]+)`", table, re.M)))

    def test_of_no_program_says_so(self):
        ran = make_sbom("no-program")
        self.assertEqual((ran.returncode, ran.stderr), (2, "scripts/make-sbom: there is no program no-program\n"))


if __name__ == "__main__":
    unittest.main()
