"""Captures a small PyTorch model and asks nanscope what went wrong. usage: capture_test.py NANSCOPE

Exit 77 (skipped) without torch. The model is made here; the expected answers are known by how it is broken.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "instrument", "python"))
import nanscope_capture  # noqa: E402

NANSCOPE = os.path.abspath(sys.argv.pop(1))


class Mlp(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate_proj = torch.nn.Linear(width, 2 * width, bias=False)
        self.up_proj = torch.nn.Linear(width, 2 * width, bias=False)
        self.act_fn = torch.nn.SiLU()
        self.down_proj = torch.nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.post_attention_layernorm = torch.nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(torch.nn.Module):
    def __init__(self, width=32, vocabulary=64):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList([Layer(width) for _ in range(3)])
        self.norm = torch.nn.LayerNorm(width)
        self.lm_head = torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def diagnose(folder):
    run = subprocess.run([NANSCOPE, "diagnose", folder, "--format", "json"], capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise AssertionError(run.stderr)
    return json.loads(run.stdout)


class CaptureTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = Model().eval()
        self.ids = torch.randint(0, 64, (1, 7))

    def path(self, name="dump"):
        return os.path.join(self.folder.name, name)

    def test_a_healthy_model_is_clean(self):
        with nanscope_capture.attach(self.model, self.path()) as capture:
            self.model(self.ids)
            self.model(self.ids)
        self.assertEqual(len(capture.written), 2)
        self.assertIsNone(capture.fault)
        self.assertEqual(diagnose(self.path())["verdict"], "clean")

    def test_names_the_overflow_of_a_half_precision_mlp(self):
        model = self.model.half()
        with torch.no_grad():
            model.layers[1].mlp.up_proj.weight *= 3000
            model.layers[1].mlp.gate_proj.weight *= 300
        with nanscope_capture.attach(model, self.path()) as capture:
            model(self.ids)
        self.assertIsNotNone(capture.fault)
        answer = diagnose(self.path())
        self.assertEqual(answer["verdict"], "fault")
        self.assertEqual(answer["root_cause"]["layer"], 1)
        self.assertIn(answer["root_cause"]["class"], ("f16-overflow", "invalid-op"))

    def test_the_flight_recorder_writes_on_a_fault_alone(self):
        capture = nanscope_capture.attach(self.model, self.path(), last_steps=3, after=1)
        for _ in range(5):
            self.model(self.ids)
        self.assertEqual(capture.written, [])
        with torch.no_grad():
            self.model.layers[2].mlp.down_proj.weight[3, 4] = float("nan")
        for _ in range(4):
            self.model(self.ids)
        capture.detach()
        steps = [os.path.basename(folder) for folder in capture.written]
        self.assertEqual(steps, ["step_00003", "step_00004", "step_00005", "step_00006"])
        self.assertEqual(capture.fault[0], 5)
        answer = diagnose(self.path())
        self.assertEqual(answer["root_cause"]["layer"], 2)
        self.assertTrue(answer["spread"]["first_bad_tensor"].startswith("step_00005/"))

    def test_says_that_a_compiled_model_hides_its_modules(self):
        compiled = torch.compile(self.model, backend="eager")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with nanscope_capture.attach(compiled, self.path()):
                compiled(self.ids)
        self.assertTrue(any("compiled" in str(warning.message) for warning in said))

    def test_results_are_not_changed(self):
        before = self.model(self.ids)
        with nanscope_capture.attach(self.model, self.path()):
            during = self.model(self.ids)
        self.assertTrue(torch.equal(before, during))

    def test_all_dtypes_come_back(self):
        tensors = {"bf16": torch.randn(3, 5).bfloat16(), "e4m3": torch.randn(8).to(torch.float8_e4m3fn), "bool": torch.tensor([True, False]),
                   "i64": torch.arange(4), "empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
        path = self.path("all.safetensors")
        nanscope_capture.save_safetensors(tensors, path)
        self.assertEqual(diagnose(path)["verdict"], "clean")
        self.assertEqual(diagnose(path)["completeness"]["read"], len(tensors))


if __name__ == "__main__":
    unittest.main()
