#!/usr/bin/env python3
"""Makes buffers.txt and buffers.bin: memory as kernels of PyTorch leave it, which tests of the watch judge.

    python3 make.py      needs torch (made with 2.15.0, on a CPU)

Each buffer is a block as a caching allocator hands it out: of 512 bytes or more, the tensor at its front, and behind it
what the block held before. A line of buffers.txt says name, dtype, bytes of the block, bytes of the tensor, NaN and +Inf
in the tensor as torch counts them; buffers.bin holds the block before and after for each line. On a GPU arithmetic leaves one
NaN, of all ones (PTX ISA, "Floating-point instructions"), where a CPU has others: NaN are stored as there.
"""

import math
import os

import torch
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK = 512
FLOATS = {torch.float32: ("f32", torch.int32, 0x7FFFFFFF), torch.float16: ("f16", torch.int16, 0x7FFF),
          torch.bfloat16: ("bf16", torch.int16, 0x7FFF), torch.float8_e4m3fn: ("e4m3", torch.uint8, 0x7F),
          torch.float8_e5m2: ("e5m2", torch.uint8, 0x7F)}
OTHERS = {torch.float64: "f64", torch.int64: "int64", torch.int32: "int32", torch.int8: "int8", torch.uint8: "uint8",
          torch.bool: "bool", torch.float8_e8m0fnu: "e8m0"}


def bytes_of(tensor):
    tensor = tensor.contiguous().reshape(-1)
    if tensor.dtype in FLOATS:
        _, integer, nan = FLOATS[tensor.dtype]
        bad = torch.isnan(tensor.float())
        tensor = tensor.clone().view(integer)
        tensor[bad] = nan
    return bytes(tensor.view(torch.uint8).tolist())


def reads_as_nan_of_f16(tensor):
    """Whether the low half of one of its f32 is a NaN in f16."""
    low = tensor.view(torch.int32) & 0x7FFF
    return bool((low > 0x7C00).any())


def layer_norm_statistics():
    """Mean and 1/deviation of four rows, where the latter can be taken for an f16 with a NaN."""
    while True:
        x = torch.randn(4, 256).half().float()
        _, mean, rstd = torch.native_layer_norm(x, (256,), None, None, 1e-5)
        if reads_as_nan_of_f16(rstd):
            return mean, rstd


def healthy():
    """Names and tensors that hold neither NaN nor +Inf."""
    x = torch.randn(2, 128)
    for i in range(3):
        mean, rstd = layer_norm_statistics()
        yield f"layer_norm_mean_{i}", mean
        yield f"layer_norm_rstd_{i}", rstd
    scores = (torch.randn(4, 64) * 2).masked_fill(torch.ones(4, 64).triu(40).bool(), -math.inf)
    yield "scores_masked_f16", scores.half()
    yield "softmax_f32", torch.softmax(scores, -1)
    yield "log_sum_exp", torch.logsumexp(torch.randn(64, 64) * 3, -1)
    yield "log_softmax_bf16", torch.log_softmax(torch.randn(4, 64) / 2, -1).bfloat16()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        yield f"activation_{FLOATS[dtype][0]}", x.to(dtype)[:, :96]
    yield "swiglu_bf16", (functional.silu(torch.randn(4, 64) * 9) * torch.randn(4, 64) * 30).bfloat16()
    yield "adam_exp_avg_sq", torch.randn(96).pow(2) * 1e-12
    yield "loss", functional.cross_entropy(torch.randn(4, 50), torch.arange(4))
    yield "f64", torch.randn(64, dtype=torch.float64)
    fp8 = torch.randn(400)
    yield "clipped_e4m3", (fp8 * 200).clamp(-448, 448).to(torch.float8_e4m3fn)
    yield "unit_e5m2", fp8.to(torch.float8_e5m2)
    yield "scales_e8m0", torch.exp2(-torch.arange(256) % 5 - 3.0).to(torch.float8_e8m0fnu)
    yield "scales_of_1_e8m0", torch.ones(300).to(torch.float8_e8m0fnu)
    yield "weights_int8", (x / x.abs().amax() * 127).round().to(torch.int8)
    yield "grey", torch.full((300,), 127, dtype=torch.uint8)
    for dtype in (torch.int32, torch.int64):
        name = OTHERS[dtype]
        yield f"tokens_{name}", torch.randint(128256, (60,)).to(dtype)
        yield f"positions_{name}", torch.arange(31740, 31800).to(dtype)
        yield f"labels_{name}", torch.where(torch.rand(60) < 0.4, -100, torch.randint(32000, (60,))).to(dtype)
        yield f"block_table_{name}", torch.where(torch.arange(60) < 9, torch.randint(40000, (60,)), -1).to(dtype)
    yield "padded_with_maximum", torch.where(torch.rand(60) < 0.2, 2**31 - 1, torch.randint(900, (60,))).int()
    yield "causal_mask", torch.ones(16, 16).tril().bool()
    yield "seed_and_offset", torch.tensor([torch.randint(2**62, ()).item(), 4096])
    yield "pointers", torch.tensor([0x7F3C_A200_0000 + 512 * int(i) for i in torch.randint(2**20, (48,))])


def sick():
    """Names and tensors with NaN or +Inf that operations made."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        name = FLOATS[dtype][0]
        scores = torch.randn(4, 48)
        scores[1] = -math.inf
        yield f"softmax_of_masked_row_{name}", torch.softmax(scores, -1).to(dtype)
        x = torch.randn(192)
        x[77] = 0
        yield f"zero_by_zero_{name}", (x / x * torch.randn(192)).to(dtype)
        yield f"logarithm_{name}", (-torch.log(torch.relu(torch.randn(160)))).to(dtype)
    gate, up = torch.randn(200) * 9, torch.randn(200) * 20
    gate[::32] *= 512
    up[::32] *= 512
    yield "swiglu_overflow_f16", functional.silu(gate.half().abs()) * up.half().abs()


def count(tensor):
    if tensor.dtype not in FLOATS:
        return 0, 0
    values = tensor.float()
    return int(torch.isnan(values).sum()), int((values == math.inf).sum())


def main():
    torch.manual_seed(1)
    freed = [bytes_of(tensor) for tensor in (torch.randn(512).half(), torch.randn(256), torch.randn(512).bfloat16(),
                                             torch.randint(32000, (128,)))]
    lines, blocks = [], []
    for i, (name, tensor) in enumerate([*healthy(), *sick()]):
        data = bytes_of(tensor)
        size = (len(data) + BLOCK - 1) // BLOCK * BLOCK
        # A statistic of a few bytes comes where activations in f16 were.
        before = freed[0 if len(data) < 64 else i % len(freed)][:size].ljust(size, b"\0")
        dtype = FLOATS[tensor.dtype][0] if tensor.dtype in FLOATS else OTHERS[tensor.dtype]
        lines.append(f"{name} {dtype} {size} {len(data)} {' '.join(map(str, count(tensor)))}\n")
        blocks.append(before + data + before[len(data):])
    with open(os.path.join(HERE, "buffers.txt"), "w", encoding="ascii") as text:
        text.writelines(lines)
    with open(os.path.join(HERE, "buffers.bin"), "wb") as binary:
        binary.write(b"".join(blocks))


if __name__ == "__main__":
    main()
