"""Why a transformer's numbers went wrong.

    import nanscope

    print(nanscope.diagnose("dump/"))              # a dump or a recording, or a dict of arrays and tensors
    nanscope.scan(array)                           # NaN, Inf, zeros, extremes of one array, by nanscope's kernels
    with nanscope.open("run.nanscope") as run:     # steps, ops, tensors
        run["4/0/0/logits"].numpy()
    print(nanscope.bits(430, "e4m3"))              # one number, bit by bit
    nanscope.quantize_kv(keys, "int8,axis=token")  # what a quantized cache makes of keys or values

Whatever cannot be done raises nanscope.Error with the line that the nanscope command prints. docs/python.md says more.
"""

from __future__ import annotations

from types import ModuleType

from ._bits import Neighbour, Number, Rounding, bits
from ._diagnosis import (
    Check, Completeness, Coverage, Diagnosis, Event, Fault, Gap, LeftOut, Note, Recomputation, Spread, UnreadPart, Warned,
)
from ._formats import Format, formats
from ._front import Front, FrontRow
from ._kv import QuantizedKv, kv_policies, quantize_kv
from ._nanscope import Error, __version__
from ._run import Input, Op, Request, Run, RunInfo, Span, Step, Tensor, UnreadWarning, diagnose, open
from ._scan import Health, scan

__all__ = [
    "Check", "Completeness", "Coverage", "Diagnosis", "Error", "Event", "Fault", "Format", "Front", "FrontRow", "Gap", "Health",
    "Input",    "LeftOut", "Neighbour", "Note", "Number", "Op", "QuantizedKv", "Recomputation", "Request", "Rounding", "Run", "RunInfo", "Span",
    "Spread", "Step", "Tensor", "UnreadPart", "UnreadWarning", "Warned", "__version__", "bits", "capture", "diagnose", "formats", "kv_policies",
    "open", "quantize_kv", "scan",
]


def __getattr__(name: str) -> ModuleType:
    # Loaded when it is asked for: it imports torch, which nothing else here needs.
    if name == "capture":
        import importlib

        return importlib.import_module("nanscope.capture")
    raise AttributeError(f"module 'nanscope' has no attribute {name!r}")
