"""Recordings and dumps, open to be looked at."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import warnings
from typing import Any, Iterator, Mapping, Optional, Union

import numpy as np

from . import _nanscope
from ._arrays import describe
from ._diagnosis import Diagnosis, Note, diagnosis_of
from ._formats import array_dtype, bits_dtype
from ._front import Front
from ._scan import Health, health_of

#: A path, or names and arrays.
Target = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class UnreadWarning(UserWarning):
    """Part of a dump could not be read: what is said is said of the rest."""


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What a run was."""

    recording: bool  #: else a dump
    interrupted: bool  #: it ended, or was copied, before the run did
    nanscope_version: str
    created: str  #: UTC, ISO 8601
    scenario: str
    config: Mapping[str, Any] = dataclasses.field(repr=False)  #: the resolved one, with prompts and images; empty for a dump
    device: str  #: "dump" for what a server left behind
    isa: str  #: of a dump, its producer
    requests: int
    steps: int
    ops: int
    expected_ops: int  #: 0 while unknown
    tensors: int
    stored_tensors: int


@dataclasses.dataclass(frozen=True)
class Request:
    id: int  #: negative: nobody asked for it
    name: str
    prompt_tokens: tuple[int, ...]  #: -1: of an image
    cached_tokens: int  #: leading ones served from the prefix cache
    output_tokens: tuple[int, ...]
    output_text: str


@dataclasses.dataclass(frozen=True)
class Span:
    """Rows of a step that are consecutive positions of one sequence."""

    request: int
    index: int  #: of the step within the request; 0 is the prefill
    row: int  #: the first
    rows: int
    first_token: int  #: position of the first row
    context: int  #: keys visible to the last row, itself included


class Step:
    """One forward pass of one rank."""

    def __init__(self, run: Run, row: _nanscope.StepRow) -> None:
        self._run = run
        self.id: int = row.id
        self.kind: str = row.kind  #: "prefill" or "decode"; of training "forward", "backward" or "optimizer"
        self.rank: int = row.rank
        self.name: str = row.name  #: as the dump's folders call it; empty in recordings
        self.rows: int = row.rows  #: of its activations
        self.batch: int = row.batch
        self.spans = tuple(
            Span(one.request, one.index, one.row, one.rows, one.first_token, one.context) for one in row.spans
        )

    @property
    def request(self) -> int:
        """Of its first span."""
        return self.spans[0].request if self.spans else 0

    @property
    def index(self) -> int:
        """Within that request; 0 is the prefill."""
        return self.spans[0].index if self.spans else 0

    @property
    def ops(self) -> list[Op]:
        """In order of execution."""
        return self._run._ops_of(self.id)

    @property
    def tensors(self) -> list[Tensor]:
        """What its ops made, in order."""
        return self._run._tensors_of(self.id)

    def front(self) -> Front:
        """Which of its tokens are bad in which layer, for its first request."""
        return self._run.front(self.request, self.index)

    def __repr__(self) -> str:
        return f"<nanscope.Step {self.id}: {self.kind}, request {self.request} step {self.index}, {self.rows} rows>"


@dataclasses.dataclass(frozen=True)
class Input:
    role: str  #: x, weight, q, k ...
    tensor: Optional[Tensor]  #: None when it is a weight of a recording, or the KV pool
    weight: str  #: its name, or empty


class Op:
    """One executed operation."""

    def __init__(self, run: Run, row: _nanscope.OpRow) -> None:
        self._run = run
        self._row = row
        self.id: int = row.id
        self.step: int = row.step  #: Step.id; 0: before every step, as parameters are
        self.layer: Optional[int] = row.layer
        self.name: str = row.name  #: its place in the model: attn_norm, q_proj, kv_store ...
        self.kind: str = row.kind  #: what it computes: norm, gemm, softmax ...

    @property
    def attributes(self) -> dict[str, Any]:
        """What it was told besides its inputs."""
        attributes: dict[str, Any] = json.loads(self._row.attributes_json)
        return attributes

    @property
    def inputs(self) -> list[Input]:
        return [
            Input(role, self._run._tensor_of(tensor) if tensor else None, weight)
            for role, tensor, weight in self._row.inputs
        ]

    @property
    def outputs(self) -> list[Tensor]:
        mine = set(self._row.outputs)
        return [tensor for tensor in self._run._tensors_of(self.step) if tensor.id in mine]

    def __repr__(self) -> str:
        layer = "" if self.layer is None else f" of layer {self.layer}"
        return f"<nanscope.Op {self.id}: {self.name}{layer}, {self.kind}>"


class Tensor:
    """A matrix of tokens by channels; heads lie side by side in a row. A notebook shows it as a picture."""

    def __init__(self, run: Run, row: _nanscope.TensorRow) -> None:
        self._run = run
        self.id: int = row.id
        self.op: int = row.op  #: Op.id
        self.step: int = row.step  #: Step.id; 0: before every step
        self.role: str = row.role  #: which output of the op
        self.name: str = row.name or row.place  #: as its producer wrote it, else its place
        self.place: str = row.place  #: request/step/layer/op.role
        self.format: str = row.format
        self.shape: tuple[int, int] = (row.tokens, row.channels)
        self.heads: int = row.heads
        self.known: bool = row.known  #: false: it was not dumped, and stands here for what lies before and behind it
        self.health: Health = health_of(row.health, self.shape, self.format)

    def bits(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The stored codes as unsigned integers of 8, 16 or 32 bits, read-only.

        Error: its elements were not dumped, or cannot be made again."""
        elements = self._run._run.elements(self.id)
        dtype = bits_dtype(self.format)
        return np.frombuffer(memoryview(elements), dtype).reshape(self.shape) if len(elements) else np.zeros(self.shape, dtype)

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The elements as stored, read-only: float32, float16, int8, int32, or ml_dtypes' bfloat16, float8_e4m3fn ...
        Without ml_dtypes those are records of one field that says what its bits are ("bf16_bits"), so that nobody
        computes with codes by mistake; values() gives their numbers.

        Error: as of bits()."""
        return self.bits().view(array_dtype(self.format))

    def values(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The numbers that the codes stand for, without their scale, as float32: a copy.

        Error: as of bits()."""
        codes = self.bits()
        decoded = _nanscope.decode(codes.reshape(-1).view(np.uint8), self.format)
        return np.frombuffer(memoryview(decoded), np.float32).reshape(self.shape) if codes.size else np.zeros(self.shape, np.float32)

    def row_health(self) -> list[Health]:
        """The health of each row; empty when it is not known."""
        return [health_of(row, (self.shape[1],), self.format) for row in self._run._run.row_health(self.id)]

    def png(self, width: int = 900, height: int = 600, *, head: Optional[int] = None, theme: str = "light") -> bytes:
        """A picture of its elements, of scores and probabilities those of one head; cells take at most width x height
        pixels, and each shows the worst of what it covers. theme "light" or "dark"."""
        return self._run._run.tensor_png(self.id, head, width, height, theme)

    def _repr_png_(self) -> Optional[bytes]:
        try:
            return self.png()
        except _nanscope.Error:
            return None  # its elements are not to be had: the notebook shows what is known of it

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, np.dtype[Any]]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        bad = f", {self.health.nan} NaN, {self.health.inf} Inf" if self.health.bad else ""
        return f"<nanscope.Tensor {self.name}: {self.format}, {self.shape[0]} x {self.shape[1]}{bad}>"


class Run:
    """A recording or a dump. Close it, or use it in a `with`; arrays that were taken from it stay valid.

    Any thread may ask, one is answered at a time. Ctrl+C during a read ends that run: open it again. A notebook shows the
    whole of it as a picture: token by layer and op, over all requests."""

    def __init__(self, run: _nanscope.Run, target: str) -> None:
        self._run = run
        self.target = target
        self._tensors: dict[int, list[Tensor]] = {}
        self._steps: Optional[tuple[Step, ...]] = None
        for tensor, text in run.unread:
            warnings.warn(f"{target}: not read: {text}", UnreadWarning, stacklevel=3)

    def close(self) -> None:
        self._run.close()

    @property
    def closed(self) -> bool:
        return self._run.closed

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        self.close()

    @property
    def info(self) -> RunInfo:
        row = self._run.info()
        return RunInfo(**{**row, "config": json.loads(row["config"] or "{}")})

    @property
    def requests(self) -> list[Request]:
        return [
            Request(id, _text(name), tuple(prompt), cached, tuple(output), _text(text))
            for id, name, prompt, cached, output, text in self._run.requests()
        ]

    @property
    def steps(self) -> tuple[Step, ...]:
        """In logical order."""
        if self._steps is None:
            self._steps = tuple(Step(self, row) for row in self._run.steps())
        return self._steps

    @property
    def parameters(self) -> list[Tensor]:
        """What stands before every step of a dump: weights, scales, whatever is outside of its passes."""
        return self._tensors_of(0)

    @property
    def notes(self) -> list[Note]:
        """Names that were not understood, files that were not read."""
        return [Note(tensor or None, text) for tensor, text in self._run.notes()]

    def tensors(self, *, bad: bool = False) -> Iterator[Tensor]:
        """All of them in order, parameters first; `bad`: those with a NaN or an Inf alone."""
        for step in (0, *(step.id for step in self.steps)):
            for tensor in self._tensors_of(step):
                if not bad or tensor.health.bad:
                    yield tensor

    def tensor(self, name: str) -> Tensor:
        """By its place, "4/0/0/logits", or by the name that its producer gave it, or the end of that.

        Error: none has that name, several have it."""
        return Tensor(self, self._run.find(name)[0])

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

    @property
    def first_bad(self) -> Optional[Tensor]:
        """The first tensor with a NaN or an Inf."""
        return next(self.tensors(bad=True), None)

    def diagnose(self, *, recompute: bool = True) -> Diagnosis:
        """As nanscope.diagnose()."""
        analysis = self._run.diagnose(recompute)
        return diagnosis_of(json.loads(analysis.json), analysis)

    def front(self, request: Optional[int] = None, step: Optional[int] = None) -> Front:
        """The map of one step of a request; without them, of the first that holds something bad.

        Error: there is no such step."""
        return Front(self._run.front(request, step))

    def png(self, width: int = 1200, height: int = 600, *, theme: str = "light") -> bytes:
        """A picture of the whole run, token by layer and op; cells take at most width x height pixels, and each shows the
        worst of what it covers. theme "light" or "dark"."""
        return self._run.map_png(width, height, theme)

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        return f"<nanscope.Run {self.target}{' (closed)' if self.closed else ''}>"

    def _ops_of(self, step: int) -> list[Op]:
        return [Op(self, row) for row in self._run.ops(step)]

    def _tensors_of(self, step: int) -> list[Tensor]:
        if step not in self._tensors:
            self._tensors[step] = [Tensor(self, row) for row in self._run.tensors(step)]
        return self._tensors[step]

    def _tensor_of(self, id: int) -> Tensor:
        return Tensor(self, self._run.tensor(id))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def open(
    target: Target,
    *,
    follow_links: bool = False,
    name: str = "tensors",
    model: Optional[Union[str, "os.PathLike[str]"]] = None,
) -> Run:
    """Opens a recording, a dump, or a dict of names and arrays or tensors as a dump.

    The names of a dict are those of a file of tensors: "model.layers.0.mlp.output", with "step_00000/" before it
    where there are several passes. Arrays are read where they lie, see scan(); nobody may write to them while the run is
    open. `name` is how messages call them. `follow_links`: read files out of a dump's folder that links in it lead to.
    `model`: the folder of a dump's checkpoint, whose weights and config.json are used.

    Error: it cannot be read, with the reason in one line. UnreadWarning: part of it cannot."""
    if isinstance(target, Mapping):
        given = []
        for key, array in target.items():
            try:
                one = describe(array)
            except TypeError as error:
                raise TypeError(f"{key!r}: {error}") from None
            given.append((key, one.dtype, one.shape, one.bytes))
        return Run(_nanscope.Run.of_tensors(name, given), name)
    path = os.fspath(target)
    return Run(_nanscope.Run.open(path, follow_links, "" if model is None else os.fspath(model)), path)


def diagnose(
    target: Union[Target, Run],
    *,
    recompute: bool = True,
    follow_links: bool = False,
    name: str = "tensors",
    model: Optional[Union[str, "os.PathLike[str]"]] = None,
) -> Diagnosis:
    """What is wrong, where, why, and what to do: of a recording, a dump, an open run, or a dict of names and arrays or
    tensors, see open(). `recompute`: recompute ops from their inputs, without which wrong results that are finite stay
    unseen. `model`: as of open(); an open run has its own.

    Error and UnreadWarning: as of open()."""
    if isinstance(target, Run):
        return target.diagnose(recompute=recompute)
    with open(target, follow_links=follow_links, name=name, model=model) as run:
        return run.diagnose(recompute=recompute)
