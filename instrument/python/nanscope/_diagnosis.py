"""What was found in a run, as data."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Mapping, Optional, Union

from . import _nanscope
from ._front import Front

#: NaN and infinities are the strings "nan", "inf" and "-inf", as in the JSON.
EvidenceValue = Union[int, float, str]


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault: its class, where it is, and the numbers that prove it."""

    fault_class: str  #: "kv-scale-locked", "variance-collapse" ...
    tensor: str  #: as the producer wrote it, or its place
    layer: Optional[int]
    op: Optional[str]
    request: Optional[int]
    step: Optional[int]  #: within the request; 0 is the prefill
    rank: int
    tokens: Optional[tuple[int, int]]  #: first and last position in the request
    channels: Optional[tuple[int, int]]  #: first and last
    because: Optional[int]  #: index in Diagnosis.faults of the fault that led to it; None: a root
    evidence: Mapping[str, EvidenceValue]
    summary: str
    certainty: str  #: of the cause: "proved", "shown" or "possible"
    fix: str  #: empty where the cause is only possible


@dataclasses.dataclass(frozen=True)
class Event:
    """A link of the chain from a root cause to the answer."""

    kind: str  #: a class of fault, or what values went through ("scale-computed", "token")
    tensor: Optional[str]
    layer: Optional[int]
    op: Optional[str]
    request: Optional[int]
    step: Optional[int]
    rank: int
    tokens: Optional[tuple[int, int]]
    channels: Optional[tuple[int, int]]
    because: Optional[int]  #: index in Diagnosis.chain of the event before it
    fault: Optional[int]  #: index in Diagnosis.faults
    evidence: Mapping[str, EvidenceValue]
    text: str


@dataclasses.dataclass(frozen=True)
class Check:
    """What became of the search for a class of fault."""

    fault_class: str
    state: str  #: "found", "excluded", "not-in-dump", "not-looked-at"
    text: str


@dataclasses.dataclass(frozen=True)
class Spread:
    first_bad_tensor: Optional[str]
    bad_tokens: int
    tokens: int
    at_least: bool  #: more may be bad: of some tensors only statistics are known


@dataclasses.dataclass(frozen=True)
class Warned:
    """What is no fault yet and tends to become one."""

    kind: str  #: "headroom-falling", "outlier-owns-scale" ...
    tensor: str
    layer: Optional[int]
    step: Optional[int]
    more: int  #: tensors that show the same, less
    evidence: Mapping[str, EvidenceValue]
    summary: str
    advice: str


@dataclasses.dataclass(frozen=True)
class Completeness:
    read: int  #: ops; of a dump, tensors
    expected: Optional[int]
    interrupted: bool  #: the recording ended before the run did
    reached: Optional[str]  #: the last op of an interrupted recording, as its place


@dataclasses.dataclass(frozen=True)
class LeftOut:
    tensor: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """Outputs that were recomputed from their inputs."""

    ops: int
    ops_with_inputs: int
    elements: int
    explained: int
    not_recomputed: tuple[LeftOut, ...]


@dataclasses.dataclass(frozen=True)
class Gap:
    """Outputs that were not judged, and why."""

    reason: str
    outputs: int
    example: str


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How much of a run was judged: an output counts if it was recomputed from its inputs and compared."""

    outputs: int
    judged: int
    judged_in_part: int  #: of those judged, outputs some of whose elements could not be recomputed
    unknown_names: int
    absent: int  #: tensors that every other step of the dump has
    not_looked_at: int  #: tensors that were left out, as the facts that were to be used lack them
    first_absent: Optional[str]
    gaps: tuple[Gap, ...]  #: the most frequent first
    next_step: Optional[str]  #: the one that would judge most of the rest


@dataclasses.dataclass(frozen=True)
class UnreadPart:
    """A tensor or a file that could not be read."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Note:
    """A name or a file that was not understood or not read."""

    tensor: Optional[str]
    text: str


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run, where, why, and what to do. str() of it is what `nanscope diagnose` prints."""

    target: str
    verdict: str  #: "fault", "damaged", "clean", "no-fault-found" or "nothing-to-judge"
    root_cause: Optional[Fault]  #: the root that reaches the output first
    faults: tuple[Fault, ...]  #: in order of execution
    chain: tuple[Event, ...]  #: in order of execution
    checks: tuple[Check, ...]  #: all classes of fault
    spread: Spread
    warnings: tuple[Warned, ...]
    completeness: Completeness
    recomputation: Recomputation
    coverage: Coverage
    unread: tuple[UnreadPart, ...]  #: parts that could not be read
    notes: tuple[Note, ...]
    _document: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)
    _analysis: Optional[_nanscope.Analysis] = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def place(self) -> Optional[str]:
        """The tensor of the root cause."""
        return None if self.root_cause is None else self.root_cause.tensor

    @property
    def fix(self) -> Optional[str]:
        """What to do, in a sentence."""
        return None if self.root_cause is None else self.root_cause.fix

    @property
    def front(self) -> Optional[Front]:
        """The step where things break first; None when nothing does, and of a diagnosis made from a dict."""
        made = None if self._analysis is None else self._analysis.front
        return None if made is None else Front(made)

    def to_dict(self) -> dict[str, Any]:
        """What `nanscope diagnose --format json` prints, see docs/diagnosis.schema.json."""
        return copy.deepcopy(dict(self._document))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Diagnosis:
        """Of what `nanscope diagnose --format json` printed of one target. Error: it could not be read then; it is no
        such document."""
        return diagnosis_of(document, None)

    def text(self, width: int = 100, *, ascii: bool = False) -> str:
        """What `nanscope diagnose` prints, in lines of `width` columns. Of a diagnosis made from a dict, in short."""
        if self._analysis is not None:
            return self._analysis.text(width, ascii)
        lines = [f"{self.target}: {self.verdict}"]
        lines += [f"{fault.fault_class} in {fault.tensor}: {fault.summary} {fault.fix}" for fault in self.faults]
        return "\n".join(lines) + "\n"

    def _repr_markdown_(self) -> Optional[str]:
        return None if self._analysis is None else self._analysis.markdown

    def __str__(self) -> str:
        return self.text()


def diagnosis_of(document: Mapping[str, Any], analysis: Optional[_nanscope.Analysis]) -> Diagnosis:
    if document.get("verdict") == "error":
        raise _nanscope.Error(str(document.get("error")))
    if document.get("schema") != "nanscope.diagnosis/3":
        raise _nanscope.Error(f"not a diagnosis: schema {document.get('schema')!r}, expected 'nanscope.diagnosis/3'")
    faults = tuple(_fault(one) for one in document["faults"])
    root = document["root_cause"]
    made = document["recomputation"]
    return Diagnosis(
        target=document["target"],
        verdict=document["verdict"],
        root_cause=None if root is None else _fault(root),
        faults=faults,
        chain=tuple(_event(one) for one in document["chain"]),
        checks=tuple(Check(one["class"], one["state"], one["text"]) for one in document["checks"]),
        spread=_made(Spread, document["spread"]),
        warnings=tuple(_made(Warned, one) for one in document["warnings"]),
        completeness=_made(Completeness, document["completeness"]),
        recomputation=_made(
            Recomputation, {**made, "not_recomputed": tuple(_made(LeftOut, one) for one in made["not_recomputed"])}
        ),
        coverage=_made(
            Coverage, {**document["coverage"], "gaps": tuple(_made(Gap, one) for one in document["coverage"]["gaps"])}
        ),
        unread=tuple(_made(UnreadPart, one) for one in document["unread"]),
        notes=tuple(_made(Note, one) for one in document["notes"]),
        _document=document,
        _analysis=analysis,
    )


def _made(cls: Any, row: Mapping[str, Any]) -> Any:
    """By the members that the class has: a newer document may have more."""
    return cls(**{field.name: row[field.name] for field in dataclasses.fields(cls)})


def _ranged(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{name: None if row[name] is None else tuple(row[name]) for name in ("tokens", "channels")}}


def _fault(row: Mapping[str, Any]) -> Fault:
    fault: Fault = _made(Fault, {**_ranged(row), "fault_class": row["class"]})
    return fault


def _event(row: Mapping[str, Any]) -> Event:
    event: Event = _made(Event, _ranged(row))
    return event
