"""What nanscope_capture does with steps that cannot be written at once. usage: held_test.py

Exit 77 (skipped) without torch.
"""

import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from small_models import HERE, PYTHON, X, CaptureCase, linears, names_in, names_of, nanscope_capture, torch

REAL_SAVE = nanscope_capture.save_safetensors
NAN = torch.full((3, 4), float("nan"))


class HeldTest(CaptureCase):
    """What could not be written is kept, within bounds, and written later."""

    def failing(self, times, error=OSError(28, "No space left on device")):
        calls = []

        def save(tensors, path):
            calls.append(path)
            if len(calls) in times:
                raise error
            REAL_SAVE(tensors, path)

        patch = mock.patch.object(nanscope_capture, "save_safetensors", save)
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_fault_of_a_flight_recorder(self):
        for times in ({1}, {2}, {3}, {1, 2, 3, 4}):
            for error in (OSError(28, "full"), MemoryError(), RuntimeError("odd")):
                with self.subTest(times=times, error=error):
                    self.failing(times, error)
                    model = linears()
                    folder = self.path(f"{len(times)}{type(error).__name__}{min(times)}")
                    with nanscope_capture.attach(model, folder, last_steps=3, after=2) as capture:
                        for i in range(9):
                            model(NAN if i == 4 else X)
                    self.assertEqual(names_of(sorted(capture.written)), [f"step_{i:05d}" for i in range(2, 7)])
                    self.assertEqual(capture.dropped, [])

    def test_every_step_and_a_disk_that_is_full_for_a_while(self):
        self.failing(set(range(4, 9)))
        model = linears()
        with nanscope_capture.attach(model, self.path()) as capture:
            for _ in range(30):
                model(X)
            self.assertGreater(len(capture.written), 20)  # not only at the end
        self.assertEqual(names_of(capture.written), [f"step_{i:05d}" for i in range(30)])
        self.assertEqual(len(self.said()), 1)

    def test_memory_is_bounded_and_what_is_dropped_is_said(self):
        self.failing(range(1 << 30))
        model = linears()
        size = 2 * X.numel() * 4
        with nanscope_capture.attach(model, self.path(), max_held_bytes=5 * size) as capture:
            for i in range(50):
                model(NAN if i == 20 else X)
                waiting = [step.number for step in capture._writer._waiting]
                self.assertLessEqual(len(waiting), 5)
            self.assertEqual(waiting, [16, 17, 18, 19, 20])  # what led to the fault
        self.assertEqual(sorted(capture.dropped), list(range(50)))
        self.assertEqual(len(self.said("lost")), 2)  # when it began, and at the end

    def test_without_a_fault_the_newest_are_kept(self):
        self.failing(range(1, 20))
        model = linears()
        with nanscope_capture.attach(model, self.path(), max_held_bytes=3 * 2 * X.numel() * 4) as capture:
            for _ in range(10):
                model(X)
            self.failing(())
        self.assertEqual(names_of(capture.written), ["step_00007", "step_00008", "step_00009"])
        self.assertEqual(capture.dropped, list(range(7)))

    def test_a_slow_disk_is_not_tried_at_every_call(self):
        calls = []

        def slow(tensors, path):
            calls.append(path)
            time.sleep(0.05)
            raise OSError(5, "Input/output error")

        model = linears()
        with mock.patch.object(nanscope_capture, "save_safetensors", slow), nanscope_capture.attach(model, self.path()):
            for _ in range(50):
                model(X)
            self.assertLess(len(calls), 10)

    def test_what_is_left_is_written_when_the_process_ends(self):
        program = f"""
import sys
sys.path[:0] = [{HERE!r}, {PYTHON!r}]
from small_models import X, linears, nanscope_capture
model, real = linears(), nanscope_capture.save_safetensors
def full(*_):
    raise OSError(28, "full")
nanscope_capture.save_safetensors = full
nanscope_capture.attach(model, {self.path()!r})
model(X)
nanscope_capture.save_safetensors = real
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(self.steps(), ["step_00000"], done.stderr)

    def test_a_flight_recorder_that_is_done_takes_no_more(self):
        model = linears()
        with nanscope_capture.attach(model, self.path(), last_steps=2, after=1) as capture:
            for i in range(6):
                model(NAN if i == 2 else X)
            with mock.patch.object(nanscope_capture, "_copy_of", side_effect=AssertionError("copied")):
                model(X)
            self.assertFalse(capture._kept)
        self.assertEqual(names_of(capture.written), ["step_00001", "step_00002", "step_00003"])
        self.assertEqual(self.said(), [])

    def test_a_step_is_no_larger_than_max_bytes(self):
        model = linears(10)
        with nanscope_capture.attach(model, self.path(), max_bytes=6 * X.numel() * 4) as capture:
            model(X)
            model(X)
        self.assertEqual([len(names_in(folder)) for folder in capture.written], [6])
        self.assertEqual(len(self.said("max_bytes")), 2)

    def test_calls_do_not_wait_for_the_disk_before_they_are_over(self):
        """Another thread's call computes while a step is being written."""
        model, writing, computed = linears(), threading.Event(), threading.Event()
        model.parts[0].register_forward_hook(lambda *_: writing.is_set() and computed.set())

        def slow(tensors, path):
            writing.set()
            self.assertTrue(computed.wait(60))
            REAL_SAVE(tensors, path)

        with mock.patch.object(nanscope_capture, "save_safetensors", slow), nanscope_capture.attach(model, self.path()) as capture:
            first = threading.Thread(target=lambda: model(X))
            first.start()
            writing.wait(60)
            model(X)
            first.join()
        self.assertEqual(len(capture.written), 2)

    def test_max_bytes(self):
        model = linears()
        with nanscope_capture.attach(model, self.path(), max_bytes=5 * X.numel() * 4) as capture:
            for _ in range(6):
                model(X)
        self.assertEqual(len(capture.written), 2)
        self.assertEqual(len(self.said("max_bytes")), 1)
        self.assertEqual(capture.dropped, [])


if __name__ == "__main__":
    unittest.main()
