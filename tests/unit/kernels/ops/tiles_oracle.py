#!/usr/bin/env python3
"""Future leakage of attention on MXFP4 operands, in double precision with NumPy: prints tiles_oracle.h.

T = 128 tokens, d = 64 channels, blocks and tiles of 32. Q, K and V are 2, 2 and 1 times draws of the generator of
case_data.h, in this order, row-major, from one stream per seed. Nothing of the project is used.
"""
import numpy as np

T, D, B = 128, 64, 32


def draws(seed, count):
    state, out = seed, np.empty(count)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[i] = (state >> 40) * 2.0**-23 - 1
    return out


def e2m1(x):
    """Nearest even on 0 .5 1 1.5 2 3 4 6, saturating."""
    size = np.minimum(np.abs(x), 6)
    step = np.where(size < 2, 0.5, np.where(size < 4, 1.0, 2.0))
    return np.copysign(np.minimum(np.round(size / step) * step, 6), x)


def mxfp4(x, axis):
    """OCP MX 1.0, 6.3: e = floor(log2 amax) - 2."""
    x = np.moveaxis(x, axis, 0)
    out = np.zeros_like(x)
    for first in range(0, len(x), B):
        block = x[first:first + B]
        amax = np.abs(block).max(0)
        exponent = np.floor(np.log2(np.where(amax > 0, amax, 1))) - 2
        scale = 2.0 ** np.clip(exponent, -127, 127)
        out[first:first + B] = e2m1(block / scale) * scale
    return np.moveaxis(out, 0, axis)


def attention(q, k, v, diagonal, online, quantized=True):
    s = (mxfp4(q, 1) @ mxfp4(k, 1).T if quantized else q @ k.T) / np.sqrt(D)
    s[np.triu_indices(T, 1)] = -np.inf
    out = np.zeros((T, D))
    for i in range(T):
        acc, total, top = np.zeros(D), 0.0, s[i].max()
        running = -np.inf
        whole = np.exp(s[i] - top).sum()
        for n in range(i // B + 1):
            keys = slice(n * B, (n + 1) * B)
            if online:
                new = max(running, s[i, keys].max())
                fade, running = np.exp(running - new), new
                p = np.exp(s[i, keys] - new)
                total = total * fade + p.sum()
            else:
                fade, total, p = 1.0, 1.0, np.exp(s[i, keys] - top) / whole
            values = v[keys]
            if quantized and not (diagonal == "exact" and n == i // B):
                p = mxfp4(p, 0)
                past = values.copy()
                if diagonal == "past" and n == i // B:
                    past[i - n * B + 1:] = 0
                values = mxfp4(past, 0)
            acc = acc * fade + p @ values
        out[i] = acc / total
    return out


def main():
    print("#pragma once\n// Made by tiles_oracle.py.\n\nnamespace nanscope::kernels::tiles_oracle {\n")
    print("/// `changed`: the largest difference of rows 32 to 39 after V[40] times 8 and K[40] plus 1, of quantized tiles on"
          "\n/// the diagonal. `last_scaled`: of rows 32 to 62 after V[63] times 1.5, 2, 4, 16. `rms`: of the output, then of its"
          "\n/// error against unquantized attention for each kind of diagonal. `decoded`: rows that a decode, whose last block holds"
          "\n/// the past alone, gives otherwise than the prefill.\nstruct Expected {\n  unsigned seed;\n  bool online;"
          "\n  double changed;\n  double last_scaled[4];\n  double rms, quantized, exact, past;\n  int decoded;\n};\n")
    print("inline constexpr Expected kExpected[] = {")
    for seed in (11, 12):
        q, k, v = draws(seed, 3 * T * D).reshape(3, T, D) * np.array([2, 2, 1])[:, None, None]
        for online in (True, False):
            base = attention(q, k, v, "quantized", online)
            k2, v2 = k.copy(), v.copy()
            k2[40] += 1
            v2[40] *= 8
            changed = np.abs(attention(q, k2, v2, "quantized", online) - base)[32:40].max()
            scaled = []
            for factor in (1.5, 2, 4, 16):
                v3 = v.copy()
                v3[63] *= factor
                scaled.append(np.abs(attention(q, k, v3, "quantized", online) - base)[32:63].max())
            true = attention(q, k, v, "exact", online, quantized=False)
            rms = [np.sqrt((true**2).mean())]
            rms += [np.sqrt(((attention(q, k, v, kind, online) - true)**2).mean()) for kind in ("quantized", "exact", "past")]
            decoded = np.abs(attention(q, k, v, "past", online) - base).max(1) > 1e-9
            print(f"    {{{seed}, {str(online).lower()}, {changed:.9g}, {{{', '.join(f'{x:.9g}' for x in scaled)}}}, "
                  f"{', '.join(f'{x:.9g}' for x in rms)}, {decoded.sum()}}},")
    print("};\n\n}  // namespace nanscope::kernels::tiles_oracle")


main()
