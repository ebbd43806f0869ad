"""Changes checkpoints, adapters, dumps, scenarios, texts and states of training, and runs whole commands on them.

    python3 tests/trust/mutate_inputs.py build/nanscope-headless [--cases 20000] [--seed 1] [--asan] [--keep DIR]
    python3 tests/trust/mutate_inputs.py build/nanscope-headless --case N

A case is one command with one input changed: a value or key of its JSON, the head or the bytes of its tensors, a line of
its text, or the file itself (empty, cut, missing, a folder, a link to itself, a device, a pipe, 8 TiB of nothing). It
passes as in mutate_recordings.py, which says what a pass is; verify and diagnose may also end with 3. Recordings are changed there;
here they go through the commands that it leaves out. The same seed makes the same cases.
"""

import argparse
import copy
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tiny_scenarios
from mutate_recordings import GIB, INTEGERS, Bytes, Case, Columns, Configuration, Harness, Lies, add_options, variations

TESTS = Path(__file__).resolve().parent.parent
CHECKPOINTS = TESTS / "unit" / "instrument"
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "X", ""]
SETTINGS = ["0", "-1", "1e400", "nan", "true", '""', "[]", "{}", '"x"', "9223372036854775807", "[[1]]", '"/dev/zero"',
            "0.1", "3", "1000000000", "2026-01-01", '"\\u0000"', "[1, 2, 3]", '"bf16"']

UNREAD = "nanscope: not read: "
PACKED = ["gptq-int4-desc-act", "awq-int4", "bnb-nf4", "ct-int4-asym"]


def places(value, at=()):
    """The path of each value in a JSON document, the document first."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for i, one in enumerate(value[:40]):
            yield from places(one, (*at, i))


def change_json(document, rng):
    """One value is replaced, removed, moved or renamed. Returns the document and what was done."""
    document = copy.deepcopy(document)
    at = rng.choice(list(places(document)))
    if not at:
        return rng.choice([[], {}, 7, None, "x", [document], {"x": document}]), "the document"
    parent = document
    for step in at[:-1]:
        parent = parent[step]
    old, how = parent[at[-1]], rng.randrange(8)
    if how == 0:
        del parent[at[-1]]
        return document, f"{at}: removed"
    if how == 1 and isinstance(parent, dict):
        key = rng.choice([*parent, "", "x" * 5000, "weight", "model.layers.0.self_attn.q_proj.weight", "\u202e"])
        parent[key] = old
        return document, f"{at}: also {key[:30]!r}"
    if how == 2:
        parent[at[-1]] = rng.choice([None, True, [], {}, [old], {"x": old}, [[[old]]] * 3])
        return document, f"{at}: another type"
    if isinstance(old, list):
        new = rng.choice([old[::-1], old * 2, old + [old[0] if old else 0], [0] * len(old), [-1] * len(old), [1 << 40] * len(old),
                          [(1 << 62)] * 4, [1] * 300, []])
    elif isinstance(old, dict):
        new = {key: rng.choice(INTEGERS) for key in old}
    elif isinstance(old, bool):
        new = not old
    else:
        # A float of Python may be no JSON number: NaN and Infinity are among what other tools write.
        new = rng.choice([one for one in variations(old, [], rng) if not isinstance(one, bytes)] + [1e400, -7.5, "float8_e4m3fn"])
    parent[at[-1]] = new
    return document, f"{at}: {str(old)[:30]} is {str(new)[:40]}"


def written(document):
    return json.dumps(document).encode(errors="replace")


def json_file(data, rng):
    document, what = change_json(json.loads(data), rng)
    text = written(document)
    if rng.randrange(12) == 0:
        text, what = text[:rng.randrange(len(text))] + rng.choice([b"", b"\xff", b"\0", b"}" * 9]), "cut"
    return text, what


def safetensors(data, rng):
    size = struct.unpack("<Q", data[:8])[0]
    head, body = json.loads(data[8:8 + size]), data[8 + size:]
    how = rng.randrange(6)
    if how == 0:
        return struct.pack("<Q", rng.choice([0, 1, size - 1, size + 1, size * 2, 1 << 32, (1 << 63) + 5, (1 << 64) - 1])) + data[8:], "size"
    if how == 1:
        return binary(data, rng)
    if how == 2:
        body = bytearray(body)
        for _ in range(rng.choice([1, 4, 400])):
            # The last byte of a float has its exponent: NaN, Inf and large numbers.
            body[rng.randrange(len(body))] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        return data[:8 + size] + bytes(body), "elements"
    if how == 3:
        name = rng.choice(list(head))
        if isinstance(head[name], dict) and "dtype" in head[name]:
            head[name]["dtype"] = rng.choice(DTYPES)
        what = f"{name}: dtype"
    elif how == 4:
        one, other = rng.choice(list(head)), rng.choice(list(head))
        head[one], head[other] = head[other], head[one]
        what = f"{one} is {other}"
    else:
        head, what = change_json(head, rng)
    text = written(head)
    return struct.pack("<Q", len(text)) + text + body, what


def binary(data, rng):
    data = bytearray(data)
    how = rng.randrange(5)
    if how == 0 and len(data) > 1:
        del data[rng.randrange(len(data)):]
        return bytes(data), f"cut at {len(data)}"
    if how == 1:
        for _ in range(4):
            data[rng.randrange(min(len(data), 300))] = rng.choice([0, 1, 9, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        return bytes(data), "its beginning"
    if how == 2:
        for _ in range(4):
            data[-1 - rng.randrange(min(len(data), 300))] = rng.choice([0, 1, 9, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        return bytes(data), "its end"
    if how == 3:
        at = rng.randrange(len(data))
        return bytes(data[:at] + data[rng.randrange(len(data)):][:500] + data[at:]), f"more at {at}"
    for _ in range(rng.choice([1, 20, 500])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data), "bytes"


def toml(data, rng):
    lines = data.decode().split("\n")
    at = rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, rng.choice(lines))
    elif how == 2:
        lines.insert(at, rng.choice(["[model]", "[[request]]", "[kv]", "[[step]]", "x = 1", "[train]", "\0", "= =", '"""', "[[[", "a.b.c = 1"]))
    else:
        settings = [i for i, line in enumerate(lines) if "=" in line]
        at = rng.choice(settings)
        lines[at] = lines[at].split("=")[0] + "= " + rng.choice(SETTINGS)
    return "\n".join(lines).encode(), f"line {at + 1}: {lines[min(at, len(lines) - 1)][:60]}"


def text(data, rng):
    return rng.choice([b"", b"\0", b"\xff\xfe\0a", b"a", data * 3, bytes(rng.randrange(256) for _ in range(600)), b" " * 9999,
                       "\U0001F4A9\u0301".encode() * 50, data[:7]]), "another text"


BY_NAME = {".json": json_file, ".safetensors": safetensors, ".toml": toml, ".txt": text}


def change_file(path: Path, rng):
    """Puts another file in its place. Returns what was done."""
    data = path.read_bytes()
    path.unlink()
    if rng.randrange(12) == 0:
        how = rng.choice(["missing", "empty", "a folder", "a link to itself", "a device", "a pipe", "8 TiB of nothing"])
        if how == "empty":
            path.touch()
        elif how == "a folder":
            path.mkdir()
        elif how == "a link to itself":
            path.symlink_to(path.name)
        elif how == "a device":
            path.symlink_to("/dev/zero")
        elif how == "a pipe":
            os.mkfifo(path)
        elif how.startswith("8 TiB"):
            with open(path, "wb") as file:
                file.truncate(1 << 43)
        return how
    changed, what = BY_NAME.get(path.suffix, binary)(data, rng) if data else (b"x", "x")
    path.write_bytes(changed)
    return what


def change_recording(path: Path, rng):
    kind = rng.choice([Columns, Lies, Bytes, Configuration])
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return f"{kind.__name__.lower()} " + kind(path).mutate(path, rng)


class Group:
    """Which files of the inputs a case changes, and the commands that read them."""

    def __init__(self, files, commands, change=change_file):
        self.files, self.commands, self.change = files, commands, change


MODEL = ["inspect {0}", "inspect {0} --as sglang --all", "inspect {0} --as transformers --json", "quantize {0} --to nvfp4 -o out/q",
         "quantize {0} --to mxfp8 -o out/q", "scales {0}", "run --model {0} --prompt-tokens 1,2,3 --tokens 1 -o out/r.nanscope"]
DUMP = ["diagnose {0}", "diagnose {0} --format json", "diagnose {0} --no-recompute", "why {0}", "attach {0} -o out/a.nanscope",
        "policies {0}", "causality {0}", "scales {0}", "diff {0} dump", "verify {0} --model hf", "report {0} -o out/r.html"]
SERVED = ["verify dump --model hf", "verify dump --model hf --json", "diagnose dump --model hf", "scales dump --model hf",
          "policies dump --model hf", "report dump --model hf -o out/r.html"]
GROUPS = [
    Group("hf/*", [word.format("hf") for word in MODEL] + SERVED),
    Group("hf/*", ["quantize hf --to fp8 --calibrate text.txt --tokens 4 -o out/q"]),
    Group("coded/*", [word.format("coded") for word in MODEL]),
    *(Group(f"{name}/*", [word.format(name) for word in [*MODEL, "verify {0}-dump --model {0}", "diagnose {0}-dump --model {0}"]])
      for name in PACKED),
    Group("mixed/*", [word.format("mixed") for word in MODEL]),
    Group("reference/*", ["run --model reference -p light --tokens 1 -o out/r.nanscope", "causality reference -p light",
                          "verify own --model reference --prompt light", "diagnose own --model reference"]),
    Group("adapter/*", ["verify dump --model hf --adapter adapter", "verify dump --model hf --adapter adapter --json"]),
    Group("dump/**/*", [word.format("dump") for word in DUMP] + SERVED),
    Group("own/**/*", [word.format("own") for word in DUMP] + ["verify own --model reference --prompt light"]),
    Group("golden/*", [word.format("golden") for word in DUMP]),
    Group("producers/**/*", [word.format("producers") for word in DUMP]),
    Group("kept.toml", ["run kept.toml -o out/r.nanscope", "causality kept.toml", "policies kept.toml"]),
    Group("scaled.toml", ["run scaled.toml -o out/r.nanscope", "causality scaled.toml"]),
    Group("scales.safetensors", ["run scaled.toml -o out/r.nanscope", "scales hf --against scales.safetensors"]),
    Group("train.toml", ["train train.toml -o out/t", "run train.toml -o out/r.nanscope"]),
    Group("text.txt", ["train train.toml -o out/t", "quantize hf --to fp8 --calibrate text.txt --tokens 4 -o out/q"]),
    Group("reference/*", ["train train.toml -o reference --resume --steps 3"]),
    Group("*.nanscope", ["policies {file}", "causality {file}", "scales {file}", "trace {file} -o out/t.json",
                         "report {file} -o out/r.html --no-counterfactuals", "diagnose {file} --format sarif", "export {file} -o out/e",
                         "replay {file} --set kv.format=bf16 -o out/r.nanscope", "diff {file} kept.nanscope"], change_recording),
]


class Inputs:
    """Small, healthy inputs of every kind, made once."""

    def __init__(self, harness, folder: Path):
        self.harness, self.folder = harness, folder
        folder.mkdir()
        shutil.copytree(CHECKPOINTS / "model" / "checkpoints" / "llama3", folder / "hf")
        shutil.copytree(CHECKPOINTS / "model" / "checkpoints" / "mixtral", folder / "mixed")
        shutil.copytree(CHECKPOINTS / "quantized" / "checkpoints" / "ct-nvfp4", folder / "coded")
        for name in PACKED:
            shutil.copytree(CHECKPOINTS / "quantized" / "checkpoints" / name, folder / name)
            shutil.copytree(TESTS / "golden" / "verify" / f"quantized-{name}" / "dump", folder / f"{name}-dump")
        for name in ("hf", "mixed", "coded", *PACKED):
            for file in (folder / name).glob("expected*"):
                file.unlink()
        shutil.copytree(TESTS / "golden" / "dumps", folder / "golden", ignore=shutil.ignore_patterns("producers", "make*", "expected*", "refused*"))
        shutil.copytree(TESTS / "golden" / "dumps" / "producers", folder / "producers")
        self.texts()
        for words in ("run kept.toml -o kept.nanscope --capture all --trace", "train train.toml -o reference",
                      "run --model hf --prompt-tokens 1,2,3,4,5 --tokens 2 -o answer.nanscope --capture all",
                      "export answer.nanscope -o dump", "run --model reference -p light --tokens 2 -o own.nanscope --capture all",
                      "export own.nanscope -o own", "scales kept.nanscope --policy geometry -o scales.safetensors"):
            self.made(words)
        (folder / "err.txt").unlink()
        self.adapter()

    def texts(self):
        contents = {"kept.toml": tiny_scenarios.run("kept"), "scaled.toml": tiny_scenarios.run("scaled", tiny_scenarios.STATIC_SCALES),
                    "train.toml": tiny_scenarios.training(2), "text.txt": tiny_scenarios.TEXT}
        for name, content in contents.items():
            (self.folder / name).write_text(content)

    def made(self, words):
        failure = self.harness.run(Case(self.folder / "kept.toml", "the inputs", words, words.split()))
        if failure or self.harness.last not in (0, 1):
            sys.exit(f"nanscope {words}: {failure.why if failure else self.harness.last}")

    def adapter(self):
        """A LoRA adapter of rank 2 for one projection of the checkpoint."""
        config = json.loads((self.folder / "hf" / "config.json").read_text())
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
        head, body = {}, b""
        for side, shape in (("A", [2, config["hidden_size"]]),
                            ("B", [config["num_attention_heads"] * config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]), 2])):
            values = [0.01 * ((i * 7) % 11 - 5) for i in range(shape[0] * shape[1])]
            head[name.format(side)] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + 4 * len(values)]}
            body += struct.pack(f"<{len(values)}f", *values)
        folder = self.folder / "adapter"
        folder.mkdir()
        text = written(head)
        (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}))


class InputHarness(Harness):
    """As for recordings; verify and diagnose end with 3 where too little was checked."""

    last = None

    def limits(self):
        super().limits()
        # A command that copies 8 TiB finds the disk full instead.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (GIB // 4, GIB // 4))

    def judge(self, case, rc, said, memory, late):
        self.last = rc
        # Each file of a dump that cannot be read has its line, and so has a step of training.
        lines = [line for line in said.splitlines(True) if not line.startswith("step ")]
        said = "".join(line for line in lines if not line.startswith(UNREAD)) or "".join(lines[:1])
        if rc == 3 and case.words[0] in ("verify", "diagnose"):
            rc = 0
        return super().judge(case, rc, said, memory, late)


def unkept(folder, names):
    """Pipes and files that are not worth the disk."""
    paths = {name: Path(folder) / name for name in names}
    return [name for name, path in paths.items() if path.is_fifo() or (path.is_file() and path.stat().st_size > GIB)]


def one_case(harness, options, inputs: Inputs, work: Path, number: int):
    rng = random.Random(f"{options.seed}/{number}")
    group = GROUPS[number % len(GROUPS)]
    command = group.commands[number // len(GROUPS) % len(group.commands)]
    folder = work / f"case{number}"
    # The inputs by hard links: a change puts a new file in the place of the old one.
    shutil.copytree(inputs.folder, folder, copy_function=os.link)
    (folder / "out").mkdir()
    try:
        files = sorted(path for path in folder.glob(group.files) if path.is_file() and not path.is_symlink())
        file = rng.choice(files)
        try:
            what = f"#{number} {file.relative_to(folder)}: {group.change(file, rng)}"
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError, sqlite3.Error):
            return 0, None  # the tools of this script cannot write it
        words = command.replace("{file}", file.name)
        failure = harness.run(Case(folder / "kept.toml", what, words, words.split()))
        if options.case is not None:
            print(f"{what}: nanscope {words}: exit code {harness.last}\n{(folder / 'err.txt').read_text(errors='replace')}", end="")
        if failure and harness.keep:
            shutil.copytree(folder, harness.keep / str(number), symlinks=True, dirs_exist_ok=True,
                            ignore=unkept)
        return 1, failure
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, help="run this case alone, and print what it says")
    add_options(parser)
    options = parser.parse_args()
    harness = InputHarness(options)
    work = Path(tempfile.mkdtemp(prefix="nanscope-mutate-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    failures, ran = [], 0
    try:
        inputs = Inputs(harness, work / "inputs")
        harness.codes.clear()
        numbers = range(options.cases) if options.case is None else [options.case]
        with ThreadPoolExecutor(options.jobs) as pool:
            for count, failure in pool.map(lambda number: one_case(harness, options, inputs, work, number), numbers):
                ran += count
                if failure:
                    failures.append(failure)
                    print(f"FAILED nanscope {failure.case.command}: {failure.case.what}: {failure.why}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{ran} cases: {len(failures)} failed; {harness.codes[2]} refused; slowest {harness.slowest:.1f} s, "
          f"most memory {harness.peak >> 20} MiB")
    sys.exit(1 if failures or not ran else 0)


if __name__ == "__main__":
    main()
