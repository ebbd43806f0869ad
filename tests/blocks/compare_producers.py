#!/usr/bin/env python3
"""Compares nanscope's block formats with their producers.

    compare_producers.py TOOL [--blocks 10000000] [--from SEED] [--only PRESET ...]
                                                                        random and hard blocks, a line a preset
    compare_producers.py TOOL --codes                                   every code under every scale, with gfloat, too
    compare_producers.py --golden DIR                                   writes what block_golden_test.cpp reads

TOOL is the build's tests/encode_tool. What is needed is listed in producers.py. Two codes count as the same when
both are read as NaN: which NaN it is, and what stands under a scale that is NaN, is chance in most producers.
"""
import argparse
import os
import subprocess
import sys

import numpy as np

import block_inputs
import definitions
import producers


def blocks_of(x, width):
    return np.abs(x.reshape(len(x), -1, width))


def comparable(name, x, second):
    """Rows that the producer treats as it means to: elsewhere it casts what has no cast, or overflows."""
    good = np.ones(len(x), bool)
    with np.errstate(all="ignore"):
        if name in ("q8_0", "q4_0"):  # 1 / d overflows, and Inf or NaN is cast to an integer; the f16 scale is 0 or NaN
            amax = blocks_of(x, 32).max(-1)
            good = (np.isfinite(amax) & ((amax == 0) | (amax > 2.0 ** -117))).all(-1)
        if name == "nvfp4-gguf":  # clipped by 2^20: in f32 all distances are the same
            amax = blocks_of(x, 16).max(-1)
            good = (~np.isfinite(amax) | (amax < 2.0 ** 20)).all(-1)
        if name.startswith("mx") and name.endswith("-ct"):  # torch's max gives one NaN or the other: a scale of 2^-127 or 1
            good = ~np.isnan(x).any(-1)
        if name == "nvfp4-4over6":  # its reference backend has no code from 7 on, and takes the next bits
            amax = blocks_of(x, 16).max(-1)
            whole = amax / np.float32(6) * (np.float32(1536) / second)
            scale = whole.astype(np.float32).astype(definitions.ml_dtypes.float8_e4m3fn).astype(np.float32)
            good = (np.isfinite(amax) & (amax <= second) & ((scale == 0) | (whole / scale < 7 / 6))).all(-1)
    return good


def shaped(name, x):
    if "@" in name:
        return x
    return np.ascontiguousarray(x.reshape(-1, 256)[: len(x) // 512 * 128]) if name.startswith("fp8-") else x


def run(tool, mode, name, shape, second, data):
    bits = "%x" % np.float32(second).view(np.uint32)
    done = subprocess.run([tool, mode, name, str(shape[0]), str(shape[1]), bits], input=data, capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    return done.stdout


def differences(tool, name, x, second, expected):
    """(elements and scales that differ, of how many)."""
    found = run(tool, "encode", name, x.shape, second, x.tobytes())
    values = np.frombuffer(run(tool, "decode", name, x.shape, second, found), np.uint32)
    if isinstance(expected[0], str):
        theirs = expected[1].astype(np.float32).reshape(-1).view(np.uint32)
        nan = (theirs & 0x7FFFFFFF > 0x7F800000) & (values & 0x7FFFFFFF > 0x7F800000)
        return int(((values != theirs) & ~nan).sum()), values.size
    whole = expected[0] + expected[1]
    if len(whole) != len(found):
        sys.exit(f"{name}: {len(whole)} bytes from the producer, {len(found)} here")
    differ = np.frombuffer(whole, np.uint8) != np.frombuffer(found, np.uint8)
    if not differ.any():
        return 0, values.size
    theirs = np.frombuffer(run(tool, "decode", name, x.shape, second, whole), np.uint32)
    nan = (theirs & 0x7FFFFFFF > 0x7F800000) & (values & 0x7FFFFFFF > 0x7F800000)
    off = int(((values != theirs) & ~nan).sum())
    return (off if off or nan.any() else int(differ.sum())), values.size


def second_of(name, x):
    kind = producers.KIND[name]
    if kind is None:
        return np.float32(1)
    finite = np.abs(x[np.isfinite(x)])
    return producers.SECOND[kind](finite.max() if kind == "amax" else 6 * np.median(finite[finite > 0]))


def inputs_of(name, seed, rows):
    kinds = block_inputs.KINDS
    if name.startswith("fp8-") and "@" not in name:  # a block takes two rows or more
        kinds = (kinds[seed % len(kinds)],)
    if name == "nvfp4-4over6":  # one scale of the tensor for all: rows of alike size
        kinds = (block_inputs.ordinary, block_inputs.zeros, block_inputs.unit_ties)
    x = block_inputs.matrix(seed, rows, kinds)
    second = second_of(name, x)
    x = x[comparable(name, x, second)]
    return shaped(name, x), second


def block_size(name):
    """Elements of a block."""
    if "@" in name:
        rows, columns = name.split("@")[1].split("x")
        return int(rows) * int(columns)
    if name.startswith("fp8-block"):
        return 128 * 128
    return 128 if name.startswith("fp8-group") else 16 if name.startswith("nvfp4") else 32


def compare(tool, names, blocks, first):
    """Every seed makes a matrix, which all presets are tried on: a long run can be done in pieces."""
    counts = {name: [0, 0] for name in names}  # elements, and how many differ
    seed = first
    while True:
        left = [name for name in names if counts[name][0] < blocks * block_size(name)]
        if not left:
            break
        rows = min(65536, max(1024, max(blocks * block_size(name) for name in left) // 64))
        for name in left:
            x, second = inputs_of(name, seed, rows)
            off, elements = differences(tool, name, x, second, producers.PRODUCERS[name](x.copy(), second))
            counts[name][0] += elements
            counts[name][1] += off
        seed += 1
    print(f"| {'preset':<28} | {'blocks':>10} | {'elements':>12} | {'differ':>8} |")
    for name, (total, off) in counts.items():
        print(f"| {name:<28} | {total // block_size(name):>10} | {total:>12} | {off:>8} |")
    print(f"matrices {first} to {seed - 1}")
    return any(off > 0 for _, off in counts.values())


def codes(tool):
    """ml_dtypes for all, gfloat for those that it knows by name."""
    import gfloat
    import gfloat.formats as known
    of_gfloat = {"mxfp8": known.format_info_mxfp8_e4m3, "mxfp8-e5m2": known.format_info_mxfp8_e5m2,
                 "mxfp6": known.format_info_mxfp6_e2m3, "mxfp6-e3m2": known.format_info_mxfp6_e3m2,
                 "mxfp4": known.format_info_mxfp4_e2m1}
    failed = False
    for name in [*of_gfloat, "nvfp4"]:
        second = np.float32(0.0123) if name == "nvfp4" else np.float32(1)
        theirs = definitions.all_values(name, second)
        count = theirs.shape[1]
        width = 16 if name == "nvfp4" else 32
        columns = max(count, width)
        row = np.resize(np.arange(count, dtype=np.uint8), columns)
        packed = definitions.pack(name, np.tile(row, (256, 1)))
        scales = np.repeat(np.arange(256, dtype=np.uint8), columns // width).tobytes()
        ours = run(tool, "decode", name, (256, columns), second, packed + scales)
        ours = np.frombuffer(ours, np.float32).reshape(256, columns)[:, :count]
        off = int((ours.view(np.uint32) != theirs.view(np.uint32)).sum())
        text = f"{name:<12} {ours.size} products with ml_dtypes, {off} differ"
        if name in of_gfloat:
            info = of_gfloat[name]
            element = [gfloat.decode_float(info.etype, int(code)).fval for code in range(count)]
            scale = [gfloat.decode_float(info.stype, code).fval for code in range(256)]
            with np.errstate(all="ignore"):
                exact = np.array(scale)[:, None] * np.array(element)[None, :]
                exact = exact.astype(np.float32)
            differ = ~((exact == ours) & (np.signbit(exact) == np.signbit(ours)) | np.isnan(exact) & np.isnan(ours))
            text += f"; with gfloat, {int(differ.sum())} differ"
            off += int(differ.sum())
        failed |= off > 0
        print(text)
    return failed


def golden_rows(name, x):
    """Which rows of the shared matrix a preset is tried on, and its second scale."""
    kinds = np.arange(len(x)) % len(block_inputs.KINDS)
    rows = np.ones(len(x), bool)
    if name.startswith("fp8-block"):
        rows = kinds < len(block_inputs.FINITE)  # else all of the one block would be NaN
    if name == "nvfp4-4over6":
        rows = (kinds == 0) | (kinds == 4)
    if "microxcaling" in name:
        rows[45:] = False  # values take eight times the room of codes
    second = second_of(name, x[rows])
    return rows & (comparable(name, x, second) | name.startswith("fp8-")), second


def write_golden(folder):
    """blocks.bin: a matrix, and what every producer made of it; blocks.txt says where what lies."""
    shared = block_inputs.matrix(20, 108)
    data = bytearray(shared.tobytes())
    lines = ["# Written by tests/blocks/compare_producers.py --golden. blocks.bin begins with 108 x 64 f32 values. A line a preset: rows,",
             "# columns, bits of the second scale, which of the 108 rows its values are taken from (over and over, where",
             "# they are too few), 'codes' or 'values', where these begin, where scales begin, where they end."]
    for name in producers.PRODUCERS:
        if "@" in name:
            continue  # the same format
        rows, second = golden_rows(name, shared)
        shape = {"fp8-block": (70, 130), "fp8-block-transformers": (128, 128)}.get(name, (int(rows.sum()), 64))
        if name.startswith("fp8-group"):
            shape = (20, 192)
        x = np.resize(shared[rows], shape)
        with np.errstate(all="ignore"):
            made = producers.PRODUCERS[name](x.copy(), second)
        kind = "values" if isinstance(made[0], str) else "codes"
        outputs = (np.ascontiguousarray(made[1], np.float32).tobytes(), b"") if kind == "values" else made
        begin = len(data)
        data += outputs[0] + outputs[1]
        mask = "".join("1" if row else "0" for row in rows)
        lines.append(f"{name} {shape[0]} {shape[1]} {np.float32(second).view(np.uint32):08x} {mask} {kind} {begin} "
                     f"{begin + len(outputs[0])} {len(data)}")
    lines.append("# FNV-1a of the f32 values of all element codes under all scale codes, as ml_dtypes has them.")
    for name in ["mxfp8", "mxfp8-e5m2", "mxfp6", "mxfp6-e3m2", "mxfp4", "nvfp4"]:
        second = np.float32(0.0123) if name == "nvfp4" else np.float32(1)
        digest = 0xCBF29CE484222325
        for byte in definitions.all_values(name, second).tobytes():
            digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        lines.append(f"values {name} {second.view(np.uint32):08x} {digest:016x}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "blocks.bin"), "wb") as out:
        out.write(data)
    with open(os.path.join(folder, "blocks.txt"), "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", nargs="?")
    parser.add_argument("--blocks", type=int, default=1_000_000, help="of a preset")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="SEED", help="the first matrix")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--codes", action="store_true")
    parser.add_argument("--golden")
    options = parser.parse_args()
    if options.golden:
        return write_golden(options.golden)
    if options.codes:
        return sys.exit(codes(options.tool))
    return sys.exit(compare(options.tool, options.only or list(producers.PRODUCERS), options.blocks, options.first))


if __name__ == "__main__":
    main()
