#!/usr/bin/env python3
"""Writes a dump of many ranks and steps as sparse files: the names and shapes are a real model's, the elements are 0.

make_ranks.py FOLDER [--tp 8] [--pp 16] [--dp 8] [--steps 200] [--rows 8] [--width 256]

Each rank has one file a step, with the tensors of one layer of its pipeline stage."""

import argparse
import json
import os
import struct

MODULES = [("input_layernorm.output.0", 1), ("self_attn.o_proj.output.0", 1), ("post_attention_layernorm.output.0", 1),
           ("mlp.down_proj.output.0", 1), ("output.0", 1)]


def write_step(path: str, layer: int, rows: int, width: int) -> int:
    header, at = {}, 0
    for module, factor in MODULES:
        size = rows * width * factor * 4
        header[f"model.layers.{layer}.{module}"] = {"dtype": "F32", "shape": [rows, width * factor],
                                                    "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)  # a hole: it takes no room on the disk
    return len(header)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for name, value in (("tp", 8), ("pp", 16), ("dp", 8), ("steps", 200), ("rows", 8), ("width", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    tensors = 0
    for rank in range(options.tp * options.pp * options.dp):
        stage = rank // options.tp % options.pp
        folder = f"{options.folder}/rank_{rank}"
        os.makedirs(folder)
        for step in range(options.steps):
            tensors += write_step(f"{folder}/step_{step}.safetensors", stage, options.rows, options.width)
    print(f"{tensors} tensors in {options.tp * options.pp * options.dp} ranks and {options.steps} steps")


if __name__ == "__main__":
    main()
