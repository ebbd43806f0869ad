#!/usr/bin/env python3
"""Compares nanscope's decoders of GGUF's types with those of the package gguf.

    compare_gguf.py TOOL [--count 1000000] [--from SEED] [--only TYPE ...]   at least so many values a type, a line each
    compare_gguf.py --golden FILE                                            writes what block_type_test.cpp reads

TOOL is the build's tests/gguf_tool. Blocks are random bytes, bytes with scales of every kind (NaN, Inf, 0, subnormal),
and, where the package can encode the type, encoded normal values. All NaN count as the same.
"""
import argparse
import subprocess
import sys
import zlib

import gguf
import numpy as np
from gguf import quants

HALVES = np.array([0, 0x8000, 1, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01],
                  np.uint16)
CODES = np.array([0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF], np.uint8)
PLAIN = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8, "I16": np.int16, "I32": np.int32,
         "I64": np.int64}
# Where a block has its f16 scales; types with scales of other kinds have none here.
HALVES_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
             "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
             "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
             "F16": [0], "BF16": [0]}
MANY = 4096
CODES_AT = {"MXFP4": [0], "NVFP4": [0, 1, 2, 3]}


def all_types():
    """Names and sizes of what the package decodes, and of plain numbers."""
    decoded = {kind.name: gguf.GGML_QUANT_SIZES[kind] for kind in quants._type_traits}
    return decoded | {name: (1, np.dtype(kind).itemsize) for name, kind in PLAIN.items()}


def expected(name, blocks):
    with np.errstate(all="ignore"):
        if name in PLAIN:
            values = blocks.reshape(-1).view(PLAIN[name]).astype(np.float32)
        else:
            values = quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float32, copy=False)
    return np.ascontiguousarray(values).reshape(-1)


def blocks_of(name, count, rng):
    elements, size = all_types()[name]
    n = -(-count // elements)
    random = rng.integers(0, 256, (n, size), np.uint8)
    special = rng.integers(0, 256, (max(64, n // 4), size), np.uint8)
    for at in HALVES_AT.get(name, []):
        special[:, at:at + 2] = rng.choice(HALVES, len(special)).view(np.uint8).reshape(-1, 2)
    for at in CODES_AT.get(name, []):
        special[:, at] = rng.choice(CODES, len(special))
    if name == "IQ1_M":  # its f16 lies in the upper halves of four bytes
        halves = rng.choice(HALVES, len(special))
        for i in range(4):
            special[:, 49 + 2 * i] = special[:, 49 + 2 * i] & 15 | ((halves >> (4 * i)) & 15) << 4
    parts = [random, special]
    if name not in PLAIN:
        values = rng.normal(0, 0.02, (max(4, n // 8), max(elements, 256))).astype(np.float32)
        try:
            parts.append(quants.quantize(values, gguf.GGMLQuantizationType[name]).reshape(-1, size))
        except NotImplementedError:
            pass
    return np.ascontiguousarray(np.concatenate(parts))


def bits_of(values):
    bits = values.view(np.uint32).copy()
    bits[bits & 0x7FFFFFFF > 0x7F800000] = 0x7FFFFFFF
    return bits


def compare(tool, name, count, seed):
    blocks = blocks_of(name, count, np.random.default_rng(seed))
    done = subprocess.run([tool, name], input=blocks.tobytes(), capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{name}: {tool} does not know it")
    found, wanted = bits_of(np.frombuffer(done.stdout, np.float32)), bits_of(expected(name, blocks))
    if len(found) != len(wanted):
        sys.exit(f"{name}: {len(found)} values, expected {len(wanted)}")
    return int((found != wanted).sum()), len(wanted)


def counted_bytes(size):
    """Bytes that block_type_test.cpp makes too: a mix of the bits of each one's number."""
    x = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(32)) * np.uint64(0xBF58476D1CE4E5B9)
    return (x >> np.uint64(56)).astype(np.uint8)


def write_golden(path):
    """Three blocks a type; then a number of blocks of counted_bytes(), which reach every point of every grid."""
    with open(path, "w") as out:
        for name in sorted(all_types()):
            elements, size = all_types()[name]
            blocks = blocks_of(name, elements, np.random.default_rng(1))
            for block in (blocks[0], blocks[1], blocks[-1]):
                check = zlib.crc32(bits_of(expected(name, block.reshape(1, size))).tobytes())
                out.write(f"{name} {block.tobytes().hex()} {check:08x}\n")
            many = counted_bytes(MANY * size).reshape(MANY, size)
            out.write(f"{name} blocks={MANY} {zlib.crc32(bits_of(expected(name, many)).tobytes()):08x}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", nargs="?")
    parser.add_argument("--count", type=int, default=1000000)
    parser.add_argument("--from", type=int, default=1, dest="seed")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--golden")
    arguments = parser.parse_args()
    if arguments.golden:
        return write_golden(arguments.golden)
    off = 0
    for name in arguments.only or sorted(all_types()):
        differ, of = compare(arguments.tool, name, arguments.count, arguments.seed)
        print(f"{name:8} {differ} of {of} values differ", flush=True)
        off += differ
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
