"""Compares docs/thresholds.md with the named numeric constants in the code of the diagnosis.

usage: thresholds_test.py [NANSCOPE] [unittest options]; NANSCOPE is not used. The environment variable THRESHOLDS_PAGE
names another page to compare.

The test finds `constexpr` and `const` numbers, and arrays of numbers, whose names begin with k and a capital letter. A
constant that is missing in the page, a row whose constant is gone, and a value that differs are errors. Values are
compared as text, without digit separators and suffixes.
"""
import collections
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = pathlib.Path(os.environ.get("THRESHOLDS_PAGE") or ROOT / "docs/thresholds.md")
# Folders with all folders below them, and single files.
CODE = ["instrument/diagnosis", "instrument/diff", "instrument/recompute", "instrument/server_probe/limits.h",
        "instrument/verify", "core/run/mask.h", "core/dump/masked_scores.cpp", "core/dump/masked_scores.h",
        "core/dump/paged_cache.cpp"]
NUMBER = r"(?:(?:un)?signed\s+)?(?:double|float|char|short|int|long|unsigned|(?:std::)?(?:size_t|ptrdiff_t|u?int\w*_t))"
CONSTANT = re.compile(
    rf"\bconst(?:expr)?\s+(?P<type>(?:{NUMBER}|auto|std::array(?:\s*<[^;=]*?>)?)(?:\s+(?:long|int|double))*)\s+"
    r"(?P<name>k[A-Z]\w*)\s*(?P<array>\[[^\]]*\])?\s*(?:=\s*)?(?P<value>[^;]*);")
LITERAL = r"(?:0x[\da-f.]+(?:p[+-]?\d+)?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
SOURCES = ("derivation: ", "specification: ", "producer's code: ", "measurement: ", "definition: ", "none: chosen")
# Only a warning may be defined by its limit, and only one that prints it.
WARNINGS = "instrument/diagnosis/warnings/"
SUMMARY = re.compile(r"\.summary\s*=\s*fmt::format\((.*?)\);", re.S)
COLUMNS = {"name | value | unit | file | what it decides | source": True, "name | value | file": False}
COUNT = re.compile(r"(\d+) of the (\d+) constants in the first table (?:has|have) no source yet; "
                   r"(\d+) more (?:has|have) one for a part of the value")

Row = collections.namedtuple("Row", "file name value cells")


def normal(value):
    """The text of an initializer without digit separators, suffixes, spaces and braces around all of it."""
    value = re.sub(r"(?<=[\da-fA-F])'(?=[\da-fA-F])", "", value)
    value = re.sub(rf"(?<![\w.])({LITERAL})[ful]+\b", r"\1", value, flags=re.I)
    value = re.sub(r"\s+", "", value)
    return value[1:-1] if re.fullmatch(r"\{[^{}]*\}", value) else value


def constants(code):
    """(name, value) of every constant in the text of a file; both in the order of the file."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", code, flags=re.S)
    found = []
    for match in CONSTANT.finditer(code):
        value = normal(match["value"])
        if not re.match(NUMBER, match["type"]) and not re.fullmatch(rf"-?{LITERAL}(?:,-?{LITERAL})*,?", value, re.I):
            continue  # an array of formats or rules
        if re.search(r",k[A-Z]\w*[={]", value):
            raise ValueError(f"{match['name']}: declare one constant a line, so that the test finds each")
        found.append((match["name"], value))
    return found


def prints(code, name):
    """Whether a summary in the text of a file is made with a constant."""
    return any(re.search(rf"\b{name}\b", made) for made in SUMMARY.findall(code))


def constants_of_code():
    found = []
    for place in CODE:
        path = ROOT / place
        files = sorted(p for p in path.rglob("*") if p.suffix in (".cpp", ".h")) if path.is_dir() else [path]
        for file in files:
            at = file.relative_to(ROOT).as_posix()
            found += [(at, name, value) for name, value in constants(file.read_text(encoding="utf-8"))]
    return found


def rows(page):
    """The rows of the two tables of constants."""
    found, full = [], None
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            full = None
        elif " | ".join(cells) in COLUMNS:
            full = COLUMNS[" | ".join(cells)]
        elif full is not None and not re.fullmatch(r"[-: ]+", cells[0]):
            file = cells[3 if full else 2].strip("`")
            found.append(Row(file, cells[0].strip("`"), normal(cells[1].strip("`")), cells if full else None))
    return found


def differences(code, listed):
    """What the page does not say of the code, or says wrong."""
    values = collections.defaultdict(lambda: ([], []))
    for file, name, value in code:
        values[file, name][0].append(value)
    for row in listed:
        values[row.file, row.name][1].append(row.value)
    wrong = []
    for (file, name), (own, page) in sorted(values.items()):
        if len(own) > len(page):
            wrong.append(f"{file}: {name} = {', '.join(own)}: missing in the page")
        elif len(own) < len(page):
            wrong.append(f"{file}: {name}: the page lists it, the code has none")
        elif sorted(own) != sorted(page):
            wrong.append(f"{file}: {name} is {', '.join(own)}; the page says {', '.join(page)}")
    return wrong


class Page(unittest.TestCase):
    def setUp(self):
        self.page = PAGE.read_text(encoding="utf-8")
        self.first = [row for row in rows(self.page) if row.cells]

    def test_lists_every_constant_with_its_value(self):
        self.assertEqual(differences(constants_of_code(), rows(self.page)), [])

    def test_every_row_is_whole(self):
        for row in self.first:
            with self.subTest(f"{row.file}: {row.name}"):
                self.assertEqual(len(row.cells), 6)
                self.assertTrue(all(row.cells), "an empty cell")
                self.assertTrue(row.cells[5].startswith(SOURCES), f"the source begins with none of {SOURCES}")

    def test_definitions_are_of_warnings_that_print_them(self):
        for row in self.first:
            if row.cells[5].startswith("definition: "):
                with self.subTest(f"{row.file}: {row.name}"):
                    self.assertTrue(row.file.startswith(WARNINGS), "a definition decides more than a warning")
                    self.assertTrue(prints((ROOT / row.file).read_text(encoding="utf-8"), row.name), "is not printed")

    def test_counts_constants_without_a_source(self):
        none = sum(row.cells[5].startswith("none: chosen") for row in self.first)
        part = sum("; chosen: " in row.cells[5] for row in self.first)
        told = COUNT.search(" ".join(self.page.split()))
        self.assertIsNotNone(told, f"the page has no sentence like: {COUNT.pattern}")
        self.assertEqual(tuple(map(int, told.groups())), (none, len(self.first), part))


class Comparison(unittest.TestCase):
    """The test sees what it looks for."""

    CODE = """
        inline constexpr double kShare = 0.99;  // constexpr double kOld = 1;
        static constexpr std::int64_t kMost = std::int64_t{1} << 20;
        constexpr float kPart = 1.0F / 16;
        constexpr std::uint64_t kMany{1'000'000ULL};
        constexpr std::array kEps = {1e-5,
                                     1e-6, 0.0};
        inline constexpr double kCaps[] = {50.0, 30.0};
        constexpr double kRoundoff = 0x1p-24F;
        constexpr std::array kFormats = {Format::e4m3, Format::e5m2};
        constexpr std::string_view kName = "1";
        enum Kind : int { kFirst = 1 };
        constexpr std::int64_t place(int at) { return at; }
    """
    FOUND = [("kShare", "0.99"), ("kMost", "std::int64_t{1}<<20"), ("kPart", "1.0/16"), ("kMany", "1000000"),
             ("kEps", "1e-5,1e-6,0.0"), ("kCaps", "50.0,30.0"), ("kRoundoff", "0x1p-24")]
    TABLE = "| name | value | file |\n|---|---|---|\n"

    def page(self, *lines):
        return rows(self.TABLE + "\n".join(lines) + "\n")

    def test_finds_numbers_and_nothing_else(self):
        self.assertEqual(constants(self.CODE), self.FOUND)

    def test_sees_whether_a_summary_has_a_constant(self):
        code = 'if (x < kNear) return;\nout.summary = fmt::format("{} (limit: {})", place(x), 100 * kShare);\n'
        self.assertTrue(prints(code, "kShare"))
        self.assertFalse(prints(code, "kNear"))

    def test_refuses_two_constants_in_one_declaration(self):
        with self.assertRaises(ValueError):
            constants("constexpr double kA = 1, kB = 2;")

    def test_sees_what_differs(self):
        code = [("a.h", "kShare", "0.99"), ("a.h", "kMost", "1"), ("a.h", "kMost", "2")]
        both = ("| `kMost` | `1` | `a.h` |", "| `kMost` | `2` | `a.h` |")
        self.assertEqual(differences(code, self.page("| `kShare` | `0.99` | `a.h` |", *both)), [])
        for wrong in ([*both], ["| `kShare` | `0.98` | `a.h` |", *both], ["| `kShare` | `0.99` | `b.h` |", *both],
                      ["| `kShare` | `0.99` | `a.h` |", both[0]],
                      ["| `kShare` | `0.99` | `a.h` |", *both, "| `kGone` | `1` | `a.h` |"]):
            self.assertNotEqual(differences(code, self.page(*wrong)), [], wrong)


if __name__ == "__main__":
    options = sys.argv[1:]
    if options and os.path.isfile(options[0]) and os.access(options[0], os.X_OK):
        options = options[1:]
    unittest.main(argv=[sys.argv[0]] + options)
