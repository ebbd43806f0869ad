"""One number, bit by bit."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any, Optional, Sequence, Union, overload

import numpy as np

from . import _nanscope
from ._arrays import describe
from ._formats import bits_dtype, format_name, formats_of_dtypes

#: Elements of an array that are taken apart at most.
MOST_ELEMENTS = 65536


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """The next number of a format."""

    code: int
    value: float
    gap: Optional[float]  #: to it; None where one of both is not finite


@dataclasses.dataclass(frozen=True)
class Rounding:
    """What became of a value when it was cast."""

    source: int  #: the f32 bit pattern that was cast
    value: float
    stored: float
    exact: bool
    tie: bool
    clipped: bool  #: beyond the largest finite value, and stored as that
    overflowed: bool  #: beyond it, and stored as Inf or NaN
    flushed: bool  #: not zero, and stored as zero
    laundered: bool  #: NaN, and stored as a number
    sign_dropped: bool
    absolute_loss: Optional[float]
    relative_loss: Optional[float]


@dataclasses.dataclass(frozen=True)
class Number:
    """A code of a format, taken apart. str() of it is what `nanscope bits` prints."""

    format: str
    code: int
    fields: str  #: "0_1111_101": sign, exponent, mantissa
    number_class: str  #: "zero", "subnormal", "normal", "inf", "nan"
    sign: int
    exponent_field: int
    exponent: int  #: unbiased power of two that scales the mantissa
    mantissa_field: int
    formula: str  #: "(-1)^0 x 2^(15-7) x (1 + 6/8) = 448"
    value: float  #: exact: every finite code of every format is a double
    decimal: str  #: every digit of it
    real: float  #: value x scale
    down: Optional[Neighbour]
    up: Optional[Neighbour]
    rounding: Optional[Rounding]  #: of a value that was cast; None of a code
    _input: str = dataclasses.field(repr=False, compare=False)
    _scale: float = dataclasses.field(repr=False, compare=False)
    _saturate: bool = dataclasses.field(repr=False, compare=False)

    def text(self, *, ascii: bool = False) -> str:
        """What `nanscope bits` prints."""
        return _nanscope.bits_text(self._input, self.format, self._scale, self._saturate, ascii)

    def __str__(self) -> str:
        return self.text()


@overload
def bits(value: Union[str, int, float], format: Any, *, scale: float = ..., saturate: bool = ...) -> Number: ...
@overload
def bits(value: Any, format: Any = ..., *, scale: float = ..., saturate: bool = ...) -> Any: ...


def bits(value: Any, format: Any = None, *, scale: float = 1.0, saturate: bool = True) -> Union[Number, list[Number]]:
    """The anatomy of a number, as `nanscope bits` tells it.

    `value`: a number is cast to the format; a string is read as the command reads it ("430", "nan", "0x1.8p3", and "0x7e"
    for a code); of an array or tensor every element in row-major order, 65536 at most: a list. Elements of the wanted
    format are its codes, so are unsigned integers of its width; all others are cast.

    `format`: a name ("e4m3", "float8_e4m3fn", "bf16" ...), a dtype of NumPy, ml_dtypes or torch, or a sequence of them:
    a list, one a format. Without one, that of the array; of a single number, all formats.

    `scale`: real = code value x scale. `saturate`: what is beyond the largest finite value becomes that, else Inf or NaN.

    Error: no such format, not a number. ValueError: an array of more elements.
    """
    several = not isinstance(format, (str, type)) and isinstance(format, Sequence)
    if several:
        made = [bits(value, one, scale=scale, saturate=saturate) for one in format]
        return [number for one in made for number in (one if isinstance(one, list) else [one])]
    name = "" if format is None else format_name(format)
    if isinstance(value, (str, int, float)):
        numbers = _numbers(_text_of(value), name, scale, saturate)
        return numbers[0] if name else numbers
    texts, name, shape = _texts_of(value, name)
    numbers = [number for text in texts for number in _numbers(text, name, scale, saturate)]
    return numbers[0] if shape == () else numbers


def _text_of(value: Union[str, int, float]) -> str:
    return value if isinstance(value, str) else repr(float(value)) if isinstance(value, float) else str(int(value))


def _texts_of(array: Any, format: str) -> tuple[list[str], str, tuple[int, ...]]:
    """Each element as the command would be given it, and the format to read it in."""
    given = describe(array)
    count = int(np.prod(given.shape, dtype=np.int64))
    if count > MOST_ELEMENTS:
        raise ValueError(f"an array of {count} elements: at most {MOST_ELEMENTS} are taken apart, choose some of them")
    own = formats_of_dtypes()[given.dtype]
    wanted = format or own
    if wanted is None:
        raise _nanscope.Error(f"elements of {given.dtype} have no format of their own: say which they are to be read in")
    codes = bits_dtype(wanted)
    unsigned = {"u8": 8, "u16": 16, "u32": 32}.get(given.dtype) == codes.itemsize * 8
    if given.dtype != "e2m1" and (own == wanted or unsigned):
        width = 2 * codes.itemsize
        return [f"0x{code:0{width}x}" for code in given.bytes.view(codes).tolist()], wanted, given.shape
    return [_text_of(number) for number in _values(array, given.dtype)], wanted, given.shape


def _values(array: Any, dtype: str) -> list[Union[int, float]]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        values: list[Union[int, float]] = array.detach().cpu().reshape(-1).to(torch.float64).tolist()
        return values
    flat = np.asarray(array).reshape(-1)
    return [*flat.tolist()] if flat.dtype.kind in "iub" else [*flat.astype(np.float64).tolist()]


def _numbers(text: str, format: str, scale: float, saturate: bool) -> list[Number]:
    document = json.loads(_nanscope.bits_json(text, format, scale, saturate))
    return [_number(row, text, scale, saturate) for row in document["results"]]


def _number(row: dict[str, Any], text: str, scale: float, saturate: bool) -> Number:
    value = float(row["decimal"])
    return Number(
        format=row["format"], code=int(row["code"], 16), fields=row["bits"], number_class=row["class"], sign=row["sign"],
        exponent_field=row["exponent_field"], exponent=row["exponent"], mantissa_field=row["mantissa_field"],
        formula=row["formula"], value=value, decimal=row["decimal"],
        real=value * scale if row["real"] is None else row["real"], down=_neighbour(row["down"]),
        up=_neighbour(row["up"]), rounding=_rounding(row.get("rounding"), value), _input=text, _scale=scale, _saturate=saturate,
    )


def _neighbour(row: Optional[dict[str, Any]]) -> Optional[Neighbour]:
    return None if row is None else Neighbour(int(row["code"], 16), float(row["decimal"]), row["gap"])


def _rounding(row: Optional[dict[str, Any]], stored: float) -> Optional[Rounding]:
    if row is None:
        return None
    source = int(row["source_f32"], 16)
    value = row["value"] if row["value"] is not None else float(np.uint32(source).view(np.float32))
    return Rounding(source, value, stored, row["exact"], row["tie"], row["clipped"], row["overflowed"], row["flushed"],
                    row["laundered"], row["sign_dropped"], row["absolute_loss"], row["relative_loss"])
