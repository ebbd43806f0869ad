"""What the tests of the Python package share. NANSCOPE_COMMAND is the nanscope command that answers are compared with."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest


class Command:
    """The nanscope command."""

    def __init__(self, path):
        self.path = path

    def run(self, *arguments, cwd=None):
        return subprocess.run([self.path, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd)

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--format", "json").stdout)

    def error(self, *arguments):
        """The line of a refusal, without the program's name."""
        done = self.run(*arguments)
        assert done.returncode == 2, done.stderr
        return done.stderr.removeprefix("nanscope: ").removesuffix("\n")


@pytest.fixture(scope="session")
def command():
    path = os.environ.get("NANSCOPE_COMMAND")
    if not path:
        pytest.skip("NANSCOPE_COMMAND is not set")
    return Command(os.path.abspath(path))


@pytest.fixture(scope="session")
def recordings(command, tmp_path_factory):
    """The flagship, with the elements of all tensors stored, and with none, which replay makes again."""
    folder = tmp_path_factory.mktemp("recordings")
    for capture in ("all", "none"):
        done = command.run("run", "kv-scale-lock", "-o", folder / f"{capture}.nanscope", "--capture", capture)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def source():
    """The root of the source tree."""
    return pathlib.Path(__file__).resolve().parents[2]


def norm(layer, weight, dtype=np.float32):
    """The input norm of a layer as a server would dump it: two rows of four, whose weight is 1 but for channel 2."""
    x = np.array([[30, -10, 20, 40], [-50, 10, 0, 20]], np.float32)
    weights = np.array([1, 1, weight, 1], np.float32)
    out = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6) * weights
    name = f"model.layers.{layer}.input_layernorm."
    return {name + "input": x.astype(dtype), name + "weight": weights.astype(dtype), name + "output": out.astype(dtype)}


@pytest.fixture
def faulty():
    """Two norms, the first with a NaN weight."""
    return {**norm(0, np.nan), **norm(1, 1)}


@pytest.fixture
def healthy():
    return {**norm(0, 1), **norm(1, 1)}
