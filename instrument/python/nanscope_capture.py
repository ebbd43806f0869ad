"""Dumps of a running PyTorch model that `nanscope diagnose` reads. One file, no dependency but torch.

    import nanscope_capture

    with nanscope_capture.attach(model, "dump"):                       # every step
        model(input_ids)

    recorder = nanscope_capture.record(model, "dump")                  # flight recorder: on a fault only
    ...
    recorder.detach()

    python -m nanscope.capture -o dump script.py ...                   # every model that a script calls; --help
    python nanscope_capture.py -o dump script.py ...                   # the same without the package

A step is one call of `model`. Each is written to `dump/step_00000/` (with `rankN/` before it when torch.distributed
is initialised), inputs and outputs of every module under the names of `named_modules()`, keyword arguments and scales
beside them. What lies in `dump` already is never written over: numbers go on behind it.

The model is not changed by being watched: what fails in here is a warning, once per kind, and the call goes on.
Hooks of attach() see nothing inside torch.compile'd code and CUDA graphs: capture says so, once, and leaves those steps
out. record() runs inside both.
"""

from __future__ import annotations

import argparse
import atexit
import bisect
import collections
import contextlib
import ctypes
import dataclasses
import inspect
import itertools
import json
import operator
import os
import re
import runpy
import secrets
import shlex
import shutil
import signal
import struct
import sys
import threading
import time
import types
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional

import torch
from torch import library

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
    """Why a tensor is worth keeping: "NaN", "Inf" or a share of values at the largest finite one; None: it is healthy.

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
    """A module's input and what else it was given by keyword: with keywords alone, hidden_states or the first is it."""
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


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


class _Writer:
    """Steps on their way into the folder. What cannot be written stays in memory and is tried again.

    Folders have numbers that none had before, in this process or another; each is there whole or not at all.
    """

    def __init__(self, folder: str, options: _Options, says: _Says):
        self.written: list[str] = []
        self.dropped: list[int] = []
        self.bytes = 0  # of all steps in `written`
        self.reported = 0  # of them
        self.weights_in = ""  # a folder
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
                found = [_STEP.fullmatch(name) for name in os.listdir(self.parent())]
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
            self.bytes += step.size
        self._discard(step)
        return True

    def _discard(self, step: _Step) -> None:
        self._waiting.remove(step)
        step.tensors = {}  # `fault` may hold the step yet

    def _keep_within(self, most: int) -> None:
        """Drops what takes more bytes than this, but for one step. A flight recorder's are few, and it keeps them."""
        if most > 0 and self._options.last_steps is not None:
            return
        while len(self._waiting) > min(most, 1) and (most == 0 or sum(step.size for step in self._waiting) > most):
            # What led to a fault is worth more than what came after it, and without one, what is new.
            fault = next((step.number for step in self._waiting if step.faulty), None)
            later = [step for step in self._waiting if fault is not None and step.number > fault]
            drop = later[-1] if later else self._waiting[0]
            self._discard(drop)
            self.dropped.append(drop.number)
            self._says.say(("dropped", most),
                           f"step {drop.number}, and what more `dropped` lists, could not be written and is lost")

    def say_what_there_is(self) -> None:
        """One line, if steps were written since the last one."""
        count = len(self.written)
        if count <= self.reported:
            return
        self.reported = count
        with contextlib.suppress(Exception):
            verify = f"verify {shlex.quote(self._folder)} --model {shlex.quote(self.weights_in)}"
            command = verify if self.weights_in else f"diagnose {shlex.quote(self._folder)}"
            what = f"{_steps(count)}, {self.bytes / 1e6:.1f} MB in {self._folder}"
            print(f"nanscope_capture: {what}; now: nanscope {command}", file=sys.stderr)

    def parent(self) -> str:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return os.path.join(self._folder, f"rank{torch.distributed.get_rank()}")
        return self._folder

    def _write(self, step: _Step) -> None:
        parent = self.parent()
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


_hook_ids = itertools.count(1 << 40 | secrets.randbits(39))


def _with_own_id(handle: Any) -> Any:
    """torch counts hooks from 0 in every process: in a saved model, ours would stand where another is put then."""
    own = next(_hook_ids)
    for table in (ref() for ref in (handle.hooks_dict_ref, *handle.extra_dict_ref)):
        if table is not None and handle.id in table:
            table[own] = table.pop(handle.id)
    handle.id = own
    return handle


class _Watch:
    """The two hooks of a module. That of the model itself has no name."""

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
        self._handles.append(_with_own_id(handle))

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

    @property
    def writer(self) -> _Writer:
        return self._writer

    def write_weights(self, model: torch.nn.Module) -> None:
        """Into checkpoint/ beside the steps; what fails is a warning."""
        try:
            parent = self._writer.parent()
            os.makedirs(parent, exist_ok=True)
            folder = os.path.join(parent, "checkpoint")
            if not save_weights(model, folder):
                self.say("weights", f"{folder} is there already and stays as it is")
            self._writer.weights_in = folder
        except Exception as error:
            self.say_error("the weights cannot be written", "", error)

    def takes_whole_steps(self) -> bool:
        """Whether the running step has inputs and outputs of all modules, as those of a Recorder mostly have not."""
        return True

    def is_running(self) -> bool:
        """Whether a step has begun and has not ended."""
        return bool(self._running) or self._open is not None

    def detach(self) -> None:
        """Removes the hooks and writes what could not be written before. What a flight recorder kept is dropped."""
        for watch in self._watches:
            watch.remove()
        self._watches = []
        self._end_abandoned()
        self.end_step()
        with self._lock:
            if self._running:
                self.say("detached",
                         f"detached while {len(self._running)} calls of the model ran: they are not written")
            self._kept.clear()
        self.write_rest()

    def write_rest(self) -> None:
        """Writes what could not be written before, says what still cannot be, what there is and what to do with it."""
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
                    self.say("inert", f"{name}: with hooks torch.nn.TransformerEncoderLayer computes in another way, "
                             "whose last bits differ: without torch.backends.mha.set_fastpath_enabled(False) it is not "
                             "looked at")
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
            self.say("compiled",
                     "the model is compiled: hooks inside it may not run; run it without torch.compile for a dump")
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
            self.say("functorch",
                     "the model runs under vmap, grad or another transform of torch.func: those calls are left out")
        elif torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            self.say("graph",
                     "a CUDA graph is being captured: hooks do not run when it is replayed; run with CUDA graphs off")
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
            later = inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
            if step is not None and later:
                self.say("async",
                         "the model returns before its modules ran (async or a generator): its calls are left out")
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
        """Ends the step that attach(..., until_end_step=True) left open. What runs then is in no step."""
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
        """What a call around this one was given too and passed on is said here alone: a layer passes on its mask."""
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


_captures: weakref.WeakSet[Capture | Recorder] = weakref.WeakSet()


def _after_fork() -> None:
    for capture in list(_captures):
        capture.renew_locks()


def _at_exit() -> None:
    for capture in list(_captures):
        capture.write_rest()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def attach(model: torch.nn.Module, folder: str | bytes | os.PathLike[Any], *, modules: Optional[str] = None,
           inputs: bool = True, last_steps: Optional[int] = None, after: int = 1, every: int = 1,
           clipped_share: float = 0.01, max_bytes: int = 64 << 30, max_held_bytes: int = 4 << 30,
           when: Optional[Callable[[], bool]] = None, until_end_step: bool = False, weights: bool = False) -> Capture:
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
    until_end_step  a step goes on behind the model's call, for the head, the sampler and add(), until
                    Capture.end_step() or the next call; for programs that call the model from one thread
    weights         write the model's weights beside the steps, once, into checkpoint/: with them `nanscope diagnose`
                    computes each op again, and `nanscope verify` needs no other folder

    When it ends, one line on standard error says what was written. Raises ValueError for arguments that make no sense
    and where `modules` finds no module, and re.error if it is no regular expression. Later nothing is raised.
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
    if weights:
        capture.write_weights(model)
    return capture


# A flight recorder counts what modules return and keeps a few steps, see record(). On a CPU the tensors of a few steps
# are copied side by side and then counted together. On a GPU each is counted where it appears, into memory that was
# reserved before.
_COLUMNS = ("elements", "nan", "inf", "minus_inf", "saturated", "zero", "absmax", "hash")
_TRIPS = {"nan": "NaN", "inf": "Inf", "saturated": "values at the largest finite one"}
_SMALL_OUTPUT = 1 << 16  # elements: smaller tensors are counted together
_SAMPLE = 64  # elements of a tensor that its hash covers
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COUNTERS = re.compile(r"counters_\d+\.jsonl")


def _hash_weights(count: int, device: Any = "cpu") -> torch.Tensor:
    """Odd numbers: where one of its bits changes, a sum of products with them changes, modulo 2^32."""
    return torch.arange(count, device=device, dtype=torch.int64) * 2654435762 % (1 << 32) | 1


_HASH_WEIGHTS = _hash_weights(_SAMPLE)


def _sampled(rows: torch.Tensor) -> torch.Tensor:
    """The bits of at most _SAMPLE elements of each row, evenly spread."""
    bits = rows.view(_BITS[rows.element_size()])
    return bits[:, ::-(-bits.shape[1] // _SAMPLE)]


class _Counts:
    """Counters of the rows of a matrix on a CPU. What is rare is counted where the largest value says that it is there.

    Bits without their sign have the order of the sizes, NaN last, and integers are read several times as fast as
    floats.
    """

    def __init__(self, rows: torch.Tensor):
        sample = _sampled(rows)
        largest = torch.finfo(rows.dtype).max
        wide = rows.float() if rows.element_size() == 1 else rows
        bits = wide.view(_BITS[wide.element_size()])
        sizes = bits & torch.iinfo(bits.dtype).max
        self.elements = rows.shape[1]
        self.absmax = sizes.amax(1)
        self._nonzero = sizes.clamp_max_(1).sum(1)
        self._hash = (sample * _HASH_WEIGHTS[:sample.shape[1]]).sum(1)
        self._rare: Optional[torch.Tensor] = None  # nan, inf, minus_inf, saturated
        if self.absmax.max() >= torch.tensor(largest, dtype=wide.dtype).view(bits.dtype):
            self._rare = torch.stack([found.sum(1) for found in _rare(wide, largest)], 1)
            self.absmax = torch.where(torch.isfinite(wide), wide, 0).abs().amax(1)
        else:
            self.absmax = self.absmax.view(wide.dtype)

    def table(self) -> torch.Tensor:
        """Rows of _COLUMNS in f64, which holds all of them."""
        rows = torch.zeros(len(self.absmax), len(_COLUMNS), dtype=torch.float64)
        rows[:, 0], rows[:, 5] = self.elements, self.elements - self._nonzero
        rows[:, 6], rows[:, 7] = self.absmax, self._hash % (1 << 32)
        if self._rare is not None:
            rows[:, 1:5] = self._rare
        return rows

    def has_rare(self) -> bool:
        return self._rare is not None


def _rare(wide: torch.Tensor, largest: float) -> tuple[torch.Tensor, ...]:
    return torch.isnan(wide), torch.isposinf(wide), torch.isneginf(wide), wide.abs() == largest


_is_compiling = torch.compiler.is_dynamo_compiling
_thread_number = threading.get_ident
_copy_bytes = ctypes.memmove


@dataclasses.dataclass(eq=False)
class _Form:
    """What a module returned the last time: as long as that stays, its results need one comparison."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    size: int  # bytes


class _Now:
    """Results of the steps that are not counted yet, one behind the other in memory that stays.

    `taken` stays the same list: each _Tap holds its append().
    """

    def __init__(self) -> None:
        self.thread = 0  # whose results are copied without a further look; 0: nobody's
        self.taken: list[_Form] = []
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.at = self.end = 0  # addresses: of the next one, and of the end

    def room_for(self, size: int) -> None:
        """Moves what there is to memory that has so many bytes more."""
        used = self.at - self.memory.data_ptr()
        old = self.memory
        self.memory = torch.empty(2 * (used + size), dtype=torch.uint8)
        self.memory[:used] = old[:used]
        self.at, self.end = self.memory.data_ptr() + used, self.memory.data_ptr() + len(self.memory)

    def put(self, form: _Form, tensor: torch.Tensor) -> None:
        if self.at + form.size > self.end:
            self.room_for(form.size)
        _copy_bytes(self.at, tensor.data_ptr(), form.size)
        self.at += form.size
        self.taken.append(form)

    def clear(self) -> None:
        self.taken.clear()
        self.at = self.memory.data_ptr()


class _Tap:
    """The hook of a module that is recorded, or of its second result. A copy of it does nothing, as one of _Hook."""

    def __init__(self, recorder: Recorder, name: str):
        self.name = name  # of the tensor
        self.row = len(recorder.taps)
        self.second: Optional[_Tap] = None  # of what stands behind the first result, as the residual stream in vLLM
        self.best = 0.0  # the largest value of all steps before
        self.kept: Optional[torch.Tensor] = None  # memory of a device
        self.step = -1  # of the last call on a device
        self.several = False  # calls in a step: its counters are those of all, and `kept` has the last one alone
        self.form = _Form(name, torch.Size([-1]), torch.float32, 0)  # of nothing yet
        self._now = recorder.now
        self._append = recorder.now.taken.append
        self._take = recorder.take
        self._failed = recorder.say_error
        self._counters = recorder.counters
        self._id = recorder.id

    def __call__(self, module: torch.nn.Module, _: Any, result: Any) -> None:
        # Every module of every step comes here, with cold caches: clone() and a look at each property would cost three
        # times as much.
        if type(result) is tuple and result:
            first = result[0]
            if len(result) > 1 and self.second is not None and isinstance(first, torch.Tensor) \
                    and isinstance(result[1], torch.Tensor) and result[1].shape == first.shape:
                self.second(module, None, result[1])
            result = first
        if _is_compiling():
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                _ops.record(result, self._counters, self.kept, self.row, self._id)
            return
        try:
            form, now = self.form, self._now
            if (type(result) is torch.Tensor and now.thread == _thread_number() and result.shape == form.shape
                    and result.dtype is form.dtype and now.at + form.size <= now.end and result.is_cpu
                    and result.is_contiguous() and not result.is_neg()):
                _copy_bytes(now.at, result.data_ptr(), form.size)
                now.at += form.size
                self._append(form)
            elif isinstance(result, torch.Tensor):
                self._take(self, result)
        except Exception as error:
            self._failed("a tensor could not be recorded", f"{self.name}: ", error)

    __reduce__ = _Hook.__reduce__


@dataclasses.dataclass(eq=False)
class _Kept:
    """A step in the ring of a flight recorder, and its counters for longer."""

    number: int
    end: int = 0  # behind its last result among those that are not counted yet
    # names, and tensors of one shape
    stacks: list[tuple[list[str], torch.Tensor]] = dataclasses.field(default_factory=list)
    extra: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    counts: list[tuple[list[str], _Counts, int]] = dataclasses.field(default_factory=list)  # and the first one's row
    table: dict[str, list[float]] = dataclasses.field(default_factory=dict)  # the same, read back from a device
    left_out: int = 0  # tensors that were counted and are too large to keep
    size: int = 0  # bytes

    def put(self, names: list[str], counts: _Counts, row: int, stacked: Optional[torch.Tensor]) -> None:
        """Tensors of one shape and type."""
        self.counts.append((names, counts, row))
        if stacked is not None:
            self.stacks.append((names, stacked))
            self.size += stacked.nbytes
        else:
            self.left_out += len(names)

    def views(self) -> dict[str, torch.Tensor]:
        """By their names in a dump."""
        found: dict[str, torch.Tensor] = {}
        for names, stacked in self.stacks:
            for name, tensor in zip(names, stacked):
                free, again = name, 1
                while free in found:  # the module was called before in this step
                    again += 1
                    free = re.sub(r"\.output(\.1)?$", rf".output_again{again}\1", name)
                found[free] = tensor
        return found

    def rows(self) -> dict[str, list[float]]:
        """Of each tensor, in the order of _COLUMNS. Of a module that was called several times, of all its results."""
        found = dict(self.table)
        for names, counts, row in self.counts:
            for name, more in zip(names, counts.table()[row:row + len(names)].tolist()):
                one = found.setdefault(name, [0.0] * len(_COLUMNS))
                sums = map(operator.add, one[:6], more[:6])
                found[name] = [*sums, max(one[6], more[6]), (one[7] + more[7]) % (1 << 32)]
        return found


@dataclasses.dataclass(eq=False)
class _Alike:
    """Results of one shape and type among those of a few steps."""

    indices: list[int]
    offsets: list[int]  # bytes
    form: _Form
    steps: list[tuple[int, list[str], int, int]]  # of each: its names, and which of `indices` are its own

    def stack(self, memory: torch.Tensor) -> torch.Tensor:
        size = self.form.size
        first, last = self.offsets[0], self.offsets[-1] + size
        if last - first == size * len(self.offsets):
            together = memory[first:last].clone()
        else:
            together = torch.cat([memory[offset:offset + size] for offset in self.offsets])
        return together.view(self.form.dtype).view(len(self.indices), *self.form.shape)


def _groups(forms: tuple[_Form, ...], ends: list[int]) -> list[_Alike]:
    alike: dict[Any, list[int]] = {}
    for index, form in enumerate(forms):
        alike.setdefault((form.shape, form.dtype), []).append(index)
    offsets = [0, *itertools.accumulate(form.size for form in forms)]
    groups = []
    for indices in alike.values():
        bounds = [bisect.bisect_left(indices, end) for end in (0, *ends)]
        steps = [(step, [forms[i].name for i in indices[begin:end]], begin, end)
                 for step, (begin, end) in enumerate(zip(bounds, bounds[1:])) if begin < end]
        groups.append(_Alike(indices, [offsets[i] for i in indices], forms[indices[0]], steps))
    return groups


_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton's kernels run on a CPU, for tests
if torch.version.cuda or _INTERPRETED:
    try:
        import triton
        import triton.language as tl
    except ImportError:
        triton = None
else:
    triton = None

if triton is not None:

    @triton.jit
    def _count_kernel(values, row, total, largest, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < total
        raw = tl.load(values + at, mask=inside, other=1.0)
        wide = raw.to(tl.float32)
        size = tl.abs(wide)
        tl.atomic_add(row, tl.sum(inside.to(tl.int32), 0))
        tl.atomic_add(row + 1, tl.sum((inside & (wide != wide)).to(tl.int32), 0))
        tl.atomic_add(row + 2, tl.sum((inside & (wide == float("inf"))).to(tl.int32), 0))
        tl.atomic_add(row + 3, tl.sum((inside & (wide == float("-inf"))).to(tl.int32), 0))
        tl.atomic_add(row + 4, tl.sum((inside & (size == largest)).to(tl.int32), 0))
        tl.atomic_add(row + 5, tl.sum((inside & (wide == 0)).to(tl.int32), 0))
        finite = tl.where(inside & (size < float("inf")), size, 0.0)
        tl.atomic_max(row + 6, tl.max(finite, 0).to(tl.int32, bitcast=True))  # bits of positive f32 have their order
        if raw.dtype == tl.float32:
            bits = raw.to(tl.int32, bitcast=True).to(tl.int64)
        else:
            bits = raw.to(tl.int16, bitcast=True).to(tl.int64)
        weight = (((at // stride).to(tl.int64) * 2654435762) & 4294967295) | 1
        tl.atomic_add(row + 7, tl.sum(tl.where(inside & (at % stride == 0), bits * weight, 0), 0).to(tl.int32))


def _count_by_torch(values: torch.Tensor, row: torch.Tensor) -> None:
    """What _count_kernel does, where there is no Triton or it has not the type. Nothing waits for the device."""
    wide = values.float()
    sample = _sampled(values.view(1, -1))[0]
    found = (*_rare(wide, torch.finfo(values.dtype).max), wide == 0)
    row[0] += wide.numel()
    row[1:6] += torch.stack([one.sum() for one in found]).to(torch.int32)
    row[6] = torch.maximum(row[6], torch.where(torch.isfinite(wide), wide, 0).abs().amax().view(torch.int32))
    digest = (sample * _hash_weights(len(sample), values.device)).sum()
    row[7] += digest.view(1).view(torch.int32)[0]  # the low half


def _record_on_device(values: torch.Tensor, counters: torch.Tensor, kept: Optional[torch.Tensor], row: int,
                      recorder: int) -> None:
    """Waits for nothing, and with Triton takes no memory: a CUDA graph can hold it."""
    known = _recorders.get(recorder)
    if known is not None:
        known.called(known.taps[row])
    flat = values.reshape(-1)
    if kept is not None and kept.dtype == flat.dtype and flat.numel() <= kept.numel():
        kept[:flat.numel()].copy_(flat)
    known_type = flat.dtype in (torch.float32, torch.bfloat16, torch.float16)
    if triton is not None and (flat.is_cuda or _INTERPRETED) and known_type and flat.numel() < 1 << 31:
        stride = -(-flat.numel() // _SAMPLE)
        largest = torch.finfo(flat.dtype).max
        grid = (triton.cdiv(flat.numel(), 1024),)
        _count_kernel[grid](flat, counters[row], flat.numel(), largest, stride, BLOCK=1024)
    else:
        _count_by_torch(flat, counters[row])


def _record_on_cpu(values: torch.Tensor, counters: torch.Tensor, kept: Optional[torch.Tensor], row: int,
                   recorder: int) -> None:
    known = _recorders.get(recorder)
    if known is None:
        return
    if known.on_device:
        _record_on_device(values, counters, kept, row, recorder)
    else:
        known.take(known.taps[row], values)


def _end_step_of(counters: torch.Tensor, recorder: int) -> None:
    known = _recorders.get(recorder)
    if known is not None:
        known.end_step()


_recorders: weakref.WeakValueDictionary[int, Recorder] = weakref.WeakValueDictionary()
_recorder_ids = itertools.count(secrets.randbits(40))
# The file may be loaded twice, as nanscope.capture and as nanscope_capture: each has its own ops.
_ops_name = f"nanscope_{__name__.replace('.', '_')}"
_library = library.Library(_ops_name, "DEF")
# The second and third tensor are there before the call; `recorder` is the number of one in this process.
_library.define("record(Tensor values, Tensor(a!) counters, Tensor(b!)? kept, int row, int recorder) -> ()")
_library.define("end_step(Tensor(a!) counters, int recorder) -> ()")
_library.impl("record", _record_on_cpu, "CPU")
_library.impl("record", _record_on_device, "CUDA")
_library.impl("record", lambda *_: None, "Meta")
_library.impl("end_step", _end_step_of, "CPU")
_library.impl("end_step", _end_step_of, "CUDA")
_library.impl("end_step", lambda *_: None, "Meta")
_ops = getattr(torch.ops, _ops_name)


class _Tail:
    """The hook behind a model's call. Where the model is compiled with its hooks, an op of its graph stands for it."""

    def __init__(self, recorder: Recorder):
        self._returned = recorder.model_returned
        self._counters = recorder.counters
        self._id = recorder.id

    def __call__(self, *_: Any) -> None:
        if torch.compiler.is_compiling():
            _ops.end_step(self._counters, self._id)
        else:
            self._returned()

    __reduce__ = _Hook.__reduce__


class _DeviceSteps:
    """Steps of a model on a device. Nothing here waits for it: counters of a step are read when they have arrived."""

    def __init__(self, counters: torch.Tensor, turns: int, most: int):
        self.size = 0  # bytes, of the device
        self._counters, self._most = counters, most
        pinned = counters.is_cuda
        self._hosts = [torch.empty(counters.shape, dtype=counters.dtype, pin_memory=pinned) for _ in range(turns)]
        self._kept: dict[_Tap, list[torch.Tensor]] = {}
        self._widths: dict[_Tap, int] = {}
        self._arriving: collections.deque[tuple[_Kept, torch.Tensor, Any]] = collections.deque()

    def reserve(self, tap: _Tap, tensor: torch.Tensor, rows: int) -> None:
        """Memory for so many rows of what a module returns, once as it runs and once for each step in the ring."""
        if tap in self._widths:
            return
        width = self._widths[tap] = tensor.shape[-1] if tensor.dim() > 1 else 1
        size = rows * width * tensor.element_size() * (1 + len(self._hosts))
        if self.size + size <= self._most:
            self.size += size
            tap.kept = torch.empty(rows * width, dtype=tensor.dtype, device=tensor.device)
            self._kept[tap] = [torch.empty_like(tap.kept) for _ in self._hosts]

    def end_step(self, step: _Kept) -> None:
        if self._kept:
            places = [ring[step.number % len(ring)] for ring in self._kept.values()]
            torch._foreach_copy_(places, [tap.kept for tap in self._kept])
        host = self._hosts[step.number % len(self._hosts)]
        while self._arriving and self._arriving[0][1] is host:  # the device is a whole ring behind: those are lost
            self._arriving.popleft()
        host.copy_(self._counters, non_blocking=True)
        arrived = None
        if self._counters.is_cuda:
            arrived = torch.cuda.Event()
            arrived.record()
        self._counters.zero_()
        self._arriving.append((step, host, arrived))

    def finished(self, taps: list[_Tap], wait: bool = False) -> list[_Kept]:
        done = []
        while self._arriving and (wait or self._arriving[0][2] is None or self._arriving[0][2].query()):
            step, host, arrived = self._arriving.popleft()
            if wait and arrived is not None:
                arrived.synchronize()
            sizes = host[:, 6].contiguous().view(torch.float32).tolist()
            for tap, row, absmax in zip(taps, host.tolist(), sizes):
                if row[0] > 0:
                    step.table[tap.name] = [*row[:6], absmax, row[7] % (1 << 32)]
            done.append(step)
        return done

    def views(self, step: _Kept) -> dict[str, torch.Tensor]:
        """What is kept of a step, without tensors that had more rows than there is room for or came several times."""
        found = {}
        for tap, ring in self._kept.items():
            elements, width = int(step.table.get(tap.name, [0])[0]), self._widths[tap]
            if not tap.several and 0 < elements <= ring[step.number % len(ring)].numel():
                found[tap.name] = ring[step.number % len(ring)][:elements].view(-1, width)
        return found


def _recorded(model: torch.nn.Module, expression: Optional[str]) -> list[tuple[str, torch.nn.Module]]:
    """By default the layers and what no layer holds: attention and MLP of each would cost a small model another 3 %."""
    found = []
    for path, module in model.named_modules():
        name = _plain_name(path)
        if not name or isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            continue
        outside, *inside = re.split(r"(?:^|\.)\d+(?:\.|$)", name, maxsplit=1)
        by_default = inside[0] == "" if inside else outside.count(".") <= 1
        if by_default if expression is None else re.search(expression, name) is not None:
            found.append((name, module))
    # In the order in which they return: the parts of a module before it.
    order: list[tuple[str, torch.nn.Module]] = []
    around: list[tuple[str, torch.nn.Module]] = []
    for one in found:
        while around and not one[0].startswith(around[-1][0] + "."):
            order.append(around.pop())
        around.append(one)
    return order + around[::-1]


class Recorder(_Says):
    """What record() gives back. A copy of the model's hooks records nothing.

    steps    how often the model was called
    written  the folders that were written
    fault    (step, tensor, reason) of what tripped it, or None
    """

    def __init__(self, folder: str, options: _Options, trips: frozenset[str], jump: Optional[float], history: int,
                 rows: int):
        super().__init__()
        self.folder, self.steps = folder, 0
        self.fault: Optional[tuple[int, str, str]] = None
        self.id = next(_recorder_ids)
        self.taps: list[_Tap] = []
        self.counters = torch.zeros(0)
        self.on_device = False
        self.compiled = False  # hooks put there now would see nothing
        self._options, self._trips, self._jump, self._rows = options, trips, jump, rows
        self._writer = _Writer(folder, options, self)
        self._most = options.last_steps or 1
        self._turns = self._most + 2
        self._ring: collections.deque[_Kept] = collections.deque()
        self._history: collections.deque[_Kept] = collections.deque(maxlen=history)
        self._open: Optional[_Kept] = None
        self._uncounted: list[_Kept] = []
        self._plan_of: Any = ()  # what returned something in the last steps, in order
        self._plan: list[_Alike] = []
        self._thread = 0  # that called the model
        self.now = _Now()
        self._finishing = False
        self._asked = False  # for a dump, while a step was finished
        self._handles: list[Any] = []
        self._arguments: Iterable[str] = ()
        self._model: Callable[[], Optional[torch.nn.Module]] = lambda: None
        self._whole: Optional[Capture] = None  # takes whole steps behind the one that tripped
        self._device: Optional[_DeviceSteps] = None
        self._counter_file = ""
        self._reported = 0  # steps
        _captures.add(self)
        _recorders[self.id] = self

    __reduce__ = _Hook.__reduce__

    @property
    def written(self) -> list[str]:
        return self._writer.written + (self._whole.written if self._whole is not None else [])

    def memory(self) -> int:
        """Bytes of the tensors of kept steps; on a device, of what is reserved for them."""
        return sum(step.size for step in self._ring) + (self._device.size if self._device is not None else 0)

    def takes_whole_steps(self) -> bool:
        """Whether a step behind the one that tripped is taken with all inputs and outputs now."""
        return self._whole is not None and self._whole.is_running()

    def watch(self, model: torch.nn.Module) -> None:
        """Hooks the modules that are recorded. Raises ValueError where the expression finds none."""
        self._model = weakref.ref(model)
        own = getattr(model, "_orig_mod", model)  # of what torch.compile gives back
        self.compiled = own is not model
        try:
            self._arguments = tuple(inspect.signature(own.forward).parameters)
        except Exception:  # not written in Python
            self._arguments = ("input_ids",)
        wanted = _recorded(own, self._options.modules)
        if not wanted:
            raise ValueError(f"no module of the model has a name that {self._options.modules!r} finds")
        device = next((one.device for one in itertools.chain(own.parameters(), own.buffers())), torch.device("cpu"))
        self.on_device = device.type not in ("cpu", "meta")
        self.counters = torch.zeros(2 * len(wanted), len(_COLUMNS), dtype=torch.int32,
                                    device=device if self.on_device else "cpu")
        inert = {id(part) for module in own.modules() if _computes_otherwise(module) for part in module.modules()}
        for name, module in wanted:
            if id(module) not in inert:
                tap = _Tap(self, f"{name}.output")
                self.taps.append(tap)
                tap.second = _Tap(self, f"{name}.output.1")
                self.taps.append(tap.second)
                self._handles.append(_with_own_id(module.register_forward_hook(tap)))
        begin = _Hook(self, self._begin)
        self._handles.append(_with_own_id(model.register_forward_pre_hook(begin, with_kwargs=True)))
        if not self._options.until_end_step:
            self._handles.append(_with_own_id(model.register_forward_hook(_Tail(self))))

    def _begin(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A call of the model: what it was given in integers is kept too."""
        if self._open is not None:
            if threading.get_ident() != self._thread and not self._options.until_end_step:
                self.say("thread", "the model is called by two threads at once: the second call is in no step")
                return
            self._finish()
        if self._options.when is not None and not self._options.when():
            return
        self._open_step()
        step = self._open
        if step is None:
            return
        for name, value in itertools.chain(zip(self._arguments, args), kwargs.items()):
            if isinstance(value, torch.Tensor):
                if not value.is_floating_point():
                    self._keep_extra(step, "input_ids" if args and value is args[0] else name, value)
            elif value is not None and hasattr(type(value), "get_seq_length"):
                with contextlib.suppress(Exception):
                    step.extra["past_length"] = torch.tensor(int(value.get_seq_length()), device="cpu")

    def _open_step(self) -> None:
        if torch.jit.is_tracing() or _functorch_level() is not None:
            self.say("tracing", "the model is traced or transformed: those calls are left out")
            return
        self._thread = threading.get_ident()
        self._open = _Kept(self.steps)
        self.steps += 1
        modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
        self.now.thread = 0 if modes or self.on_device else self._thread

    def take(self, tap: _Tap, tensor: torch.Tensor) -> None:
        """A result that is not copied without a further look: a large one, one of autograd, or on a GPU."""
        try:
            if not tensor.is_floating_point() or tensor.numel() == 0:
                return
            if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ \
                    or tensor.layout != torch.strided or tensor.is_meta:
                self.say("left out", f"{tap.name}: a tensor without elements of its own is left out")
                return
            if self._open is None:
                if self._options.when is not None and not self._options.when():
                    return
                self._open_step()  # the model is compiled, and its own hooks with it
            step = self._open
            if step is None or self._thread != threading.get_ident():
                return
            with _aside(), torch.inference_mode(False):
                tensor = torch.Tensor.detach(tensor)
                if self.on_device:
                    self._take_on_device(tap, tensor)
                elif tensor.is_cpu:
                    self._take_on_cpu(step, tap, tensor)
        except Exception as error:
            self.say_error("a tensor could not be recorded", f"{tap.name}: ", error)

    def _take_on_cpu(self, step: _Kept, tap: _Tap, tensor: torch.Tensor) -> None:
        if tensor.numel() <= _SMALL_OUTPUT:
            if tensor.shape != tap.form.shape or tensor.dtype != tap.form.dtype:
                tap.form = _Form(tap.name, tensor.shape, tensor.dtype, tensor.nbytes)
            self.now.put(tap.form, tensor.resolve_neg().contiguous())
            return
        fits = step.size + tensor.nbytes <= self._options.max_held_bytes // self._turns
        own = torch.stack([tensor]) if fits else tensor.reshape(1, -1)
        step.put([tap.name], _Counts(own.view(1, -1)), 0, own if fits else None)

    def _take_on_device(self, tap: _Tap, tensor: torch.Tensor) -> None:
        if tensor.device != self.counters.device:
            self.say("device",
                     f"{tap.name} is on {tensor.device} and the model on {self.counters.device}: it is left out")
            return
        capturing = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
        if tap.kept is None and not capturing:
            self._device_steps().reserve(tap, tensor, self._rows)
        _ops.record(tensor, self.counters, tap.kept, tap.row, self.id)

    def called(self, tap: _Tap) -> None:
        """A module returned something on a device."""
        tap.several = tap.several or tap.step == self.steps
        tap.step = self.steps

    def _device_steps(self) -> _DeviceSteps:
        if self._device is None:
            self._device = _DeviceSteps(self.counters, self._turns, self._options.max_held_bytes)
        return self._device

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Keeps a tensor of the running step that no module returns. It is not counted."""
        try:
            if self._whole is not None:
                self._whole.add(name, tensor)
            if self._open is not None and not torch.compiler.is_compiling():
                with _aside():
                    self._keep_extra(self._open, name, tensor)
        except Exception as error:
            self.say_error("a tensor could not be added", f"{name}: ", error)

    def _keep_extra(self, step: _Kept, name: str, tensor: torch.Tensor) -> None:
        if tensor.nbytes + step.size <= self._options.max_held_bytes // self._turns and not tensor.is_meta:
            step.extra[name] = torch.Tensor.detach(tensor).clone(memory_format=torch.contiguous_format)
            step.size += tensor.nbytes

    def end_step(self) -> None:
        """Ends a step. Called where the model's call ends, and by the program: behind a sampler or a CUDA graph."""
        try:
            if self._whole is not None:
                self._whole.end_step()
            if self._open is None and self.on_device:
                self._open_step()  # of a CUDA graph, in which no hook runs
            if self._open is not None:
                self._finish()
        except Exception as error:
            self.say_error("a step could not be counted", "", error)

    def model_returned(self) -> None:
        if self._open is not None:
            self.end_step()

    def _finish(self) -> None:
        """A step is over. On a CPU, a few steps are counted at once: code that runs rarely is slow each time."""
        step, self._open = self._open, None
        self.now.thread = 0
        if step is None:
            return
        step.end = len(self.now.taken)
        self._uncounted.append(step)
        if self._whole is not None and self._whole.steps >= self._options.after and not self._whole.is_running():
            self._end_whole()
        if self.on_device or len(self._uncounted) >= self._most or self._asked:
            self._settle()

    def _settle(self) -> None:
        """Counts what is not counted yet, and writes what is kept if that trips the recorder."""
        self._finishing = True
        try:
            with _aside(), torch.inference_mode(False):
                steps, self._uncounted = self._uncounted, []
                if self.on_device:
                    device = self._device_steps()
                    for step in steps:
                        device.end_step(step)
                    counted = device.finished(self.taps)
                else:
                    self._count(steps)
                    counted = steps
                self._history.extend(dataclasses.replace(one, stacks=[], extra={}, size=0) for one in steps)
                kept = [*self._ring, *steps]
                for step in counted:
                    reason = self._why(step)
                    if reason is not None and self.fault is None:
                        self.fault = (self._writer.number_of(step.number), *reason)
                        before = [one for one in kept if one.number <= step.number][-self._most:]
                        self._ring = collections.deque([*before, *(one for one in kept if one.number > step.number)])
                        self._write()
                        self._take_whole_steps()
                        break
                else:
                    self._ring = collections.deque(kept, self._most)
        finally:
            self._finishing = False
        if self._asked and self._open is None:
            self._write()

    def _count(self, steps: list[_Kept]) -> None:
        """Tensors of one shape lie in one matrix. Steps are much alike: which ones is found out when that changes."""
        if not self.now.taken:
            return
        try:
            made_of = tuple(self.now.taken), [step.end for step in steps]
            if made_of != self._plan_of:
                self._plan_of, self._plan = made_of, _groups(*made_of)
            for part in self._plan:
                stacked = part.stack(self.now.memory)
                counts = _Counts(stacked.view(len(part.indices), -1))
                for index, names, begin, end in part.steps:
                    steps[index].put(names, counts, begin, stacked[begin:end])
        finally:
            self.now.clear()

    def _why(self, step: _Kept) -> Optional[tuple[str, str]]:
        """The first module of a step whose counters trip the recorder, and the reason."""
        if self._jump is None and not step.table and not any(counts.has_rare() for _, counts, _ in step.counts):
            return None
        taps = {tap.name: tap for tap in self.taps}
        found = None
        for name, (elements, nan, inf, _, saturated, _, absmax, _) in self._in_order(step):
            tap = taps[name]
            if found is None:
                met = {"nan": nan > 0, "inf": inf > 0,
                       "saturated": saturated > self._options.clipped_share * elements}
                reason = next((text for key, text in _TRIPS.items() if key in self._trips and met[key]), None)
                if reason is None and self._jump is not None and 0 < tap.best * self._jump < absmax:
                    reason = f"{absmax:.4g}, the largest before was {tap.best:.4g}"
                found = (name, reason) if reason is not None else None
            tap.best = max(tap.best, absmax)
        return found

    def _in_order(self, step: _Kept) -> list[tuple[str, list[float]]]:
        rows = step.rows()
        return [(tap.name, rows[tap.name]) for tap in self.taps if tap.name in rows]

    def _take_whole_steps(self) -> None:
        """A NaN stays in a cache: the next steps show it with every input and output."""
        model = self._model()
        if self._options.after == 0 or model is None:
            return
        if self.compiled or vars(model).get("_compiled_call_impl") is not None:
            return
        options = dataclasses.replace(self._options, modules=None, last_steps=None,
                                      max_bytes=self._options.max_bytes - self._writer.bytes,
                                      when=lambda: self._whole is not None and self._whole.steps < self._options.after)
        try:
            self._whole = Capture(self.folder, options)
            self._whole.watch(getattr(model, "_orig_mod", model))
        except Exception as error:
            self.say_error("the steps behind the fault cannot be taken", "", error)

    def _end_whole(self) -> None:
        if self._whole is not None and self._whole.watches_modules():
            self._whole.writer.reported = len(self._whole.written) + self._options.after  # the recorder's line says it
            self._whole.detach()

    def dump(self) -> list[str]:
        """Writes the steps that are kept, and the counters of all that it remembers. Gives back the steps' folders.

        A signal handler may call it: while a step is counted, it is written behind that.
        """
        if self._finishing or self._open is not None:
            self._asked = True
            return []
        try:
            self._settle()
        except Exception as error:
            self.say_error("a step could not be counted", "", error)
        return self._write()

    def _write(self) -> list[str]:
        self._asked = False
        before = len(self._writer.written)
        try:
            with _aside(), torch.inference_mode(False):
                if self._device is not None:
                    self._device.finished(self.taps, wait=True)
                self._writer.add([self._as_step(kept) for kept in self._ring])
                self._ring.clear()
                self._writer.flush()
                self._write_counters()
        except Exception as error:
            self.say_error("the kept steps cannot be written", "", error)
        return self._writer.written[before:]

    def _as_step(self, kept: _Kept) -> _Step:
        step = _Step(self._writer.number_of(kept.number))
        views = kept.views() if self._device is None else self._device.views(kept)
        for name, tensor in {**kept.extra, **views}.items():
            step.put(name, tensor.to("cpu", copy=True))
        return step

    def _write_counters(self) -> None:
        """One line of JSON for the file and one for each step. It has a name that none had before."""
        parent = self._writer.parent()
        os.makedirs(parent, exist_ok=True)
        written = {os.path.basename(one) for one in self._writer.written}
        if not self._counter_file:
            taken = [name for name in os.listdir(parent) if _COUNTERS.fullmatch(name)]
            self._counter_file = os.path.join(parent, f"counters_{len(taken):05d}.jsonl")
        partial = f"{self._counter_file}.{secrets.token_hex(4)}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            head = {"nanscope_counters": 1, "columns": _COLUMNS, "fault": self.fault}
            file.write(json.dumps(head) + "\n")
            for kept in self._history:
                number = self._writer.number_of(kept.number)
                rows = {name: [*map(int, row[:6]), row[6], int(row[7])] for name, row in self._in_order(kept)}
                line = {"step": number, "written": f"step_{number:05d}" in written, "left_out": kept.left_out,
                        "tensors": rows}
                file.write(json.dumps(line) + "\n")
        os.replace(partial, self._counter_file)

    def detach(self) -> None:
        """Removes the hooks. What is kept is dropped."""
        self._end_whole()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._open is not None:
            self.end_step()
        self.write_rest()
        self._ring.clear()

    def write_rest(self) -> None:
        """Writes what could not be written before, and says in one line what there is and what to do with it."""
        try:
            with _aside():
                self._end_whole()
                if self._uncounted:
                    self._settle()
                self._writer.flush(last=True)
        except Exception as error:
            self.say_error("what is left cannot be written", "", error)
        if self.steps != self._reported:
            self._reported = self.steps
            with contextlib.suppress(Exception):
                print(f"nanscope_capture: {self._summary()}", file=sys.stderr)

    def _summary(self) -> str:
        counted = _steps(self.steps)
        if not self.written:
            return f"{counted} counted, none tripped the recorder; nothing is written"
        what = "written as asked"
        if self.fault is not None:
            what = f"step {self.fault[0]} tripped: {self.fault[1]}, {self.fault[2]}"
        size = self._writer.bytes + (self._whole.writer.bytes if self._whole is not None else 0)
        return (f"{counted} counted; {what}; {_steps(len(self.written))}, {size / 1e6:.1f} MB, "
                f"and {self._counter_file}; now: nanscope diagnose {shlex.quote(self.folder)}")

    def write_on(self, number: int) -> None:
        """Writes what is kept when a signal arrives, and then does what the program does with that signal."""
        before = signal.getsignal(number)
        own = weakref.ref(self)

        def handle(*given: Any) -> None:
            recorder = own()
            if recorder is not None:
                recorder.dump()
            if callable(before):
                before(*given)

        signal.signal(number, handle)

    def renew_locks(self) -> None:
        """In a forked process."""
        self._open, self._uncounted = None, []
        self.now.clear()
        self._ring.clear()
        self._history.clear()
        self._writer.forget()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.detach()


def record(model: torch.nn.Module, folder: str | bytes | os.PathLike[Any], *, last: int = 4,
           on: Iterable[str] = ("nan", "inf"), jump: Optional[float] = None, after: int = 1,
           modules: Optional[str] = None, history: int = 256, clipped_share: float = 0.01, max_bytes: int = 64 << 30,
           max_held_bytes: int = 1 << 30, rows: int = 64, when: Optional[Callable[[], bool]] = None,
           until_end_step: bool = False, signal: Optional[int] = None) -> Recorder:
    """A flight recorder that a server can afford: counts what modules return, writes the last steps if a counter trips.

    last            steps whose tensors are kept
    on              what trips it: "nan", "inf" (the positive one), "saturated" (more than clipped_share of a tensor's
                    values at the largest finite one)
    jump            a largest value so many times that of all steps before trips it too
    after           steps behind it that are written whole, with every input and output
    max_bytes       write no more than this in all
    modules         regular expression; None: the layers and what no layer holds
    history         steps whose counters are remembered and written beside the tensors
    max_held_bytes  of tensors; larger ones are counted, and not kept
    rows            on a GPU: tokens of a step that are kept, in memory reserved at the first call
    when            as in attach()
    until_end_step  as in attach()
    signal          a signal, such as signal.SIGUSR1, that writes what is kept; from the main thread only

    A counter trips it once. Later it writes only when Recorder.dump() or the signal asks for it. Raises ValueError for
    arguments that make no sense and where `modules` finds no module, and re.error if it is no regular expression. Later
    nothing is raised.
    """
    unknown = sorted(set(on) - set(_TRIPS))
    if unknown or last < 1 or history < 1 or after < 0 or rows < 1 or (jump is not None and jump <= 1):
        raise ValueError(f"on has {unknown[0]!r}; there are {', '.join(_TRIPS)}" if unknown else
                         "last, history and rows are at least 1, after at least 0, jump is above 1")
    options = _Options(modules=modules, last_steps=last, after=after, clipped_share=clipped_share, max_bytes=max_bytes,
                       max_held_bytes=max_held_bytes, when=when, until_end_step=until_end_step)
    recorder = Recorder(os.fsdecode(folder), options, frozenset(on), jump, history, rows)
    recorder.watch(model)
    if signal is not None:
        recorder.write_on(signal)
    return recorder


def save_weights(model: torch.nn.Module, folder: str | os.PathLike[str]) -> bool:
    """Writes a model's weights as a checkpoint: model.safetensors and, of a model of transformers, config.json.

    False: something of that name is there already, and is left as it is. Tied weights are written once, as transformers
    does. Raises an error where a weight cannot be read or the folder cannot be written.
    """
    if os.path.lexists(folder):
        return False
    tensors: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    with _aside():
        for path, tensor in itertools.chain(model.named_parameters(), _saved_buffers(model)):
            place = (tensor.data_ptr(), tensor.numel(), tuple(tensor.stride()))
            if place not in seen:
                seen.add(place)
                tensors[_plain_name(path)] = _copy_of(tensor, sys.maxsize)
    partial = f"{os.fspath(folder)}.{secrets.token_hex(4)}.partial"
    os.makedirs(partial)
    try:
        save_safetensors(tensors, os.path.join(partial, "model.safetensors"))
        config = getattr(getattr(model, "config", None), "to_json_string", None)
        if config is not None:
            with open(os.path.join(partial, "config.json"), "w", encoding="utf-8") as file:
                file.write(config())
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return True


def _saved_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Those that state_dict() has too: no tables of angles, which are computed."""
    for path, module in model.named_modules():
        for key, tensor in module._buffers.items():
            if tensor is not None and key not in module._non_persistent_buffers_set:
                yield f"{path}.{key}" if path else key, tensor


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
    parser.add_argument("-o", "--output", default="dump", metavar="FOLDER",
                        help="where steps are written (default: dump)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="look at every n-th call only")
    parser.add_argument("--last", type=int, metavar="N",
                        help="keep the last N steps and write them when a fault appears")
    parser.add_argument("--modules", metavar="EXPRESSION", help="modules whose names it finds")
    parser.add_argument("--no-inputs", action="store_true", help="outputs alone")
    parser.add_argument("--weights", action="store_true", help="the weights too, once, in FOLDER/checkpoint")
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
    script = _Script(os.path.abspath(given.output), {
        "every": given.every, "last_steps": given.last, "modules": given.modules, "inputs": not given.no_inputs,
        "weights": given.weights})
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
