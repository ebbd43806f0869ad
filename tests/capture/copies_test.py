"""Copies of a model that is being captured, and what is left when it no longer is. usage: copies_test.py

Exit 77 (skipped) without torch.
"""

import copy
import gc
import pickle
import subprocess
import sys
import unittest
import weakref

from small_models import X, CaptureCase, Chain, linears, names_in, nanscope_capture, torch

from torch import nn


class CopiesTest(CaptureCase):
    """Copies of an attached model are made as of any other and are not captured."""

    def setUp(self):
        super().setUp()
        self.model = linears(2)
        self.model.parts[0].register_buffer("k_scale", torch.ones(1))
        self.capture = nanscope_capture.attach(self.model, self.path())
        self.addCleanup(self.capture.detach)

    def check(self, other):
        calls = self.capture.steps
        self.assertTrue(torch.equal(self.model(X), other(X)))
        self.assertEqual(self.capture.steps, calls + 1)

    def test_deep_copy(self):
        self.check(copy.deepcopy(self.model))
        self.check(copy.deepcopy(copy.deepcopy(self.model)))

    def test_shallow_copy(self):
        self.check(copy.copy(self.model))
        self.check(Chain(*[copy.copy(part) for part in self.model.parts]))

    def test_pickle_of_every_protocol(self):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            self.check(pickle.loads(pickle.dumps(self.model, protocol)))
            self.check(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(self.model, protocol)), protocol)))

    def test_a_copy_within_a_call(self):
        copies = []
        self.model.parts[1].register_forward_hook(lambda *_: copies.append(copy.deepcopy(self.model)))
        self.model(X)
        self.check(copies[0])

    def test_saved_and_loaded_where_there_is_no_capture(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())  # of classes that the other process has
        with nanscope_capture.attach(model, self.path("saved")):
            torch.save(model, self.path("model.pt"))
            torch.save(X, self.path("x.pt"))
            torch.save(model(X), self.path("result.pt"))
        program = f"""
import sys, torch
model, x, result = (torch.load({self.folder!r} + "/" + name, weights_only=False) for name in ("model.pt", "x.pt", "result.pt"))
assert torch.equal(model(x), result)
assert "nanscope_capture" not in sys.modules
seen = []
for part in model.modules():  # hooks of the other process are called as it says
    part.register_forward_pre_hook(lambda module, args: seen.append(1))
    part.register_forward_hook(lambda module, args, result: seen.append(2))
assert torch.equal(model(x), result) and len(seen) == 6
torch.save(model.state_dict(), {self.folder!r} + "/state.pt")
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_model_that_holds_its_capture(self):
        self.model.capture = self.capture
        self.model.parts[0].forward = lambda x: (self.model.capture.add("by.hand", x), x)[1]
        other = copy.deepcopy(self.model)
        self.assertFalse(other.capture.written)
        other.capture.add("nothing", X)
        self.model(X)
        self.assertIn("by.hand", names_in(self.capture.written[0]))

    def test_nothing_is_left_after_detach(self):
        plain = linears(2)
        before = {name: dict(module.__dict__) for name, module in plain.named_modules()}
        nanscope_capture.attach(plain, self.path("plain")).detach()
        for name, module in plain.named_modules():
            self.assertEqual(set(before[name]), set(module.__dict__))
            for table in ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs",
                          "_forward_hooks_always_called"):
                self.assertFalse(getattr(module, table), table)

    def test_a_model_that_is_gone_is_gone(self):
        model = linears(2)
        gone = weakref.ref(model)
        nanscope_capture.attach(model, self.path("gone"))
        model(X)
        del model
        gc.collect()
        self.assertIsNone(gone())

    def test_memory_is_given_back(self):
        """What was written is held no longer, though it is what `fault` speaks of."""
        model = linears()
        with nanscope_capture.attach(model, self.path("freed"), last_steps=2, after=0) as capture:
            model(X * float("nan"))
            self.assertEqual(capture.fault[0], 0)
            gc.collect()
            self.assertFalse([one for one in gc.get_objects() if isinstance(one, nanscope_capture._Step) and one.tensors])

    def test_hooks_that_are_called_after_detach(self):
        hooks = [hook for module in self.model.modules() for hook in module._forward_hooks.values()]
        self.capture.detach()
        for hook in hooks:
            hook(self.model.parts[0], (X,), X)
        self.model(X)
        self.assertEqual(self.capture.steps, 0)
        self.assertEqual(self.said(), [])

    def test_detach_within_a_call(self):
        self.model.parts[0].register_forward_hook(lambda *_: self.capture.detach())
        before = self.model(X)
        self.assertTrue(torch.equal(before, self.model(X)))
        self.assertTrue(self.said("detached while"))


if __name__ == "__main__":
    unittest.main()
