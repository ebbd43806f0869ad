"""What the producers of block formats make of a matrix: one function a preset of core/blocks/presets.def.

PRODUCERS[preset](x, second) takes f32 values of shape (rows, columns) and gives (codes, scales) as bytes in the
producer's own packing, or ("values", f32 values) where the producer writes no codes. Needs, of these versions:

    pip install torch==2.15.0 --index-url https://download.pytorch.org/whl/cpu
    pip install torchao==0.18.0 gguf==0.19.0 ml_dtypes gfloat compressed-tensors==0.20.0 transformers==5.24.0
    pip install --no-deps nvidia-modelopt==0.47.0 && pip install omegaconf pulp scipy rich
    pip download --no-deps --no-build-isolation fouroversix==1.0.5   # unpack it; its src/ on PYTHONPATH
    pip download --no-deps tico==0.3.0   # holds microxcaling 1.1.0, which is on no index; unpack it, on PYTHONPATH
"""
import numpy as np
import torch

PRODUCERS = {}
SECOND = {"multiplier": lambda amax: np.float32(amax) / np.float32(2688),
          "divisor": lambda amax: np.float32(2688) / np.float32(amax),
          "amax": np.float32}
KIND = {}


def producer(*names, second=None):
    def add(function):
        for name in names:
            PRODUCERS[name] = lambda x, s, name=name: function(x, s, name)
            KIND[name] = second
        return function
    return add


def raw(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def pack_six(codes):
    """Four codes in three bytes, little-endian; torchao keeps its FP6 codes one a byte."""
    c = codes.reshape(-1, 4).astype(np.uint32)
    word = c[:, 0] | c[:, 1] << 6 | c[:, 2] << 12 | c[:, 3] << 18
    return np.stack([word & 255, word >> 8 & 255, word >> 16 & 255], 1).astype(np.uint8).tobytes()


ELEMENTS = {"mxfp8": torch.float8_e4m3fn, "mxfp8-e5m2": torch.float8_e5m2, "mxfp6": "fp6_e2m3", "mxfp6-e3m2": "fp6_e3m2",
            "mxfp4": torch.float4_e2m1fn_x2}


@producer("mxfp8-torchao", "mxfp8-torchao-rceil", "mxfp8-torchao-ceil", "mxfp8-torchao-even", "mxfp8-e5m2-torchao",
          "mxfp6-torchao", "mxfp6-e3m2-torchao", "mxfp4-torchao", "mxfp4-torchao-rceil", "mxfp4-torchao-ceil",
          "mxfp4-torchao-even")
def torchao_mx(x, second, name):
    from torchao.prototype.mx_formats import mx_tensor
    base, rule = name.split("-torchao")
    mode = mx_tensor.ScaleCalculationMode[rule.strip("-").upper() or "FLOOR"]
    element = ELEMENTS[base]
    if isinstance(element, str):
        element = {"fp6_e2m3": mx_tensor.DTYPE_FP6_E2M3, "fp6_e3m2": mx_tensor.DTYPE_FP6_E3M2}[element]
    scale, codes = mx_tensor.to_mx(torch.from_numpy(x), element, 32, mode)
    packed = pack_six(codes.numpy()) if base.startswith("mxfp6") else raw(codes)
    return packed, raw(scale)


@producer("nvfp4-torchao", second="multiplier")
def torchao_nvfp4(x, second, name):
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize
    scale, codes = nvfp4_quantize(torch.from_numpy(x), 16, torch.tensor(second))
    return raw(codes), raw(scale)


@producer("mxfp8-microxcaling", "mxfp8-e5m2-microxcaling", "mxfp6-microxcaling", "mxfp6-e3m2-microxcaling",
          "mxfp4-microxcaling")
def microxcaling(x, second, name):
    from tico.utils.mx.mx_ops import _quantize_mx
    element = {"mxfp8": "fp8_e4m3", "mxfp8-e5m2": "fp8_e5m2", "mxfp6": "fp6_e2m3", "mxfp6-e3m2": "fp6_e3m2",
               "mxfp4": "fp4_e2m1"}[name.removesuffix("-microxcaling")]
    return "values", _quantize_mx(torch.from_numpy(x.copy()), 8, element, axes=[-1], block_size=32).numpy()


@producer("mxfp8-ct", "mxfp6-ct", "mxfp4-ct")
def compressed_tensors_mx(x, second, name):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils.helpers import calculate_qparams
    bits = int(name[4])
    args = QuantizationArgs(num_bits=bits, type="float", strategy="group", group_size=32, symmetric=True,
                            scale_dtype=torch.uint8, zp_dtype=torch.uint8)
    kind = {8: "mxfp8-quantized", 6: "mxfp6-pack-quantized", 4: "mxfp4-pack-quantized"}[bits]
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
    w = torch.from_numpy(x)
    blocks = w.reshape(w.shape[0], -1, 32)
    scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)
    out = BaseCompressor.get_value_from_registry(kind).compress({"weight": w, "weight_scale": scale}, scheme)
    return raw(out["weight" if bits == 8 else "weight_packed"]), raw(out["weight_scale"])


@producer("nvfp4-ct", second="divisor")
def compressed_tensors_nvfp4(x, second, name):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils.helpers import calculate_qparams
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True,
                            scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn)
    kind = "nvfp4-pack-quantized"
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
    w = torch.from_numpy(x)
    blocks = w.reshape(w.shape[0], -1, 16)
    given = torch.tensor([second])
    scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=given)
    out = BaseCompressor.get_value_from_registry(kind).compress(
        {"weight": w, "weight_scale": scale, "weight_global_scale": given}, scheme)
    return raw(out["weight_packed"]), raw(out["weight_scale"])


@producer("mxfp8-modelopt")
def modelopt_mxfp8(x, second, name):
    from modelopt.torch.quantization.qtensor import MXFP8QTensor
    q, scale = MXFP8QTensor.quantize(torch.from_numpy(x))
    return raw(q._quantized_data), raw(scale)


@producer("mxfp4-modelopt")
def modelopt_mxfp4(x, second, name):
    from modelopt.torch.quantization.qtensor import MXFP4QTensor
    q, scale = MXFP4QTensor.quantize(torch.from_numpy(x), 32)
    return raw(q._quantized_data), raw(scale)


@producer("nvfp4-modelopt", second="multiplier")
def modelopt_nvfp4(x, second, name):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    q, scale, _ = NVFP4QTensor.quantize(torch.from_numpy(x), 16, weights_scaling_factor_2=torch.tensor(second))
    return raw(q._quantized_data), raw(scale)


@producer("nvfp4-4over6", second="amax")
def four_over_six(x, second, name):
    from fouroversix.quantize.pytorch.reference import quantize_to_fp4
    filled = np.concatenate([x, np.zeros((-len(x) % 128, x.shape[1]), np.float32)])  # as its frontend does
    codes, scale, _ = quantize_to_fp4(torch.from_numpy(filled), torch.tensor(second))
    return raw(codes[: len(x)]), raw(scale)


@producer("fp8-block-transformers", "fp8-block-transformers@1x32")
def transformers_block(x, second, name):
    from types import SimpleNamespace
    from transformers.integrations.finegrained_fp8 import Fp8Quantize
    size = (1, 32) if name.endswith("@1x32") else (128, 128)
    config = SimpleNamespace(weight_block_size=size, scale_fmt="float")
    made = Fp8Quantize(SimpleNamespace(quantization_config=config))._quantize_one("a.weight", torch.from_numpy(x))
    return raw(made["a.weight"]), raw(made["a.weight_scale_inv"])


@producer("q8_0", "q4_0", "mxfp4-gguf")
def gguf_blocks(x, second, name):
    import gguf
    kind = {"q8_0": "Q8_0", "q4_0": "Q4_0", "mxfp4-gguf": "MXFP4"}[name]
    with np.errstate(all="ignore"):
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind]).tobytes(), b""


@producer("nvfp4-gguf")
def gguf_nvfp4(x, second, name):
    """The package only reads NVFP4: its rounding of scales, and the nearest value as its MXFP4 takes it."""
    from gguf.quants import MXFP4, NVFP4
    blocks = x.reshape(-1, 16)
    with np.errstate(all="ignore"):
        scale = NVFP4.fp32_to_ue4m3(np.abs(blocks).max(-1) / np.float32(6)).astype(np.uint8)
        d = NVFP4.ue4m3_to_fp32(scale).astype(np.float32)
        table = np.array(MXFP4.kvalues, np.float32)
        best = np.empty(blocks.shape, np.uint8)
        for first in range(0, len(blocks), 1 << 16):
            part = slice(first, first + (1 << 16))
            best[part] = np.abs(d[part, None, None] * table - blocks[part, :, None]).argmin(-1)
    best = best.reshape(-1, 2, 8)
    nibbles = (best[:, 0] | best[:, 1] << 4).reshape(len(x), -1, 4 * 8)
    return np.concatenate([scale.reshape(len(x), -1, 4), nibbles], -1).tobytes(), b""
