"""Seconds that numpy or torch needs for NaN, Inf, absmax and a histogram of every tensor of a safetensors file of bf16.

usage: dump_peers.py numpy|torch FILE. Only the work on tensors is timed, not the imports. Fails where the library is missing.
"""

import json
import struct
import sys
import time

import numpy

peer, path = sys.argv[1], sys.argv[2]
if peer == "torch":
    import torch
with open(path, "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    header = json.loads(file.read(size))
data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + size)
begin = time.perf_counter()
for name, entry in header.items():
    first, last = entry["data_offsets"]
    if peer == "torch":
        tensor = torch.from_numpy(numpy.array(data[first:last])).view(torch.bfloat16)
        values = tensor.float()
        torch.isnan(values).sum(), torch.isinf(values).sum(), values.abs().max(), torch.histc(values, 256)
    else:
        # bf16 is the upper half of f32.
        values = (data[first:last].view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        numpy.isnan(values).sum(), numpy.isinf(values).sum(), numpy.abs(values).max(), numpy.histogram(values, 256)
print(time.perf_counter() - begin)
