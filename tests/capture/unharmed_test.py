"""Whatever a model does and whatever fails in the capture, the model computes the same. usage: unharmed_test.py

Exit 77 (skipped) without torch.
"""

import io
import os
import re
import resource
import signal
import subprocess
import sys
import unittest
import warnings
from unittest import mock

from small_models import HERE, PYTHON, X, Apply, CaptureCase, Chain, linears, names_in, nanscope_capture, tensors_in, torch

from torch import nn


class Hostile:
    """Answers every question with an error."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __iter__(self):
        raise RuntimeError("iter")

    def __len__(self):
        raise RuntimeError("len")

    def __bool__(self):
        raise RuntimeError("bool")

    def __eq__(self, _):
        raise RuntimeError("eq")

    __hash__ = None


class HostileList(list):
    def __iter__(self):
        raise RuntimeError("iter")

    def __eq__(self, _):
        raise RuntimeError("eq")


class HostileDict(dict):
    def values(self):
        raise RuntimeError("values")

    def __iter__(self):
        raise RuntimeError("iter")


class Named(torch.Tensor):
    """A subclass that answers for itself what torch asks a tensor."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"nobody may call {func}")


class Wrapper(torch.Tensor):
    """Holds no numbers of its own, as distributed and fake tensors do."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"nobody may dispatch {func}")


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("str")


class BrokenCache:
    def get_seq_length(self):
        raise RuntimeError("not begun")


def nested_lists(depth):
    value = [X]
    for _ in range(depth):
        value = [value]
    return value


def doubled_lists(depth):
    """Two ways at each of the levels: 2**depth paths to one tensor."""
    value = [X]
    for _ in range(depth):
        value = [value, value]
    return value


def hidden(value):
    """A module that gives `value`, and one that goes on with what the first was given."""
    kept = []
    return Chain(Apply(lambda x: kept.append(x) or value(x)), Apply(lambda _: kept.pop()))


def cyclic():
    value = {"x": X}
    value["self"] = [value]
    return value


class KindsTest(CaptureCase):
    """Tensors and arguments that a dump cannot hold are left out, with a word, and everything else is in it."""

    def check(self, model, *arguments, says=None, **keywords):
        before = model(*arguments, **keywords)
        with nanscope_capture.attach(model, self.path()) as capture:
            for _ in range(3):
                during = model(*arguments, **keywords)
        self.assertTrue(torch.equal(before, during))
        self.assertEqual(len(capture.written), 3)
        if says is not None:
            self.assertEqual(len(self.said()), 1, self.said())  # once, not once a call
            self.assertIn(says, self.said()[0])
        else:
            self.assertEqual(self.said(), [])
        return tensors_in(capture.written[-1])

    def test_tensors_without_numbers_of_their_own(self):
        kinds = {
            "meta": lambda x: torch.empty(3, device="meta"),
            "sparse_coo": lambda x: x.to_sparse(),
            "sparse_csr": lambda x: x.to_sparse_csr(),
            "_mkldnn": lambda x: x.to_mkldnn(),
            "nested": lambda x: torch.nested.nested_tensor([x[0], x[1, :2]]),
            "Tensor": lambda x: torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged),
            "Wrapper": Wrapper,
            "complex64": lambda x: x.to(torch.complex64).conj(),
            "qint8": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        }
        for says, make in kinds.items():
            with self.subTest(says):
                self._warned.clear()
                taken = self.check(hidden(make), X, says=says)
                self.assertIn("parts.0.input", taken)
                self.assertIn("parts.1.output", taken)

    def test_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        model = linears()
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, nanscope_capture.attach(model, self.path()):
            result = model(mode.from_tensor(X))
        self.assertEqual(result.shape, (3, 4))
        self.assertTrue(self.said("FakeTensor"))

    def test_tensors_that_look_unusual_and_are_not(self):
        kinds = {
            "negated view": lambda x: torch.complex(x, x).conj().imag,
            "zero tensor": lambda x: torch._efficientzerotensor(x.shape),
            "expanded": lambda x: x[:1].expand(7, 4),
            "transposed": lambda x: x.t(),
            "no elements": lambda x: x[:0],
            "no dimension": lambda x: x[0, 0],
            "parameter": nn.Parameter,
            "subclass": lambda x: x.as_subclass(Named),
        }
        for what, make in kinds.items():
            def expected(x, make=make):
                return make(x).as_subclass(torch.Tensor).clone()

            with self.subTest(what):
                taken = self.check(hidden(make), X)["parts.0.output"]
                self.assertTrue(torch.equal(taken, expected(X)))

    def test_a_tensor_whose_storage_was_freed(self):
        """Frameworks that shard or offload do so; to read it is a segmentation fault."""
        for shape in ((1000, 1000), (0,), ()):
            def freed(x, shape=shape):
                tensor = torch.empty(shape)
                tensor.untyped_storage().resize_(0)
                return tensor

            self._warned.clear()
            self.check(hidden(freed), X, says="freed" if 0 not in shape else None)

    def test_a_huge_expanded_tensor_is_not_written_out(self):
        self.check(hidden(lambda x: x[0, 0].expand(1 << 20, 1 << 20)), X, says="expanded")

    def test_arguments_that_hold_themselves_or_others_too_deep(self):
        for what, value in {"cyclic": cyclic(), "deep": nested_lists(20000), "doubled": doubled_lists(60)}.items():
            with self.subTest(what):
                taken = self.check(Apply(lambda x, value: x), X, value)
                self.assertIn("value" if what == "none" else "args", " ".join(taken) or "args")

    def test_objects_that_raise_whatever_they_are_asked(self):
        model = Apply(lambda x, *_, inner=None, **rest: model.inner(x, Hostile(), a=Hostile(), b=HostileList([X])),
                      inner=Apply(lambda x, *_, **rest: x + 1))
        taken = self.check(model, X, Hostile(), HostileList([X]), HostileDict(a=X), rest=Hostile(), more=HostileDict(a=X))
        self.assertIn("inner.kwargs.b", taken)
        self.assertIn("more", taken)

    def test_a_model_that_raises_whatever_it_is_asked(self):
        class Odd(Chain):
            def __getattr__(self, name):
                if name in ("parts", "_parameters", "_buffers", "_modules"):
                    return super().__getattr__(name)
                raise RuntimeError(name)

        self.assertIn("parts.0.output", self.check(Odd(nn.Linear(4, 4)), X))

    def test_a_cache_that_raises(self):
        self.check(Apply(lambda x, past=None: x + 1), X, past=BrokenCache(), says="not begun")

    def test_a_signature_that_raises(self):
        class Odd(nn.Module):
            @property
            def forward(self):
                return odd_forward

        class OddForward:
            __signature__ = 7

            def __call__(self, x):
                return x + 1

        odd_forward = OddForward()
        self.check(Odd(), X)

    def test_every_error_inside_is_a_warning(self):
        """Each function of the capture in turn fails, with several kinds of errors."""
        places = ["_copy_of", "_tensors_in", "_input_and_keywords", "fault_in", "save_safetensors", "_own_tensors", "_same_bytes"]
        model = Apply(lambda x, mask=None: model.inner(x, mask=mask) + 1,
                      inner=Apply(lambda x, mask=None: model.inner.core(x, mask=mask), core=Apply(lambda x, mask=None: x * mask)))
        before = model(X, mask=X)
        for place in places:
            for error in (MemoryError(), RecursionError("deep"), OSError(28, "full"), AssertionError(), StopIteration(),
                          UnicodeError("x"), Warning("w"), TypeError("\nlines\n"), Unspeakable()):
                with self.subTest(place, error=error), mock.patch.object(nanscope_capture, place, side_effect=error):
                    with nanscope_capture.attach(model, self.path(place)):
                        for _ in range(3):
                            self.assertTrue(torch.equal(before, model(X, mask=X)))
                    if place not in ("_own_tensors", "_same_bytes"):
                        self.assertTrue(self.said())

    def test_the_interrupt_key_is_not_an_error(self):
        model = linears()
        with nanscope_capture.attach(model, self.path()):
            with mock.patch.object(nanscope_capture, "_copy_of", side_effect=KeyboardInterrupt), \
                    self.assertRaises(KeyboardInterrupt):
                model(X)
            with mock.patch.object(nanscope_capture, "save_safetensors", side_effect=KeyboardInterrupt), \
                    self.assertRaises(KeyboardInterrupt):
                model(X)
            model(X)
        whole = [step for step in self.steps() if len(names_in(self.path("dump", step))) == 2]
        self.assertEqual(len(whole), 2)
        self.assertFalse([name for name in self.steps() if "partial" in name])

    def test_warnings_that_are_errors_end_no_call(self):
        model = hidden(lambda x: x.to_sparse())
        with nanscope_capture.attach(model, self.path()), mock.patch("sys.stderr", new=io.StringIO()) as printed:
            warnings.simplefilter("error")
            model(X)
        self.assertIn("sparse", printed.getvalue())

    def test_nobody_to_be_warned_any_more(self):
        """As at the end of the interpreter."""
        model = hidden(lambda x: x.to_sparse())
        with nanscope_capture.attach(model, self.path()):
            with mock.patch.object(nanscope_capture, "warnings", None), mock.patch.object(sys, "stderr", None):
                model(X)


class EndsTest(CaptureCase):
    """Calls while the process ends, or while it does something else."""

    def run_program(self, program):
        text = f"""
import os, signal, sys, threading, time
sys.path[:0] = [{HERE!r}, {PYTHON!r}]
from small_models import X, linears, nanscope_capture, torch
torch.set_num_threads(1)
model = linears(3)
before = model(X)
{program}
"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, check=False, cwd=self.folder,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The one line that says what was written.
        self.assertRegex(done.stderr, r"\A(nanscope_capture: \d+ steps?, [\d.]+ MB in [^\n]*; now: nanscope diagnose [^\n]*\n)?\Z")
        return done.stdout

    def test_calls_at_the_end_of_the_interpreter(self):
        """Later than this, torch itself does not work."""
        out = self.run_program("""
import atexit
nanscope_capture.attach(model, "dump")
nanscope_capture.attach(model, "recorder", last_steps=2)
atexit.register(lambda: print(torch.equal(model(X), before)))
""")
        self.assertEqual(out, "True\n")
        self.assertEqual(self.steps(), ["step_00000"])

    def test_a_signal_handler_that_calls_the_model(self):
        out = self.run_program("""
calls, depth = 0, 0
def handler(*_):
    global calls, depth
    if depth == 0:
        depth, calls = 1, calls + 1
        assert torch.equal(model(X), before)
        depth = 0
signal.signal(signal.SIGALRM, handler)
with nanscope_capture.attach(model, "dump") as capture:
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    for _ in range(200):
        assert torch.equal(model(X), before)
    signal.setitimer(signal.ITIMER_REAL, 0)
print(capture.steps == 200 + calls, len(capture.written) == capture.steps, capture.dropped, calls > 0)
""")
        self.assertEqual(out.split(), ["True", "True", "[]", "True"])
        for step in self.steps():
            self.assertEqual(len(names_in(self.path("dump", step))), 6, step)


class PlacesTest(CaptureCase):
    """Folders that cannot be written to."""

    def test_a_folder_that_cannot_be_made(self):
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        os.symlink("nowhere/at/all", self.path("link"))
        for place in ("file", "file/below", "link", "\0", "x" * 5000):
            with self.subTest(place[:20]):
                model = linears()
                before = model(X)
                self._warned.clear()
                with nanscope_capture.attach(model, self.path(place)) as capture:
                    for _ in range(5):
                        self.assertTrue(torch.equal(before, model(X)))
                self.assertEqual(capture.written, [])
                self.assertEqual(capture.dropped, [0, 1, 2, 3, 4])
                self.assertEqual(len(self.said()), 2, self.said())  # it cannot be written, and at the end what is lost

    def test_a_full_disk(self):
        self.addCleanup(signal.signal, signal.SIGXFSZ, signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, old)
        model = Chain(nn.Linear(4, 400))
        before = model(X)
        with nanscope_capture.attach(model, self.path()) as capture:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old[1]))
            for _ in range(3):
                self.assertTrue(torch.equal(before, model(X)))
            self.assertEqual(self.steps(), [])  # nothing that looks like a dump, and nothing of it
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        self.assertEqual([os.path.basename(one) for one in capture.written], ["step_00000", "step_00001", "step_00002"])
        self.assertEqual(capture.dropped, [])


class UntouchedTest(CaptureCase):
    """What flows through the model, and what the program has set, is as without the capture."""

    def test_random_numbers_gradients_versions_and_strides(self):
        def run():
            torch.manual_seed(3)
            model = Chain(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.RReLU(), nn.Linear(4, 4))
            x = X.clone().t().contiguous().t().requires_grad_()
            with nanscope_capture.attach(model, self.path()) if watched else mock.MagicMock():
                seen = []
                model.parts[1].register_forward_hook(
                    lambda _, args, result: seen.append((args[0]._version, result._version, result.stride(),
                                                         type(result.grad_fn).__name__, args[0].requires_grad)))
                for _ in range(3):
                    result = model(x)
                    result.square().sum().backward()
            tensors = [result, x.grad, *[p.grad for p in model.parameters()], *model.buffers(), torch.get_rng_state()]
            return [tensor.tolist() for tensor in tensors], seen, x._version

        watched = False
        before = run()
        watched = True
        during = run()
        self.assertEqual(before, during)

    def test_inference_mode_autocast_and_a_default_device(self):
        model = linears(3)
        for mode in (torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16),
                     lambda: torch.autograd.set_detect_anomaly(True), torch.autograd.forward_ad.dual_level):
            with self.subTest(str(mode)), mode():
                before = model(X)
                with nanscope_capture.attach(model, self.path()):
                    during = model(X)
                self.assertTrue(torch.equal(before, during))
                self.assertEqual(before.requires_grad, during.requires_grad)
        with torch.device("meta"), nanscope_capture.attach(model, self.path()) as capture:
            model.forward(X)
            model(X)
        self.assertIn("parts.2.output", names_in(capture.written[0]))
        self.assertEqual(self.said(), [])

    def test_modes_of_the_program_see_nothing_of_it(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Counts(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        class CountsFunctions(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        model = linears(2)
        counted = []
        for watched in (False, True):
            seen = []
            with nanscope_capture.attach(model, self.path()) if watched else mock.MagicMock():
                with Counts(), CountsFunctions():
                    model(X)
            counted.append(seen)
        self.assertEqual(*counted)

    def test_checkpointed_modules_are_computed_again(self):
        from torch.utils.checkpoint import checkpoint
        for reentrant in (False, True):
            grads = []
            for watched in (False, True):
                torch.manual_seed(2)
                inner = Chain(nn.Linear(4, 4), nn.Dropout(0.3))
                model = Apply(lambda x: checkpoint(model.inner, x, use_reentrant=reentrant), inner=inner)
                x = X.clone().requires_grad_()
                with nanscope_capture.attach(model, self.path()) if watched else mock.MagicMock():
                    model(x).sum().backward()
                grads.append(x.grad)
            self.assertTrue(torch.equal(*grads))

    def test_transforms_of_functions(self):
        model = linears(2)
        parameters = dict(model.named_parameters())

        def call(parameters, x):
            return torch.func.functional_call(model, parameters, (x,)).sum()

        for what, function in {"vmap": lambda: torch.func.vmap(model)(X), "grad": lambda: torch.func.grad(call)(parameters, X),
                               "jvp": lambda: torch.func.jvp(model, (X,), (X,)),
                               "per sample": lambda: torch.func.vmap(torch.func.grad(call), (None, 0))(parameters, X),
                               "hessian": lambda: torch.func.hessian(lambda x: model(x).sum())(X)}.items():
            with self.subTest(what):
                self._warned.clear()
                before = function()
                with nanscope_capture.attach(model, self.path(what)):
                    during = function()
                torch.testing.assert_close(before, during, rtol=0, atol=0)
                self.assertEqual(len(self.said("torch.func")), 1)

    def test_compiled_traced_scripted_and_exported_models(self):
        from torch.fx.experimental.proxy_tensor import make_fx
        model = linears(2).eval()
        before = model(X)
        ways = {
            "compile": lambda: torch.compile(model, backend="eager", fullgraph=True)(X),
            "compile in place": lambda: (model.compile(backend="eager", fullgraph=True), model(X))[1],
            "a part compiled": lambda: Chain(torch.compile(model.parts[0], backend="eager"), model.parts[1])(X),
            "export": lambda: torch.export.export(model, (X,)).module()(X),
            "trace": lambda: torch.jit.trace(model, X)(X),
            "fx": lambda: torch.fx.symbolic_trace(model)(X),
            "make_fx": lambda: make_fx(model)(X)(X),
        }
        for what, way in ways.items():
            torch.compiler.reset()
            with self.subTest(what), nanscope_capture.attach(model, self.path(what)):
                self.assertTrue(torch.equal(before, way()))
            model._compiled_call_impl = None
        graphs = []
        for watched in (False, True):
            with nanscope_capture.attach(model, self.path("graphs")) if watched else mock.MagicMock():
                graphs.append([str(torch.fx.symbolic_trace(model).graph), re.sub(r"___torch_mangle_\d+", "", str(torch.jit.trace(model, X).inlined_graph)),
                               make_fx(model)(X).code, str(torch.export.export(model, (X,)).graph)])
        self.assertEqual(*graphs)

    def test_a_model_with_scripted_parts(self):
        model = Chain(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 4))
        before = model(X)
        with nanscope_capture.attach(model, self.path()) as capture:
            self.assertTrue(torch.equal(before, model(X)))
        self.assertEqual(names_in(capture.written[0]), {"x", "parts.1.input", "parts.1.output"})
        self.assertEqual(len(self.said("cannot be hooked")), 1)
        whole = torch.jit.script(nn.Linear(4, 4))
        with nanscope_capture.attach(whole, self.path("whole")):
            whole(X)

    def test_the_kernel_of_the_encoder_layer_is_still_taken(self):
        """torch takes another way through it where a hook is in it, and the last bits are others."""
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        x = torch.randn(2, 5, 16)
        for model in (nn.TransformerEncoder(layer, 2).eval(), layer.eval()):
            with torch.inference_mode():
                before = model(x)
                with nanscope_capture.attach(model, self.path()):
                    during = model(x)
            self.assertTrue(torch.equal(before, during))
        self.assertTrue(self.said("set_fastpath_enabled"))

    def test_what_the_model_raises_is_what_comes_out(self):
        class Mine(Exception):
            pass

        def fail(x):
            raise mine

        model = Chain(nn.Linear(4, 4), Apply(fail))
        with nanscope_capture.attach(model, self.path()) as capture:
            for mine in (Mine("m"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(), StopIteration(), None):
                with self.assertRaises((BaseException,)) as raised:
                    model(X)
                if mine is not None:
                    self.assertIs(raised.exception, mine)
        self.assertEqual(len(capture.written), 6)  # what ran before it is worth having
        self.assertEqual(len(self.said("did not return")), 1)
        for folder in capture.written:
            self.assertEqual(names_in(folder), {"parts.0.input", "parts.0.output", "parts.1.input"})


if __name__ == "__main__":
    unittest.main()
