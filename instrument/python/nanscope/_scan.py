"""Health of one array."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import numpy as np

from . import _nanscope
from ._arrays import describe
from ._formats import format_name, formats_of_dtypes


@dataclasses.dataclass(frozen=True)
class Health:
    """What a set of elements holds. Counts are exact, and so are minima and maxima."""

    count: int
    nan: int
    pos_inf: int
    neg_inf: int
    saturated: int  #: |x| equal to the format's largest finite value
    subnormal: int  #: not zero, below the format's smallest normal number
    zero: int
    min: Optional[float]  #: over finite elements; None when there is none, and of integers, which are only counted
    max: Optional[float]
    absmax: Optional[float]
    first_bad: Optional[int]  #: row-major index of the first NaN or Inf
    mean: Optional[float]  #: over finite elements; None where sums were not asked for
    variance: Optional[float]
    clipped: int = 0  #: beyond the largest finite value before the cast that made it; of recorded tensors alone
    flushed: int = 0  #: zero, and not zero before that cast; of recorded tensors alone
    shape: Optional[tuple[int, ...]] = None
    format: Optional[str] = None  #: as which its elements were read; None for integers and booleans

    @property
    def inf(self) -> int:
        """Infinities of both signs."""
        return self.pos_inf + self.neg_inf

    @property
    def bad(self) -> int:
        """NaN and Inf."""
        return self.nan + self.inf

    @property
    def first_bad_index(self) -> Optional[tuple[int, ...]]:
        """The same as an index of the array."""
        if self.first_bad is None or self.shape is None:
            return None
        return tuple(int(part) for part in np.unravel_index(self.first_bad, self.shape))


def health_of(row: _nanscope.Health, shape: Optional[tuple[int, ...]] = None, format: Optional[str] = None) -> Health:
    return Health(count=row.count, nan=row.nan, pos_inf=row.pos_inf, neg_inf=row.neg_inf, saturated=row.saturated,
                  subnormal=row.subnormal, zero=row.zero, min=row.min, max=row.max, absmax=row.absmax,
                  first_bad=row.first_bad, mean=row.mean, variance=row.variance, clipped=row.clipped,
                  flushed=row.flushed, shape=shape, format=format)


def scan(array: Any, *, format: Any = None, sums: bool = False, threads: int = 0) -> Health:
    """The health of an array or tensor of NumPy, ml_dtypes or torch, of any shape, by nanscope's own kernels.

    It is read where it lies, by all cores (or `threads`), without the interpreter's lock, and not copied unless it is
    not contiguous, not in the host's memory or of the other byte order. Nobody may write to it meanwhile.

    `format`: its elements are codes of this format, whatever its dtype ("e4m3" in an array of uint8). `sums`: mean and
    variance too, which takes up to twice the time. Integers and booleans are counted and nothing else is said of them.

    TypeError: of a dtype that nanscope does not read. Error: the format is unknown or of another width; complex numbers.
    """
    given = describe(array)
    wanted = None if format is None else format_name(format)
    row = _nanscope.scan(given.bytes, given.dtype, given.shape, wanted, sums, threads)
    read_as = wanted or formats_of_dtypes()[given.dtype]
    return health_of(row, given.shape, None if read_as == "i32" else read_as)
