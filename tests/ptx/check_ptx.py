#!/usr/bin/env python3
"""Reads the PTX of every op: the bits of a GPU rest on the instructions that nvcc chooses.

- no `approx` and no `.ftz` anywhere: divisions, square roots and conversions are the IEEE ones;
- `fma` only in kernels whose source, or a header that it includes, calls fma( or fma_uniform(.
"""
import argparse
import pathlib
import re
import sys

from kernel_names import forms_of, op_of, ops_of


def kernels(ptx):
    """Pairs (form, text) of all kernels; device functions count to the kernel before them."""
    parts = re.split(r"^.*\.entry\s+(\w+)", ptx, flags=re.M)
    return list(zip(forms_of(parts[1::2]), parts[2::2]))


def names_fma(source, header, seen):
    """Whether the header or a header of kernels/ops or kernels/math that it includes calls fma."""
    if header in seen:
        return False
    seen.add(header)
    text = re.sub(r"//.*", "", (source / header).read_text())
    if re.search(r"\bfma(_uniform)?\(", text):
        return True
    includes = re.findall(r'#include "(kernels/(?:ops|math)/[^"]+)"', text)
    return any(names_fma(source, include, seen) for include in includes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ptx", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    args = parser.parse_args()
    ptx = args.ptx.read_text()
    ops = ops_of(args.source)
    problems, found = [], set()
    for line in ptx.splitlines():
        if re.search(r"\bapprox\b|\.ftz\b", line):
            problems.append(f"approximate instruction: {line.strip()}")
    for form, text in kernels(ptx):
        op = op_of(form, ops)
        found.add(op)
        uses = len(re.findall(r"\bfma\.rn\b|\bmad\.f", text))
        if uses and not names_fma(args.source, f"kernels/ops/{ops[op]}.h", set()):
            problems.append(f"{form}: {uses} fma instructions, but its source names none")
        print(f"{form}: {uses} fma")
    missing = set(ops) - found
    if missing:
        problems.append(f"no kernel for: {', '.join(sorted(missing))}")
    for problem in problems:
        print("FAILED:", problem)
    return 1 if problems else 0


sys.exit(main())
