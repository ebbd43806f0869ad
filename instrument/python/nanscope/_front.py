"""The front: which tokens are bad in which layer of a step."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Optional

import numpy as np

from . import _nanscope


@dataclasses.dataclass(frozen=True)
class FrontRow:
    """A layer, or what is before and behind the layers."""

    label: str  #: "embed", "layer 3", "head"
    layer: Optional[int]
    detailed: bool  #: false: the health of tokens is not known, cells show that of whole tensors


class Front:
    """The map of one step: rows from the embedding to the logits, a column a token of one request.

    A notebook shows it as a picture."""

    STATES: ClassVar[tuple[str, ...]] = ("absent", "healthy", "clipped", "inf", "nan")  #: what cells hold, by number

    def __init__(self, made: _nanscope.FrontMap) -> None:
        self._made = made
        self.rows = tuple(FrontRow(row.label, row.layer if row.layer >= 0 else None, row.detailed) for row in made.rows)

    @property
    def request(self) -> int:
        return self._made.request

    @property
    def step(self) -> int:
        """Within the request; 0 is the prefill."""
        return self._made.step

    @property
    def first_token(self) -> int:
        """Position of the first column."""
        return self._made.first_token

    @property
    def cells(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The worst of each cell, an index into STATES: rows x tokens."""
        cells = np.frombuffer(b"".join(row.cells for row in self._made.rows), np.uint8)
        return cells.reshape(len(self.rows), self._made.tokens)

    def text(self, width: int = 100, *, ascii: bool = False) -> str:
        """As `nanscope diagnose` prints it."""
        return self._made.text(width, ascii)

    def png(self, width: int = 900, height: int = 600, *, theme: str = "light") -> bytes:
        """A picture whose cells take at most width x height pixels; theme "light" or "dark"."""
        return self._made.png(width, height, theme)

    def _repr_png_(self) -> bytes:
        return self.png()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<nanscope.Front request {self.request} step {self.step}: {len(self.rows)} rows x {self._made.tokens} tokens>"
