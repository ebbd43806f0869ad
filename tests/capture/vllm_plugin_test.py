"""The plugin of vLLM, with a package that has what it touches of vLLM 0.32. usage: vllm_plugin_test.py

Real vLLM is run by tests/real/vllm_serving.py. Exit 77 (skipped) without torch.
"""

import os
import subprocess
import sys
import textwrap
import unittest

from small_models import PYTHON, CaptureCase, names_in, torch

sys.path.insert(0, PYTHON)
import nanscope_vllm  # noqa: E402  (the path stands above)

# A worker, its runner and the model as the plugin sees them. Attention is a module with a cache, the head is called behind
# the model, the sampler is no part of it; a warm-up runs the model without requests.
VLLM = {
    "vllm/__init__.py": "",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
        class EngineArgs:
            enforce_eager = False
            def create_engine_config(self):
                return self.enforce_eager
        """,
    "vllm/forward_context.py": """
        current = None
        def get_forward_context():
            return current
        """,
    "vllm/v1/__init__.py": "",
    "vllm/v1/worker/__init__.py": "",
    "vllm/v1/worker/worker_base.py": """
        class WorkerWrapperBase:
            def __init__(self, worker):
                self.worker = worker
            def execute_model(self, *args):
                return self.worker.execute_model(*args)
            def __getattr__(self, name):
                return getattr(self.worker, name)
        """,
    "program.py": """
        import types
        import torch
        import nanscope_vllm
        nanscope_vllm.register()
        import vllm.forward_context as context
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.worker.worker_base import WorkerWrapperBase

        print("eager", EngineArgs().create_engine_config())

        class Attention(torch.nn.Module):
            kv_cache_dtype, isa, impl = "fp8", None, object()
            def __init__(self):
                super().__init__()
                self.kv_cache = torch.arange(2 * 3 * 2 * 1 * 4).to(torch.uint8).reshape(2, 3, 2, 1, 4)
            def forward(self, x):
                return x

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attn, self.head = Attention(), torch.nn.Linear(4, 5)
            def forward(self, input_ids, positions):
                return self.attn(torch.ones(len(input_ids), 4))

        class Sampler(torch.nn.Module):
            def forward(self, logits):
                return types.SimpleNamespace(sampled_token_ids=logits.argmax(-1, keepdim=True))

        model, sampler = Model(), Sampler()

        class Worker:
            model_runner = types.SimpleNamespace(model=types.SimpleNamespace(runnable=model), sampler=sampler,
                                                 input_batch=types.SimpleNamespace(req_ids=["a"]))
            def execute_model(self, scheduled):
                metadata = types.SimpleNamespace(query_start_loc=torch.tensor([0, 2]), seq_lens=torch.tensor([2]),
                                                 block_table=torch.tensor([[1]]), slot_mapping=torch.tensor([2, -1]))
                context.current = types.SimpleNamespace(attn_metadata={"attn": metadata}, slot_mapping={})
                with torch.inference_mode():
                    self.hidden = model(input_ids=torch.tensor([1, 2]), positions=torch.tensor([0, 1]))
                    self.logits = model.head(self.hidden)
            def sample_tokens(self, grammar):
                return sampler(self.logits)

        wrapper = WorkerWrapperBase(Worker())
        with torch.inference_mode():
            model(torch.tensor([0]), torch.tensor([0]))
        for _ in range(2):
            wrapper.execute_model(None)
            wrapper.sample_tokens(None)
        """,
}


class OptionsTest(unittest.TestCase):
    def test_all(self):
        text = "some folder,every=10,last=4,after=2,inputs=0,max_bytes=7,modules=layers\\.(0|1)\\.,x=y"
        self.assertEqual(nanscope_vllm.options_of(text), ("some folder", False, {
            "every": 10, "last_steps": 4, "after": 2, "inputs": False, "max_bytes": 7, "modules": "layers\\.(0|1)\\.,x=y"}))
        self.assertEqual(nanscope_vllm.options_of("dump"), ("dump", False, {}))
        self.assertEqual(nanscope_vllm.options_of("dump,recorder"), ("dump", True, {}))
        self.assertEqual(nanscope_vllm.options_of("dump,recorder,last=2,jump=8,modules=recorder,x"), ("dump", True, {
            "last": 2, "jump": 8, "modules": "recorder,x"}))

    def test_mistakes(self):
        for text in (",every=1", "dump,evry=1", "dump,every", "dump,every=x", "dump,every=-1", "dump,last=4,recorder",
                     "dump,recorder,every=2", "dump,recorderlast=4"):
            with self.assertRaises(ValueError, msg=text):
                nanscope_vllm.options_of(text)


class StoredRowsTest(unittest.TestCase):
    """The rows of three layouts, against codes that say where they lie."""

    def setUp(self):
        # keys[block, slot, head, channel]
        self.keys = torch.arange(2 * 3 * 2 * 4).reshape(2, 3, 2, 4).to(torch.uint8)
        self.values = 100 + self.keys
        self.slots = torch.tensor([4, 0, -1])
        self.expected = [[part[1, 1].flatten().tolist(), part[0, 0].flatten().tolist(), [0] * 8] for part in (self.keys, self.values)]

    def check(self, cache, isa=None):
        rows = nanscope_vllm.stored_rows(cache, self.slots, isa)
        self.assertEqual([part.tolist() for part in rows], self.expected)

    def test_of_the_gpu(self):
        three = torch.cat([self.keys, self.keys[:1]]), torch.cat([self.values, self.values[:1]])  # blocks that are not two
        self.check(torch.stack(three))
        self.check(torch.stack(three, 1))

    def test_of_the_cpu(self):
        keys = self.keys.permute(0, 2, 3, 1).reshape(2, 2, 12)  # [block, head, channel x slot]
        values = self.values.permute(0, 2, 1, 3).reshape(2, 2, 12)
        self.check(torch.cat([keys, values], 2).reshape(2, 2, 3, 8), "vec")

    def test_not_known(self):
        self.assertIsNone(nanscope_vllm.stored_rows(torch.zeros(2, 2, 3, 8), self.slots, "amx"))
        self.assertIsNone(nanscope_vllm.stored_rows(torch.zeros(3, 5, 576), self.slots, None))


class PluginTest(CaptureCase):
    def run_program(self, variable):
        for name, text in VLLM.items():
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(text))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([self.folder, PYTHON]), "NANSCOPE_CAPTURE": variable}
        return subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, check=True, cwd=self.folder,
                              env=environment, timeout=300)

    def test_steps(self):
        done = self.run_program("dump")
        self.assertEqual(done.stdout, "eager True\n")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "dump"))), ["step_00000", "step_00001"])
        names = names_in(os.path.join(self.folder, "dump", "step_00001"))
        self.assertEqual(names, {
            "input_ids", "positions", "attn.input", "attn.output", "head.input", "head.output", "query_start_loc", "seq_lens",
            "block_table", "slot_mapping", "request_ids", "sampled_token_ids", "attn.k_cache_write", "attn.v_cache_write"})

    def test_off(self):
        done = self.run_program("")
        self.assertEqual((done.stdout, done.stderr), ("eager False\n", ""))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "dump")))

    def test_mistakes_do_not_end_the_server(self):
        for variable in ("dump,evry=1", "dump,modules=nothing"):
            done = self.run_program(variable)
            self.assertIn("nothing is captured: ValueError: ", done.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.folder, "dump")))


if __name__ == "__main__":
    unittest.main()
