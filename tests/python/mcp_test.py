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
