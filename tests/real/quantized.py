#!/usr/bin/env python3
"""Diagnoses and verifies dumps of quantized checkpoints, as they were served and with a planted fault.

    tests/real/quantized.py FOLDER [--nanscope COMMAND] [--only TEXT] [--healthy] [--expect NAME=CLASS,...]

FOLDER has a folder for each case: `model/`, a checkpoint, and `dump*/`, dumps of what was served from it. Needs torch and
safetensors. `tests/verify/quantized_dumps.py` writes such checkpoints with the producers' own libraries. A healthy dump
must not be accused by `diagnose`, alone or with `--model`, or by `verify`. Then the outputs of three modules are changed,
one a run: `verify` must find the change at that module. Prints a line a dump; exit code 1 where something was accused or
missed. --expect names what is right for a case that is not healthy, such as `saturation` for a scale that clips."""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]


def times(made):
    return made * 1.05


def zeros_in_the_tail(made):
    made[..., made.shape[-1] // 2:] = 0
    return made


def halves_swapped(made):
    return torch.roll(made, made.shape[-1] // 2, -1)


FAULTS = [("times 1.05", "mlp.down_proj", times), ("zeros in the tail", "self_attn.o_proj", zeros_in_the_tail),
          ("halves swapped", "mlp.down_proj", halves_swapped)]


def ask(command, *arguments):
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False, timeout=600)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.returncode, {"error": done.stderr.strip()}


def change(dump, module, fault):
    """Changes the outputs of the last layer's module in all steps; its name in the dump."""
    name = ""
    for file in sorted(dump.rglob("*.safetensors")):
        tensors = load_file(file)
        found = sorted(key for key in tensors if key.endswith(f"{module}.output"))
        if not found:
            continue
        name = found[-1]
        tensors[name] = fault(tensors[name].float()).to(tensors[name].dtype).contiguous()
        save_file(tensors, file)
    return name


def judged(found):
    coverage = found.get("coverage", {})
    share = coverage if isinstance(coverage, float) else coverage.get("judged", 0) / max(1, coverage.get("outputs", 1))
    return f"{100 * share:.0f} % judged"


def healthy(command, dump, model, expected):
    """What each way says; empty: nothing is accused."""
    wrong, told = [], []
    for way, words in (("diagnose", ["diagnose", dump, "--format", "json"]),
                       ("diagnose --model", ["diagnose", dump, "--model", model, "--format", "json"]),
                       ("verify", ["verify", dump, "--model", model, "--json"])):
        code, found = ask(command, *map(str, words))
        classes = sorted({fault["class"] for fault in found.get("faults", [])})
        said = found.get("verdict", found.get("error", ""))
        told.append(f"{way} {said if isinstance(said, str) else code}, {judged(found)}")
        if code == 1 and classes != expected.get(way, expected.get("", [])):
            wrong.append(f"{way}: {', '.join(classes) or 'off'}")
    return wrong, told


def planted(command, dump, model, faults):
    missed = []
    for name, module, fault in faults:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "dump"
            shutil.copytree(dump, copy)
            for file in copy.rglob("*"):
                file.chmod(0o755 if file.is_dir() else 0o644)
            wanted = change(copy, module, fault)
            code, found = ask(command, "verify", str(copy), "--model", str(model), "--json", "--no-free-run")
            place = (found.get("first") or {}).get("tensor", "")
            if code != 1 or wanted not in place:
                missed.append(f"{name} in {wanted}: {code} {place or found.get('error', '')}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nanscope", default=str(ROOT / "build" / "nanscope"))
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--healthy", action="store_true", help="plant nothing")
    parser.add_argument("--expect", default="", help="NAME=CLASS: what diagnose is right to say of a case")
    arguments = parser.parse_args()
    expect = dict(pair.split("=") for pair in arguments.expect.split(",") if pair)
    dumps = [(case.name, dump, case / "model") for case in sorted(arguments.folder.iterdir()) if arguments.only in case.name
             for dump in sorted(case.glob("dump*")) if (case / "model").is_dir()]
    accused, missed = [], []
    faults = [] if arguments.healthy else FAULTS
    for name, dump, model in dumps:
        expected = {"diagnose --model": [expect[name]], "diagnose": []} if name in expect else {}
        wrong, told = healthy(arguments.nanscope, dump, model, expected)
        lost = planted(arguments.nanscope, dump, model, faults)
        accused += [f"{name} {dump.name} by {one}" for one in wrong]
        missed += [f"{name} {dump.name}: {one}" for one in lost]
        print(f"{name} {dump.name}: {'; '.join(wrong) or 'not accused'}; {len(faults) - len(lost)} of {len(faults)} faults "
              f"found ({'; '.join(told)})", flush=True)
    print(f"{len(accused)} of {len(dumps)} dumps accused{': ' + ', '.join(accused) if accused else ''}; "
          f"{len(faults) * len(dumps) - len(missed)} of {len(faults) * len(dumps)} planted faults found"
          f"{', missed: ' + ', '.join(missed) if missed else ''}")
    return 1 if accused or missed else 0


if __name__ == "__main__":
    sys.exit(main())
