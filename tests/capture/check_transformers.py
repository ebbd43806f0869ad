"""Asks nanscope about the dumps of transformers_dumps.py. usage: check_transformers.py OUT --nanscope PATH

Prints for every case of OUT what `PATH diagnose OUT/CASE/dump --format json` answers, whether that is right, and what
share of the elements the diagnosis computed again and found as they should be. Exit 0 when all of this holds, else 1:

  - no false alarm: every healthy dump is clean;
  - at least 99.9 % of the elements of the healthy dumps are explained;
  - every planted fault is found, at the tensor where it is;
  - what is said of the rows, heads, columns and k that are wrong is so: all that differ clearly from the healthy model's,
    and none that does not differ at all.

A dump that nanscope does not answer for is wrong. Needs nothing but Python.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys

EXPLAINED = 0.999


def folders_and_key(name):
    """step_00001/tensors.safetensors:model.norm.output as ["step_00001"] and "model.norm.output"."""
    *folders, key = re.split(r"[/:]+", name.removeprefix("./"))
    return [folder for folder in folders if folder and not folder.endswith(".safetensors")], key


def same_tensor(wanted, said):
    """The same key and, where both say folders, the same folder."""
    wanted_folders, wanted_key = folders_and_key(wanted)
    said_folders, said_key = folders_and_key(said)
    if wanted_key != said_key:
        return False
    return not wanted_folders or not said_folders or wanted_folders == said_folders[-len(wanted_folders):]


def ask(nanscope, dump, timeout):
    """The answer, or None and in one line why there is none."""
    try:
        run = subprocess.run([nanscope, "diagnose", dump, "--format", "json"], stdin=subprocess.DEVNULL,
                             capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {timeout:g} s"
    if run.returncode not in (0, 1):
        said = run.stderr.decode(errors="replace").strip().splitlines()
        return None, f"exit {run.returncode}: {said[-1] if said else 'nothing said'}"
    try:
        answer = json.loads(run.stdout)
        if answer["verdict"] not in ("clean", "fault", "no-fault-found"):
            return None, f"verdict {answer['verdict']!r}"
        if (answer["root_cause"] is not None) != (answer["verdict"] == "fault"):
            return None, "root_cause and verdict contradict each other"
        return answer, None
    except (ValueError, KeyError, TypeError) as error:
        return None, f"not a diagnosis: {type(error).__name__} {error}"


def numbers(text):
    """3, 5 to 7 as a set."""
    ends = [re.findall(r"\d+", part) for part in text.split(",") if part]
    return {number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)}


def between(said, measured):
    return numbers(measured["clear"]) <= said <= numbers(measured["any"])


def region_errors(measured, fault):
    """Which of rows, heads, columns and k a fault does not say as they were measured."""
    evidence = fault.get("evidence") or {}
    rows, heads, columns = measured["of"][0], measured["of"][1], measured["of"][1] * measured["of"][2]
    if not between(numbers(evidence["wrong_rows"]) if "wrong_rows" in evidence else set(range(rows)), measured["rows"]):
        yield "rows"
    if not between(numbers(evidence["wrong_heads"]) if "wrong_heads" in evidence else set(range(heads)),
                   measured["heads"]):
        yield "heads"
    first, last = fault.get("channels") or (0, columns - 1)
    clear, differing = (numbers(measured["columns"][which]) for which in ("clear", "any"))
    if not (min(differing) <= first <= min(clear) and max(clear) <= last <= max(differing)):
        yield "columns"
    said = re.match(r"k (\d+) to (\d+) ", evidence.get("explained_by", ""))
    if ([int(k) for k in said.groups()] if said else None) != measured.get("k"):
        yield "k"


class Row:
    """One case: what is wanted, what was said, and how far it is right."""

    def __init__(self, name, wanted, answer, error):
        self.name, self.wanted, self.error = name, wanted, error
        self.healthy = wanted["verdict"] == "clean"
        self.verdict = "error" if answer is None else answer["verdict"]
        root = (answer or {}).get("root_cause") or {}
        self.fault_class = root.get("class")
        self.tensor = ((answer or {}).get("spread") or {}).get("first_bad_tensor") or root.get("tensor")
        self.recomputed = (answer or {}).get("recomputation")
        places = [wanted["first_bad_tensor"], *wanted["acceptable_tensors"]]
        self.at_tensor = bool(self.tensor) and any(same_tensor(place, self.tensor) for place in places if place)
        self.class_right = self.fault_class in (wanted["class"], *wanted["acceptable"])
        self.region = (root.get("evidence") or {}).get("region")
        self.region_errors = list(region_errors(wanted["measured"], root)) if root and not self.healthy else ["no fault"]

    @property
    def right(self):
        return self.verdict in ("clean", "no-fault-found") if self.healthy else self.verdict == "fault" and self.at_tensor

    @property
    def word(self):
        if self.right:
            return "right" if self.healthy or self.class_right else "class"
        return "WRONG"

    @property
    def region_right(self):
        return self.right and not self.region_errors

    def count(self, what):
        return (self.recomputed or {}).get(what) or 0


def percent(part, whole):
    # Rounded down: 99.9 % is not shown for less.
    return f"{part * 10000 // whole / 100:.2f} %" if whole else "-"


def table(rows):
    width = max(len(row.name) for row in rows)
    print(f"{'case':{width}}  {'answer':7} {'verdict':10} {'explained':>10}  class and first bad tensor")
    for row in rows:
        said = row.error or " at ".join(filter(None, (row.fault_class, row.tensor)))
        share = percent(row.count("explained"), row.count("elements"))
        print(f"{row.name:{width}}  {row.word:7} {row.verdict:10} {share:>10}  {said}".rstrip())
        if not row.healthy and (row.word != "right" or row.region_errors):
            wrong = f"; said: {row.region}, wrong: {', '.join(row.region_errors)}" if row.region_errors else ""
            print(f"{'':{width}}  wanted: {row.wanted['class']} at {row.wanted['first_bad_tensor']}, "
                  f"{row.wanted['region']}{wrong}")


def left_out(rows):
    """Why elements were not computed again, the commonest reasons first."""
    reasons = collections.Counter(entry["reason"] for row in rows for entry in row.count("not_recomputed") or [])
    for reason, count in reasons.most_common(12):
        print(f"  {count:6d} tensors of healthy dumps not computed again: {reason}")


def measures(rows):
    """Whether each is met, and in words."""
    healthy, planted = [row for row in rows if row.healthy], [row for row in rows if not row.healthy]
    alarms = sum(not row.right for row in healthy)
    yield alarms == 0, f"false alarms: {alarms} of {len(healthy)} healthy dumps"
    explained, elements = (sum(row.count(what) for row in healthy) for what in ("explained", "elements"))
    ops, with_inputs = (sum(row.count(what) for row in healthy) for what in ("ops", "ops_with_inputs"))
    yield (not healthy or elements > 0 and explained >= EXPLAINED * elements,
           f"explained: {percent(explained, elements)} of {elements} elements in healthy dumps, {ops} operations, "
           f"{with_inputs} with their inputs")
    found, classes = sum(row.right for row in planted), sum(row.right and row.class_right for row in planted)
    yield (found == len(planted),
           f"planted faults: {found} of {len(planted)} at the right tensor, {classes} of them with the right class")
    regions = sum(row.region_right for row in planted)
    yield (regions == len(planted),
           f"planted faults: {found} of {len(planted)} named at the right tensor, {regions} of {len(planted)} with the "
           "right region")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", help="what transformers_dumps.py wrote")
    parser.add_argument("--nanscope", required=True, metavar="PATH")
    parser.add_argument("--only", metavar="NAME", help="cases whose name holds this")
    parser.add_argument("--timeout", type=float, default=120, metavar="S", help="seconds for a dump (default: 120)")
    options = parser.parse_args()
    names = sorted(entry.name for entry in os.scandir(options.out)
                   if os.path.exists(os.path.join(entry.path, "expected.json"))
                   and (not options.only or options.only in entry.name))
    if not names:
        parser.error(f"{options.out}: no case in it")
    rows = []
    for name in names:
        with open(os.path.join(options.out, name, "expected.json"), encoding="utf-8") as file:
            wanted = json.load(file)
        rows.append(Row(name, wanted, *ask(options.nanscope, os.path.join(options.out, name, "dump"), options.timeout)))
    rows.sort(key=lambda row: (not row.healthy, row.name))
    table(rows)
    left_out([row for row in rows if row.healthy])
    met = list(measures(rows))
    for good, text in met:
        print(f"{'met' if good else 'NOT MET':8} {text}")
    return 0 if all(good for good, _ in met) else 1


if __name__ == "__main__":
    sys.exit(main())
