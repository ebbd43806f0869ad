"""The compiled part. The package wraps it: nothing here is to be relied on."""

from typing import Any, Optional, Sequence

__version__: str

class Error(Exception): ...

class Elements:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Health:
    count: int
    nan: int
    pos_inf: int
    neg_inf: int
    saturated: int
    subnormal: int
    zero: int
    flushed: int
    clipped: int
    first_bad: Optional[int]
    min: Optional[float]
    max: Optional[float]
    absmax: Optional[float]
    mean: Optional[float]
    variance: Optional[float]

class Span:
    request: int
    index: int
    row: int
    rows: int
    first_token: int
    context: int

class StepRow:
    id: int
    kind: str
    rank: int
    name: str
    rows: int
    batch: int
    spans: list[Span]

class OpRow:
    id: int
    step: int
    layer: Optional[int]
    name: str
    kind: str
    attributes_json: str
    inputs: list[tuple[str, int, str]]
    outputs: list[int]

class TensorRow:
    id: int
    op: int
    step: int
    role: str
    name: str
    place: str
    format: str
    tokens: int
    channels: int
    heads: int
    health: Health
    known: bool

class FrontRow:
    label: str
    layer: int
    detailed: bool
    cells: bytes

class FrontMap:
    request: int
    step: int
    first_token: int
    tokens: int
    rows: list[FrontRow]
    def text(self, width: int, ascii: bool) -> str: ...
    def png(self, width: int, height: int, theme: str) -> bytes: ...

class Analysis:
    json: str
    markdown: str
    front: Optional[FrontMap]
    def text(self, width: int, ascii: bool) -> str: ...

class Run:
    closed: bool
    unread: list[tuple[str, str]]
    @staticmethod
    def open(path: str, follow_links: bool, model: str) -> Run: ...
    @staticmethod
    def of_tensors(target: str, tensors: Sequence[tuple[str, str, Sequence[int], Any]]) -> Run: ...
    def close(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def requests(self) -> list[tuple[int, bytes, list[int], int, list[int], bytes]]: ...
    def notes(self) -> list[tuple[str, str]]: ...
    def steps(self) -> list[StepRow]: ...
    def ops(self, step: int) -> list[OpRow]: ...
    def tensors(self, step: int) -> list[TensorRow]: ...
    def tensor(self, id: int) -> TensorRow: ...
    def find(self, place: str) -> tuple[TensorRow, Optional[int], Optional[int]]: ...
    def elements(self, tensor: int) -> Elements: ...
    def row_health(self, tensor: int) -> list[Health]: ...
    def diagnose(self, recompute: bool) -> Analysis: ...
    def front(self, request: Optional[int], step: Optional[int]) -> FrontMap: ...
    def map_png(self, width: int, height: int, theme: str) -> bytes: ...
    def tensor_png(self, tensor: int, head: Optional[int], width: int, height: int, theme: str) -> bytes: ...

def formats() -> list[dict[str, Any]]: ...
def dtypes() -> list[dict[str, Any]]: ...
def format_named(name: str) -> Optional[str]: ...
def bits_json(input: str, format: str, scale: float, saturate: bool) -> str: ...
def bits_text(input: str, format: str, scale: float, saturate: bool, ascii: bool) -> str: ...
def decode(codes: Any, format: str) -> Elements: ...
def quantize_kv(
    values: Any, kv_heads: int, head_dim: int, scheme: str, keys: bool
) -> tuple[Elements, dict[str, Any], str, float]: ...
def kv_policies() -> list[str]: ...
def scan(
    buffer: Any, dtype: str, shape: Sequence[int], format: Optional[str], sums: bool, threads: int
) -> Health: ...
