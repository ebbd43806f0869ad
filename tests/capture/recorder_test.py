"""The flight recorder of nanscope_capture: what it counts, when it trips, what it writes, that it changes nothing.

usage: recorder_test.py NANSCOPE

Exit 77 (skipped) without torch.
"""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import unittest
from unittest import mock

from small_models import HERE, PYTHON, X, Apply, CaptureCase, Chain, linears, names_in, names_of, nanscope_capture, tensors_in, torch

from torch import nn

NANSCOPE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else None
NAN, INF = float("nan"), float("inf")
COLUMNS = ["elements", "nan", "inf", "minus_inf", "saturated", "zero", "absmax", "hash"]
# Values, and what a person counts in them: 2 NaN, 1 +Inf, 3 -Inf, 2 at the largest finite f16, 4 zeros; the largest finite one.
ODD = [NAN, NAN, INF, -INF, -INF, -INF, 65504.0, -65504.0, 0.0, -0.0, 0.0, 0.0, 1.0, -2.0, 6e-8]
COUNTED = [15, 2, 1, 3, 2, 4, 65504.0]


def counters_in(folder):
    newest = max(name for name in os.listdir(folder) if name.startswith("counters_"))
    with open(os.path.join(folder, newest), encoding="utf-8") as file:
        head, *steps = [json.loads(line) for line in file]
    return head, steps


def layered(*functions):
    """A model with layers that do what they are told."""
    return Chain(*[Apply(function) for function in functions])


class CountersTest(CaptureCase):
    def counted(self, values, on_device=False):
        """The counters of one module that returns these values."""
        model = layered(lambda x: x.clone())
        with nanscope_capture.record(model, self.path(), last=1, on=()) as recorder, torch.no_grad():
            recorder.on_device = on_device
            model(values)
            recorder.end_step()
            recorder.dump()
        return counters_in(self.path())[1][0]["tensors"]["parts.0.output"]

    def test_odd_values(self):
        for on_device in (False, True):
            for shape in ((15,), (3, 5), (1, 5, 3)):
                self.assertEqual(self.counted(torch.tensor(ODD, dtype=torch.float16).view(shape), on_device)[:7], COUNTED)

    def test_other_types(self):
        for dtype, largest in ((torch.bfloat16, 3.3895313892515355e38), (torch.float32, 3.4028234663852886e38),
                               (torch.float64, 1.7976931348623157e308)):
            values = torch.tensor([largest, 0, -1, NAN], dtype=dtype)
            self.assertEqual(self.counted(values)[:7], [4, 1, 0, 0, 1, 1, largest])
        values = torch.tensor([448.0, 0, -1, 448], dtype=torch.float8_e4m3fn)
        model = layered(lambda x: x.clone())
        with nanscope_capture.record(model, self.path(), last=1, on=()) as recorder:
            model(values)
            recorder.dump()
        self.assertEqual(counters_in(self.path())[1][0]["tensors"]["parts.0.output"][:7], [4, 0, 0, 0, 2, 1, 448.0])

    def test_large_ones(self):
        values = torch.zeros(300, 300)
        values[7, 8], values[299, 299] = -5, NAN
        for on_device in (False, True):
            self.assertEqual(self.counted(values, on_device)[:7], [90000, 1, 0, 0, 0, 89998, 5.0])

    def test_one_bit_changes_the_hash(self):
        plain = torch.arange(64.0)
        expected = self.counted(plain)[7]
        self.assertEqual(expected, self.counted(plain, True)[7])
        for index in range(0, 64, 7):
            for bit in (0, 13, 31):
                other = plain.clone()
                other.view(torch.int32)[index] ^= -1 << 31 if bit == 31 else 1 << bit
                self.assertNotEqual(self.counted(other)[7], expected)

    def test_steps_of_several_shapes(self):
        model = layered(lambda x: x + 1, lambda x: x * 2)
        with nanscope_capture.record(model, self.path(), last=3, on=()) as recorder:
            for rows in (2, 5, 1, 1, 3, 2):
                model(torch.full((rows, 2), float(rows)))
            recorder.dump()
        steps = counters_in(self.path())[1]
        self.assertEqual([[row[0] for row in step["tensors"].values()] for step in steps], [[4, 4], [10, 10], [2, 2], [2, 2], [6, 6], [4, 4]])
        self.assertEqual([step["tensors"]["parts.1.output"][6] for step in steps], [6, 12, 4, 4, 8, 6])
        self.assertEqual([step["written"] for step in steps], [False] * 3 + [True] * 3)

    def test_the_triton_kernel(self):
        """Run by Triton's interpreter, where Triton is installed."""
        done = subprocess.run([sys.executable, "-c", f"""
import sys
sys.path[:0] = [{HERE!r}, {PYTHON!r}]
import torch
import nanscope_capture
if nanscope_capture.triton is None:
    sys.exit(77)
import recorder_test
counters = torch.zeros(2, 8, dtype=torch.int32)
for row, count in enumerate((nanscope_capture._count_by_torch, None)):
    for values in (torch.tensor(recorder_test.ODD, dtype=torch.float16), torch.arange(5000.0), torch.arange(-3.0, 9).bfloat16()):
        if count is None:
            nanscope_capture._record_on_device(values, counters, None, row, 0)
        else:
            count(values, counters[row])
print(counters.tolist())
"""], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "TRITON_INTERPRET": "1"})
        if done.returncode == 77:
            self.skipTest("Triton is not installed")
        self.assertEqual(done.returncode, 0, done.stderr)
        by_torch, by_triton = json.loads(done.stdout)
        self.assertEqual(by_triton, by_torch)
        self.assertEqual(by_triton[:6], [15 + 5000 + 12, 2, 1, 3, 2, 4 + 1 + 1])


class TripsTest(CaptureCase):
    def run_steps(self, values, **options):
        """One value in each step, through a layer that returns it."""
        model = layered(lambda x: x + 0, lambda x: x + 0)
        with nanscope_capture.record(model, self.path(), **options) as recorder, torch.no_grad():
            for value in values:
                model(torch.tensor([[1.0, value]], dtype=torch.float16))
        return recorder

    def test_nan_and_inf(self):
        for value, reason in ((NAN, "NaN"), (INF, "Inf")):
            recorder = self.run_steps([1, 2, 3, 4, 5, value, 6, 7, 8, 9], last=3)
            self.assertEqual(recorder.fault[1:], ("parts.0.output", reason))
            self.assertEqual(names_of(recorder.written)[:3], [f"step_{recorder.fault[0] - back:05d}" for back in (2, 1, 0)])

    def test_minus_inf_is_what_masks_are_made_of(self):
        self.assertIsNone(self.run_steps([1, -INF, 65504], last=1).fault)

    def test_nothing_is_written_without_a_fault(self):
        recorder = self.run_steps(range(9))
        self.assertEqual((recorder.written, recorder.steps, os.path.exists(self.path())), ([], 9, False))

    def test_only_what_was_asked_for(self):
        self.assertIsNone(self.run_steps([NAN, INF], on=("saturated",), last=1).fault)
        self.assertEqual(self.run_steps([1, 65504], on=("saturated",), last=1).fault, (1, "parts.0.output", "values at the largest finite one"))

    def test_once(self):
        recorder = self.run_steps([1, NAN, 2, INF, NAN, 3], last=1, after=0)
        self.assertEqual((recorder.fault, names_of(recorder.written)), ((1, "parts.0.output", "NaN"), ["step_00001"]))

    def test_a_module_that_is_called_several_times(self):
        """As the one layer of ALBERT is: a NaN of its first call counts too."""
        shared = Apply(lambda x: x * 1)
        model = Apply(lambda x: shared(shared(x).nan_to_num(0)), shared=shared)
        with nanscope_capture.record(model, self.path(), last=1, after=0) as recorder:
            model(torch.tensor([[1.0, -7.0]]))
            model(torch.tensor([[NAN, 2.0]]))
        self.assertEqual(recorder.fault, (1, "shared.output", "NaN"))
        self.assertEqual([step["tensors"]["shared.output"][:7] for step in counters_in(self.path())[1]],
                         [[4, 0, 0, 0, 0, 0, 7], [4, 1, 0, 0, 0, 1, 2]])

    def test_a_jump(self):
        self.assertIsNone(self.run_steps([1, 7.9, 60], jump=8).fault)
        self.assertEqual(self.run_steps([1, 7, 60], jump=8, last=1).fault, (2, "parts.0.output", "60, the largest before was 7"))

    def test_the_module_that_returned_it_first(self):
        """A layer returns behind its parts."""
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = Chain(nn.Identity())

            def forward(self, x):
                return self.attention(x) * 1

        model = Chain(Layer(), Layer())
        with nanscope_capture.record(model, self.path(), last=1, after=0, modules="parts") as recorder:
            self.assertEqual([tap.name for tap in recorder.taps[::2]], [
                f"{name}.output" for name in ("parts.0.attention.parts.0", "parts.0.attention", "parts.0", "parts.1.attention.parts.0",
                                              "parts.1.attention", "parts.1")])
            model(X * NAN)
        self.assertEqual(recorder.fault, (0, "parts.0.attention.parts.0.output", "NaN"))

    def test_layers_are_recorded_by_default(self):
        model = Chain(Chain(nn.Linear(4, 4)), Chain(nn.Linear(4, 4)))
        model.head = nn.Linear(4, 4)
        with nanscope_capture.record(model, self.path()) as recorder:
            self.assertEqual([tap.name for tap in recorder.taps[::2]], ["parts.0.output", "parts.1.output", "head.output"])

    def test_steps_behind_it_are_whole(self):
        model = linears(2)
        with nanscope_capture.record(model, self.path(), last=2, after=2) as recorder:
            for step in range(9):
                model(X * NAN if step == 3 else X + step)
        self.assertEqual(names_of(recorder.written), [f"step_{number:05d}" for number in (2, 3, 4, 5)])
        self.assertEqual(names_in(recorder.written[0]), {"parts.0.output", "parts.1.output"})
        self.assertEqual(names_in(recorder.written[2]), {"parts.0.input", "parts.0.output", "parts.1.input", "parts.1.output"})
        self.assertTrue(all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules()))


class KeptTest(CaptureCase):
    def test_what_a_module_returned_and_not_what_became_of_it(self):
        model = layered(lambda x: x + 1, lambda x: x.mul_(3))  # overwrites what the first returned
        with nanscope_capture.record(model, self.path(), last=2) as recorder, torch.inference_mode():
            for step in range(5):
                model(X + step)
            recorder.dump()
        for step, folder in zip((3, 4), recorder.written):
            found = tensors_in(folder)
            self.assertTrue(torch.equal(found["parts.0.output"], X + step + 1))
            self.assertTrue(torch.equal(found["parts.1.output"], 3 * (X + step + 1)))

    def test_the_second_result(self):
        """A layer of vLLM returns the output of its MLP and the residual stream: one without the other would look wrong."""
        model = layered(lambda x: (x + 1, x * 2, "x"), lambda pair: pair[0])
        for compiled in (False, True):
            torch._dynamo.reset()
            called = torch.compile(model) if compiled else model
            with nanscope_capture.record(called, self.path()) as recorder, torch.no_grad():
                called(X)
                recorder.dump()
            found = tensors_in(recorder.written[0])
            self.assertTrue(torch.equal(found["parts.0.output"], X + 1) and torch.equal(found["parts.0.output.1"], X * 2))

    def test_views_and_second_calls(self):
        turned = Apply(lambda x: x.T)
        model = Apply(lambda x: turned(turned(x)), turned=turned)
        with nanscope_capture.record(model, self.path()) as recorder:
            model(X)
            recorder.dump()
        found = tensors_in(recorder.written[0])
        self.assertTrue(torch.equal(found["turned.output"], X.T))
        self.assertTrue(torch.equal(found["turned.output_again2"], X))

    def test_large_ones_only_as_far_as_memory_was_granted(self):
        model = layered(lambda x: x + 1, lambda x: x + 1)
        large = torch.zeros(300, 300)
        with nanscope_capture.record(model, self.path(), last=1, max_held_bytes=1_200_000) as recorder:
            model(large)
            recorder.dump()
        self.assertEqual(names_in(recorder.written[0]), {"parts.0.output"})
        head, steps = counters_in(self.path())
        self.assertEqual((steps[0]["left_out"], steps[0]["tensors"]["parts.1.output"][6]), (1, 2))

    def test_integers_of_the_call(self):
        model = Apply(lambda input_ids, mask: self.embedding(input_ids), embedding=nn.Embedding(9, 4))
        self.embedding = model.embedding
        with nanscope_capture.record(model, self.path()) as recorder:
            model(torch.tensor([[3, 4]]), mask=torch.tensor([[True, True]]))
            recorder.add("sampled", torch.tensor([5]))  # behind the step
            recorder.dump()
        self.assertEqual(names_in(recorder.written[0]), {"input_ids", "mask", "embedding.output"})

    def test_until_end_step(self):
        model = linears()
        with nanscope_capture.record(model, self.path(), until_end_step=True) as recorder:
            model(X)
            recorder.add("sampled", torch.tensor([5]))
            recorder.end_step()
            recorder.dump()
        self.assertIn("sampled", names_in(recorder.written[0]))

    def test_on_a_device(self):
        """Memory of a GPU is used as on a CPU here: kept rows, counters that are read later, rows that do not fit."""
        model = layered(lambda x: x + 1)
        recorder = nanscope_capture.record(model, self.path(), last=2, rows=3)
        recorder.on_device = True
        for step in range(4):
            model(X + step)
        model(torch.full((5, 4), NAN))
        recorder.detach()
        self.assertEqual(recorder.fault, (4, "parts.0.output", "NaN"))
        self.assertEqual(names_of(recorder.written), ["step_00003", "step_00004"])
        self.assertTrue(torch.equal(tensors_in(recorder.written[0])["parts.0.output"], X + 4))
        self.assertNotIn("parts.0.output", names_in(recorder.written[1]))

    def test_several_calls_on_a_device(self):
        """Only the last result is in the memory of a device, so none is written; the counters are those of all."""
        shared = Apply(lambda x: x + 1)
        model = Apply(lambda x: shared(shared(x)), shared=shared)
        with nanscope_capture.record(model, self.path()) as recorder:
            recorder.on_device = True
            model(X)
            recorder.dump()
        self.assertEqual(names_in(recorder.written[0]), set())
        self.assertEqual(counters_in(self.path())[1][0]["tensors"]["shared.output"][0], 2 * X.numel())

    def test_max_bytes(self):
        """The steps behind the fault count too."""
        model = linears()
        with nanscope_capture.record(model, self.path(), last=1, after=1, max_bytes=X.nbytes + 8) as recorder, \
                self.assertWarnsRegex(RuntimeWarning, "larger than max_bytes"):
            model(X * NAN)
            model(X)
        self.assertEqual(names_of(recorder.written), ["step_00000"])

    def test_a_signal(self):
        model = linears()
        heard = []
        before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
        try:
            with nanscope_capture.record(model, self.path(), last=2, signal=signal.SIGUSR1) as recorder:
                model(X)
                model(X)
                os.kill(os.getpid(), signal.SIGUSR1)
                self.assertEqual((len(recorder.written), heard), (2, [1]))
        finally:
            signal.signal(signal.SIGUSR1, before)


class UnharmedTest(CaptureCase):
    def test_bits(self):
        model = linears(4)
        plain = [model(X + step) for step in range(6)]
        with nanscope_capture.record(model, self.path()):
            watched = [model(X + step) for step in range(6)]
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, watched)))
        self.assertTrue(all(out.grad_fn is not None for out in watched))

    def test_compiled(self):
        """What the compiler makes of the model with the recorder in it, by both ways of compiling, and its bits."""
        for dtype in (torch.float32, torch.bfloat16):
            for in_place in (False, True):
                torch._dynamo.reset()
                model = linears(4).to(dtype)
                x = X.to(dtype)
                with torch.no_grad():
                    plain = torch.compile(model, fullgraph=True)
                    expected = [plain(x + step) for step in range(4)]
                    torch._dynamo.reset()
                    watched = model if in_place else torch.compile(model, fullgraph=True)
                    with nanscope_capture.record(watched, self.path(), last=2) as recorder:
                        if in_place:
                            model.compile(fullgraph=True)
                        found = [watched(x + step) for step in range(4)]
                        watched(x * NAN)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(expected, found)))
                self.assertEqual((recorder.steps, recorder.fault[1:]), (5, ("parts.0.output", "NaN")))

    def test_compiled_until_end_step(self):
        torch._dynamo.reset()
        model = linears()
        with nanscope_capture.record(model, self.path(), until_end_step=True) as recorder, torch.no_grad():
            model.compile(fullgraph=True)
            model(X)
            recorder.add("sampled", torch.tensor([5]))
            recorder.end_step()
            recorder.dump()
        self.assertIn("sampled", names_in(recorder.written[0]))

    def test_copies_do_nothing(self):
        model = linears()
        with nanscope_capture.record(model, self.path(), last=1) as recorder:
            copied = copy.deepcopy(model)
            loaded = pickle.loads(pickle.dumps(model))
            for one in (copied, loaded):
                one(X * NAN)
        self.assertEqual((recorder.steps, recorder.fault), (0, None))

    def test_errors_stay_inside(self):
        model = layered(lambda x: x.to_sparse().to_dense(), lambda x: (x.to_sparse(), 1))
        with nanscope_capture.record(model, self.path(), last=1) as recorder, self.assertWarnsRegex(RuntimeWarning, "left out"):
            model(X)
        self.assertEqual(recorder.steps, 1)

    def test_nothing_is_returned(self):
        model = layered(lambda x: torch.zeros(0), lambda x: X)
        with nanscope_capture.record(model, self.path(), last=1) as recorder:
            model(X)
            recorder.dump()
        self.assertEqual(names_in(recorder.written[0]), {"parts.1.output"})

    def test_a_step_that_cannot_be_counted(self):
        """It is lost, and those after it are counted."""
        model = layered(lambda x: x + 1)
        with nanscope_capture.record(model, self.path()) as recorder:
            model(X)
            with mock.patch.object(nanscope_capture, "_Counts", side_effect=MemoryError), \
                    self.assertWarnsRegex(RuntimeWarning, "a step could not be counted: MemoryError"):
                self.assertEqual(recorder.dump(), [])
            model(X + 1)
            recorder.dump()
        self.assertEqual(names_of(recorder.written), ["step_00001"])
        self.assertTrue(torch.equal(tensors_in(recorder.written[0])["parts.0.output"], X + 2))

    def test_mistakes(self):
        for options, text in (({"on": ("nans",)}, "'nans'; there are nan, inf, saturated"), ({"last": 0}, "at least 1"), ({"jump": 1}, "above 1"),
                              ({"modules": "nothing"}, "'nothing'")):
            with self.assertRaisesRegex(ValueError, text):
                nanscope_capture.record(linears(), self.path(), **options)


class FolderTest(CaptureCase):
    def write(self):
        done = subprocess.run([sys.executable, "-c", f"""
import sys
sys.path[:0] = [{HERE!r}, {PYTHON!r}]
from small_models import X, linears, nanscope_capture
model = linears(3)
with nanscope_capture.record(model, "a dump", last=2):
    for step in range(5):
        model(X * float("nan") if step == 3 else X)
model = linears(3)
with nanscope_capture.record(model, "another"):
    model(X)
"""], capture_output=True, text=True, check=True, cwd=self.folder, timeout=300)
        return done.stderr

    def test_the_last_line(self):
        self.assertEqual(self.write(), "nanscope_capture: 5 steps counted; step 3 tripped: parts.0.output, NaN; 3 steps, 0.0 MB, and a dump/"
                         "counters_00000.jsonl; now: nanscope diagnose 'a dump'\nnanscope_capture: 1 step counted, none tripped the "
                         "recorder; nothing is written\n")

    def test_diagnose_reads_it(self):
        if NANSCOPE is None:
            self.skipTest("nanscope is not given")
        self.write()
        done = subprocess.run([NANSCOPE, "diagnose", "a dump", "--format", "json"], capture_output=True, text=True, check=False,
                              cwd=self.folder)
        found = json.loads(done.stdout)
        self.assertEqual((done.returncode, found["faults"][0]["tensor"]), (1, "step_00003/parts.0.output"), done.stderr)
        notes = [note["text"] for note in found["notes"] if "counters_00000.jsonl" in note.values()]
        self.assertEqual(notes, ["counters of 4 steps, 0 to 3: the first NaN is in step 3, parts.0.output"])


if __name__ == "__main__":
    unittest.main()
