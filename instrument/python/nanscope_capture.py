"""Dumps of a running PyTorch model that `nanscope diagnose` reads. One file, no dependency but torch.

    import nanscope_capture

    with nanscope_capture.attach(model, "dump"):                       # every step
        model(input_ids)

    capture = nanscope_capture.attach(model, "dump", last_steps=4)     # flight recorder: on a fault only
    ...
    capture.detach()

    python -m nanscope.capture -o dump script.py ...                   # every model that a script calls; --help
    python nanscope_capture.py -o dump script.py ...                   # the same without the package

A step is one call of `model`. Each is written to `dump/step_00000/` (with `rankN/` before it when torch.distributed
is initialised), inputs and outputs of every module under the names of `named_modules()`, keyword arguments and scales
beside them. What lies in `dump` already is never written over: numbers go on behind it.

The model is not changed by being watched: what fails in here is a warning, once per kind, and the call goes on.
Hooks see nothing inside torch.compile'd code and CUDA graphs: capture says so, once, and leaves those steps out.
"""

from __future__ import annotations

import argparse
import atexit
import collections
import contextlib
import ctypes
import dataclasses
import inspect
import itertools
import json
import os
import re
import runpy
import secrets
import shlex
import shutil
import struct
import sys
import threading
import time
import types
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}
_SCALE = re.compile(r"(^|[._])(scale|scale_inv|amax_history)$|_scale(_inv)?$")
_STEP = re.compile(r"step_(\d+)")
_SPREAD = 16  # times its storage: an expanded tensor that is larger is not written out ...
_SMALL = 64 << 20  # ... unless it is no larger than this, in bytes
_NO_DISPATCH = getattr(torch._C, "_DisableTorchDispatch", contextlib.nullcontext)


def _dtype_name(tensor: torch.Tensor) -> Optional[str]:
    return _DTYPES.get(str(tensor.dtype).removeprefix("torch."))


def _write_elements(file: Any, tensor: torch.Tensor) -> None:
    """The elements as stored, row-major, little-endian, without a copy and without NumPy."""
    flat = tensor.resolve_neg().contiguous()
    size = flat.numel() * flat.element_size()
    if size > 0:
        file.write((ctypes.c_ubyte * size).from_address(flat.data_ptr()))


def save_safetensors(tensors: dict[str, torch.Tensor], path: str) -> None:
    """Writes {name: CPU tensor} as a safetensors file. It appears under `path` when it is whole, not before.

    Raises ValueError for a dtype that safetensors does not have, OSError for a file that cannot be written.
    """
    header: dict[str, Any] = {}
    offset = 0
    names = sorted(tensors, key=lambda n: (-tensors[n].element_size(), n))
    for name in names:
        tensor = tensors[name]
        dtype = _dtype_name(tensor)
        if dtype is None:
            raise ValueError(f"{name}: safetensors has no {tensor.dtype}")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = f"{path}.{secrets.token_hex(4)}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(struct.pack("<Q", len(text)))
            file.write(text)
            for name in names:
                _write_elements(file, tensors[name])
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def fault_in(tensor: torch.Tensor, clipped_share: float) -> Optional[str]:
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


class _LeftOut(Exception):
    """A tensor that a dump cannot hold; the text says of which kind it is."""


def _copy_of(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """What a tensor holds now, on the CPU, row-major. Raises _LeftOut for one that holds no numbers of its own."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise _LeftOut(f"a {type(tensor).__name__}")  # fake, distributed, functional: its code would run
    plain = torch.Tensor.detach(tensor)
    if plain.layout != torch.strided:
        raise _LeftOut(f"a tensor of layout {plain.layout}")
    if plain.is_nested or plain.is_meta:
        raise _LeftOut("a nested tensor" if plain.is_nested else "a tensor without elements, on the meta device")
    if _dtype_name(plain) is None:
        raise _LeftOut(f"{plain.dtype}, which safetensors does not have")
    size = plain.numel() * plain.element_size()
    if size > max(_SMALL, _SPREAD * plain.untyped_storage().nbytes()):
        raise _LeftOut(f"a tensor expanded to more than {_SPREAD} times what it holds")
    if size > most:
        raise _LeftOut("a tensor that makes a step larger than max_bytes")
    last = plain.storage_offset() + sum((extent - 1) * stride for extent, stride in zip(plain.shape, plain.stride()))
    if size > 0 and (last + 1) * plain.element_size() > plain.untyped_storage().nbytes():
        raise _LeftOut("a tensor whose storage was freed")  # to read it is a segmentation fault
    return plain.to("cpu", copy=True).contiguous()  # in this order a GPU needs no memory for it


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    same = a.dtype == b.dtype and a.shape == b.shape
    return same and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _parts_of(container: Any) -> Iterator[Any]:
    """As the interpreter holds them: an __iter__() or values() of the container's own is not asked."""
    if isinstance(container, dict):
        return iter(dict.values(container))
    return list.__iter__(container) if isinstance(container, list) else tuple.__iter__(container)


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a module's arguments or result, in order. Runs no code of the objects that it looks at.

    A container is gone through once, however often and wherever it occurs, within itself too.
    """
    found: list[torch.Tensor] = []
    seen: set[int] = set()
    waiting: list[Iterator[Any]] = [iter((value,))]
    while waiting:
        for item in waiting[-1]:
            if issubclass(type(item), torch.Tensor):
                found.append(item)
            elif issubclass(type(item), (list, tuple, dict)) and id(item) not in seen:
                seen.add(id(item))
                waiting.append(_parts_of(item))
                break
        else:
            waiting.pop()
    return found


def _input_and_keywords(args: Any, kwargs: Any) -> tuple[list[torch.Tensor], dict[str, list[torch.Tensor]]]:
    """A module's input and what else it was given by keyword. With keywords alone, hidden_states or the first is the input."""
    keywords = {key: found for key, value in kwargs.items() if (found := _tensors_in(value))}
    given = _tensors_in(args)
    if not given and keywords:
        given = keywords.pop("hidden_states" if "hidden_states" in keywords else next(iter(keywords)))
    return given, keywords


@dataclasses.dataclass(frozen=True)
class _Options:
    """What attach() was told, see there."""

    modules: Optional[str] = None
    inputs: bool = True
    last_steps: Optional[int] = None
    after: int = 1
    every: int = 1
    clipped_share: float = 0.01
    max_bytes: int = 64 << 30
    max_held_bytes: int = 4 << 30
    when: Optional[Callable[[], bool]] = None
    until_end_step: bool = False


@dataclasses.dataclass(eq=False)
class _Step:
    """What one call of the model left."""

    number: int
    tensors: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # of each module, so far
    uses: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # of each name, so far
    faulty: bool = False  # it is the one that `fault` speaks of
    size: int = 0  # bytes

    def put(self, name: str, tensor: torch.Tensor) -> str:
        """Under this name, or with the number of times that it was wanted behind it."""
        free = name
        while free in self.tensors or free == "__metadata__":  # which safetensors has taken
            self.uses[name] += 1
            free = f"{name}_again{self.uses[name] + 1}"
        self.tensors[free] = tensor
        self.size += tensor.numel() * tensor.element_size()
        return free

    def drop(self, name: str) -> None:
        tensor = self.tensors.pop(name)
        self.size -= tensor.numel() * tensor.element_size()


class _Says:
    """Warnings, once per kind, that end no call whatever the program makes of warnings."""

    def __init__(self) -> None:
        self._said: set[Any] = set()

    def say(self, kind: Any, text: str) -> None:
        if kind in self._said:
            return
        self._said.add(kind)
        text = "nanscope_capture: " + text
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        except Exception:  # the program turns warnings into errors, or the interpreter is ending
            with contextlib.suppress(Exception):
                print(text, file=sys.stderr)

    def say_error(self, what: str, where: str, error: Exception) -> None:
        """`what` and the error's type are the kind, `where` stands before the first line of it."""
        first = ""
        with contextlib.suppress(Exception):
            first = str(error).strip().splitlines()[0][:200]
        with contextlib.suppress(Exception):
            self.say((what, type(error)), f"{what}: {where}{type(error).__name__}: {first}")


class _Writer:
    """Steps on their way into the folder. What cannot be written stays in memory and is tried again.

    Folders have numbers that none had before, in this process or another; each is there whole or not at all.
    """

    def __init__(self, folder: str, options: _Options, says: _Says):
        self.written: list[str] = []
        self.dropped: list[int] = []
        self._bytes = 0  # of all steps in `written`
        self._reported = 0  # of them
        self._folder = folder
        self._options = options
        self._says = says
        self._left = options.max_bytes
        self._first: Optional[int] = None
        self._waiting: list[_Step] = []
        self._retry_at = 0.0
        self._lock = threading.RLock()  # of what is written, as long as that takes
        self._busy = False  # in this thread: a signal handler may call the model while a step is written

    def number_of(self, call: int) -> int:
        """Of a call of the model, counted from 0, behind those that are in the folder."""
        if self._first is None:
            try:
                found = [_STEP.fullmatch(name) for name in os.listdir(self._parent())]
            except (OSError, ValueError):  # not there yet, or never
                found = []
            self._first = max((int(one[1]) + 1 for one in found if one), default=0)
        return self._first + call

    def add(self, steps: Iterable[_Step]) -> None:
        self._waiting.extend(steps)

    def forget(self) -> None:
        """In a forked process: what waits is the other's to write, and who held the lock is not here."""
        self._lock, self._busy, self._waiting = threading.RLock(), False, []

    def flush(self, last: bool = False) -> None:
        """Writes what waits, the oldest first. With `last`, what still cannot be written is dropped."""
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                for attempt in range(3 if last else 1):
                    if attempt > 0 and self._waiting:
                        time.sleep(0.1)
                    if last or time.monotonic() >= self._retry_at:
                        all(self._try(step) for step in list(self._waiting))
            finally:
                self._busy = False
            self._keep_within(0 if last else self._options.max_held_bytes)

    def _try(self, step: _Step) -> bool:
        """False when nothing else can be written either."""
        if step.size > self._left:
            self._left = 0
            self._says.say("max_bytes", f"step {step.number} and what follows is not written: max_bytes is used up")
        else:
            start = time.monotonic()
            try:
                self._write(step)
            except Exception as error:
                took = time.monotonic() - start
                self._retry_at = start + (11 * took if took > 0.05 else 0)  # a tenth of the time may go into trying
                self._says.say_error("a step cannot be written and is kept in memory", "", error)
                return not isinstance(error, OSError)
            self._left -= step.size
            self._bytes += step.size
        self._discard(step)
        return True

    def _discard(self, step: _Step) -> None:
        self._waiting.remove(step)
        step.tensors = {}  # `fault` may hold the step yet

    def _keep_within(self, most: int) -> None:
        """Drops what takes more bytes than this, but for one step. A flight recorder's are few, it keeps as many anyhow."""
        if most > 0 and self._options.last_steps is not None:
            return
        while len(self._waiting) > min(most, 1) and (most == 0 or sum(step.size for step in self._waiting) > most):
            # What led to a fault is worth more than what came after it, and without one, what is new.
            fault = next((step.number for step in self._waiting if step.faulty), None)
            later = [step for step in self._waiting if fault is not None and step.number > fault]
            drop = later[-1] if later else self._waiting[0]
            self._discard(drop)
            self.dropped.append(drop.number)
            self._says.say(("dropped", most), f"step {drop.number}, and what more `dropped` lists, could not be written and is lost")

    def say_what_there_is(self) -> None:
        """One line, if steps were written since the last one."""
        count = len(self.written)
        if count == self._reported:
            return
        self._reported = count
        steps = "1 step" if count == 1 else f"{count} steps"
        with contextlib.suppress(Exception):
            print(f"nanscope_capture: {steps}, {self._bytes / 1e6:.1f} MB in {self._folder}; now: nanscope diagnose "
                  f"{shlex.quote(self._folder)}", file=sys.stderr)

    def _parent(self) -> str:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return os.path.join(self._folder, f"rank{torch.distributed.get_rank()}")
        return self._folder

    def _write(self, step: _Step) -> None:
        parent = self._parent()
        os.makedirs(parent, exist_ok=True)
        partial = os.path.join(parent, f".step_{step.number:05d}.{secrets.token_hex(4)}.partial")
        os.mkdir(partial)
        try:
            save_safetensors(step.tensors, os.path.join(partial, "tensors.safetensors"))
            self.written.append(self._place(partial, parent, step))
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _place(self, partial: str, parent: str, step: _Step) -> str:
        """Gives a folder that is whole its name, or that of the next number that nobody has."""
        for number in itertools.count(step.number):
            folder = os.path.join(parent, f"step_{number:05d}")
            if os.path.lexists(folder):
                continue
            try:
                os.rename(partial, folder)
            except OSError:
                if os.path.lexists(folder):  # another process was faster
                    continue
                raise
            if number != step.number:
                self._first = (self._first or 0) + number - step.number
                step.number = number
            return folder
        raise AssertionError  # itertools.count() does not end


@dataclasses.dataclass(eq=False)
class _Call:
    """A call of a module that is running, within those of the same thread that are running too."""

    watch: _Watch
    outer: Optional[_Call]
    step: Optional[_Step]  # None: this call of the model is not looked at
    again: str = ""  # what its tensors' names end in when the module was called before in this step
    name: str = ""  # of the module, below the one that calls it
    passed: dict[Any, tuple[list[int], list[str]]] = dataclasses.field(default_factory=dict)  # what it may pass on
    frame: Optional[types.FrameType] = None  # of a call of the model: what stands on the stack as long as it runs

    def abandoned(self) -> bool:
        """Whether it ended without its hook, as KeyboardInterrupt ends it."""
        here: Optional[types.FrameType] = sys._getframe()
        while here is not None and here is not self.frame:
            here = here.f_back
        return here is None


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """Nothing in here is recorded by autograd, or seen by the modes and tensor subclasses of the program."""
    with torch._C.DisableTorchFunction(), _NO_DISPATCH(), torch.no_grad():
        yield


class _Hook:
    """What torch calls. Nothing leaves it, and a copy of it, by copy or by pickle, is something that does nothing."""

    def __init__(self, capture: Capture, action: Callable[..., None]):
        self._capture = capture
        self._action = action

    def __call__(self, *given: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            with _aside():
                self._action(*given)
        except Exception as error:
            self._capture.say_error("a module could not be looked at", "", error)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes any arguments; who loads it needs not this file


class _Watch:
    """The two hooks of a module. That of the model itself has no name."""

    _ids = itertools.count(1 << 40 | secrets.randbits(39))

    def __init__(self, capture: Capture, module: torch.nn.Module, name: str):
        self.name = name
        self.other_names: list[str] = []  # of a module that several others hold
        self._capture = capture
        self._module = weakref.ref(module)
        self._handles: list[Any] = []
        try:
            before, after = _Hook(capture, self._before), _Hook(capture, self._after)
            self._keep(module.register_forward_pre_hook(before, with_kwargs=True))
            self._keep(module.register_forward_hook(after, always_call=True))
        except Exception:
            self.remove()
            raise

    def name_in(self, outer: Optional[_Call]) -> str:
        """Its name below the module that calls it: one rotary embedding may serve every layer."""
        if outer is None or not outer.name or self.name.startswith(outer.name + "."):
            return self.name
        if self.name.startswith(outer.watch.name + "."):  # that module has several names itself
            return outer.name + self.name[len(outer.watch.name):]
        return next((name for name in self.other_names if name.startswith(outer.name + ".")), self.name)

    def _keep(self, handle: Any) -> None:
        """torch counts hooks from 0 in every process: in a saved model, ours would stand where another is put then."""
        own = next(self._ids)
        for table in (ref() for ref in (handle.hooks_dict_ref, *handle.extra_dict_ref)):
            if table is not None and handle.id in table:
                table[own] = table.pop(handle.id)
        handle.id = own
        self._handles.append(handle)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._module() is not module:
            self._capture.say("copy", "a copy of the model or of a part of it is called: it is not looked at")
        elif self.name:
            self._capture.enter(self, args, kwargs)
        else:
            self._capture.begin(self, module, args, kwargs)

    def _after(self, module: torch.nn.Module, _: Any, result: Any) -> None:
        if self._module() is module:
            self._capture.leave(self, result)


class Capture(_Says):
    """What attach() gives back. A copy of it watches nothing.

    steps    how often the model was called
    written  the folders that were written
    dropped  the numbers of steps that should have been written and could not be
    fault    (step, tensor, reason) of the first fault seen, or None
    """

    def __init__(self, folder: str, options: _Options):
        super().__init__()
        self.folder = folder
        self.steps = 0
        self._fault: Optional[tuple[_Step, str, str]] = None
        self._options = options
        self._modules = re.compile(options.modules) if options.modules else None
        self._writer = _Writer(folder, options, self)
        self._watches: list[_Watch] = []
        self._scaled: list[tuple[str, torch.nn.Module]] = []  # modules with scales
        self._kept: collections.deque[_Step] = collections.deque(maxlen=options.last_steps or 1)
        self._countdown: Optional[int] = None  # steps that a flight recorder writes yet, once there was a fault
        self._running: set[_Call] = set()  # calls of the model
        self._here = threading.local()  # .call: the innermost that runs in this thread
        self._open: Optional[_Step] = None  # the call of the model is over, and the step is not: see end_step()
        self._lock = threading.RLock()
        _captures.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Capture, (self.folder, self._options)

    @property
    def fault(self) -> Optional[tuple[int, str, str]]:
        return self._fault and (self._fault[0].number, *self._fault[1:])

    @property
    def written(self) -> list[str]:
        return self._writer.written

    @property
    def dropped(self) -> list[int]:
        return self._writer.dropped

    def detach(self) -> None:
        """Removes the hooks and writes what could not be written before. What a flight recorder kept is dropped."""
        for watch in self._watches:
            watch.remove()
        self._watches = []
        self._end_abandoned()
        self.end_step()
        with self._lock:
            if self._running:
                self.say("detached", f"detached while {len(self._running)} calls of the model ran: they are not written")
            self._kept.clear()
        self.write_rest()

    def write_rest(self) -> None:
        """Writes what could not be written before, and says what still cannot be, what there is and what to do with it."""
        try:
            with _aside():
                self.end_step()
                self._writer.flush(last=True)
        except Exception as error:
            self.say_error("what is left cannot be written", "", error)
        self._writer.say_what_there_is()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Adds a tensor of the running step by hand: a KV cache, scores, whatever no module returns."""
        if torch.compiler.is_compiling():
            return
        try:
            call = self._innermost()
            step = call.step if call is not None else self._open
            if step is not None and not self._blind():
                with _aside():
                    self._take(step, str(name).encode(errors="replace").decode(), tensor)
        except Exception as error:
            self.say_error("a tensor could not be added", f"{name}: ", error)

    def watch(self, model: torch.nn.Module) -> None:
        """Hooks the model and its modules; those that cannot be hooked are left out, and that is said."""
        inert = {id(part) for module in model.modules() if _computes_otherwise(module) for part in module.modules()}
        names = {id(module): _plain_name(path) for path, module in model.named_modules()}
        others: dict[int, list[str]] = {}
        for path, module in model.named_modules():
            for key, part in module._modules.items():
                place = _plain_name(f"{path}.{key}" if path else key)
                if part is not None and names[id(part)] != place:
                    others.setdefault(id(part), []).append(place)
        for path, module in model.named_modules():
            name = names[id(module)]
            try:
                if any(_SCALE.search(f"{name}.{key}") for key, _ in _own_tensors(module)):
                    self._scaled.append((name, module))
                if path and (not name or not self._wanted(name, others.get(id(module), []))):
                    continue
                if id(module) in inert:
                    self.say("inert", f"{name}: with hooks torch.nn.TransformerEncoderLayer computes in another way, whose last "
                             "bits differ: without torch.backends.mha.set_fastpath_enabled(False) it is not looked at")
                    continue
                self._watches.append(_Watch(self, module, name))
                self._watches[-1].other_names = others.get(id(module), [])
            except Exception as error:
                self.say_error("a module cannot be hooked and is not looked at", f"{name or 'the model'}: ", error)

    def watches_modules(self) -> bool:
        """Whether it watches any but the model itself."""
        return any(watch.name for watch in self._watches)

    def _wanted(self, name: str, others: list[str]) -> bool:
        return self._modules is None or any(self._modules.search(one) for one in (name, *others))

    def begin(self, watch: _Watch, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A call of the model begins, within another one perhaps."""
        self._end_abandoned()
        self.end_step()
        if "_orig_mod" in model._modules or vars(model).get("_compiled_call_impl") is not None:
            self.say("compiled", "the model is compiled: hooks inside it may not run; run it without torch.compile for a dump")
        wanted = self._options.when is None or self._options.when()
        with self._lock:
            count = self.steps
            self.steps += wanted
            looked_at = wanted and count % self._options.every == 0 and self._countdown != 0 and not self._blind()
            step = _Step(self._writer.number_of(count)) if looked_at else None
            frame: Optional[types.FrameType] = sys._getframe()
            while frame is not None and frame.f_globals is globals():
                frame = frame.f_back
            call = _Call(watch, self._innermost(), step, frame=frame)
            self._running.add(call)
            self._here.call = call
        if step is not None:
            self._take_arguments(call, step, model, args, kwargs)
            for name, module in self._scaled:
                for key, tensor in _own_tensors(module):
                    key = f"{name}.{key}" if name else key
                    if _SCALE.search(key):
                        self._take(step, key, tensor)

    def enter(self, watch: _Watch, args: Any, kwargs: Any) -> None:
        """A module is called. What it is given is taken now: it may change it."""
        outer = self._innermost()
        if outer is None and self._open is None:
            if self._running:
                self.say("thread", "modules run in a thread that did not call the model: they are in no step")
            return
        step = outer.step if outer is not None else self._open
        step = None if step is None or self._blind() else step
        name = watch.name_in(outer)
        call = self._here.call = _Call(watch, outer, step, name=name)
        if step is None:
            return
        step.calls[name] += 1
        if step.calls[name] > 1:
            call.again = f"_again{step.calls[name]}"
        if self._options.inputs:
            self._take_inputs(call, step, args, kwargs)

    def leave(self, watch: _Watch, result: Any) -> None:
        """A module returned, or raised. What was called in it and did not return is over too."""
        call = self._innermost()
        while call is not None and call.watch is not watch:
            call = call.outer
        if call is None:  # it began before attach(), or where nothing is looked at
            return
        self._here.call = call.outer
        if call.frame is not None:
            self._end(call, result)
        elif call.step is not None and not self._blind():
            self._take_all(call.step, f"{call.name}.output{call.again}", _tensors_in(result))

    def renew_locks(self) -> None:
        """In a forked process, where the threads that held them are not."""
        self._lock, self._running, self._open = threading.RLock(), set(), None
        self._kept.clear()
        self._writer.forget()

    def _innermost(self) -> Optional[_Call]:
        return getattr(self._here, "call", None)

    def _blind(self) -> bool:
        """Whether what flows is no numbers: it is being traced, batched or recorded."""
        if torch.jit.is_tracing():
            self.say("tracing", "the model is being traced: those calls are left out")
        elif _functorch_level() is not None:
            self.say("functorch", "the model runs under vmap, grad or another transform of torch.func: those calls are left out")
        elif torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            self.say("graph", "a CUDA graph is being captured: hooks do not run when it is replayed; run with CUDA graphs off")
        else:
            return False
        return True

    def _end_abandoned(self) -> None:
        """Calls of the model in this thread that ended without their hook leave what they had."""
        call = self._innermost()
        while call is not None:
            if call.frame is not None:
                if not call.abandoned():
                    return
                self._here.call = call.outer
                self.say("cut", "a call of the model did not return: its step holds what ran before")
                self._end(call, None)
            call = call.outer

    def _end(self, call: _Call, result: Any) -> None:
        step = call.step
        with self._lock:
            self._running.discard(call)
            if step is not None and (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
                self.say("async", "the model returns before its modules ran (async or a generator): its calls are left out")
                self._fault = None if step.faulty else self._fault
            elif step is not None:
                if result is None and sys.exc_info()[1] is not None:
                    self.say("cut", "a call of the model did not return: its step holds what ran before")
                if step.tensors and self._options.until_end_step:
                    self._open = step
                    return
                if step.tensors:
                    self._settle(step)
        self._writer.flush()

    def end_step(self) -> None:
        """Ends the step that attach(..., until_end_step=True) left open. What runs until the next call is in no step."""
        with self._lock:
            step, self._open = self._open, None
            if step is not None:
                self._settle(step)
        if step is not None:
            self._writer.flush()

    def _settle(self, step: _Step) -> None:
        """Whether a step is written, or kept for the case of a fault."""
        if self._options.last_steps is None:
            self._writer.add([step])
        elif self._countdown is None:
            self._kept.append(step)
            if step.faulty:
                self._countdown = self._options.after
                self._writer.add(self._kept)
                self._kept.clear()
        elif self._countdown > 0:
            self._countdown -= 1
            self._writer.add([step])

    def _take_arguments(self, call: _Call, step: _Step, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Ids, masks, positions and how long the cache is: what the model itself was called with, by its own names."""
        try:
            names: Iterable[str] = inspect.signature(model.forward).parameters
        except Exception:  # not written in Python
            names = ("input_ids",)
        first = next(iter(_tensors_in(args)), None)
        for name, value in (dict(zip(names, args)) | kwargs).items():
            self._take_length(step, value)
            for position, tensor in enumerate(_tensors_in(value)):
                if tensor is first and tensor.dtype in (torch.int64, torch.int32):
                    self._take(step, "input_ids", tensor)
                elif self._options.inputs or not tensor.is_floating_point():
                    taken = self._take(step, name if position == 0 else f"{name}.{position}", tensor)
                    if taken is not None and name not in kwargs and tensor.is_floating_point():
                        call.passed[id(tensor)] = ([id(tensor)], [taken])

    def _take_length(self, step: _Step, value: Any) -> None:
        """Of a cache of transformers. Its class is asked whether it is one: an object may answer anything."""
        if not hasattr(type(value), "get_seq_length"):
            return
        try:
            self._take(step, "past_length", torch.tensor(int(value.get_seq_length()), device="cpu"))
        except Exception as error:
            self.say_error("a cache does not say how long it is", "", error)

    def _take_inputs(self, call: _Call, step: _Step, args: Any, kwargs: Any) -> None:
        name, again = call.name, call.again
        given, keywords = _input_and_keywords(args, kwargs)
        names = self._take_all(step, f"{name}.input{again}", given)
        for taken, tensor in zip(names, given if len(names) == len(given) else ()):
            self._passed_on(call, step, id(tensor), [id(tensor)], [taken])
        for key, tensors in keywords.items():
            names = self._take_all(step, f"{name}.kwargs.{key}{again}", tensors)
            ids = [id(tensor) for tensor in tensors]
            self._passed_on(call, step, key, ids, names)
            call.passed[key] = (ids, names)

    def _passed_on(self, call: _Call, step: _Step, key: Any, ids: list[int], names: list[str]) -> None:
        """What a call around this one was given too and only passed on is said here alone: a layer passes on its mask."""
        outer = call.outer
        while outer is not None and outer.passed.get(key, ([], []))[0] != ids:
            outer = outer.outer
        if outer is None or outer.step is not step:
            return
        said = outer.passed.pop(key)[1]
        # The same tensors, but what lies in between may have changed them.
        if len(said) == len(names) and all(_same_bytes(step.tensors[a], step.tensors[b]) for a, b in zip(said, names)):
            for old, new in zip(said, names):
                step.drop(old)
                if self._fault is not None and self._fault[:2] == (step, old):
                    self._fault = (step, new, self._fault[2])

    def _take_all(self, step: _Step, name: str, tensors: list[torch.Tensor]) -> list[str]:
        """Gives back the names of those that were taken."""
        taken = [self._take(step, f"{name}.{i}" if i > 0 else name, tensor) for i, tensor in enumerate(tensors)]
        return [one for one in taken if one is not None]

    def _take(self, step: _Step, name: str, tensor: torch.Tensor) -> Optional[str]:
        # Always a copy, though an earlier output may be the same tensor with the same version: kernels that write in
        # place by a pointer, as those of vLLM, count no version, and inference mode has none.
        try:
            copy = _copy_of(tensor, self._options.max_bytes - step.size)
            name = step.put(name, copy)
            reason = fault_in(copy, self._options.clipped_share) if self._fault is None else None
        except _LeftOut as why:
            self.say(("left out", str(why)), f"{name}: {why} is left out")
            return None
        except Exception as error:
            self.say_error("a tensor could not be recorded", f"{name}: ", error)
            return None
        with self._lock:
            if reason is not None and self._fault is None:
                self._fault = (step, name, reason)
                step.faulty = True
        return name


def _plain_name(path: str) -> str:
    """Without what torch.compile and FSDP put around modules."""
    return path.replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", "")


def _own_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return itertools.chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))


def _computes_otherwise(module: torch.nn.Module) -> bool:
    """torch's encoder layer has a kernel of its own for inference that it takes only where nothing in it has a hook."""
    layer = torch.nn.TransformerEncoderLayer
    return isinstance(module, layer) and type(module).forward is layer.forward and module.self_attn.batch_first \
        and torch.backends.mha.get_fastpath_enabled()


def _functorch_level() -> Any:
    try:
        return torch._C._functorch.peek_interpreter_stack()
    except AttributeError:  # another torch
        return None


_captures: weakref.WeakSet[Capture] = weakref.WeakSet()


def _after_fork() -> None:
    for capture in list(_captures):
        capture.renew_locks()


def _at_exit() -> None:
    for capture in list(_captures):
        capture.write_rest()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def attach(model: torch.nn.Module, folder: str | bytes | os.PathLike[Any], *, modules: Optional[str] = None, inputs: bool = True,
           last_steps: Optional[int] = None, after: int = 1, every: int = 1, clipped_share: float = 0.01,
           max_bytes: int = 64 << 30, max_held_bytes: int = 4 << 30, when: Optional[Callable[[], bool]] = None,
           until_end_step: bool = False) -> Capture:
    """Hooks every module of `model` and dumps what goes in and comes out. Gives back a Capture (a context manager).

    modules         regular expression: modules whose names it finds; None: all
    inputs          dump inputs as well as outputs
    last_steps      None: write every step. N: keep the last N in memory and write them when a NaN, an Inf or a share of
                    clipped fp8 values above `clipped_share` appears, then `after` steps more
    every           look at every n-th step only
    max_bytes       write no more than this in all
    max_held_bytes  of steps that cannot be written, as on a full disk, keep no more than this in memory to try again;
                    beyond it, steps are dropped, and that is said
    when            called before each call of the model: False leaves the call out, as one of a warm-up
    until_end_step  a step goes on behind the model's call, for the head, the sampler and add(), until Capture.end_step() or
                    the next call; for programs that call the model from one thread

    When it ends, one line on standard error says what was written. Raises ValueError for arguments that make no sense and
    where `modules` finds no module, and re.error for such an expression. Later nothing is raised.
    """
    if last_steps is not None and last_steps < 1:
        raise ValueError("last_steps is at least 1, or None to write every step")
    if every < 1:
        raise ValueError("every is at least 1")
    options = _Options(modules, inputs, last_steps, after, every, clipped_share, max_bytes, max_held_bytes, when,
                       until_end_step)
    capture = Capture(os.fsdecode(folder), options)
    capture.watch(model)
    if modules is not None and not capture.watches_modules():
        capture.detach()
        raise ValueError(f"no module of the model has a name that {modules!r} finds")
    return capture


class _Script:
    """Attaches a capture to each model that a program calls, before its first call."""

    _LEAST = 8  # modules of a model: less is a layer, a loss or an activation that a script uses by itself

    def __init__(self, folder: str, options: dict[str, Any]):
        self._folder = folder
        self._options = options
        self._here = threading.local()
        self._lock = threading.Lock()
        self._seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._attached = 0

    def watch(self) -> None:
        """From now on, every call of a module that no other module makes."""
        real = torch.nn.Module.__call__

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._here, "inside", False) or torch.compiler.is_compiling():
                return real(module, *args, **kwargs)
            self._here.inside = True
            try:
                self._attach(module)
                return real(module, *args, **kwargs)
            finally:
                self._here.inside = False

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def _attach(self, model: torch.nn.Module) -> None:
        with self._lock:
            if model in self._seen:
                return
            self._seen.add(model)
            if sum(1 for _ in itertools.islice(model.modules(), self._LEAST)) < self._LEAST:
                return
            self._attached += 1
            folder = self._folder if self._attached == 1 else f"{self._folder}-{self._attached}"
            try:
                attach(model, folder, **self._options)
            except ValueError as error:
                print(f"nanscope_capture: {type(model).__name__} is not captured: {error}", file=sys.stderr)

    def captured(self) -> bool:
        return self._attached > 0


def main() -> None:
    """Runs a script and captures the models that it calls. The second model has its folder with -2 behind its name."""
    parser = argparse.ArgumentParser(prog="nanscope_capture", description=main.__doc__)
    parser.add_argument("-o", "--output", default="dump", metavar="FOLDER", help="where steps are written (default: dump)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="look at every n-th call only")
    parser.add_argument("--last", type=int, metavar="N", help="keep the last N steps and write them when a fault appears")
    parser.add_argument("--modules", metavar="EXPRESSION", help="modules whose names it finds")
    parser.add_argument("--no-inputs", action="store_true", help="outputs alone")
    parser.add_argument("script", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    given = parser.parse_args()
    try:
        with open(given.script, encoding="utf-8"):
            pass
        re.compile(given.modules or "")
    except OSError as error:
        parser.error(f"{given.script}: {error.strerror}")
    except re.error as error:
        parser.error(f"--modules {given.modules!r} is no regular expression: {error}")
    script = _Script(os.path.abspath(given.output), {"every": given.every, "last_steps": given.last, "modules": given.modules,
                                                     "inputs": not given.no_inputs})
    script.watch()
    sys.argv = [given.script, *given.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(given.script))
    try:
        runpy.run_path(given.script, run_name="__main__")
    finally:
        if not script.captured():
            print("nanscope_capture: the script called no model", file=sys.stderr)


if __name__ == "__main__":
    main()
