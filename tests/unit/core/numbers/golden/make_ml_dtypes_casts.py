#!/usr/bin/env python3
"""Writes ml_dtypes_casts.txt: what ml_dtypes makes of every code and of every f32.

A cast is monotone in the magnitude, so the smallest f32 that reaches each code describes the whole
function over all finite inputs. One line a code:

    format code decoded first_positive first_negative

All in hexadecimal: decoded is the f32 bit pattern of the code ("nan" for any NaN); first_* is the
f32 pattern of smallest magnitude and that sign which is cast to this code, "-" when no finite input is.

Usage: make_ml_dtypes_casts.py > ml_dtypes_casts.txt   (needs numpy and ml_dtypes)
"""
import ml_dtypes
import numpy as np

FORMATS = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 8),
    "e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, 8),
    "e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, 8),
    "e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 8),
}
LARGEST = 0x7F7FFFFF


def cast(dtype, bits):
    with np.errstate(all="ignore"):
        return int(np.uint32(bits).view(np.float32).astype(dtype).view(np.uint8))


def first_inputs(dtype, sign):
    """Code -> smallest magnitude that reaches it, by bisecting for each change of the code."""
    start = 1 if dtype is ml_dtypes.float8_e8m0fnu else 0  # that type has no zero
    firsts = {}
    position = start
    while position <= LARGEST:
        code = cast(dtype, sign | position)
        firsts.setdefault(code, position | sign)
        low, high = position, LARGEST + 1  # code at low; something else, or the end, at high
        if cast(dtype, sign | LARGEST) == code:
            break
        while high - low > 1:
            middle = (low + high) // 2
            if cast(dtype, sign | middle) == code:
                low = middle
            else:
                high = middle
        position = high
    return firsts


def main():
    print(f"# ml_dtypes {ml_dtypes.__version__}, numpy {np.__version__}; see make_ml_dtypes_casts.py")
    for name, (dtype, bits) in FORMATS.items():
        positive = first_inputs(dtype, 0)
        negative = {} if name == "e8m0" else first_inputs(dtype, 0x80000000)
        for code in range(1 << bits):
            value = np.uint8(code).view(dtype).astype(np.float32)
            decoded = "nan" if np.isnan(value) else f"{int(value.view(np.uint32)):08x}"
            columns = [f"{table[code]:08x}" if code in table else "-" for table in (positive, negative)]
            print(f"{name} {code:02x} {decoded} {' '.join(columns)}")


if __name__ == "__main__":
    main()
