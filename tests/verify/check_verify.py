"""Measures `nanscope verify` on dumps of transformers' models. usage: check_verify.py NANSCOPE [OUT] [--only NAME]

Makes the dumps (verify_dumps.py, which needs torch and transformers; without them it is skipped, exit 77) unless OUT holds
them already, asks `NANSCOPE verify` about each, and prints what it said beside what was planted. Exit 0 where all of this
holds, else 1:

  - of healthy dumps no op is unexplained;
  - at least 19 of 20 planted faults are named at the right op, and of those in three of four what was done instead.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def ask(nanscope, folder):
    run = subprocess.run([nanscope, "verify", os.path.join(folder, "dump"), "--model", os.path.join(folder, "model"),
                          "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if run.returncode not in (0, 1):
        return None, f"exit {run.returncode}: {run.stderr.strip()[-200:]}"
    return json.loads(run.stdout), ""


def judge(expected, answer):
    """Whether the op is right, whether what it does instead is, and what was said."""
    first = answer["first"]
    if expected["healthy"]:
        return answer["off"] == 0, True, "" if not first else f"{first['tensor']} ({first['op']})"
    if not first:
        return False, False, "nothing"
    op = first["op"] in expected["ops"] and expected["layer"] in (None, first["layer"])
    best = (first["explanations"] or [{"alternative": "-", "text": "nothing explains it"}])[0]
    said = f"{first['op']} of layer {first['layer']}: {best['alternative']} ({first['certainty']}): {best['text']}"
    return op, op and best["alternative"] in expected["alternatives"], said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope", metavar="NANSCOPE")
    parser.add_argument("out", metavar="OUT", nargs="?")
    parser.add_argument("--only", metavar="NAME", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or temporary
        if not os.path.isdir(out) or not os.listdir(out):
            made = subprocess.run([sys.executable, os.path.join(HERE, "verify_dumps.py"), out, "--only", options.only],
                                  check=False)
            if made.returncode != 0:
                return made.returncode
        return measure(options, out)


def measure(options, out):
    healthy = alarms = planted = ops = alternatives = checked = left = 0
    free = []
    for name in sorted(os.listdir(out)):
        folder = os.path.join(out, name)
        if options.only not in name or not os.path.exists(os.path.join(folder, "expected.json")):
            continue
        with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)
        answer, error = ask(options.nanscope, folder)
        op, alternative, said = judge(expected, answer) if answer else (False, False, error)
        if expected["healthy"]:
            healthy += 1
            alarms += not op
            if answer:
                checked += answer["checked"]
                left += len(answer["not_checked"])
                free.append((answer["free_run"]["leaves_at"], answer["free_run"]["why_not"], name))
        else:
            planted += 1
            ops += op
            alternatives += alternative
        word = "right" if op and alternative else "op" if op else "WRONG"
        count = f"{answer['off']:4d} of {answer['checked']:4d} off" if answer else " " * 16
        print(f"{word:6} {name:42} {count}  {said}")
    left_free = [name for leaves, why, name in free if leaves is not None or why]
    print(f"\nhealthy dumps: {healthy}, with an op that is not explained: {alarms}; {checked} outputs checked, {left} not")
    print(f"free runs of healthy dumps that leave the model, or were not made: {', '.join(left_free) or 'none'}")
    print(f"planted faults: {planted}, at the right op: {ops}, with what was done instead: {alternatives}")
    return 0 if alarms == 0 and 20 * ops >= 19 * planted and 4 * alternatives >= 3 * planted else 1


if __name__ == "__main__":
    sys.exit(main())
