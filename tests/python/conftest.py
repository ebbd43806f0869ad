"""What the tests of the Python package share. NANSCOPE_COMMAND is the nanscope command that answers are compared with."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest


class Command:
    """The nanscope command, called as one that is installed is: texts lay out what to type next by its name."""

    def __init__(self, path):
        self.path = path

    def run(self, *arguments, cwd=None):
        return subprocess.run(["nanscope", *map(str, arguments)], executable=self.path, capture_output=True, text=True,
                              check=False, cwd=cwd, env={name: value for name, value in os.environ.items()
                                                         if name != "COLUMNS"})  # newer versions of pytest set it

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


def record(command, folder, capture):
    path = folder / f"{capture}.nanscope"
    done = command.run("run", "kv-scale-lock", "-o", path, "--capture", capture, "--brief")
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture(scope="session")
def stored(command, tmp_path_factory):
    """A recording of the flagship, with the elements of all tensors."""
    return record(command, tmp_path_factory.mktemp("stored"), "all")


@pytest.fixture(scope="session")
def unstored(command, tmp_path_factory):
    """The same without elements, which replay makes again."""
    return record(command, tmp_path_factory.mktemp("unstored"), "none")


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
