"""Dumps of a running PyTorch model that `nanscope diagnose` reads. One file, no dependency but torch.

    import nanscope_capture

    with nanscope_capture.attach(model, "dump"):                       # every step
        model(input_ids)

    capture = nanscope_capture.attach(model, "dump", last_steps=4)     # flight recorder: on a fault only
    ...
    capture.detach()

A step is one call of `model`. Each is written to `dump/step_00000/` (with `rankN/` before it when torch.distributed
is initialised), inputs and outputs of every module under the names of `named_modules()`, keyword arguments and scales
beside them.
Hooks see nothing inside torch.compile'd code and CUDA graphs: capture says so, once, and leaves those steps out.
"""

import collections
import inspect
import json
import os
import re
import struct
import threading
import warnings

import torch

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}
_SCALE = re.compile(r"(^|[._])(scale|scale_inv|amax_history)$|_scale(_inv)?$")


def _dtype_name(tensor):
    return _DTYPES.get(str(tensor.dtype).removeprefix("torch."))


def _bytes_of(tensor):
    """The elements as stored, row-major, little-endian."""
    flat = tensor.contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    return flat.view(torch.uint8).numpy().tobytes() if flat.dtype != torch.bool else flat.to(torch.uint8).numpy().tobytes()


def save_safetensors(tensors, path):
    """Writes {name: CPU tensor} as a safetensors file. It appears under `path` when it is whole, not before."""
    header, offset, blobs = {}, 0, []
    for name in sorted(tensors, key=lambda n: (-tensors[n].element_size(), n)):
        tensor = tensors[name]
        blob = _bytes_of(tensor)
        header[name] = {"dtype": _dtype_name(tensor), "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path + ".partial"
    with open(partial, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for blob in blobs:
            file.write(blob)
    os.replace(partial, path)


def _tensors_in(value):
    """The tensors of a module's arguments or result, in order, each with its place when there are several."""
    found = []

    def visit(item):
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            for part in item:
                visit(part)
        elif isinstance(item, dict):
            for part in item.values():
                visit(part)

    visit(value)
    return found


def _input_and_keywords(args, kwargs):
    """A module's input and what else it was given by keyword. With keywords alone, hidden_states or the first is the input."""
    keywords = {key: found for key, value in kwargs.items() if (found := _tensors_in(value))}
    given = _tensors_in(args)
    if not given and keywords:
        given = keywords.pop("hidden_states" if "hidden_states" in keywords else next(iter(keywords)))
    return given, keywords


def fault_in(tensor, clipped_share):
    """Why a tensor is worth keeping: "NaN", "Inf" or a share of values at the largest finite one; None for a healthy one.

    -Inf alone is no fault: masks are made of it.
    """
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    narrow = tensor.element_size() == 1
    values = tensor.float() if narrow else tensor
    if torch.isnan(values).any():
        return "NaN"
    if torch.isposinf(values).any():
        return "Inf"
    if narrow and str(tensor.dtype) != "torch.float8_e8m0fnu":
        share = (values.abs() >= torch.finfo(tensor.dtype).max).float().mean().item()
        if share > clipped_share:
            return f"{100 * share:.3g} % at the largest finite value"
    return None


class Capture:
    """What attach() gives back. `steps` counts calls of the model; `written` lists the folders that were written."""

    def __init__(self, model, folder, modules, inputs, last_steps, after, every, clipped_share, max_bytes):
        self.folder = str(folder)
        self.steps = 0
        self.written = []
        self.fault = None  # (step, tensor, reason) of the first fault seen
        self._modules = re.compile(modules) if modules else None
        self._inputs = inputs
        self._last_steps = last_steps
        self._after = after
        self._every = every
        self._clipped_share = clipped_share
        self._left = max_bytes
        self._now = {}
        self._keyword_of = {}
        self._on = False
        self._kept = collections.deque(maxlen=last_steps or 1)
        self._countdown = None
        self._warned = set()
        self._lock = threading.RLock()
        self._handles = [
            model.register_forward_pre_hook(self._begin, with_kwargs=True),
            model.register_forward_hook(self._end, always_call=True),
        ]
        for name, module in model.named_modules():
            name = name.replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", "")
            if name and (self._modules is None or self._modules.search(name)):
                self._handles.append(module.register_forward_hook(self._hook(name), with_kwargs=True))
        self._scales = [(n, t) for n, t in list(model.named_parameters()) + list(model.named_buffers()) if _SCALE.search(n)]

    def detach(self):
        """Removes the hooks; what was kept and not written is dropped."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.detach()

    def add(self, name, tensor):
        """Adds a tensor of the running step by hand: a KV cache, scores, whatever no module returns."""
        with self._lock:
            if self._on:
                self._take(name, tensor)

    def _say_once(self, text):
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn("nanscope_capture: " + text, RuntimeWarning, stacklevel=3)

    def _blind(self):
        if torch.compiler.is_compiling():
            return True
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            self._say_once("a CUDA graph is being captured: hooks do not run when it is replayed; run with CUDA graphs off")
            return True
        return False

    def _begin(self, module, args, kwargs):
        with self._lock:
            self._now, self._keyword_of = {}, {}
            self._on = not self._blind() and self.steps % self._every == 0
            if hasattr(module, "_orig_mod") or hasattr(module, "_compiled_call_impl") and module._compiled_call_impl is not None:
                self._say_once("the model is compiled: hooks inside it may not run; run it without torch.compile for a dump")
            if not self._on:
                return
            self._take_arguments(module, args, kwargs)
            for name, tensor in self._scales:
                self._take(name, tensor)

    def _take_arguments(self, model, args, kwargs):
        """Ids, masks, positions and how long the cache is: what the model itself was called with, by its own names."""
        try:
            names = inspect.signature(model.forward).parameters
        except (TypeError, ValueError):  # not written in Python
            names = ("input_ids",)
        first = next(iter(_tensors_in(args)), None)
        for name, value in (dict(zip(names, args)) | kwargs).items():
            if hasattr(value, "get_seq_length"):  # a cache of transformers
                self._take("past_length", torch.tensor(int(value.get_seq_length())))
            for position, tensor in enumerate(_tensors_in(value)):
                if tensor is first and tensor.dtype in (torch.int64, torch.int32):
                    self._take("input_ids", tensor)
                elif self._inputs or not tensor.is_floating_point():
                    self._take(name if position == 0 else f"{name}.{position}", tensor)

    def _hook(self, name):
        def hook(_, args, kwargs, result):
            with self._lock:
                if not self._on or self._blind():
                    return
                if self._inputs:
                    given, keywords = _input_and_keywords(args, kwargs)
                    self._take_all(name + ".input", given)
                    self._take_keywords(name, keywords)
                self._take_all(name + ".output", _tensors_in(result))

        return hook

    def _take_keywords(self, name, keywords):
        """All but those that a module inside this one was handed by the same keyword: a layer only passes masks on."""
        inside, taken = name + ".", {}
        for key, tensors in keywords.items():
            same = (key, *map(id, tensors))
            if not self._keyword_of.get(same, "").startswith(inside):
                self._take_all(f"{name}.kwargs.{key}", tensors)
            taken[same] = name
        # An id says "the same" only while this call holds its arguments: what was inside is forgotten with it.
        self._keyword_of = {same: holder for same, holder in self._keyword_of.items() if not holder.startswith(inside)} | taken

    def _take_all(self, name, tensors):
        for position, tensor in enumerate(tensors):
            self._take(name if position == 0 else f"{name}.{position}", tensor)

    def _take(self, name, tensor):
        if _dtype_name(tensor) is None:
            self._say_once(f"{name}: {tensor.dtype} is left out, safetensors has no such dtype")
            return
        while name in self._now:  # a module that is called twice in a step
            name += "_again"
        with torch.no_grad():
            self._now[name] = tensor.detach().to("cpu", copy=True)
            if self.fault is None:
                reason = fault_in(self._now[name], self._clipped_share)
                if reason is not None:
                    self.fault = (self.steps, name, reason)

    def _end(self, *_):
        with self._lock:
            step, tensors = self.steps, self._now
            self.steps += 1
            self._now = {}
            if not self._on:
                return
            self._on = False
            if self._last_steps is None:
                self._write(step, tensors)
                return
            self._kept.append((step, tensors))
            if self.fault is not None and self._countdown is None:
                self._countdown = self._after
                while self._kept:
                    self._write(*self._kept.popleft())
            elif self._countdown is not None and self._countdown > 0:
                self._countdown -= 1
                self._write(*self._kept.pop())

    def _write(self, step, tensors):
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        if size > self._left:
            self._say_once(f"step {step} and what follows is not written: max_bytes is used up")
            self._left = 0
            return
        self._left -= size
        folder = self.folder
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            folder = os.path.join(folder, f"rank{torch.distributed.get_rank()}")
        folder = os.path.join(folder, f"step_{step:05d}")
        os.makedirs(folder, exist_ok=True)
        save_safetensors(tensors, os.path.join(folder, "tensors.safetensors"))
        self.written.append(folder)


def attach(model, folder, *, modules=None, inputs=True, last_steps=None, after=1, every=1, clipped_share=0.01,
           max_bytes=64 << 30):
    """Hooks every module of `model` and dumps what goes in and comes out. Gives back a Capture (a context manager).

    modules        regular expression: modules whose names it finds; None: all
    inputs         dump inputs as well as outputs
    last_steps     None: write every step. N: keep the last N in memory and write them when a NaN, an Inf or a share of
                   clipped fp8 values above `clipped_share` appears, then `after` steps more
    every          look at every n-th step only
    max_bytes      write no more than this in all
    """
    if last_steps is not None and last_steps < 1:
        raise ValueError("last_steps is at least 1, or None to write every step")
    if every < 1:
        raise ValueError("every is at least 1")
    return Capture(model, folder, modules, inputs, last_steps, after, every, clipped_share, max_bytes)
