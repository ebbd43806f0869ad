"""nanscope-mcp, asked over its standard input and output as agents ask it. Needs the package mcp."""

import asyncio
import json
import os
import pathlib
import sys

import numpy as np
import pytest

mcp = pytest.importorskip("mcp")
from mcp.client.stdio import stdio_client  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = ROOT / "instrument" / "python" / "nanscope_mcp.py"
TOOLS = ["diagnose", "why", "verify", "diff", "bits", "inspect"]


def ask(*questions, folder=None, environment=()):
    """The answers (whether it is an error, the text) of one server to several questions."""
    async def session():
        parameters = mcp.StdioServerParameters(command=sys.executable, args=[str(SERVER)], cwd=folder,
                                               env={**os.environ, **dict(environment)})
        async with stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as client:
            await client.initialize()
            tools = [tool.name for tool in (await client.list_tools()).tools]
            answers = []
            for tool, arguments in questions:
                found = await client.call_tool(tool, arguments)
                assert len(found.content) == 1
                answers.append((found.is_error, found.content[0].text))
            return tools, answers

    return asyncio.run(session())


@pytest.fixture
def dumps(tmp_path):
    """A healthy dump and one whose second layer returns a NaN."""
    for name, bad in (("good", 1.0), ("bad", np.nan)):
        folder = tmp_path / name / "step_0"
        folder.mkdir(parents=True)
        for layer in range(3):
            values = np.full((2, 4), 0.5 + layer, dtype=np.float32)
            values[1, 2] = bad if layer > 0 else 1
            np.save(folder / f"model.layers.{layer}.mlp.output.npy", values)
    return tmp_path


def test_the_tools(dumps):
    tools, answers = ask(("diagnose", {"target": "bad"}), ("why", {"target": "bad"}), ("diff", {"a": "good", "b": "bad"}),
                         ("bits", {"value": "-430", "number_format": "e4m3"}), folder=dumps)
    assert tools == TOOLS
    assert [error for error, _ in answers] == [False] * 4
    diagnosed, traced, different, number = [text for _, text in answers]
    assert diagnosed.startswith("exit code 1: a fault\nVerdict   bad: ") and "step_0/model.layers.1.mlp.output" in diagnosed
    assert traced.startswith("exit code 0: ") and "model.layers.1.mlp.output" in traced
    assert different.startswith("exit code 1: different\n") and "model.layers.1.mlp.output" in different
    assert "-416 (0xfd)" in number


def test_json(dumps):
    _, [(error, text)] = ask(("diagnose", {"target": "bad", "answer": "json"}), folder=dumps)
    assert not error
    found = json.loads(text)
    assert (found["verdict"], found["root_cause"]["tensor"]) == ("fault", "step_0/model.layers.1.mlp.output")


def test_errors_are_one_line(dumps):
    _, answers = ask(("diagnose", {"target": "no such dump"}), ("diagnose", {"target": "--version"}), ("diagnose", {"target": "~"}),
                     ("verify", {"dump": "bad", "model": "--gui"}), ("why", {"target": "bad", "place": "nowhere"}), folder=dumps)
    for error, text in answers:
        assert error and "\n" not in text, text
    assert "no such dump: no such file or folder" in answers[0][1]
    assert "begins with '-'" in answers[1][1] and "begins with '-'" in answers[3][1]
    assert "~: no such file or folder" in answers[2][1]  # not the home


def test_no_command():
    _, [(error, text)] = ask(("bits", {"value": "1"}), environment={"NANSCOPE_COMMAND": "", "PATH": "/nowhere"}.items())
    assert error and "the command nanscope is not installed" in text


def test_long_answers_are_cut(tmp_path):
    """Of text the end is left out, of JSON elements of lists, so that it stays JSON. A command that prints much stands in."""
    program = tmp_path / "nanscope"
    environment = {"NANSCOPE_COMMAND": str(program)}.items()
    many = json.dumps({"verdict": "fault", "faults": [{"tensor": "x" * 100, "tokens": list(range(999))} for _ in range(99)]})
    answers = {}
    for answer, printed in (("text", "line\n" * 9999), ("json", many)):
        program.write_text(f"#!{sys.executable}\nprint({printed!r})\n")
        program.chmod(0o755)
        _, [(error, answers[answer])] = ask(("diagnose", {"target": "x", "answer": answer}), environment=environment)
        assert not error and len(answers[answer]) < 20_200
    assert "characters more are left out" in answers["text"].splitlines()[-1]
    found = json.loads(answers["json"])
    assert found["verdict"] == "fault" and found["faults"][-1].startswith("... ") and found["faults"][-1].endswith(" more")


@pytest.fixture
def stand_in(tmp_path):
    """A command that prints what it was called with, or what it is told, and ends with the code that it is told."""
    program = tmp_path / "nanscope"
    program.write_text(f"""#!{sys.executable}
import json, os, sys
print(os.environ.get("SAID", ""), end="", file=sys.stderr)
print(os.environ.get("PRINTED", json.dumps([sys.argv[1:], os.environ["NO_COLOR"], os.environ["COLUMNS"],
                                            os.path.samestat(os.fstat(0), os.stat(os.devnull))])))
sys.exit(int(os.environ.get("CODE", "0")))
""")
    program.chmod(0o755)
    return {"NANSCOPE_COMMAND": str(program)}


ARGUMENTS = [
    ("diagnose", {"target": "t"}, "diagnose --brief -- t"),
    ("diagnose", {"target": "t", "model": "m", "answer": "text"}, "diagnose --model m -- t"),
    ("diagnose", {"target": "t", "answer": "json"}, "diagnose --format json -- t"),
    ("why", {"target": "t", "place": "p", "model": "m"}, "why --model m --brief -- t p"),
    ("verify", {"dump": "d", "model": "m", "layers": "0,1", "ops": "softmax", "answer": "json"},
     "verify --model m --layers 0,1 --ops softmax --json -- d"),
    ("verify", {"dump": "d", "model": "m"}, "verify --model m --brief -- d"),
    ("diff", {"a": "x", "b": "y", "limit": 3}, "diff --limit 3 -- x y"),
    ("diff", {"a": "x", "b": "y", "answer": "json"}, "diff --limit 1 --format json -- x y"),
    ("bits", {"value": "-1", "number_format": "e4m3"}, "bits -f e4m3 -- -1"),
    ("inspect", {"checkpoint": "c", "loader": "sglang", "answer": "json"}, "inspect --as sglang --json -- c"),
]


def test_arguments(stand_in):
    _, answers = ask(*[(tool, given) for tool, given, _ in ARGUMENTS], environment=stand_in.items())
    for (error, text), (_, _, expected) in zip(answers, ARGUMENTS):
        assert not error, text
        assert json.loads(text.splitlines()[-1]) == [expected.split(), "1", "120", True]


def test_exit_codes(stand_in):
    for code, said, expected in (
            (1, "", (False, "exit code 1: an output is not the model's, or there is a note\nfound")),
            (2, "a: not read: why\nother\n", (False, "exit code 2: a part could not be read\na: not read: why\nfound"))):
        environment = {**stand_in, "CODE": str(code), "PRINTED": "found", "SAID": said}
        assert ask(("verify", {"dump": "d", "model": "m"}), environment=environment.items())[1] == [expected]
    for code, said, expected in ((2, "nanscope: d: is a text\nand more\n", "nanscope: d: is a text"),
                                 (4, "", "nanscope verify ended with exit code 4")):
        environment = {**stand_in, "CODE": str(code), "PRINTED": "", "SAID": said}
        _, [(error, text)] = ask(("verify", {"dump": "d", "model": "m"}), environment=environment.items())
        assert error and text.endswith(expected)


def test_a_command_that_cannot_run_or_does_not_end(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SERVER.parent))
    import nanscope_mcp

    assert nanscope_mcp.server.instructions.startswith("diagnose first; ")
    program = tmp_path / "nanscope"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    monkeypatch.setenv("NANSCOPE_COMMAND", str(program))
    monkeypatch.setattr(nanscope_mcp, "SECONDS", 0.5)
    for mode, expected in ((0o644, "nanscope bits: Permission denied"), (0o755, "nanscope bits took longer than 0.5 s")):
        program.chmod(mode)
        with pytest.raises(nanscope_mcp.ToolError) as error:
            asyncio.run(nanscope_mcp.bits("1"))
        assert str(error.value) == expected
