"""Matrices of 64 columns that are hard to quantise: ties, thresholds of scales, zeros, subnormals, NaN, Inf."""
import functools

import numpy as np

# Largest value, values in units of which ties fall: half a unit of the format at 1.
ELEMENTS = [(6.0, 0.25), (7.5, 1 / 16), (28.0, 1 / 8), (448.0, 1 / 16), (57344.0, 1 / 8)]


def ordinary(rng, rows):
    return rng.standard_normal((rows, 64)).astype(np.float32)


def spread(rng, rows):
    """Every row under a power of two of its own, a few outliers."""
    x = rng.standard_normal((rows, 64)) * 2.0 ** rng.integers(-30, 30, (rows, 1))
    x[rng.random((rows, 64)) < 0.03] *= 50
    return x.astype(np.float32)


def ties(rng, rows):
    """Middles between codes of an element format, and their neighbours, under any power of two."""
    out = np.empty((rows, 64), np.float64)
    for row in range(rows):
        largest, unit = ELEMENTS[row % 5]
        x = rng.integers(-16, 17, 64) * unit * 2.0 ** rng.integers(0, 1 + int(np.log2(largest)), 64)
        x[::16] = largest * rng.choice([1, 1, 0.75, 0.5])
        x *= 2.0 ** rng.integers(-20, 20)
        out[row] = x
    out = out.astype(np.float32)
    nudge = rng.integers(-1, 2, out.shape) * (rng.random(out.shape) < 0.3)
    return np.where(out == 0, out, (out.view(np.int32) + nudge.astype(np.int32)).view(np.float32))


def unit_ties(rng, rows):
    """Ties of E2M1 under scales about 1."""
    x = rng.integers(-24, 25, (rows, 64)) * 0.25 * 2.0 ** rng.integers(-2, 2, (rows, 1))
    return x.astype(np.float32)


def thresholds(rng, rows):
    """Blocks whose largest is a few ulp beside where a rule changes its mind."""
    starts = np.array([1, 1.25, 1.5, 1.75, 1.9375, 1.96875, 6 / 4, 448 / 256, 57344 / 32768, 7.5 / 4], np.float32)
    x = rng.uniform(-0.9, 0.9, (rows, 64)).astype(np.float32)
    peak = rng.choice(starts, (rows, 4)) * np.float32(2.0) ** rng.integers(-90, 90, (rows, 4)).astype(np.float32)
    nudge = rng.choice([-45, -44, -23, -22, -12, -11, -3, -2, -1, 0, 1, 2, 3, 5, 6, 11, 12, 22, 23], (rows, 4))
    peak = (peak.astype(np.float32).view(np.int32) + nudge.astype(np.int32)).view(np.float32)
    x = (x.reshape(rows, 4, 16) * peak[..., None]).astype(np.float32)
    x[..., 5] = peak * rng.choice([-1, 1], peak.shape)
    return x.reshape(rows, 64).astype(np.float32)


def small(rng, rows):
    """About scale code 0 and the subnormals of f32."""
    x = rng.standard_normal((rows, 64)) * 2.0 ** rng.integers(-149, -110, (rows, 1))
    return x.astype(np.float32)


def large(rng, rows):
    return (rng.uniform(-1, 1, (rows, 64)) * 2.0 ** rng.integers(110, 128, (rows, 1))).astype(np.float32)


def zeros(rng, rows):
    x = ordinary(rng, rows).reshape(rows, 4, 16)
    x[rng.random((rows, 4)) < 0.6] = 0
    x[rng.random((rows, 4, 16)) < 0.2] = -0.0
    return x.reshape(rows, 64)


def bad(rng, rows, values):
    x = ordinary(rng, rows)
    for row in range(rows):
        x[row, rng.integers(0, 64, rng.integers(1, 4))] = rng.choice(values)
    return x


KINDS = (ordinary, spread, ties, thresholds, zeros, small, large,
         lambda rng, rows: bad(rng, rows, [np.nan, -np.nan]), lambda rng, rows: bad(rng, rows, [np.inf, -np.inf]))
FINITE = KINDS[:5]


@functools.lru_cache(maxsize=4)
def matrix(seed, rows, kinds=KINDS):
    """Rows of each kind in turn."""
    rng = np.random.default_rng(seed)
    out = np.empty((rows, 64), np.float32)
    with np.errstate(all="ignore"):
        for index, kind in enumerate(kinds):
            count = len(range(index, rows, len(kinds)))
            out[index::len(kinds)] = kind(rng, count)
    return out
