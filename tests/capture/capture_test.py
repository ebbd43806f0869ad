"""Captures a small PyTorch model and asks nanscope what went wrong. usage: capture_test.py NANSCOPE

Exit 77 (skipped) without torch. The model is made here; the expected answers are known by how it is broken.
"""

import json
import os
import struct
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


class Attention(torch.nn.Module):
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, temperature=1.0):
        cos, sin = position_embeddings
        return (hidden_states * cos + sin) * attention_mask[..., None] * temperature


class Block(torch.nn.Module):
    """Hands its arguments on by keyword, as transformers does."""

    def __init__(self, width, own_mask):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.self_attn = Attention()
        self.own_mask = own_mask

    def forward(self, hidden_states, attention_mask=None, position_embeddings=None):
        mask = attention_mask * 2 if self.own_mask else attention_mask
        x = self.norm(input=hidden_states)
        return self.self_attn(attention_mask=mask, hidden_states=x, position_embeddings=position_embeddings)


class Cache:
    def get_seq_length(self):
        return 5


class Decoder(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(64, width)
        self.layers = torch.nn.ModuleList([Block(width, False), Block(width, True)])

    def forward(self, ids=None, positions=None, attention_mask=None, past_key_values=None, inputs_embeds=None):
        x = self.embed_tokens(ids) if inputs_embeds is None else inputs_embeds
        mask, angles = attention_mask.float(), (torch.ones(7, 32), torch.zeros(7, 32))
        for layer in self.layers:
            x = layer(x, attention_mask=mask, position_embeddings=angles)
        return x


def header(path):
    """Shapes by name of a safetensors file."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return {name: entry["shape"] for name, entry in json.loads(file.read(size)).items()}


def diagnose(folder):
    run = subprocess.run([NANSCOPE, "diagnose", folder, "--format", "json"], capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1, 3):
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

    def test_a_healthy_model_is_not_accused(self):
        with nanscope_capture.attach(self.model, self.path()) as capture:
            self.model(self.ids)
            self.model(self.ids)
        self.assertEqual(len(capture.written), 2)
        self.assertIsNone(capture.fault)
        found = diagnose(self.path())
        self.assertEqual(found["verdict"], "no-fault-found")  # without its weights not all can be judged
        self.assertGreater(found["coverage"]["judged"], 0)

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

    def test_keyword_arguments_are_dumped_under_their_names(self):
        mask = torch.ones(1, 7, dtype=torch.int64)
        model = Decoder()
        with nanscope_capture.attach(model, self.path()):
            model(self.ids, torch.arange(7), attention_mask=mask, past_key_values=Cache())
        found = header(self.path("dump/step_00000/tensors.safetensors"))
        self.assertEqual(found["input_ids"], [1, 7])
        self.assertEqual(found["positions"], [7])
        self.assertEqual(found["attention_mask"], [1, 7])
        self.assertEqual(found["past_length"], [])
        self.assertIn("layers.0.norm.input", found)  # its only argument, though by keyword
        self.assertEqual(found["layers.0.self_attn.input"], [1, 7, 32])  # hidden_states, though not the first keyword
        self.assertEqual(found["layers.0.self_attn.kwargs.position_embeddings"], [7, 32])
        self.assertEqual(found["layers.0.self_attn.kwargs.position_embeddings.1"], [7, 32])
        self.assertIn("layers.0.self_attn.kwargs.attention_mask", found)
        self.assertNotIn("layers.0.self_attn.kwargs.temperature", found)

    def test_a_keyword_argument_that_is_handed_on_is_dumped_once(self):
        model = Decoder()
        with nanscope_capture.attach(model, self.path()):
            model(self.ids, attention_mask=torch.ones(1, 7, dtype=torch.int64))
        found = header(self.path("dump/step_00000/tensors.safetensors"))
        self.assertNotIn("layers.0.kwargs.attention_mask", found)
        self.assertNotIn("layers.1.kwargs.position_embeddings", found)
        self.assertIn("layers.1.self_attn.kwargs.position_embeddings", found)  # every layer says what it used
        self.assertIn("layers.1.kwargs.attention_mask", found)  # it made another of it
        self.assertIn("layers.1.self_attn.kwargs.attention_mask", found)

    def test_a_mask_before_embeddings_is_not_taken_for_ids(self):
        model, mask = Decoder(), torch.ones(1, 7, dtype=torch.int64)
        with nanscope_capture.attach(model, self.path(), inputs=False):
            model(attention_mask=mask, inputs_embeds=torch.randn(1, 7, 32))
        found = header(self.path("dump/step_00000/tensors.safetensors"))
        self.assertIn("attention_mask", found)
        self.assertNotIn("input_ids", found)
        self.assertNotIn("inputs_embeds", found)
        self.assertFalse([name for name in found if ".kwargs." in name or ".input" in name])

    def test_all_dtypes_come_back(self):
        tensors = {"bf16": torch.randn(3, 5).bfloat16(), "e4m3": torch.randn(8).to(torch.float8_e4m3fn), "bool": torch.tensor([True, False]),
                   "i64": torch.arange(4), "empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
        path = self.path("all.safetensors")
        nanscope_capture.save_safetensors(tensors, path)
        self.assertEqual(diagnose(path)["verdict"], "nothing-to-judge")  # names that no model has
        self.assertEqual(diagnose(path)["completeness"]["read"], len(tensors))


if __name__ == "__main__":
    unittest.main()
