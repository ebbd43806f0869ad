"""Number formats and dtypes, by the table of the compiled part."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any, Optional

import numpy as np

from . import _nanscope


@dataclasses.dataclass(frozen=True)
class Format:
    """A number format: how the bits of an element are read."""

    name: str
    spec: str  #: where it is defined
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_sign: bool
    has_inf: bool
    has_nan: bool
    max_finite: float
    min_normal: float
    min_subnormal: float  #: 0 when it has none
    dtype: Optional[str]  #: what NumPy or ml_dtypes calls it, one code a byte where it is narrower


@functools.lru_cache(maxsize=None)
def formats() -> tuple[Format, ...]:
    """All formats that nanscope knows."""
    names: dict[str, str] = {}
    for row in _nanscope.dtypes():
        if row["format"] is not None and row["numpy"]:
            name = row["numpy"] if len(row["numpy"]) > 2 else np.dtype(row["numpy"]).name
            names.setdefault(row["format"], name)
    return tuple(Format(**row, dtype=names.get(row["name"])) for row in _nanscope.formats())


@functools.lru_cache(maxsize=None)
def _numpy_names() -> dict[str, str]:
    """NumPy's letter and size, or ml_dtypes' name, to ours."""
    return {row["numpy"]: row["name"] for row in _nanscope.dtypes() if row["numpy"]}


@functools.lru_cache(maxsize=None)
def _torch_names() -> dict[str, str]:
    return {row["torch"]: row["name"] for row in _nanscope.dtypes() if row["torch"]}


@functools.lru_cache(maxsize=None)
def formats_of_dtypes() -> dict[str, Optional[str]]:
    return {row["name"]: row["format"] for row in _nanscope.dtypes()}


def numpy_dtype_name(dtype: np.dtype[Any]) -> str:
    """Our name of a dtype of NumPy or ml_dtypes. TypeError: nanscope does not read it."""
    names = _numpy_names()
    # ml_dtypes' have names; one called as a builtin is that builtin.
    found = names.get(dtype.name) if dtype.isbuiltin != 1 else names.get(f"{dtype.kind}{dtype.itemsize}")
    if found is None and dtype.isbuiltin == 0 and dtype.fields is None:  # of the other byte order
        found = names.get(f"{dtype.kind}{dtype.itemsize}")
    if found is None:
        raise TypeError(f"nanscope does not read dtype {dtype}")
    return found


def torch_dtype_name(dtype: Any) -> str:
    """Our name of a torch.dtype. TypeError: nanscope does not read it."""
    found = _torch_names().get(str(dtype).removeprefix("torch."))
    if found is None:
        raise TypeError(f"nanscope does not read {dtype}")
    return found


def format_name(format: Any) -> str:
    """The name of a format that is given by a name, or as a dtype of NumPy, ml_dtypes or torch. Error: there is none."""
    if isinstance(format, Format):
        return format.name
    if isinstance(format, str):
        found = _nanscope.format_named(format)
    elif type(format).__module__ == "torch":
        found = formats_of_dtypes()[torch_dtype_name(format)]
    else:
        found = formats_of_dtypes()[numpy_dtype_name(np.dtype(format))]
    if found is None:
        known = ", ".join(one.name for one in formats())
        raise _nanscope.Error(f"unknown format '{format}' (known: {known})")
    return found


def array_dtype(format: str) -> np.dtype[Any]:
    """The dtype of an array of a format's codes: NumPy's or ml_dtypes', and without ml_dtypes a record whose one field
    says what its bits are ("bf16_bits")."""
    one = next(one for one in formats() if one.name == format)
    if one.dtype is not None and one.dtype in ("float32", "float16", "int8", "int32"):
        return np.dtype(one.dtype)
    ml_dtypes = sys.modules.get("ml_dtypes") or _ml_dtypes()
    found = getattr(ml_dtypes, one.dtype or "", None)
    if found is not None:
        dtype: np.dtype[Any] = np.dtype(found)
        return dtype
    return np.dtype([(f"{format}_bits", bits_dtype(format))])


def bits_dtype(format: str) -> np.dtype[Any]:
    """The unsigned integer that holds a code: 8, 16 or 32 bits."""
    bits = next(one.bits for one in formats() if one.name == format)
    return np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


def _ml_dtypes() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes
