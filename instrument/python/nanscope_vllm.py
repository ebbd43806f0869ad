"""A plugin of vLLM: dumps what the served model computes, for `nanscope diagnose` and `nanscope verify`.

    NANSCOPE_CAPTURE=dump vllm serve MODEL
    NANSCOPE_CAPTURE=dump,every=10 python offline_script.py
    NANSCOPE_CAPTURE='dump,last=4,modules=layers\\.(0|1)\\.' vllm serve MODEL
    NANSCOPE_CAPTURE=dump,recorder,last=4 vllm serve MODEL                # the flight recorder

vLLM finds it by the entry point `vllm.general_plugins` of the installed package, in every process. Without the
environment variable it does nothing. With it, vLLM runs the model without torch.compile and without CUDA graphs, since
hooks do not run inside them. A worker attaches nanscope_capture to its model when the first step is executed. A step
also holds the positions, the block table, the slots and lengths of its requests, the logits and the sampled tokens.

Options after the folder, separated by commas: every=N, last=N, after=N, inputs=0, max_bytes=N as in
nanscope_capture.attach(); modules=EXPRESSION takes the rest of the text. With `recorder`, the plugin calls
nanscope_capture.record() instead; its options are last=N, after=N, jump=N, history=N, signal=N, max_bytes=N and
modules=EXPRESSION. With signal=10, SIGUSR1 writes what is kept. Tried with vLLM 0.32.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable, Optional

import torch

VARIABLE = "NANSCOPE_CAPTURE"
_NUMBERS = {"every": "every", "last": "last_steps", "after": "after", "inputs": "inputs", "max_bytes": "max_bytes"}
_RECORDER = {key: key for key in ("last", "after", "jump", "history", "signal", "max_bytes")}
_METADATA = ("query_start_loc", "seq_lens", "block_table")  # of vLLM's attention backends, by these names
_log = logging.getLogger("vllm.plugins.nanscope")


def options_of(text: str) -> tuple[str, bool, dict[str, Any]]:
    """The folder, whether it is for the recorder, and the arguments of attach() or record() in the variable's text.

    Raises ValueError for one that it does not know.
    """
    folder, _, rest = text.partition(",")
    if not folder:
        raise ValueError(f"{VARIABLE} begins with a folder")
    recorder = rest == "recorder" or rest.startswith("recorder,")
    rest = rest.removeprefix("recorder").removeprefix(",") if recorder else rest
    known = _RECORDER if recorder else _NUMBERS
    options: dict[str, Any] = {}
    while rest:
        key, equals, rest = rest.partition("=")
        if key == "modules" and equals:
            return folder, recorder, {**options, "modules": rest}
        value, _, rest = rest.partition(",")
        if key not in known or not equals or not value.isdecimal():
            names = ", ".join(f"{one}=N" for one in known)
            raise ValueError(
                f"{VARIABLE} has {key + equals + value!r}; there are {names} and, last, modules=EXPRESSION")
        options[known[key]] = bool(int(value)) if key == "inputs" else int(value)
    return folder, recorder, options


def stored_rows(cache: torch.Tensor, slots: torch.Tensor,
                isa: Optional[str]) -> Optional[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values [slots, heads x width] at the slots of a paged cache, as stored; slots below 0 are rows of 0.

    None for a layout that is not known. Known are [2, blocks, block, heads, width] and [blocks, 2, block, heads, width]
    of the GPU's backends (v1/attention/backends/flash_attn.py, flashinfer.py), and [blocks, heads, block, 2 x width] of
    the CPU's with `isa` "vec" (csrc/cpu/cpu_attn_vec.hpp), where a block of a head holds its keys as [width, block],
    then its values as [block, width].
    """
    at = slots.clamp(min=0).long()
    used = (slots >= 0).view(-1, 1)
    if cache.dim() == 5 and cache.shape[0] == 2 != cache.shape[1]:
        halves = cache[0], cache[1]
    elif cache.dim() == 5 and cache.shape[1] == 2 != cache.shape[0]:
        halves = cache[:, 0], cache[:, 1]
    elif cache.dim() == 4 and isa == "vec":
        blocks, heads, size, width = cache.shape[0], cache.shape[1], cache.shape[2], cache.shape[3] // 2
        plain = cache.reshape(blocks, heads, 2, size * width)
        keys = plain[:, :, 0].reshape(blocks, heads, width, size).permute(0, 3, 1, 2)
        halves = keys, plain[:, :, 1].reshape(blocks, heads, size, width).permute(0, 2, 1, 3)
    else:
        return None
    size = halves[0].shape[1]
    rows = [(half[at // size, at % size].reshape(len(at), -1).view(torch.uint8) * used).contiguous() for half in halves]
    return rows[0], rows[1]


class _Worker:
    """What is captured of one worker of vLLM."""

    def __init__(self, worker: Any, folder: str, recorder: bool, options: dict[str, Any]):
        try:
            import nanscope_capture as capture
        except ImportError:
            from nanscope import capture  # type: ignore[no-redef]
        runner = self._runner = worker.model_runner
        self._requests: dict[str, int] = {}  # each in the order of its first step
        model = runner.model
        while hasattr(model, "runnable"):  # what vLLM puts around a model for CUDA graphs
            model = model.runnable
        self._running = False
        start = capture.record if recorder else capture.attach
        self._capture = start(model, folder, when=lambda: self._running, until_end_step=True, **options)
        model.register_forward_pre_hook(self._take_metadata)
        for name, module in model.named_modules():
            if str(getattr(module, "kv_cache_dtype", "")).startswith("fp8") and hasattr(module, "kv_cache"):
                module.register_forward_hook(functools.partial(self._take_stored, name))
        for name in ("sampler", "rejection_sampler"):
            sampler = getattr(runner, name, None)
            if hasattr(sampler, "register_forward_hook"):
                sampler.register_forward_hook(self._take_tokens)

    def execute(self, run: Callable[[], Any]) -> Any:
        """A step of the scheduler. Other calls of the model have no request: warm-up, or what keeps ranks in step."""
        self._running = True
        try:
            return run()
        finally:
            self._running = False

    def end_step(self) -> None:
        self._capture.end_step()

    def memory(self) -> int:
        """Bytes of the tensors that the recorder keeps."""
        return int(self._capture.memory()) if hasattr(self._capture, "memory") else 0

    def _take_metadata(self, *_: Any) -> None:
        try:
            from vllm.forward_context import get_forward_context

            context = get_forward_context()
            names = getattr(getattr(self._runner, "input_batch", None), "req_ids", None)
            if names:
                ids = [self._requests.setdefault(name, len(self._requests)) for name in names]
                self._capture.add("request_ids", torch.tensor(ids, device="cpu"))
            by_layer = context.attn_metadata if isinstance(context.attn_metadata, dict) else {}
            first = next(iter(by_layer.values()), None)
            for name in _METADATA:
                if getattr(first, name, None) is not None:
                    self._capture.add(name, getattr(first, name))
            slots = getattr(first, "slot_mapping", None)
            if slots is None and isinstance(getattr(context, "slot_mapping", None), dict):
                slots = next(iter(context.slot_mapping.values()), None)
            if slots is not None:
                self._capture.add("slot_mapping", slots)
        except Exception as error:
            self._capture.say_error("vLLM's attention metadata could not be recorded", "", error)

    def _take_stored(self, name: str, attention: Any, *_: Any) -> None:
        """The codes that this step wrote into a layer's cache, by rows: attention reads them, not what was given."""
        if not self._capture.takes_whole_steps():
            return
        try:
            slots = self._slots(name)
            isa = getattr(attention, "isa", None)
            rows = stored_rows(attention.kv_cache, slots, isa) if slots is not None else None
            if rows is None:
                self._capture.say(("cache", type(attention.impl).__name__),
                                  f"{name}: the layout of its KV cache is not known; what it stores is left out")
                return
            format = torch.float8_e5m2 if "e5m2" in attention.kv_cache_dtype else torch.float8_e4m3fn
            for letter, codes in zip("kv", rows):
                self._capture.add(f"{name}.{letter}_cache_write", codes.view(format))
        except Exception as error:
            self._capture.say_error("the rows of a KV cache could not be recorded", f"{name}: ", error)

    def _slots(self, layer: str) -> Optional[torch.Tensor]:
        from vllm.forward_context import get_forward_context

        context = get_forward_context()
        for by_layer in (context.slot_mapping, context.attn_metadata):
            if isinstance(by_layer, dict) and layer in by_layer:
                found = by_layer[layer]
                return found if isinstance(found, torch.Tensor) else found.slot_mapping
        return None

    def _take_tokens(self, _: Any, __: Any, result: Any) -> None:
        tokens = getattr(result, "sampled_token_ids", None)
        if tokens is not None:
            self._capture.add("sampled_token_ids", tokens)


class _Workers:
    """The workers of this process, each attached when it first executes a step. A failure is logged, once."""

    def __init__(self, folder: str, recorder: bool, options: dict[str, Any]):
        self._folder = os.path.abspath(folder)
        self._recorder = recorder
        self._options = options

    def of(self, worker: Any) -> Optional[_Worker]:
        if not hasattr(worker, "_nanscope"):
            worker._nanscope = None
            try:
                worker._nanscope = _Worker(worker, self._folder, self._recorder, self._options)
                when = " when a counter trips" if self._recorder else ""
                _log.info("nanscope: steps are written to %s%s", self._folder, when)
            except Exception as error:
                _log.error("nanscope: nothing is captured: %s: %s", type(error).__name__, error)
        found: Optional[_Worker] = worker._nanscope
        return found


def _watch_workers(workers: _Workers) -> None:
    """Executors call a worker by its wrapper, in each process; the two calls of a step are looked at there."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    execute = WorkerWrapperBase.execute_model

    @functools.wraps(execute)
    def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        watched = workers.of(self.worker)
        if watched is None:
            return execute(self, *args, **kwargs)
        result = watched.execute(lambda: execute(self, *args, **kwargs))
        if result is not None or not hasattr(self.worker, "sample_tokens"):  # nothing is sampled behind it
            watched.end_step()
        return result

    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = self.worker.sample_tokens(*args, **kwargs)
        watched = workers.of(self.worker)
        if watched is not None:
            watched.end_step()
        return result

    WorkerWrapperBase.execute_model = execute_model
    WorkerWrapperBase.sample_tokens = sample_tokens


def _run_eagerly() -> None:
    """Engines made from now on run the model as it stands: hooks do not run in compiled code and CUDA graphs."""
    from vllm.engine.arg_utils import EngineArgs

    create = EngineArgs.create_engine_config

    @functools.wraps(create)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.enforce_eager:
            _log.warning("nanscope: %s is set, so the model runs with enforce_eager", VARIABLE)
            self.enforce_eager = True
        return create(self, *args, **kwargs)

    EngineArgs.create_engine_config = create_engine_config


def register() -> None:
    """What vLLM calls in every process when it starts. Nothing is raised: a server starts with or without a capture."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return
    try:
        folder, recorder, options = options_of(text)
        _run_eagerly()
        _watch_workers(_Workers(folder, recorder, options))
    except Exception as error:
        _log.error("nanscope: nothing is captured: %s: %s", type(error).__name__, error)
