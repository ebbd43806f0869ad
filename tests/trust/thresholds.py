#!/usr/bin/env python3
"""Runs diagnose and verify with each threshold at half and at twice its value, and counts what changes.

    tests/trust/thresholds.py FOLDER TARGET... [--every] [--only kName] [--first kName]

FOLDER gets a copy of the sources in which each constant of the first table of docs/thresholds.md is read from the
environment, and its build. A TARGET is a folder of recordings, of dumps, or of folders with a `dump`, at --depth. A folder
`model` next to the dump is its checkpoint: verify is run as well. A change is another verdict, another fault (class and
tensor) or another warning. Of a share above 0.75 the rest to 1 is halved and doubled, of a ratio from 1 to 1.25 the
excess over 1; whole numbers stay above 0. Constants with a source, arrays and what the compiler needs as a constant are
left out, the first only without --every. Prints a row each: name, file, value, changes at half, changes at twice.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
WORDS = {"faults": ("class", "tensor", "certainty"), "warnings": ("kind", "tensor"), "outputs": ("tensor", "off")}
HEADER = '''#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>

/// The value of a threshold, or half or twice of it where the environment says so.
template <class Number>
Number threshold(const char* name, Number value) {
  const char* wanted = std::getenv("NANSCOPE_THRESHOLD");
  if (wanted == nullptr || std::strcmp(wanted, name) != 0) return value;
  const double factor = std::atof(std::getenv("NANSCOPE_FACTOR"));
  const double plain = static_cast<double>(value);
  double changed = plain * factor;
  if (plain > 0.75 && plain < 1) changed = 1 - (1 - plain) * factor;
  if (plain > 1 && plain <= 1.25) changed = 1 + (plain - 1) * factor;
  if (static_cast<Number>(0.5) == Number{0}) changed = std::floor(changed) < 1 ? 1 : std::floor(changed);
  return static_cast<Number>(changed);
}
'''


def decisive(every):
    """(file, name, value) of the scalars of the first table."""
    import thresholds_test as page
    found = []
    for row in page.rows(page.PAGE.read_text(encoding="utf-8")):
        if row.cells and "," not in row.value and (every or "none: chosen" in row.cells[5] or "chosen:" in row.cells[5]):
            found.append((row.file, row.name, row.value))
    return found


def rewrite(folder, constants):
    (folder / "threshold_scale.h").write_text(HEADER)
    for file, name, _ in constants:
        path = folder / file
        code = path.read_text()
        code, count = re.subn(rf"(?:static )?constexpr (double|float|int|std::int64_t|std::size_t) {name} = ([^;]+);",
                              rf'static const \1 {name} = threshold<\1>("{file}:{name}", static_cast<\1>(\2));', code)
        code = code.replace("inline static const", "inline const")
        if path.name == "recompute.h":  # a member
            code = re.sub(r"^  static const double", "  static inline const double", code, flags=re.M)
        if count != 1:
            sys.exit(f"{file}: {name} is defined {count} times as this script understands it")
        if '"threshold_scale.h"' not in code:
            code = code.replace("#include", '#include "threshold_scale.h"\n#include', 1)
        path.write_text(code)


def copy_sources(folder, change):
    """Copies the sources to FOLDER/sources, unless they are there, and changes them. Returns where they are."""
    sources = folder / "sources"
    if not sources.exists():
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
        for name in filter(None, map(os.fsdecode, files)):
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, sources / name)
        change(sources)
    return sources


def build(folder):
    subprocess.run(["cmake", "--preset", "default", "-B", "build", "-DNANSCOPE_LANES=native", "-DNANSCOPE_TESTS=OFF", "-DNANSCOPE_HEADLESS=ON"], cwd=folder,
                   check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["cmake", "--build", "build", "--target", "nanscope-headless"], cwd=folder, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("\n".join(line for line in done.stdout.splitlines() if "error" in line)[:4000] or done.stdout[-2000:])
    return folder / "build" / "nanscope-headless"


def targets_of(folders, depth):
    found = []
    for folder in map(pathlib.Path, folders):
        if folder.is_file():
            found.append(folder)
            continue
        at = [folder]
        for _ in range(depth):
            at = [one for parent in at for one in sorted(parent.iterdir()) if one.is_dir() or one.suffix == ".nanscope"]
        found += at
    return found


def each_answer(binary, target, environment):
    """Runs the commands that judge a target."""
    dump = target / "dump" if (target / "dump").exists() else target
    calls = [["diagnose", dump, "--format", "json"]]
    if (target / "model").is_dir():
        calls.append(["verify", dump, "--model", target / "model", "--json"])
    for words in calls:
        yield subprocess.run([binary, *words], capture_output=True, text=True, check=False, env=environment)


def answer(binary, target, environment):
    """What a user would learn, without figures."""
    said = []
    for done in each_answer(binary, target, environment):
        said.append(done.returncode)
        if not done.stdout.startswith("{"):
            continue
        made = json.loads(done.stdout)
        said.append(made.get("verdict"))
        for key, names in WORDS.items():
            said.append(sorted(" ".join(str(one.get(name)) for name in names) for one in made.get(key, [])))
    return said


def run(binary, targets, name, factor, jobs):
    environment = {**os.environ, "NANSCOPE_THRESHOLD": name, "NANSCOPE_FACTOR": str(factor)}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda target: answer(binary, target, environment), targets))


def parser_of(text):
    """The options of every script that runs a changed copy of the sources on targets."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--depth", type=int, default=1, help="folders between a TARGET and its dumps")
    parser.add_argument("--every", action="store_true", help="also those that have a source")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    return parser


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--only", help="this constant alone")
    parser.add_argument("--first", help="begin with this constant, to go on after a stop")
    options = parser.parse_args()
    constants = [one for one in decisive(options.every) if options.only in (None, one[1])]
    if options.first:
        constants = constants[[name for _, name, _ in constants].index(options.first):]
    binary = build(copy_sources(options.folder, lambda sources: rewrite(sources, constants)))
    targets = targets_of(options.targets, options.depth)
    plain = run(binary, targets, "", 1, options.jobs)
    print(f"{len(targets)} targets, {len(constants)} constants", flush=True)
    for file, name, value in constants:
        changes = []
        for factor in (0.5, 2):
            made = run(binary, targets, f"{file}:{name}", factor, options.jobs)
            changes.append([str(target) for target, a, b in zip(targets, plain, made) if a != b])
        print(f"{name}\t{file}\t{value}\t{len(changes[0])}\t{len(changes[1])}\t{' '.join(changes[0][:3])}\t{' '.join(changes[1][:3])}", flush=True)


if __name__ == "__main__":
    main()
