"""Keys and values as a quantized KV cache gives them back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from . import _nanscope
from ._arrays import describe


@dataclasses.dataclass(frozen=True)
class QuantizedKv:
    """Rows that a cache stored in one step, as attention reads them later."""

    values: np.ndarray[Any, np.dtype[np.float32]]  #: of the input's shape
    scheme: str  #: as text; quantize_kv() takes it
    elements: int  #: that were quantized
    clipped: int  #: beyond the largest code
    flushed: int  #: not zero, and stored as zero
    non_finite: int  #: finite, and read as NaN or Inf
    utilization: float  #: mean over scales: largest code value over the format's largest
    bytes_per_token: float  #: codes, scales and what is kept apart


def quantize_kv(values: Any, scheme: str, *, kv_heads: int = 1, keys: bool = True) -> QuantizedKv:
    """Stores rows of keys (`keys`) or values under a scheme and reads them back, with the bits of the engine's cache.

    `values`: (tokens, kv_heads, head_dim), or (tokens, kv_heads * head_dim) with `kv_heads`; an array or tensor of any float dtype.
    `scheme`: "int8,axis=token", "e4m3,axis=head", ... (docs/kv-policies.md), or a name of kv_policies(), as kv.scheme takes it.

    ValueError: another shape. nanscope.Error: an unknown scheme, or one that cannot store such rows."""
    described = describe(values)
    shape = described.shape
    if len(shape) == 3:
        heads, width = shape[1], shape[2]
    elif len(shape) == 2 and kv_heads > 0 and shape[1] % kv_heads == 0:
        heads, width = kv_heads, shape[1] // kv_heads
    else:
        raise ValueError(f"expected (tokens, kv_heads, head_dim), or (tokens, channels) with kv_heads, got {shape}")
    if 0 in shape:
        raise ValueError(f"expected at least one element, got {shape}")
    if described.dtype == "f32":
        floats = described.bytes
    elif described.dtype in ("f16", "bf16"):
        floats = np.frombuffer(memoryview(_nanscope.decode(described.bytes, described.dtype)), np.uint8)
    elif described.dtype == "f64":
        floats = described.bytes.view(np.float64).astype(np.float32).view(np.uint8)
    else:
        raise TypeError(f"expected f32, f64, f16 or bf16, got {described.dtype}")
    elements, counts, text, size = _nanscope.quantize_kv(floats, heads, width, scheme, keys)
    read = np.frombuffer(memoryview(elements), np.float32).reshape(shape)
    return QuantizedKv(values=read, scheme=text, bytes_per_token=size, **counts)


def kv_policies() -> list[str]:
    """Names of the policies that `nanscope policies` knows."""
    return _nanscope.kv_policies()
