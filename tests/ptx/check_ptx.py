#!/usr/bin/env python3
"""Reads the PTX of every op: the bits of a GPU rest on the instructions that nvcc chooses.

- no `approx` and no `.ftz` anywhere: divisions, square roots and conversions are the IEEE ones;
- `fma` only in kernels whose source, or a header that it includes, calls fma( or fma_uniform(.
"""
import argparse
import pathlib
import re
import sys


def kernels(ptx):
    """Yields (op name, text) of every kernel; device functions count to the kernel before them."""
    name, lines = None, []
    for line in ptx.splitlines():
        found = re.search(r"\.entry\s+(\w+)", line)
        if found:
            if name:
                yield name, "\n".join(lines)
            mangled = found.group(1)
            length, rest = re.search(r"run_opINS\w*?_(\d+)(\w+)", mangled).groups()
            name, lines = rest[: int(length)], []
        lines.append(line)
    if name:
        yield name, "\n".join(lines)


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
    stems = dict(re.findall(r"^NANSCOPE_OP\((\w+),\s*(\w+),", (args.source / "kernels/ops.def").read_text(), re.M))
    problems, found = [], []
    for line in ptx.splitlines():
        if re.search(r"\bapprox\b|\.ftz\b", line):
            problems.append(f"approximate instruction: {line.strip()}")
    for op, text in kernels(ptx):
        found.append(op)
        uses = len(re.findall(r"\bfma\.rn\b|\bmad\.f", text))
        if uses and not names_fma(args.source, f"kernels/ops/{stems[op]}.h", set()):
            problems.append(f"{op}: {uses} fma instructions, but its source names none")
        print(f"{op}: {uses} fma")
    missing = set(stems) - set(found)
    if missing:
        problems.append(f"no kernel for: {', '.join(sorted(missing))}")
    for problem in problems:
        print("FAILED:", problem)
    return 1 if problems else 0


sys.exit(main())
