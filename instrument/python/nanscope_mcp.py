"""The console script `nanscope-mcp`: commands of nanscope as tools of the Model Context Protocol.

    pip install 'nanscope[mcp]'
    nanscope-mcp

It speaks over standard input and output. An agent gets six tools: diagnose, why, verify, diff, bits, inspect. Each runs
the command of that name, which only reads files. A path is passed on as it is given: nothing is expanded or searched
for, and a path that begins with "-" is refused. An answer longer than LIMIT characters is cut, and says so. An error is
one line. docs/agents.md says what to ask in which order.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Literal

try:
    import anyio
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    sys.exit("nanscope-mcp: needs the package mcp, version 2: pip install 'nanscope[mcp]'")

LIMIT = 20_000  # characters of an answer
SECONDS = 600  # for one command
Answer = Literal["brief", "text", "json"]

_CODES = {
    "diagnose": {0: "clean, or no fault found", 1: "a fault", 3: "nothing to judge"},
    "why": {0: "traced, or no element is bad"},
    "verify": {0: "every output is the model's", 1: "an output is not the model's, or there is a note",
               3: "too little was checked"},
    "diff": {0: "the same", 1: "different"},
    "bits": {0: "printed"},
    "inspect": {0: "notes at most", 1: "a warning or an error"},
}
_ORDER = ("diagnose first; then why for a NaN or an Inf, verify with the checkpoint for finite but wrong numbers, "
          "diff for two runs. inspect looks at a checkpoint, bits at one number.")
server = MCPServer("nanscope", instructions=_ORDER)


def _program() -> str:
    """The command: what NANSCOPE_COMMAND names, that of this wheel, or the one in PATH."""
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nanscope", "bin", "nanscope-headless")
    found = os.environ.get("NANSCOPE_COMMAND") or (bundled if os.path.exists(bundled) else shutil.which("nanscope"))
    if not found:
        raise ToolError("the command nanscope is not installed: a wheel or scripts/demo has it")
    return found


def _shortened(value: Any, most: int) -> Any:
    """Lists of at most so many elements, and how many were left out."""
    if isinstance(value, dict):
        return {key: _shortened(part, most) for key, part in value.items()}
    if isinstance(value, list):
        kept = [_shortened(part, most) for part in value[:most]]
        return kept + [f"... {len(value) - most} more"] if len(value) > most else kept
    return value


def _within_limit(text: str, is_json: bool) -> str:
    if len(text) <= LIMIT:
        return text
    if is_json:
        whole = json.loads(text)
        for most in (64, 16, 4, 1, 0):
            shorter = json.dumps(_shortened(whole, most))
            if len(shorter) <= LIMIT:
                return shorter
    return f"{text[:LIMIT]}\n... {len(text) - LIMIT} characters more are left out: ask for \"brief\", or for less"


async def _run(command: str, arguments: list[str], operands: list[str], is_json: bool = False) -> str:
    """What the command prints; texts begin with the exit code. Raises ToolError, one line, where there is no answer."""
    for one in [*arguments[1::2], *(operands if command != "bits" else [])]:
        if one.startswith("-"):
            raise ToolError(f"{one!r} begins with '-', which no path may: write './{one}'")
    try:
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process([_program(), command, *arguments, "--", *operands], check=False,
                                           stdin=subprocess.DEVNULL,
                                           env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"})
    except TimeoutError:
        raise ToolError(f"nanscope {command} took longer than {SECONDS} s") from None
    except OSError as error:
        raise ToolError(f"nanscope {command}: {error.strerror}") from None
    text = done.stdout.decode(errors="replace").strip()
    said = done.stderr.decode(errors="replace").strip().splitlines()
    meaning = _CODES[command].get(done.returncode)
    partly_read = done.returncode == 2 and text != ""
    if meaning is None and not partly_read:
        raise ToolError(said[0] if said else f"nanscope {command} ended with exit code {done.returncode}")
    if is_json:
        return _within_limit(text, True)
    unread = [line for line in said if "not read:" in line][:5]
    first = f"exit code {done.returncode}: {meaning or 'a part could not be read'}"
    return _within_limit("\n".join([first, *unread, text]), False)


def _options(**given: str) -> list[str]:
    return [part for name, value in given.items() if value for part in (f"--{name.rstrip('_')}", value)]


def _flags(answer: Answer, as_json: list[str]) -> tuple[list[str], bool]:
    """They follow the options that have a value, so that every second argument is one."""
    return {"brief": (["--brief"], False), "text": ([], False), "json": (as_json, True)}[answer]


@server.tool()
async def diagnose(target: str, model: str = "", answer: Answer = "brief") -> str:
    """Finds the first numerical fault in a dump or recording: its place, cause, certainty and fix.

    target: a folder or file of dumped tensors, or a recording. model: the folder of the served checkpoint, with which
    more outputs are judged. answer: "brief" (verdict, place, cause, fix), "text" (all evidence) or "json" (schema
    nanscope.diagnosis/3).
    """
    flags, is_json = _flags(answer, ["--format", "json"])
    return await _run("diagnose", [*_options(model=model), *flags], [target], is_json)


@server.tool()
async def why(target: str, place: str = "", model: str = "", answer: Answer = "brief") -> str:
    """Walks back from a bad element to the op in which it was born.

    place: request/step/layer/op.role[token,channel] or a tensor's name in the dump; empty: the run's first bad element.
    """
    flags, is_json = _flags(answer, ["--format", "json"])
    return await _run("why", [*_options(model=model), *flags], [target, *([place] if place else [])], is_json)


@server.tool()
async def verify(dump: str, model: str, layers: str = "", ops: str = "", answer: Answer = "brief") -> str:
    """Recomputes every dumped op with the checkpoint's weights and names what the server computed instead.

    model: the folder of the served checkpoint. layers: "0,1". ops: "q_proj,softmax".
    """
    flags, is_json = _flags(answer, ["--json"])
    return await _run("verify", [*_options(model=model, layers=layers, ops=ops), *flags], [dump], is_json)


@server.tool()
async def diff(a: str, b: str, limit: int = 1, answer: Answer = "text") -> str:
    """Finds the first tensor in which two runs differ by more than rounding.

    limit: how many differences to describe.
    """
    flags, is_json = _flags(answer, ["--format", "json"])
    return await _run("diff", ["--limit", str(limit), *([] if answer == "brief" else flags)], [a, b], is_json)


@server.tool()
async def bits(value: str, number_format: str = "", answer: Answer = "text") -> str:
    """Shows a number bit by bit.

    value: 430, nan, or a code such as 0x7e. number_format: e4m3, bf16, f16 ...; empty: all.
    """
    flags, is_json = _flags(answer, ["--format", "json"])
    flags = [] if answer == "brief" else flags
    return await _run("bits", [*(["-f", number_format] if number_format else []), *flags], [value], is_json)


@server.tool()
async def inspect(checkpoint: str, loader: str = "", answer: Answer = "text") -> str:
    """Predicts how a loader (vllm, transformers, sglang) treats a quantized checkpoint's tensors and scales.

    loader: empty is vllm. A GGUF file has none: its types and its bad scales are counted.
    """
    flags, is_json = _flags(answer, ["--json"])
    return await _run("inspect", [*_options(as_=loader), *([] if answer == "brief" else flags)], [checkpoint], is_json)


def main() -> None:
    server.run("stdio")


if __name__ == "__main__":
    main()
