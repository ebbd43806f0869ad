#!/usr/bin/env python3
"""What ptxas gives each kernel for sm_90: registers and bytes of a thread, bytes of shared memory of a block.

A kernel is named by its op, or, where an op has several, by the op and the form as C++ has it.

  ptx_resources.py make --ptxas PTXAS --ptx PTX --source DIR --out TABLE    writes the table, one kernel a line
  ptx_resources.py compare --made TABLE --golden TABLE                      fails where they differ; 77 where another
                                                                            ptxas made them, or there is none
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

from kernel_names import forms_of, op_of, ops_of

SKIPPED = 77


def release(ptxas):
    version = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release .*", version).group()


def report(ptxas, ptx):
    with tempfile.TemporaryDirectory() as folder:
        command = [ptxas, "-v", "-arch=sm_90", ptx, "-o", pathlib.Path(folder) / "kernels.cubin"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def resources(text):
    """Yields (struct whose run() the kernel is, line) of each kernel that `ptxas -v` reports on."""
    parts = text.split("Compiling entry function ")[1:]
    for form, part in zip(forms_of([part.split("'")[1] for part in parts]), parts):
        stack, stores, loads = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                                         part).groups()
        registers = re.search(r"Used (\d+) registers", part).group(1)
        shared = re.search(r"(\d+) bytes smem", part)
        yield form, (f"registers {registers} stack {stack} spills {int(stores) + int(loads)} "
                     f"shared {shared.group(1) if shared else 0}")


def make(args):
    ops = ops_of(args.source)
    rows = []
    for form, line in resources(report(args.ptxas, args.ptx)):
        name = ops[op_of(form, ops)]
        rows.append(f"{name} {line}" if form in ops else f"{name} {form} {line}")
    args.out.write_text("\n".join([release(args.ptxas), *sorted(rows)]) + "\n")


def compare(args):
    if not args.made.exists():
        print("skipped: no ptxas was found")
        return SKIPPED
    made, golden = (path.read_text().splitlines() for path in (args.made, args.golden))
    if made[0] != golden[0]:
        print(f"skipped: the table is of {golden[0]}, this is {made[0]}")
        return SKIPPED
    for line in sorted(set(golden) - set(made)):
        print("FAILED: the table has", line)
    for line in sorted(set(made) - set(golden)):
        print("FAILED: ptxas gives", line)
    if made == golden:
        return 0
    print(f"{args.made} is the new table; {args.golden} is the old one")
    return 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["make", "compare"])
    for name in ("ptx", "source", "out", "made", "golden"):
        parser.add_argument("--" + name, type=pathlib.Path)
    parser.add_argument("--ptxas")
    args = parser.parse_args()
    return make(args) if args.what == "make" else compare(args)


sys.exit(main())
