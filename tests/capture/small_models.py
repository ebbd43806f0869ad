"""What the tests of nanscope_capture share: small models, and dumps as they lie in a folder."""

import json
import os
import struct
import sys
import tempfile
import unittest
import warnings

try:
    import torch
except ImportError:  # a test that is run by itself says so to CTest, a collection of tests goes on
    if os.path.dirname(os.path.abspath(sys.argv[0])) == os.path.dirname(os.path.abspath(__file__)):
        print("skipped: torch is not installed")
        sys.exit(77)
    raise unittest.SkipTest("torch is not installed") from None

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "..", "..", "instrument", "python")
sys.path.insert(0, PYTHON)
import nanscope_capture  # noqa: E402, F401

X = torch.arange(12.0).reshape(3, 4) - 5


class Chain(torch.nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Apply(torch.nn.Module):
    """Does what it is told, with whatever it is given."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def linears(count=1):
    torch.manual_seed(1)
    return Chain(*[torch.nn.Linear(4, 4) for _ in range(count)])


def header_and_data(folder):
    with open(os.path.join(folder, "tensors.safetensors"), "rb") as file:
        content = file.read()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8:8 + size]), content[8 + size:]


def names_of(folders):
    return [os.path.basename(folder) for folder in folders]


def names_in(folder):
    return set(header_and_data(folder)[0])


def tensors_in(folder):
    """The float32 tensors of a step."""
    header, data = header_and_data(folder)
    floats = {name: (one["shape"], data[slice(*one["data_offsets"])]) for name, one in header.items() if one["dtype"] == "F32"}
    return {name: torch.tensor(struct.unpack(f"<{len(part) // 4}f", part)).reshape(shape) for name, (shape, part) in floats.items()}


class CaptureCase(unittest.TestCase):
    """A folder of its own, and what was warned of."""

    def setUp(self):
        torch.manual_seed(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        caught = warnings.catch_warnings(record=True)
        self._warned = caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("always")

    def path(self, *parts):
        return os.path.join(self.folder, *(parts or ("dump",)))

    def said(self, part=""):
        """The warnings of the capture that `part` occurs in."""
        texts = [str(one.message) for one in self._warned]
        return [text for text in texts if text.startswith("nanscope_capture: ") and part in text]

    def steps(self, *parts):
        return sorted(os.listdir(self.path(*parts)))
