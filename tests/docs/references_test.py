"""Checks docs/references.md: counts, commands, settings and scenarios.

Usage: references_test.py NANSCOPE [unittest options]

The test counts the rows of the five tables by status and compares them with the summary. Every command in inline code
has to exist with its options; every setting, its value if it is one of a list, and every scenario too.
"""
import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "references.md"
NANSCOPE = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
STATUSES = ("works", "partly", "contradicts", "out of reach")
TAKE_SCENARIOS = {"run", "causality", "policies", "train"}
# What the page's commands are given besides scenarios and their recordings; the page says what each is.
INPUTS = {"smol.nanscope", "leaky.toml"}


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows(page):
    """The rows of the tables by reference; a row's first cell is REFERENCE.NUMBER."""
    found = collections.defaultdict(list)
    for line in page.splitlines():
        row = cells(line)
        if line.startswith("|") and re.fullmatch(r"\d\.\d+", row[0]):
            found[int(row[0].split(".")[0])].append(row)
    return found


def summary(page):
    """The numbers of the summary: {reference: [rows, one number a status]}, and "all"."""
    found = {}
    for line in page.splitlines():
        row = cells(line)
        if line.startswith("|") and len(row) == 2 + len(STATUSES) and all(map(str.isdecimal, row[1:])):
            found[row[0][0] if row[0][0].isdigit() else row[0]] = list(map(int, row[1:]))
    return found


def counts(found):
    return [len(found)] + [sum(row[-1] == status for row in found) for status in STATUSES]


def codes(page):
    return re.findall(r"`([^`]+)`", page)


def answer(*words):
    done = subprocess.run([NANSCOPE, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return done.stdout.decode("utf-8", "replace")


def candidates(typed):
    """What the program offers behind --set for what was typed."""
    return {line.split("  ")[0] for line in answer("complete", "--", "run", "--set", typed).splitlines()[1:]}


def wrong_setting(setting):
    name, equals, value = setting.partition("=")
    if f"{name}=" not in candidates(name):
        return f"no setting {name}"
    offered = candidates(f"{name}=") - {f"{name}="}
    return f"{name} has no value {value}" if equals and value and offered and setting not in offered else None


def options(command):
    """{option: whether a value follows} of a command's help; {} if there is no such command."""
    text = answer(command, "--help")
    if f"Usage: nanscope {command}" not in text:
        return {}
    found = {}
    for names, value in re.findall(r"(?m)^  (-\w(?:, --[\w-]+)?|--[\w-]+)( \S)?", text):
        found.update(dict.fromkeys(names.split(", "), bool(value)))
    return found


def wrong_command(code, scenarios, known):
    """What is wrong with a command; None if nothing is. Options are kept in known."""
    command, *words = shlex.split(code)[1:]
    if command not in known:
        known[command] = options(command)
    if not known[command]:
        return f"no command {command}"
    words = iter(words)
    for word in words:
        if re.match(r"--?[a-z]", word):
            if word not in known[command]:
                return f"{command} has no option {word}"
            value = next(words) if known[command][word] else ""
            wrong = wrong_setting(value) if word == "--set" else None
            if wrong:
                return wrong
        elif command in TAKE_SCENARIOS or word.endswith(".nanscope"):
            if word not in INPUTS and word.removesuffix(".nanscope") not in scenarios:
                return f"no scenario {word}"
    return None


class References(unittest.TestCase):
    def setUp(self):
        self.page = PAGE.read_text(encoding="utf-8")
        self.rows = rows(self.page)
        self.scenarios = set(re.findall(r"(?m)^([a-z0-9-]+)(?: |$)", answer("scenarios")))

    def test_rows_are_whole(self):
        self.assertEqual(sorted(self.rows), [1, 2, 3, 4, 5])
        for reference, found in self.rows.items():
            self.assertEqual([row[0] for row in found], [f"{reference}.{n}" for n in range(1, len(found) + 1)])
            for row in found:
                with self.subTest(row[0]):
                    self.assertEqual(len(row), 5)
                    self.assertTrue(all(row), "an empty cell")
                    self.assertIn(row[-1], STATUSES)

    def test_what_works_is_shown_by_a_command(self):
        for row in sum(self.rows.values(), []):
            if row[-1] == "works":
                with self.subTest(row[0]):
                    self.assertIn("`nanscope ", row[2])

    def test_summary_is_what_the_tables_hold(self):
        expected = {str(reference): counts(found) for reference, found in self.rows.items()}
        expected["all"] = counts(sum(self.rows.values(), []))
        self.assertEqual(summary(self.page), expected)

    def test_commands_exist(self):
        known = {}
        found = [code for code in codes(self.page) if code.startswith("nanscope ")]
        self.assertGreater(len(found), 100)
        for code in sorted(set(found)):
            with self.subTest(code):
                if not re.fullmatch(r"nanscope [a-z]+ [A-Z]+( .*)?", code):  # NAME and DIR: a form of commands
                    self.assertIsNone(wrong_command(code, self.scenarios, known))

    def test_settings_exist(self):
        groups = {name.split(".")[0] for name in candidates("")}
        self.assertIn("kv", groups)
        for code in sorted(set(codes(self.page))):
            if re.fullmatch(rf"({'|'.join(sorted(groups))})\.[a-z_0-9]+(=\S*)?", code):
                with self.subTest(code):
                    self.assertIsNone(wrong_setting(code))


class Comparison(unittest.TestCase):
    """The test sees what it looks for."""

    PAGE = ("| text | rows | works | partly | contradicts | out of reach |\n|---|---|---|---|---|---|\n"
            "| 1. A | 2 | 1 | 0 | 1 | 0 |\n| all | 2 | 1 | 0 | 1 | 0 |\n\n"
            "| row | says | shown | result | status |\n|---|---|---|---|---|\n"
            "| 1.1 | a | b | c | works |\n| 1.2 | a | b | c | contradicts |\n")

    def test_counts(self):
        self.assertEqual(counts(rows(self.PAGE)[1]), [2, 1, 0, 1, 0])
        self.assertEqual(summary(self.PAGE), {"1": [2, 1, 0, 1, 0], "all": [2, 1, 0, 1, 0]})

    def test_finds_what_is_wrong(self):
        for code in ("nanscope nothing", "nanscope run no-such-scenario", "nanscope run kv-scale-lock --no-such-option",
                     "nanscope replay no-such.nanscope", "nanscope loss reference text.txt --set kv.nothing=1",
                     "nanscope loss reference text.txt --set kv.policy=nothing"):
            self.assertIsNotNone(wrong_command(code, {"kv-scale-lock"}, {}), code)
        self.assertIsNone(wrong_command("nanscope run kv-scale-lock --brief", {"kv-scale-lock"}, {}))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.access(NANSCOPE, os.X_OK):
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
