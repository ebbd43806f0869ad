"""The presets that no package writes, by their definitions in numpy and ml_dtypes; and what all codes are worth."""
import ml_dtypes
import numpy as np

from producers import pack_six, producer

ELEMENTS = {"mxfp8": ml_dtypes.float8_e4m3fn, "mxfp8-e5m2": ml_dtypes.float8_e5m2, "mxfp6": ml_dtypes.float6_e2m3fn,
            "mxfp6-e3m2": ml_dtypes.float6_e3m2fn, "mxfp4": ml_dtypes.float4_e2m1fn}
EMAX = {"mxfp8": 8, "mxfp8-e5m2": 15, "mxfp6": 2, "mxfp6-e3m2": 4, "mxfp4": 2}
LARGEST = {name: np.float32(ml_dtypes.finfo(dtype).max) for name, dtype in ELEMENTS.items()}


def pack(base, codes):
    if base.startswith("mxfp6"):
        return pack_six(codes)
    if base in ("mxfp4", "nvfp4"):
        pairs = codes.reshape(-1, 2)
        return (pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8).tobytes()
    return codes.astype(np.uint8).tobytes()


def cast(values, base):
    """Saturating, ties to even; a NaN as CUDA has it: NaN, or the largest where there is none."""
    dtype = ELEMENTS["mxfp4" if base == "nvfp4" else "mxfp8" if base.startswith("fp8") else base]
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    clipped = np.clip(values.astype(np.float32), -largest, largest)
    nan = np.isnan(clipped)
    codes = np.where(nan, 0, clipped).astype(dtype).view(np.uint8)
    has_nan = base.startswith("mxfp8") or base.startswith("fp8")
    return np.where(nan, 0x7F if has_nan else largest.astype(dtype).view(np.uint8), codes)


@producer("mxfp8", "mxfp8-e5m2", "mxfp6", "mxfp6-e3m2", "mxfp4")
def ocp(x, second, name):
    """OCP MX 1.0, 6.3: the largest power of two not above the block's largest, over the format's largest power of two.
    NaN and Inf, of which it says nothing: the scale is NaN."""
    blocks = x.reshape(-1, 32).astype(np.float64)
    amax = np.abs(blocks).max(-1, keepdims=True)
    good = np.isfinite(amax)
    exponent = np.where(amax > 0, np.frexp(np.where(good, amax, 1))[1] - 1, -127) - EMAX[name]
    exponent = np.clip(exponent, -127, 127)
    scaled = np.where(good, np.where(good, blocks, 0) / 2.0 ** exponent, np.nan)
    scales = np.where(good, exponent + 127, 255).astype(np.uint8)
    return pack(name, cast(scaled, name)), scales.tobytes()


@producer("mxfp8-rceil", "mxfp4-rceil")
def rceil(x, second, name):
    base = name.removesuffix("-rceil")
    blocks = x.reshape(-1, 32)
    amax = np.abs(blocks).max(-1, keepdims=True)
    quotient = np.where(np.isfinite(amax), amax, 1) / LARGEST[base]
    fraction, exponent = np.frexp(quotient.astype(np.float64))
    exponent = np.where(quotient > 0, np.where(fraction == 0.5, exponent - 1, exponent), -127)
    exponent = np.clip(np.where(np.isinf(amax), 127, exponent), -127, 127)  # as cvt.rp.satfinite has it
    nan = np.isnan(amax)
    scaled = np.where(nan, np.nan, blocks.astype(np.float64) / 2.0 ** exponent)
    scales = np.where(nan, 255, exponent + 127).astype(np.uint8)
    return pack(base, cast(scaled, base)), scales.tobytes()


def e4m3(values):
    """Saturating."""
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn)


@producer("nvfp4", second="multiplier")
def nvfp4(x, second, name):
    blocks = x.reshape(-1, 16)
    amax = np.abs(blocks).max(-1, keepdims=True)
    scales = e4m3(amax / np.float32(6) / second)
    whole = scales.astype(np.float32) * second
    with np.errstate(all="ignore"):
        scaled = np.where(whole == 0, np.float32(0), blocks / whole)
    return pack("nvfp4", cast(scaled, "nvfp4")), scales.tobytes()


def fp8_blocks(x, height, width):
    rows, columns = x.shape
    tiles = -(-rows // height), -(-columns // width)
    whole = np.zeros((tiles[0] * height, tiles[1] * width), np.float32)
    whole[:rows, :columns] = x
    amax = np.abs(whole).reshape(tiles[0], height, tiles[1], width).max((1, 3))
    return amax.astype(np.float32), lambda scales: np.repeat(np.repeat(scales, height, 0), width, 1)[:rows, :columns]


@producer("fp8-block", "fp8-block@1x32", "fp8-group")
def deepseek(x, second, name):
    amax, spread = fp8_blocks(x, *{"fp8-block": (128, 128), "fp8-group": (1, 128)}.get(name, (1, 32)))
    scales = amax / np.float32(448)
    with np.errstate(all="ignore"):
        return cast(x / spread(scales), name).astype(np.uint8).tobytes(), scales.tobytes()


@producer("fp8-group-ue8m0")
def ue8m0(x, second, name):
    amax, spread = fp8_blocks(x, 1, 128)
    amax = np.where(amax < np.float32(1e-4), np.float32(1e-4), amax)
    fraction, exponent = np.frexp((amax / np.float32(448)).astype(np.float64))
    exponent = np.where(fraction == 0.5, exponent - 1, exponent)
    bad = ~np.isfinite(amax)
    exponent = np.clip(np.where(bad, 127, exponent), -127, 127)
    scales = np.where(np.isnan(amax), 255, exponent + 127).astype(np.uint8)
    factor = np.where(np.isnan(amax), np.nan, 2.0 ** exponent)
    with np.errstate(all="ignore"):
        return cast(x / spread(factor).astype(np.float32), name).astype(np.uint8).tobytes(), scales.tobytes()


def all_values(name, second):
    """f32 values of every element code under every scale code: (256, codes)."""
    scales = np.arange(256, dtype=np.uint8)
    if name == "nvfp4":
        whole = scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * second
        elements = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    else:
        whole = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
        bits = 8 if name.startswith("mxfp8") else int(name[4])
        elements = np.arange(1 << bits, dtype=np.uint8).view(ELEMENTS[name]).astype(np.float32)
    with np.errstate(all="ignore"):
        values = whole[:, None] * elements[None, :]
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF).view(np.float32), values).astype(np.float32)
