"""Arrays of NumPy, ml_dtypes and torch as bytes, where they lie."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np

from ._formats import numpy_dtype_name, torch_dtype_name


@dataclasses.dataclass(frozen=True)
class Described:
    """An array as the compiled part takes it."""

    dtype: str
    shape: tuple[int, ...]
    bytes: np.ndarray[Any, np.dtype[np.uint8]]  #: row-major, without gaps; keeps the array alive


def describe(array: Any) -> Described:
    """An array or tensor. Nothing is copied but what is not contiguous, of the other byte order, or not in the host's memory.

    TypeError: nanscope does not read its dtype; it is sparse or quantised."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _describe_tensor(torch, array)
    return _describe_array(np.asarray(array))


def _describe_array(array: np.ndarray[Any, np.dtype[Any]]) -> Described:
    name = numpy_dtype_name(array.dtype)
    shape = array.shape
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    flat = np.ascontiguousarray(array).reshape(-1)
    return Described(name, shape, flat.view(np.uint8) if flat.size else np.zeros(0, np.uint8))


def _describe_tensor(torch: Any, tensor: Any) -> Described:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"nanscope reads dense tensors, not {tensor.layout} of {tensor.dtype}")
    if tensor.is_meta:
        raise TypeError("nanscope reads tensors with elements, not those of the meta device")
    name = torch_dtype_name(tensor.dtype)
    shape = tuple(tensor.shape)
    if name == "e2m1":  # two elements a byte, of which torch counts the bytes
        shape = (*shape[:-1], 2 * shape[-1])
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return Described(name, shape, flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8))
