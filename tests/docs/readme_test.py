"""Compares README.md and docs/tour.md with the program, and checks links, lines and commands of all documents.

Usage: readme_test.py NANSCOPE [unittest options]

The test runs every command of the ```sh and ```console blocks of README.md and docs/tour.md, in order, in a temporary
folder. It checks the exit code, and compares the output with the lines that a console block shows below the command. In
a shown line, `…` or `...` matches any text; as a whole line it matches any number of lines. Use it for times, machines
and whatever a reader does not need.
"""
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NANSCOPE = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
PAGES = ["README.md"] + sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))
README_LINES = 120
LINE = 120
SECONDS = 240  # for one command; --counterfactuals replays 41 runs

# Commands that the pages show and the test does not run: a pattern for the whole command, and the reason.
NOT_RUN = [
    (r"scripts/.*", "installs packages and builds the project"),
    (r"cmake .*", "builds the project"),
    (r"sqlite3 .*", "the sqlite3 program may be missing"),
    (r"nanscope attach --run .*", "needs a GPU and a program that uses it"),
    (r"nanscope gui (?!.*--(screenshot|csv|script) ).*", "needs a display"),
]
# The exit codes other than 0.
EXIT_CODES = {
    "nanscope diagnose dump": 1,
    "nanscope diagnose dump --brief": 1,
    "nanscope diagnose dump good --format sarif > nanscope.sarif": 1,
    "nanscope diagnose dump --format json > known.json": 1,
    "nanscope diagnose kv-scale-lock.nanscope --counterfactuals": 1,
    "nanscope diagnose training.nanscope --brief": 1,
    "nanscope diff good dump": 1,
    "nanscope diff kv-scale-lock.nanscope bf16.nanscope": 1,
    "nanscope verify wrong --model model --brief": 1,
    "nanscope inspect fp8-model --as vllm": 1,
    "nanscope causality leaky-mxfp4-values": 1,
    "nanscope train loss-scale-overflow -o trained --record training.nanscope --csv curves.csv": 1,
}
# The inputs of README.md: the dump of a server that answers NaN, the dump of a server with a wrong RoPE base, and their
# checkpoint. docs/tour.md creates all its inputs itself.
FIXTURES = {
    "README.md": [
        "nanscope run kv-scale-lock --brief -o served.nanscope",
        "nanscope export served.nanscope -o dump",
        "nanscope export --reference-model -o model",
        "nanscope run --model model -p 'Every evening the old keeper' --tokens 4 --brief"
        " --set model.rope_base=500000 -o wrong.nanscope",
        "nanscope export wrong.nanscope -o wrong",
    ],
    "docs/tour.md": [],
}
# Slow commands that both pages show: the test runs each once.
ONCE = r".* --counterfactuals"
LANGUAGES = {"sh", "console", "python", "toml", "text"}  # each block of these pages needs one, so that no command hides


class Block:
    def __init__(self, number, language):
        self.number, self.language, self.lines = number, language, []


def read(page):
    return (ROOT / page).read_text(encoding="utf-8").splitlines()


def split(page):
    """The code blocks of a page, and its other lines as (number, line)."""
    blocks, text, inside = [], [], False
    for number, line in enumerate(read(page), 1):
        fence = re.match(r"\s*```(\S*)", line)
        if fence and not inside:
            blocks.append(Block(number, fence[1]))
        elif not fence and inside:
            blocks[-1].lines.append(line)
        elif not fence:
            text.append((number, line))
        inside = inside != bool(fence)
    return blocks, text


def commands(block):
    """(line number, command, shown lines). In sh every line is a command, in console every line that begins with `$ `."""
    found, begins = [], "$ " if block.language == "console" else ""
    lines = iter(enumerate(block.lines, block.number + 1))
    for number, line in lines:
        if line.startswith(begins) and line.strip() and not line.startswith("#"):
            command = line[len(begins):]
            while command.endswith("\\"):
                command += "\n" + next(lines)[1]
            found.append((number, command, []))
        elif found:
            found[-1][2].append(line.rstrip())
    return [(number, command, without_empty_end(shown)) for number, command, shown in found]


def without_empty_end(lines):
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def elided(line):
    return line.strip() in ("…", "...")


def matches(shown, real):
    return re.fullmatch(".*".join(re.escape(part) for part in re.split(r"…|\.\.\.", shown)), real) is not None


def difference(shown, printed):
    """The first of the shown lines that the program did not print there; None if there is none."""
    printed = without_empty_end([line.rstrip() for line in printed])
    at, loose, index = 0, False, 0
    while index < len(shown):
        if elided(shown[index]):
            loose, index = True, index + 1
            continue
        end = next((i for i in range(index, len(shown)) if elided(shown[i])), len(shown))
        group = shown[index:end]
        last = len(printed) - len(group)
        starts = range(at, last + 1) if loose else range(at, min(at, last) + 1)
        if end == len(shown):  # the page shows the end of the output
            starts = [start for start in starts if start == last]
        start = next((s for s in starts if all(map(matches, group, printed[s:]))), None)
        if start is None:
            return explain(group, printed[at:])
        at, loose, index = start + len(group), False, end
    return None if loose or at == len(printed) else f"the page leaves out the rest, without …:\n  {printed[at]}"


def explain(group, printed):
    for line in group:
        if not any(matches(line, real) for real in printed):
            nearest = difflib.get_close_matches(line, printed, 1, 0) or ["nothing"]
            return f"the page shows\n  {line}\nthe program prints\n  {nearest[0]}"
    return "the program prints these lines elsewhere, or others between them:\n  " + "\n  ".join(group)


def prose(page):
    """The lines outside of code blocks, without inline code."""
    return [(number, re.sub(r"(`+).+?\1", "", line)) for number, line in split(page)[1]]


def anchors(page):
    """The anchors of a page's headings, as GitHub computes them."""
    made, seen = set(), {}
    for _, line in split(page)[1]:
        heading = re.match(r"#{1,6} +(.*?)(?: +#+)?$", line)
        if not heading:
            continue
        words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        made.add(slug if count == 0 else f"{slug}-{count}")
    return made


def links(page):
    for number, line in prose(page):
        for target in re.findall(r"\]\(\s*<?([^)\s>]+)", line) + re.findall(r"^\[[^\]]+\]:\s*(\S+)", line):
            if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                yield number, target


def unbreakable(line):
    """A table row, or a line that is one link or one word."""
    bare = re.sub(r"^\s*(?:[-*>]|\d+\.)?\s*", "", line)
    return line.startswith("|") or re.fullmatch(r"!?\[[^\]]*\]\(\S+\)\W*|\S+", bare) is not None


def shell(command, folder, environment):
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=SECONDS,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def environment_in(folder):
    """nanscope on the PATH, a home in the folder, and texts of the width that they have without a terminal."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "nanscope").symlink_to(NANSCOPE)
    kept = {name: value for name, value in os.environ.items()
            if name not in ("COLUMNS", "XDG_STATE_HOME", "DISPLAY", "WAYLAND_DISPLAY") and not name.startswith("NANSCOPE_")}
    return {**kept, "HOME": str(folder), "LC_ALL": "C.UTF-8", "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


class Commands(unittest.TestCase):
    used = set()
    answers = {}

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nanscope-readme-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = environment_in(self.folder)
        self.work = self.folder / "work"
        self.work.mkdir()
        self.has_window = re.search(r"^ +gui ", shell("nanscope --help", self.work, self.environment).stdout.decode(), re.M)

    def answer(self, command):
        once = re.fullmatch(ONCE, command)
        if once and command in self.answers:
            return self.answers[command]
        done = shell(command, self.work, self.environment)
        answer = done.returncode, done.stdout.decode("utf-8", "replace")
        if once:
            self.answers[command] = answer
        return answer

    def check_page(self, page):
        for command in FIXTURES[page]:
            code, printed = self.answer(command)
            self.assertEqual(code, 0, f"fixture: {command}\n{printed}")
        for block in split(page)[0]:
            self.assertIn(block.language, LANGUAGES, f"{page}:{block.number}: this block needs a language")
            if block.language in ("sh", "console"):
                for number, command, shown in commands(block):
                    if not any(re.fullmatch(pattern, command) for pattern, _ in NOT_RUN):
                        with self.subTest(f"{page}:{number}: {command}"):
                            self.check_command(command, shown)

    def check_command(self, command, shown):
        self.assertTrue(command.startswith("nanscope "), "the test does not run this; give the reason in NOT_RUN")
        self.used.add(command)
        if command.startswith("nanscope gui ") and not self.has_window:
            return
        code, printed = self.answer(command)
        self.assertEqual(code, EXIT_CODES.get(command, 0), f"exit code; printed is\n{printed[-2000:]}")
        wrong = difference(shown, printed.splitlines()) if shown else None
        if wrong:
            self.fail(wrong)

    def test_1_readme(self):
        self.check_page("README.md")

    def test_2_tour(self):
        self.check_page("docs/tour.md")

    def test_3_every_exit_code_belongs_to_a_command(self):
        if self.used:
            self.assertEqual(sorted(set(EXIT_CODES) - self.used), [])

    def test_mentioned_commands_and_options_exist(self):
        """`nanscope COMMAND ... --option` in inline code and code blocks of every page."""
        helps = {}
        for page in PAGES:
            blocks, text = split(page)
            mentioned = [(number, code) for number, line in text for code in re.findall(r"`(nanscope [^`]*)`", line)]
            for block in blocks:
                mentioned += [(number, line.strip().lstrip("$ ")) for number, line in enumerate(block.lines, block.number + 1)
                              if re.match(r"\s*(\$ )?nanscope [a-z]", line)]
            for number, code in mentioned:
                words = re.split(r" -- | \| | # |[;>]", code)[0].split()[1:]
                if not words or not re.fullmatch(r"[a-z]+", words[0]):
                    continue
                if words[0] not in helps:
                    helps[words[0]] = shell(f"nanscope {words[0]} --help", self.work, self.environment).stdout.decode()
                with self.subTest(f"{page}:{number}: {code}"):
                    self.assertTrue(f"Usage: nanscope {words[0]}" in helps[words[0]], f"no command {words[0]}")
                    for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", " " + " ".join(words[1:])):
                        known = re.search(rf"(?m)(^ *|, ){re.escape(option)}(?![a-z-])", helps[words[0]])
                        self.assertTrue(known, f"{words[0]} has no option {option}")


class Comparison(unittest.TestCase):
    """The comparison sees a wrong figure, order or end."""

    PRINTED = ["Verdict   57 of 88 tokens", "Place     here", "", "Cause     0.05359 in 3 s", "Fix       none", ""]

    def test_what_is_the_same(self):
        for shown in (["Verdict   57 of 88 tokens", "…"], ["…", "Place     here", "...", "Fix       none"],
                      ["…", "Cause     0.05359 in … s", "…"], self.PRINTED[:5], ["Verdict   … tokens", "Place     here", "…"]):
            self.assertIsNone(difference(shown, self.PRINTED), shown)

    def test_what_is_not(self):
        for shown in (["Verdict   56 of 88 tokens", "…"], ["Verdict   57 of 88 tokens"], ["Place     here", "…"],
                      ["…", "Fix       none", "Place     here"], ["…", "Place     here"],
                      ["Verdict   57 of 88 tokens", "Cause     0.05359 in 3 s", "…"],
                      ["…", "Fix       none", "…", "Place     here", "…"], self.PRINTED[:5] + ["more"]):
            self.assertIsNotNone(difference(shown, self.PRINTED), shown)


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            for number, target in links(page):
                with self.subTest(f"{page}:{number}: {target}"):
                    path, _, anchor = target.partition("#")
                    file = (ROOT / page).parent / path if path else ROOT / page
                    self.assertTrue(file.exists(), "no such file")
                    self.assertIn(ROOT, file.resolve().parents, "outside the project")
                    if anchor and file.suffix == ".md":
                        self.assertIn(anchor, anchors(file.resolve().relative_to(ROOT).as_posix()), "no such heading")

    def test_readme_is_short(self):
        self.assertLessEqual(len(read("README.md")), README_LINES)

    def test_lines_are_short(self):
        for page in PAGES:
            for number, line in split(page)[1]:
                if len(line) > LINE and not unbreakable(line):
                    with self.subTest(f"{page}:{number}"):
                        self.fail(f"{len(line)} characters, not {LINE} at most: {line[:60]}...")

    def test_index_names_every_page(self):
        named = {target.partition("#")[0] for _, target in links("docs/index.md")}
        self.assertEqual(sorted({page.removeprefix("docs/") for page in PAGES[1:]} - named - {"index.md"}), [])


if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.access(NANSCOPE, os.X_OK):
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
