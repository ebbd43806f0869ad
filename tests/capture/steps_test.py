"""What nanscope_capture writes: whole steps, what modules were given, once each, over nothing. usage: steps_test.py

Exit 77 (skipped) without torch.
"""

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
import types
import unittest
from unittest import mock

from small_models import HERE, PYTHON, X, Apply, CaptureCase, Chain, linears, names_in, names_of, nanscope_capture, tensors_in, torch

from torch import nn

NAN = torch.full((3, 4), float("nan"))


def attach_and_call(folder, calls, **options):
    model = linears()
    with nanscope_capture.attach(model, folder, **options) as capture:
        for call in range(calls):
            model(X + call)
    return capture


class Headed(Chain):
    """A model whose head is not called by its forward, as those of vLLM."""

    def __init__(self):
        super().__init__(nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)


class OpenStepsTest(CaptureCase):
    """until_end_step: what runs behind the model's call belongs to its step."""

    def test_the_head_and_added_tensors(self):
        model = Headed()
        with nanscope_capture.attach(model, self.path(), until_end_step=True) as capture:
            for _ in range(2):
                model.head(model(X))
                capture.add("tokens", torch.tensor([1]))
                self.assertEqual(names_of(capture.written), [f"step_{n:05d}" for n in range(len(capture.written))])
            capture.end_step()
            self.assertEqual(len(capture.written), 2)
            model.head(X)  # in no step
        for folder in capture.written:
            self.assertLessEqual({"head.input", "head.output", "tokens", "parts.0.output"}, names_in(folder))
        self.assertEqual(len(capture.written), 2)

    def test_detach_ends_it(self):
        model = Headed()
        capture = nanscope_capture.attach(model, self.path(), until_end_step=True)
        model(X)
        self.assertEqual(capture.written, [])
        capture.detach()
        self.assertEqual(len(capture.written), 1)

    def test_without_it_the_head_is_in_no_step(self):
        model = Headed()
        with nanscope_capture.attach(model, self.path()) as capture:
            model.head(model(X))
        self.assertNotIn("head.output", names_in(capture.written[0]))


class ChosenCallsTest(CaptureCase):
    def test_when(self):
        model = linears()
        wanted = []
        with nanscope_capture.attach(model, self.path(), when=lambda: bool(wanted)) as capture:
            model(X)
            wanted.append(1)
            model(X)
        self.assertEqual((capture.steps, names_of(capture.written)), (1, ["step_00000"]))

    def test_a_pattern_without_a_module(self):
        model = linears()
        with self.assertRaisesRegex(ValueError, "no module of the model has a name that 'nothing' finds"):
            nanscope_capture.attach(model, self.path(), modules="nothing")
        self.assertEqual([len(part._forward_hooks) for part in model.modules()], [0] * 3)

    def test_the_last_line(self):
        done = subprocess.run([sys.executable, "-c", f"""
import sys
sys.path[:0] = [{HERE!r}, {PYTHON!r}]
from small_models import X, linears, nanscope_capture
with nanscope_capture.attach(linears(), "a dump") as capture:
    capture.detach()
model = linears()
with nanscope_capture.attach(model, "a dump"):
    model(X)
"""], capture_output=True, text=True, check=True, cwd=self.folder, timeout=300)
        self.assertEqual(done.stderr, "nanscope_capture: 1 step, 0.0 MB in a dump; now: nanscope diagnose 'a dump'\n")


class WeightsTest(CaptureCase):
    def test_they_are_written_once(self):
        model = linears(2)
        model.register_buffer("scale", torch.tensor([2.0]))
        model.register_buffer("angles", torch.tensor([1.0]), persistent=False)
        model.parts[1].weight = model.parts[0].weight  # tied
        model.config = types.SimpleNamespace(to_json_string=lambda: "{}")
        expected = {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "parts.1.weight"}
        with nanscope_capture.attach(model, self.path(), weights=True):
            model(X)
        checkpoint = os.path.join(self.path(), "checkpoint")
        self.assertEqual(sorted(os.listdir(checkpoint)), ["config.json", "model.safetensors"])
        os.rename(os.path.join(checkpoint, "model.safetensors"), os.path.join(checkpoint, "tensors.safetensors"))
        found = tensors_in(checkpoint)
        self.assertEqual(set(found), {"parts.0.weight", "parts.0.bias", "parts.1.bias", "scale"})
        self.assertTrue(all(torch.equal(found[name], tensor) for name, tensor in expected.items()))
        with self.assertWarnsRegex(RuntimeWarning, "is there already"), nanscope_capture.attach(linears(5), self.path(), weights=True):
            pass
        self.assertEqual(set(tensors_in(checkpoint)), set(found))

    def test_a_model_without_weights(self):
        with nanscope_capture.attach(Chain(torch.nn.Identity()), self.path(), weights=True):
            pass
        self.assertEqual((os.listdir(self.path()), self.said()), (["checkpoint"], []))

    def test_a_model_that_cannot_be_written_is_captured(self):
        model = linears()
        model.register_parameter("nothing", torch.nn.Parameter(torch.empty(2, device="meta")))
        with self.assertWarnsRegex(RuntimeWarning, "the weights cannot be written"):
            capture = nanscope_capture.attach(model, self.path(), weights=True)
        with capture:
            model(X)
        self.assertEqual(os.listdir(self.path()), ["step_00000"])


class ScriptTest(CaptureCase):
    """python -m nanscope.capture: each model that a script calls, none that it only uses as a function."""

    SCRIPT = f"""
import sys
sys.path[:0] = [{HERE!r}]
from small_models import X, linears
import torch
print(sys.argv, __name__)
torch.nn.Linear(4, 4)(X)
models = [linears(9), linears(9)]
for model in (*models, models[0]):
    model(X)
"""

    def run_script(self, text, *options):
        with open(os.path.join(self.folder, "script.py"), "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run([sys.executable, os.path.join(PYTHON, "nanscope_capture.py"), *options], capture_output=True,
                              text=True, check=False, cwd=self.folder, timeout=300)

    def test_models(self):
        done = self.run_script(self.SCRIPT, "-o", "out", "--modules", r"parts\.[01]$", "script.py", "-x", "1")
        self.assertEqual((done.returncode, done.stdout), (0, "['script.py', '-x', '1'] __main__\n"), done.stderr)
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out"))), ["step_00000", "step_00001"])
        self.assertEqual(os.listdir(os.path.join(self.folder, "out-2")), ["step_00000"])
        names = names_in(os.path.join(self.folder, "out-2", "step_00000"))
        self.assertEqual({name for name in names if name.startswith("parts")}, {
            "parts.0.input", "parts.0.output", "parts.1.input", "parts.1.output"})

    def test_mistakes(self):
        done = self.run_script("", "nothing.py")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing.py: No such file or directory", done.stderr)
        done = self.run_script("", "--modules", "(", "script.py")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--modules '(' is no regular expression", done.stderr)
        done = self.run_script("print(1)", "script.py")
        self.assertEqual((done.returncode, done.stderr), (0, "nanscope_capture: the script called no model\n"))
        done = self.run_script(self.SCRIPT, "--modules", "nothing", "script.py")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Chain is not captured: no module of the model has a name that 'nothing' finds", done.stderr)
        done = self.run_script("raise SystemExit(7)", "script.py")
        self.assertEqual(done.returncode, 7)


class SharedModulesTest(CaptureCase):
    """A module that several others hold has its name in the one that calls it."""

    def test_one_rotation_for_all_layers(self):
        rotation = Apply(lambda x: x + 1, inner=nn.Identity())
        layers = [Apply(lambda x: x, rotary=rotation, own=nn.Linear(4, 4)) for _ in range(3)]
        for layer in layers:
            layer.function = lambda x, layer=layer: layer.own(layer.rotary(x))
        rotation.function = lambda x: rotation.inner(x) + 1
        model = Chain(*layers)
        with torch.no_grad(), nanscope_capture.attach(model, self.path(), inputs=False) as capture:
            model(X)
        expected = {f"parts.{i}{part}.output" for i in range(3) for part in ("", ".rotary", ".rotary.inner", ".own")}
        self.assertLessEqual(expected, names_in(capture.written[0]))
        self.assertFalse([name for name in names_in(capture.written[0]) if "_again" in name])


class InputsTest(CaptureCase):
    """Inputs are recorded as they were given, to modules that work in place too."""

    def take(self, model, *args, **kwargs):
        with torch.no_grad(), nanscope_capture.attach(model, self.path()) as capture:
            model(*args, **kwargs)
        return tensors_in(capture.written[-1])

    def test_in_place(self):
        def by_version(x):
            return x.mul_(2)

        def by_data(x):  # counts no version
            x.data.mul_(2)
            return x

        def by_pointer(x):  # as a kernel that is handed a pointer
            x.numpy()[:] *= 2
            return x

        def by_view(x):
            x[1:].view(-1)[:4] = 7
            return x

        def by_out(x):
            return torch.neg(x, out=x)

        for change in (by_version, by_data, by_view, by_out, by_pointer):
            with self.subTest(change.__name__):
                if change is by_pointer:
                    try:
                        X.numpy()
                    except RuntimeError:
                        self.skipTest("NumPy is not installed")
                given = X.clone()
                taken = self.take(Chain(nn.Identity(), Apply(change), nn.Identity()), given)
                self.assertTrue(torch.equal(taken["parts.1.input"], X))
                self.assertTrue(torch.equal(taken["parts.0.output"], X))
                self.assertTrue(torch.equal(taken["parts.1.output"], given))
                self.assertFalse(torch.equal(taken["parts.1.output"], X))

    def test_in_place_under_inference_mode(self):
        with torch.inference_mode():
            taken = self.take(Chain(nn.Linear(4, 4), nn.ReLU(inplace=True)), X)
        self.assertTrue(torch.equal(taken["parts.1.input"], taken["parts.0.output"]))
        self.assertFalse(torch.equal(taken["parts.1.input"], taken["parts.1.output"]))

    def test_a_fused_sum_and_norm(self):
        """Both that it is given are changed, and one of them is the other module's result."""
        def fused(x, residual):
            residual.add_(x)
            x.copy_(nn.functional.layer_norm(residual, (4,)))
            return x, residual

        model = Apply(lambda x: model.norm(model.lin(x), residual), lin=nn.Linear(4, 4), norm=Apply(fused))
        residual = torch.ones(3, 4)
        taken = self.take(model, X)
        self.assertTrue(torch.equal(taken["norm.input"], taken["lin.output"]))
        self.assertTrue(torch.equal(taken["norm.input.1"], torch.ones(3, 4)))
        self.assertTrue(torch.equal(taken["norm.output.1"], taken["norm.input"] + 1))

    def test_keywords(self):
        def spoil(hidden_states, residual=None, pair=()):
            hidden_states.zero_()
            residual.fill_(float("nan"))
            pair[0].fill_(3)
            return residual

        model = Apply(lambda x: model.inner(hidden_states=x, residual=x + 1, pair=[x + 2, x + 3]), inner=Apply(spoil))
        taken = self.take(model, X.clone())
        self.assertTrue(torch.equal(taken["inner.input"], X))
        self.assertTrue(torch.equal(taken["inner.kwargs.residual"], X + 1))
        self.assertTrue(torch.equal(taken["inner.kwargs.pair"], X + 2))
        self.assertTrue(torch.equal(taken["inner.kwargs.pair.1"], X + 3))
        self.assertTrue(taken["inner.output"].isnan().all())

    def test_what_is_passed_on_changed_is_both(self):
        """A keyword that a module only hands on is said once; the same tensor with other numbers in it is not the same."""
        def outer(x, mask=None):
            if change:
                mask.add_(1)
            return model.outer.inner(x, mask=mask)

        for change in (False, True):
            with self.subTest(change=change):
                core = Apply(outer, inner=Apply(lambda x, mask=None: x * mask))
                model = Apply(lambda x: model.outer(x, mask=torch.ones(3, 4)), outer=core)
                taken = self.take(model, X)
                self.assertEqual("outer.kwargs.mask" in taken, change)
                self.assertTrue(torch.equal(taken["outer.inner.kwargs.mask"], torch.full((3, 4), 1.0 + change)))

    def test_arguments_of_the_model(self):
        model = Chain(Apply(lambda x: x.fill_(float("nan"))))
        taken = self.take(model, X.clone())
        self.assertTrue(torch.equal(taken["parts.0.input"], X))
        self.assertNotIn("x", taken)  # it is that
        taken = self.take(Apply(lambda x: x.zero_() + 1), X.clone())
        self.assertTrue(torch.equal(taken["args"], X))

    def test_a_nan_that_is_made_in_place_is_not_blamed_on_what_came_in(self):
        def spoil(x):
            x[0, 0] = float("nan")
            return x

        model = Chain(nn.Linear(4, 4), Apply(spoil))
        with torch.no_grad(), nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.assertEqual(capture.fault, (0, "parts.1.output", "NaN"))

    def test_what_is_changed_later_is_as_it_was(self):
        results = []
        model = Apply(lambda x: (results.append(model.inner(x)), results[0].zero_())[1], inner=Apply(lambda x: x + 1))
        self.assertTrue(torch.equal(self.take(model, X)["inner.output"], X + 1))


class NumbersTest(CaptureCase):
    """Nothing that lies in the folder is written over."""

    def test_a_second_capture_goes_on_behind_the_first(self):
        first = attach_and_call(self.path(), 3)
        before = {folder: open(os.path.join(folder, "tensors.safetensors"), "rb").read() for folder in first.written}
        second = attach_and_call(self.path(), 2)
        self.assertEqual(names_of(second.written), ["step_00003", "step_00004"])
        for folder, content in before.items():
            with open(os.path.join(folder, "tensors.safetensors"), "rb") as file:
                self.assertEqual(file.read(), content)

    def test_two_at_once(self):
        model = linears()
        with nanscope_capture.attach(model, self.path()) as first, nanscope_capture.attach(model, self.path()) as second:
            for _ in range(5):
                model(X)
        self.assertEqual(len(set(first.written + second.written)), 10)
        self.assertEqual(self.steps(), [f"step_{i:05d}" for i in range(10)])

    def test_whatever_has_the_name(self):
        os.makedirs(self.path("dump", "step_00000"))
        with open(self.path("dump", "step_00001"), "w", encoding="utf-8") as file:
            file.write("mine")
        os.symlink("nowhere", self.path("dump", "step_00002"))
        os.makedirs(self.path("dump", "step_00009x"))
        capture = attach_and_call(self.path(), 2)
        self.assertEqual(names_of(capture.written), ["step_00003", "step_00004"])
        self.assertEqual(os.listdir(self.path("dump", "step_00000")), [])
        with open(self.path("dump", "step_00001"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")

    def test_a_name_that_is_taken_meanwhile(self):
        model = linears()
        with nanscope_capture.attach(model, self.path(), last_steps=2, after=0) as capture:
            model(X)
            os.makedirs(self.path("dump", "step_00001", "mine"))
            model(NAN)
        self.assertEqual(names_of(capture.written), ["step_00000", "step_00002"])
        self.assertEqual(capture.fault[0], 2)  # where it lies

    def test_the_fault_is_told_by_its_folder(self):
        attach_and_call(self.path(), 4)
        model = linears()
        with nanscope_capture.attach(model, self.path(), last_steps=2, after=0) as capture:
            for x in (X, X, NAN):
                model(x)
        self.assertEqual(names_of(capture.written), ["step_00005", "step_00006"])
        self.assertEqual(capture.fault[0], 6)

    def test_processes_at_once(self):
        program = f"""
import sys
sys.path[:0] = [{HERE!r}, {PYTHON!r}]
from small_models import X, linears, nanscope_capture, torch
torch.set_num_threads(1)
model = linears()
with nanscope_capture.attach(model, {self.path()!r}) as capture:
    for _ in range(40):
        model(X)
print(*capture.written)
"""
        running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
        written = [name for one in running for name in one.communicate(timeout=300)[0].split()]
        self.assertEqual(len(written), 120)
        self.assertEqual(len(set(written)), 120)
        self.assertEqual(self.steps(), [f"step_{i:05d}" for i in range(120)])
        for folder in written:
            self.assertEqual(len(names_in(folder)), 2)

    def test_a_forked_process(self):
        """It has neither the threads that held a lock nor the steps that wait to be written."""
        if not hasattr(os, "fork"):
            self.skipTest("no fork here")
        model = linears()
        with nanscope_capture.attach(model, self.path()) as capture:
            with mock.patch.object(nanscope_capture, "save_safetensors", side_effect=OSError(28, "full")):
                model(X)
            with capture._lock, capture._writer._lock:
                child = threading.Thread(target=lambda: results.append(os.fork() or self.child(model)))
                results = []
                child.start()
                child.join()
            pid = results[0]
            for _ in range(100):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                time.sleep(0.1)
            else:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                self.fail("the forked process hangs")
            self.assertEqual(status, 0)
            model(X)
        self.assertEqual(len(self.steps()), 3)

    @staticmethod
    def child(model):
        try:
            model(X)
        finally:
            os._exit(0)

    def test_nothing_that_is_not_whole_has_a_name(self):
        model = linears()
        real = nanscope_capture.save_safetensors
        seen = []

        def save(tensors, path):
            real(tensors, path)
            seen.append([name for name in self.steps() if re.fullmatch(r"step_\d+", name)])

        with mock.patch.object(nanscope_capture, "save_safetensors", save), nanscope_capture.attach(model, self.path()):
            model(X)
            model(X)
        self.assertEqual(seen, [[], ["step_00000"]])
        self.assertEqual(self.steps(), ["step_00000", "step_00001"])


class ThreadsTest(CaptureCase):
    """Calls at the same time, within each other, or over before they are."""

    def check_whole(self, capture, count, tensors):
        self.assertEqual([len(names_in(folder)) for folder in capture.written], [tensors] * count)
        self.assertFalse([name for folder in capture.written for name in names_in(folder) if "_again" in name])

    def test_threads(self):
        model = linears(10)
        barrier = threading.Barrier(4)

        def work(which):
            barrier.wait()
            for _ in range(10):
                model(X + which)

        with nanscope_capture.attach(model, self.path()) as capture:
            threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
        self.assertEqual(capture.steps, 40)
        self.check_whole(capture, 40, 20)
        for folder in capture.written:  # each is of one call
            tensors = tensors_in(folder)
            for i in range(1, 10):
                self.assertTrue(torch.equal(tensors[f"parts.{i}.input"], tensors[f"parts.{i - 1}.output"]))

    def test_a_fault_beside_healthy_calls(self):
        """The flight recorder writes the step of the fault though others end while it runs."""
        begun, go_on = threading.Event(), threading.Event()

        def wait(x):
            if bool(x.isnan().any()):
                begun.set()
                go_on.wait(60)
            return x

        model = Chain(nn.Linear(4, 4), Apply(wait))
        with nanscope_capture.attach(model, self.path(), last_steps=2, after=0) as capture:
            faulty = threading.Thread(target=lambda: model(NAN))
            faulty.start()
            begun.wait(60)
            for _ in range(3):
                model(X)
            go_on.set()
            faulty.join()
            model(X)
        self.assertIn("step_00000", names_of(capture.written))
        self.assertEqual(capture.fault[0], 0)

    def test_a_model_that_calls_itself(self):
        def again(x, depth=2):
            x = model.inner(x)
            return model.inner.other(model(x, depth - 1) if depth > 0 else x)

        inner = nn.Linear(4, 4)
        inner.other = nn.Linear(4, 4)
        model = Apply(again, inner=inner)
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.check_whole(capture, 3, 4)
        self.assertEqual(sorted(names_of(capture.written)), ["step_00000", "step_00001", "step_00002"])

    def test_tasks(self):
        model = linears(4)

        async def work():
            for _ in range(5):
                model(X)
                await asyncio.sleep(0)
                await asyncio.to_thread(model, X)

        async def all_of_them():
            await asyncio.gather(*[work() for _ in range(4)])

        with nanscope_capture.attach(model, self.path()) as capture:
            asyncio.run(all_of_them())
        self.check_whole(capture, 40, 8)

    def test_a_model_that_is_awaited_says_that_it_cannot_be_captured(self):
        async def forward(x):
            x = model.inner(x)
            await asyncio.sleep(0)
            return model.inner(x)

        model = Apply(forward, inner=nn.Linear(4, 4))

        async def all_of_them():
            return await asyncio.gather(model(X), model(X + 1))

        before = asyncio.run(all_of_them())
        with nanscope_capture.attach(model, self.path()) as capture:
            during = asyncio.run(all_of_them())
        self.assertTrue(all(map(torch.equal, before, during)))
        self.assertEqual(capture.written, [])
        self.assertEqual(len(self.said("async")), 1)

    def test_a_generator_says_so_too(self):
        def forward(x):
            yield model.inner(x)

        model = Apply(forward, inner=nn.Linear(4, 4))
        with nanscope_capture.attach(model, self.path()) as capture:
            self.assertEqual(len(list(model(X))), 1)
        self.assertEqual(capture.written, [])
        self.assertEqual(len(self.said("generator")), 1)

    def test_modules_in_other_threads_say_so(self):
        def in_a_thread(x):
            results = []
            thread = threading.Thread(target=lambda: results.append(model.inner(x)))
            thread.start()
            thread.join()
            return model.inner(results[0])

        model = Apply(in_a_thread, inner=nn.Linear(4, 4))
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.check_whole(capture, 1, 3)
        self.assertEqual(len(self.said("thread")), 1)

    def test_modules_by_themselves_are_no_step(self):
        model = linears(2)
        with nanscope_capture.attach(model, self.path()) as capture:
            model.parts[0](X)
            model(X)
            model.parts[1](X)
        self.check_whole(capture, 1, 4)
        self.assertEqual(self.said(), [])

    def test_a_call_that_is_interrupted_is_not_the_outer_one_of_the_next(self):
        interrupt = True

        def stop(x):
            if interrupt:
                raise KeyboardInterrupt
            return x

        model = Chain(nn.Linear(4, 4), Apply(stop), nn.Linear(4, 4))
        with nanscope_capture.attach(model, self.path()) as capture:
            for _ in range(3):
                with self.assertRaises(KeyboardInterrupt):
                    model(X)
            self.assertEqual(len(capture._running), 1)
            interrupt = False
            model(X)
            self.assertEqual(capture._running, set())
        self.assertEqual([len(names_in(folder)) for folder in capture.written], [3, 3, 3, 6])

    def test_an_error_that_the_model_catches(self):
        def fail(x):
            raise ValueError

        def catch(x):
            try:
                model.first(x)
            except ValueError:
                return model.second(x, mask=x)

        model = Apply(catch, first=Apply(lambda x: model.first.inner(x), inner=Apply(fail)), second=Apply(lambda x, mask: x + mask))
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.assertEqual(names_in(capture.written[0]), {"first.input", "first.inner.input", "second.input", "second.kwargs.mask",
                                                        "second.output"})


class NamesTest(CaptureCase):
    """A module that is called often."""

    def loop(self, count):
        def forward(x):
            for _ in range(count):
                x = model.inner(x, x, mask=x)
            return x

        model = Apply(forward, inner=Apply(lambda *x, mask: (x[0] * 1, mask)[0]))
        start = time.perf_counter()
        with torch.no_grad(), nanscope_capture.attach(model, self.path(str(count))) as capture:
            model(torch.ones(1, 2))
        return time.perf_counter() - start, capture.written[0]

    def test_names(self):
        _, folder = self.loop(3)
        self.assertEqual(names_in(folder), {"inner." + name for again in ("", "_again2", "_again3")
                                            for name in (f"input{again}", f"input{again}.1", f"kwargs.mask{again}", f"output{again}")})

    def test_size_and_time_grow_with_the_calls(self):
        self.loop(10)
        _, small = self.loop(500)
        seconds, large = self.loop(4000)
        sizes = [os.path.getsize(os.path.join(folder, "tensors.safetensors")) for folder in (small, large)]
        self.assertLess(sizes[1], 9 * sizes[0])
        self.assertLess(seconds, 60)  # some 3 s; quadratic names took minutes
        self.assertLess(max(map(len, names_in(large))), 30)

    def test_by_hand(self):
        model = Apply(lambda x: [capture.add("scores", x + i) for i in range(1000)] and x)
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        taken = tensors_in(capture.written[0])
        self.assertTrue(torch.equal(taken["scores"], X))
        self.assertTrue(torch.equal(taken["scores_again2"], X + 1))
        self.assertTrue(torch.equal(taken["scores_again1000"], X + 999))

    def test_a_name_that_is_taken(self):
        model = Apply(lambda x: (capture.add("s_again2", x), capture.add("s", x + 1), capture.add("s", x + 2), x)[3])
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.assertTrue({"s", "s_again2", "s_again3"} <= names_in(capture.written[0]))

    def test_names_that_a_file_cannot_have(self):
        names = ["__metadata__", 5, "\ud800", "", "a/b", '"\n']
        model = Apply(lambda x: [capture.add(name, x) for name in names] and x)
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.assertEqual(names_in(capture.written[0]), {"args", "__metadata___again2", "5", "?", "", "a/b", '"\n'})

    def test_all_of_a_call_have_its_number(self):
        """Though the first call gave less than the second."""
        model = Apply(lambda x: (model.inner(x, one=True), model.inner(x, one=False))[0],
                      inner=Apply(lambda x, one: x if one else (x, x + 1)))
        with nanscope_capture.attach(model, self.path()) as capture:
            model(X)
        self.assertEqual({name for name in names_in(capture.written[0]) if "output" in name},
                         {"inner.output", "inner.output_again2", "inner.output_again2.1"})


if __name__ == "__main__":
    unittest.main()
