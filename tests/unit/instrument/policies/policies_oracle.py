#!/usr/bin/env python3
"""What nanscope's evaluation of KV policies should give on random queries, keys and values, in NumPy.

Run by hand: python3 policies_oracle.py. The figures that it prints are constants of score_test.cpp. It shares nothing
with the program but the formulas: inputs and noise from splitmix64 and Box-Muller, rounded so that both have the same
bits; attention and metrics in double precision.
"""
import numpy as np

KEYS, QUERIES, WIDTH = 1024, 64, 128
U64 = np.uint64


def mixed(x):
    with np.errstate(over="ignore"):
        x = x + U64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    return x ^ (x >> U64(31))


def normal(seed, count):
    """Normal numbers of the elements seed, seed + 1, ..."""
    index = np.arange(count, dtype=U64) + U64(seed)
    with np.errstate(over="ignore"):
        u = ((mixed(U64(2) * index) >> U64(11)).astype(np.float64) + 1) * 2.0**-53
        v = (mixed(U64(2) * index + U64(1)) >> U64(11)).astype(np.float64) * 2.0**-53
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def grid(values):
    """Multiples of 2^-10: the last bit of a logarithm is no matter."""
    return np.round(values * 1024) / 1024


def inputs(deviation, outliers=0.0, quiet=False, spikes=0.0, spike=30.0):
    q = grid(deviation * normal(1 << 40, KEYS * WIDTH)).reshape(KEYS, WIDTH)
    k = grid(normal(2 << 40, KEYS * WIDTH)).reshape(KEYS, WIDTH)
    v = grid(normal(3 << 40, KEYS * WIDTH)).reshape(KEYS, WIDTH)
    if outliers:
        k[:, ::32] = k[:, ::32] + outliers
        if quiet:
            q[:, ::32] = grid(q[:, ::32] / 10)
    if spikes:
        where = np.arange(KEYS * WIDTH).reshape(KEYS, WIDTH) % round(1 / spikes) == 0
        v = np.where(where, np.copysign(spike, v), v)
    taken = [(i + 1) * KEYS // QUERIES - 1 for i in range(QUERIES)]
    return q[taken], k, v


def attention(q, k, v):
    scores = q @ k.T / np.sqrt(WIDTH)
    scores = scores - scores.max(axis=1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return logs, np.exp(logs) @ v


def compare(q, k, v, k2, v2):
    logs, out = attention(q, k, v)
    logs2, out2 = attention(q, k2, v2)
    error = np.sqrt(((out2 - out) ** 2).sum() / (out**2).sum())
    divergence = (np.exp(logs) * (logs - logs2)).sum(axis=1).mean()
    agreement = (logs.argmax(axis=1) == logs2.argmax(axis=1)).mean()
    return error, divergence, agreement


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def e4m3(x):
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-30))), -6)
    step = 2.0 ** (exponent - 3)
    return np.clip(np.round(x / step) * step, -448, 448)


def quantized(x, top, axis, encode, percentile=None):
    magnitudes = np.abs(x)
    most = magnitudes.max(axis=axis, keepdims=True) if percentile is None else np.percentile(magnitudes, percentile)
    scale = (most / top).astype(np.float32).astype(np.float64) if percentile is None else np.float32(most / top)
    return encode(x / scale) * scale


def int8(x, axis, percentile=None):
    return quantized(x, 127, axis, lambda y: np.clip(np.round(y), -127, 127), percentile)


def fp8(x, axis):
    return quantized(x, 448, axis, e4m3)


def noisy(x, seed):
    return (x * (1 + 0.03 * normal(seed, x.size)).reshape(x.shape)).astype(np.float32).astype(np.float64)


def tell(name, figures):
    print(f"  {name:36} error {figures[0]:.5g}  KL {figures[1]:.4g}  agreement {figures[2]:.4f}")


def main():
    print("sensitivity (3 % noise on K, on V)")
    for deviation in (0.25, 0.5, 1, 2, 4, 8):
        q, k, v = inputs(deviation)
        by_k = compare(q, k, v, noisy(k, 0), v)
        by_v = compare(q, k, v, k, noisy(v, 1 << 62))
        print(f"  s {deviation}: {by_k[0]:.5g} {by_v[0]:.5g} KL {by_k[1]:.4g}")
    for name, options in (
        ("no outliers", {}),
        ("4 of 128 channels of K larger by 10", {"outliers": 10.0}),
        ("the same, queries small there", {"outliers": 10.0, "quiet": True}),
    ):
        print(name)
        q, k, v = inputs(2, **options)
        tell("K, V bf16", compare(q, k, v, bf16(k), bf16(v)))
        for title, axis in (("token", 1), ("channel", 0), ("tensor", None)):
            tell(f"K int8 {title}", compare(q, k, v, int8(k, axis), bf16(v)))
            if axis is not None:
                tell(f"K fp8 {title}", compare(q, k, v, fp8(k, axis), bf16(v)))
        tell("V int8 token", compare(q, k, v, bf16(k), int8(v, 1)))
        tell("V fp8 token", compare(q, k, v, bf16(k), fp8(v, 1)))
    print("V int8 tensor: largest, 99.5th percentile (output error, error of the bulk of V)")
    for spikes in (0, 1 / 256, 1 / 50):
        q, k, v = inputs(2, spikes=spikes)
        bulk = np.abs(v) <= np.sort(np.abs(v).ravel())[int(0.995 * (v.size - 1))]
        for percentile in (None, 99.5):
            v2 = int8(v, None, percentile)
            error = compare(q, k, v, bf16(k), v2)[0]
            of_bulk = np.sqrt(((v2 - v)[bulk] ** 2).sum() / (v[bulk] ** 2).sum())
            print(f"  spikes {spikes:.4f} {percentile}: {error:.5g} {of_bulk:.5g}")


if __name__ == "__main__":
    main()
