#!/usr/bin/env python3
"""Norms of attention's interaction and the bounds of "Rank-Aware Spectral Bounds on Attention Logits", by numpy's SVD on
expanded keys: nothing is shared with what it checks. Prints the rows that interaction_test.cpp and concentration_test.cpp
hold, those of score_replay_test.cpp, and those of model_scales_test.cpp: the largest norm of a head of each layer of the tiny checkpoints in ../model, read with
nothing of ours. Run by hand: oracle.py (written with numpy 2.4)."""
import json
import math
import pathlib
import struct

import numpy as np


class Draw:
    """s = s * 6364136223846793005 + 1442695040888963407 mod 2^64; a value is (s >> 40) / 2^23 - 1, exact in f32."""

    def __init__(self, seed):
        self.state = seed

    def matrix(self, rows, columns):
        values = np.empty(rows * columns)
        for i in range(rows * columns):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            values[i] = (self.state >> 40) / 2**23 - 1
        return values.reshape(rows, columns)


def norms(wq, wk, heads, kv_heads, dim, v0):
    group = heads // kv_heads
    wide = np.concatenate([wk[:, h // group * dim : (h // group + 1) * dim] for h in range(heads)], axis=1)
    layer = wq @ wide.T
    head = [wq[:, h * dim : (h + 1) * dim] @ wide[:, h * dim : (h + 1) * dim].T for h in range(heads)]
    v = v0 / np.linalg.norm(v0)
    iterated = []
    for _ in range(20):
        u = layer @ v
        u /= np.linalg.norm(u)
        v = layer.T @ u
        iterated.append(np.linalg.norm(v))
        v /= iterated[-1]
    two = lambda m: np.linalg.norm(m, 2)
    best = int(np.argmax([two(m) for m in head]))
    m = head[best]
    spread = math.sqrt(2) * np.linalg.norm((m + m.T) / 2)
    return (two(layer), iterated[0], iterated[4], iterated[19], two(m), two(wq) * two(wide), best, np.trace(m), spread)


def show(name, d, heads, kv_heads, dim, seed, scale=1.0):
    draw = Draw(seed)
    wq, wk = draw.matrix(d, heads * dim) * scale, draw.matrix(d, kv_heads * dim) * scale
    values = norms(wq, wk, heads, kv_heads, dim, draw.matrix(1, d)[0])
    print(f'{{"{name}", {d}, {heads}, {kv_heads}, {dim}, {seed}, {scale:g}, ' + ", ".join(f"{x:.12g}" for x in values) + "},")


def tail(name, d, dim, heads, length, delta):
    wanted = 2 / dim * math.log(2 * heads * length / delta)
    low, high = 1.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle - 1 - math.log(middle) < wanted else (low, middle)
    alpha = math.sqrt(2 * high * dim * math.log(4 * heads * length**2 / delta)) / d
    print(f'{{"{name}", {{{d}, {dim}, {heads}, {length}}}, {delta:g}, {high:.12g}, {alpha:.12g}}},')


def tensors(folder):
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        first, last = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "F32":
            values = np.frombuffer(raw[first:last], "<f4")
        elif entry["dtype"] == "BF16":
            values = (np.frombuffer(raw[first:last], "<u2").astype("<u4") << 16).view("<f4")
        else:
            continue
        found[name] = values.reshape(entry["shape"]).astype(np.float64)
    return found


def element(w, b, dim, rotated, d):
    """Of any element at any position: a rotary embedding turns channels i and i + rotated / 2 into each other."""
    largest = 0
    for first in range(0, len(w), dim):
        for i in range(rotated // 2):
            pair = [first + i, first + i + rotated // 2]
            largest = max(largest, np.linalg.norm(w[pair], 2) * math.sqrt(d) + np.linalg.norm(b[pair]))
        for i in range(first + rotated, first + dim):
            largest = max(largest, np.linalg.norm(w[i]) * math.sqrt(d) + abs(b[i]))
    return largest


def of_checkpoint(folder):
    """(largest norm of a head, largest bound of a head with biases in, of an element of a query, of a key) of each layer,
    tokens of norm sqrt(d)."""
    config = json.loads((folder / "config.json").read_text())
    all_of = tensors(folder)
    heads = config.get("num_attention_heads", config.get("n_head"))
    kv_heads = config.get("num_key_value_heads", heads)
    d = config.get("hidden_size", config.get("n_embd"))
    dim = config.get("head_dim") or d // heads
    rope = config.get("rope_parameters") or {}
    original = rope.get("original_max_position_embeddings")
    amplitude = 1.0
    if rope.get("rope_type") == "longrope":
        amplitude = math.sqrt(1 + math.log(config["max_position_embeddings"] / original) / math.log(original))
    elif rope.get("rope_type") == "yarn":
        amplitude = 0.1 * math.log(rope["factor"]) + 1
    rotated = 0 if config["model_type"] == "gpt2" else int(dim * rope.get("partial_rotary_factor", 1))
    amplified = np.where(np.arange(dim) < rotated, amplitude, 1.0)
    rows = []
    for layer in range(config.get("num_hidden_layers", config.get("n_layer"))):
        part = lambda name: next((v for k, v in all_of.items() if f".{layer}.{name}" in k or k.startswith(f"h.{layer}.{name}")), None)
        shift = np.zeros(d)
        if config["model_type"] == "gpt2":
            gain, shift = part("ln_1.weight"), part("ln_1.bias")
            weight, bias = part("attn.c_attn.weight").T, part("attn.c_attn.bias")
            wq, wk, bq, bk = weight[:d], weight[d : 2 * d], bias[:d], bias[d : 2 * d]
        elif config["model_type"] == "phi3":
            gain, weight = part("input_layernorm.weight"), part("self_attn.qkv_proj.weight")
            wq, wk = weight[: heads * dim], weight[heads * dim : (heads + kv_heads) * dim]
            bq, bk = np.zeros(heads * dim), np.zeros(kv_heads * dim)
        else:
            gain = part("input_layernorm.weight") + (1 if config["model_type"].startswith("gemma") else 0)
            wq, wk = part("self_attn.q_proj.weight"), part("self_attn.k_proj.weight")
            bq, bk = part("self_attn.q_proj.bias"), part("self_attn.k_proj.bias")
            if bq is None:
                bq, bk = np.zeros(heads * dim), np.zeros(kv_heads * dim)
        bq, bk = bq + wq @ shift, bk + wk @ shift
        wq, wk = wq * gain, wk * gain
        wq, wk = wq * np.tile(amplified, heads)[:, None], wk * np.tile(amplified, kv_heads)[:, None]
        bq, bk = bq * np.tile(amplified, heads), bk * np.tile(amplified, kv_heads)
        norm = bound = 0
        for h in range(heads):
            q = slice(h * dim, (h + 1) * dim)
            k = slice(h // (heads // kv_heads) * dim, (h // (heads // kv_heads) + 1) * dim)
            m = np.linalg.norm(wq[q].T @ wk[k], 2)
            norm = max(norm, m)
            biases = math.sqrt(d) * (np.linalg.norm(wq[q].T @ bk[k]) + np.linalg.norm(wk[k].T @ bq[q])) + abs(bq[q] @ bk[k])
            bound = max(bound, (m * d + biases) / math.sqrt(dim))
        rows.append((norm, bound, element(wq, bq, dim, rotated, d), element(wk, bk, dim, rotated, d)))
    return rows


def run_of_attention(d=64, heads=4, dim=16, tokens=24, steps=14, spike=8, factor=4.0, lost=11):
    """(largest score, calibrated bound, worst case) of each step of one layer whose W_Q and W_K grow `factor` times before
    step `spike`, on tokens of norm sqrt(d) that are new in each step; then scale and overflow under each policy, the
    scaling state being lost before step `lost`. Everything in double, from the definitions."""
    draw = Draw(18)
    wq, wk = draw.matrix(d, heads * dim) / 4, draw.matrix(d, heads * dim) / 4
    low, high = 1.0, 100.0
    wanted = 2 / dim * math.log(2 * heads * tokens / 1e-6)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle - 1 - math.log(middle) < wanted else (low, middle)
    alpha = min(1.0, math.sqrt(2 * high * dim * math.log(4 * heads * tokens**2 / 1e-6)) / d)
    rows = []
    for step in range(steps):
        if step == spike:
            wq, wk = wq * factor, wk * factor
        x = draw.matrix(tokens, d)
        x *= math.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
        part = lambda h: slice(h * dim, (h + 1) * dim)
        scores = [x @ wq[:, part(h)] @ (x @ wk[:, part(h)]).T / math.sqrt(dim) for h in range(heads)]
        sigma = max(np.linalg.norm(wq[:, part(h)] @ wk[:, part(h)].T, 2) for h in range(heads))
        worst = sigma * d / math.sqrt(dim)
        rows.append((max(np.abs(s).max() for s in scores), alpha * worst, worst))
    return rows, scales_of(rows, lost, 3)


def scales_of(rows, lost, burn_in, largest=448.0):
    """By policy, the scale of each step: a list of the amax that a history holds, forgotten before step `lost`."""
    of = {name: [] for name in ("current", "delayed", "delayed_te", "monotonic", "geometry", "auto_alpha")}
    seen, slack = [], []
    for step, (amax, calibrated, worst) in enumerate(rows):
        if step == lost:
            seen, slack = [], []
        of["current"].append(amax / largest)
        of["delayed"].append(max(seen[-16:] or [1.0]) / (0.9 * largest))
        of["delayed_te"].append(max(seen[-1024:]) / largest if seen else 1.0)
        of["monotonic"].append(max([1.0] + seen) / (0.9 * largest))
        of["geometry"].append(calibrated / (0.8 * largest))
        bound = calibrated if len(slack) < burn_in else max(slack[:burn_in]) * worst
        of["auto_alpha"].append(bound / (0.8 * largest))
        seen.append(amax)
        slack.append(amax / worst)
    return of


def show_run():
    rows, scales = run_of_attention()
    for step, row in enumerate(rows):
        print("{" + ", ".join(f"{x:.15g}" for x in (*row, *(scales[name][step] for name in scales))) + "},")
    for name, chosen in scales.items():
        scaled = [row[0] / scale for row, scale in zip(rows, chosen)]
        print(f'{{"{name}", {sum(x > 448 * (1 + 1 / 28) for x in scaled)}, {max(scaled):.15g}, '
              f"{np.mean([min(1, x / 448) for x in scaled]):.15g}}},")


if __name__ == "__main__":
    show_run()
    for family in ("gpt2", "llama3", "qwen2", "phi3", "gemma2", "gpt-oss"):
        for layer, row in enumerate(of_checkpoint(pathlib.Path(__file__).parents[1] / "model/checkpoints" / family)):
            print(f'{{"{family}", {layer}, ' + ", ".join(f"{x:.9g}" for x in row) + "},")
    show("one head", 8, 1, 1, 4, 1)
    show("heads of their own", 16, 4, 4, 4, 2)
    show("four queries a key", 32, 8, 2, 8, 4)
    show("the same times 4", 32, 8, 2, 8, 4, 4.0)
    show("kept apart 1", 48, 6, 3, 16, 101)
    show("kept apart 2", 24, 3, 1, 6, 102)
    show("kept apart 3", 64, 4, 4, 16, 103, 0.125)
    draw = Draw(7)
    a, wk = draw.matrix(16, 4), draw.matrix(16, 4)
    values = norms(np.concatenate([a, -a], axis=1), wk, 2, 1, 4, draw.matrix(1, 16)[0])
    print("cancelling heads:", ", ".join(f"{x:.12g}" for x in values))
    tail("gpt2-xl", 1600, 64, 1200, 1024, 1e-6)
    tail("mistral-7b", 4096, 128, 1024, 1024, 1e-6)
    tail("llama-2-13b", 5120, 128, 1600, 1024, 1e-6)
    tail("llama-2-70b", 8192, 128, 5120, 1024, 1e-6)
    tail("small", 64, 16, 8, 33, 1e-3)
