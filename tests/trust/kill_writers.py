#!/usr/bin/env python3
"""Kills every command that writes, at random moments, and looks at what is left.

    tests/trust/kill_writers.py build/nanscope [--count 100] [--only run] [--seed 1]

Of each command a half of the trials finds an old file under the output's name (with --force, or a recording of the same
scenario), and a half is ended by SIGKILL, the others by SIGTERM. Afterwards

- the old file is whole, or the new one is; nothing but `run` leaves half of one, and that is an interrupted recording;
- `quantize` leaves no folder under its final name but a whole one, touches no folder that was there, and the same
  command again goes on from what lies in OUT.partial to the bytes of an undisturbed run;
- the inputs and the files beside, whatever their names, are as they were;
- after SIGTERM the command has ended within a second with 143, and no temporary file is left; a killed one may leave
  some, under names that nobody else has, and the file of its lock, which the same command removes when it ends.

Prints a line a command; the exit code is 1 when a promise was broken.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

TEMPORARY = re.compile(r"\.[a-z2-7]{12}\.tmp(-journal)?$")
SCENARIO = """name = "killed"
[model]
weights = "random"
layers = 6
width = 128
[[request]]
text = "Moons pull tides, and tides slow the moons down, year after year."
max_tokens = 12
[expect]
verdict = "clean"
requests_nan = []
"""


def digest(path):
    """Of a file, or of all that is in a folder."""
    if os.path.isdir(path):
        names = sorted(os.path.relpath(os.path.join(root, name), path) for root, _, files in os.walk(path) for name in files)
        return [(name, digest(os.path.join(path, name))) for name in names]
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Writer:
    """A command, and how a whole output of it looks."""

    def __init__(self, name, words, output, whole, partial=False, resumes=False):
        self.name, self.words, self.output, self.whole = name, words, output, whole
        self.partial = partial  # what it leaves without an old file may be an interrupted recording
        self.resumes = resumes  # it goes on from OUT.partial, and never replaces what is there

    def lock(self):
        return f".{self.output}.lock"


class Trials:
    def __init__(self, nanscope, folder, seed):
        self.nanscope, self.folder, self.random = nanscope, folder, random.Random(seed)
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": os.path.join(folder, "state")}

    def call(self, *words):
        return subprocess.run([self.nanscope, *words], cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)

    def path(self, name):
        return os.path.join(self.folder, name)

    def is_recording(self, name):
        """Whole or interrupted: it can be read, though there may be nothing to judge yet."""
        return self.call("diagnose", name, "--brief", "--no-recompute").returncode in (0, 1, 3)

    def remove(self, name):
        path = self.path(name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)

    def clean(self, keep):
        for name in os.listdir(self.folder):
            if name not in keep:
                self.remove(name)

    def trial(self, writer, old, seconds, number):
        """What was broken, whether a temporary was left, and how long the end took."""
        kept = {name: digest(self.path(name)) for name in os.listdir(self.folder)}
        for suffix in (".part", ".partial", ".tmp", ".png.part", ".1"):
            if writer.resumes and suffix == ".partial":
                continue
            with open(self.path(writer.output + suffix), "w", encoding="utf-8") as file:
                file.write("mine")
            kept[writer.output + suffix] = digest(self.path(writer.output + suffix))
        with_old = number % 2 == 0
        if with_old:
            (shutil.copytree if os.path.isdir(old) else shutil.copyfile)(old, self.path(writer.output))
            before = digest(old)
        kill = signal.SIGKILL if number // 2 % 2 == 0 else signal.SIGTERM
        force = ["--force"] if with_old and not writer.resumes else []
        process = subprocess.Popen([self.nanscope, *writer.words, *force], cwd=self.folder,
                                   env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(self.random.random() * seconds * 1.05)
        sent = time.monotonic()
        process.send_signal(kill)
        code = process.wait(30)
        took = time.monotonic() - sent
        broken = []
        names = set(os.listdir(self.folder))
        for name, content in kept.items():
            if name not in names or digest(self.path(name)) != content:
                broken.append(f"{name} is not as it was")
        left = [name for name in names - set(kept) if TEMPORARY.search(name)]
        foreign = names - set(kept) - set(left) - {writer.output, writer.output + "-journal"}
        folders = [writer.output]
        if writer.resumes:
            folders.append(writer.output + ".partial")
            foreign -= set(folders)
            if kill == signal.SIGKILL:
                foreign.discard(writer.lock())  # nobody holds it: the next command takes it over, and removes it
        for name in filter(lambda one: os.path.isdir(self.path(one)), folders):
            left += [one for one in os.listdir(self.path(name)) if TEMPORARY.search(one)]
        if foreign:
            broken.append(f"{sorted(foreign)} is left")
        if kill == signal.SIGTERM:
            if left:
                broken.append(f"{left} is left after SIGTERM")
            if took > 1:
                broken.append(f"{took:.1f} s from SIGTERM to the end")
            # Before main() the signal ends the program as it ends any.
            refused = writer.resumes and with_old and code == 2
            if code not in (0, 1, 128 + kill) and not refused and not (code == -kill and names - {writer.output} == set(kept)):
                broken.append(f"exit code {code} after SIGTERM")
        broken += self.look_at_output(writer, before if with_old else None, code)
        self.clean({name for name in kept if not name.startswith(writer.output)})
        return [f"{kill.name}, {'over an old file' if with_old else 'no old file'}: {one}" for one in broken], bool(left), took

    def look_at_output(self, writer, before, code):
        there = os.path.lexists(self.path(writer.output))
        if writer.resumes:
            return self.look_at_folder(writer, before, there)
        if before is not None:
            if not there:
                return ["the old file is lost"]
            if digest(self.path(writer.output)) != before and not writer.whole():
                return ["neither the old file nor a whole new one is there"]
            return []
        if code in (0, 1) and not (there and writer.whole()):
            return [f"exit code {code} without a whole file"]
        if there and not writer.partial and not writer.whole():
            return ["half a file is there"]
        if there and writer.partial and os.path.getsize(self.path(writer.output)) > 0 and not self.is_recording(writer.output):
            return ["an interrupted recording cannot be read"]
        return []


    def look_at_folder(self, writer, before, there):
        if before is not None:
            return [] if there and digest(self.path(writer.output)) == before else ["a folder that was there is another"]
        if there:
            return [] if writer.whole() else ["half a folder is there under its final name"]
        again = self.call(*writer.words)
        if again.returncode != 0 or not writer.whole():
            return ["what was left cannot be gone on from: " + again.stderr.decode().strip()]
        return [f"{name} is left" for name in (writer.output + ".partial", writer.lock()) if os.path.lexists(self.path(name))]


def is_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["traceEvents"])
    except ValueError:
        return False


def ends_with(path, end):
    with open(path, "rb") as file:
        return file.read().rstrip().endswith(end)


def writers(trials):
    path = trials.path
    recording = lambda name: (lambda: trials.is_recording(name))
    reference = digest(path("dump"))
    quantized = digest(path("quantized"))
    csv = digest(path("reference.csv")) if os.path.exists(path("reference.csv")) else None
    old = hashlib.sha256(b"old").hexdigest()

    def whole_export():
        # Into a folder that is there each file is moved as a whole.
        got = dict(digest(path("out"))) if os.path.isdir(path("out")) else {}
        return all(got.get(name) in (content, old) for name, content in reference)

    found = [
        Writer("run", ["run", "killed.toml", "-o", "out.nanscope", "--capture", "all"], "out.nanscope", recording("out.nanscope"), True),
        Writer("attach", ["attach", "dump", "-o", "out.nanscope"], "out.nanscope", recording("out.nanscope")),
        Writer("export", ["export", "in.nanscope", "-o", "out"], "out", whole_export),
        Writer("replay --set -o", ["replay", "in.nanscope", "--set", "kv.format=bf16", "-o", "out.nanscope"], "out.nanscope",
               recording("out.nanscope"), True),
        Writer("report", ["report", "in.nanscope", "-o", "out.html"], "out.html", lambda: ends_with(path("out.html"), b"</html>")),
        Writer("quantize", ["quantize", "model", "-o", "fp8", "--to", "fp8-block"], "fp8",
               lambda: os.path.isdir(path("fp8")) and
               [one for one in digest(path("fp8")) if one[0] != "quantize.json"] == quantized, resumes=True),
        Writer("trace", ["trace", "in.nanscope", "-o", "out.json"], "out.json", lambda: is_json(path("out.json"))),
    ]
    if csv:
        found += [
            Writer("gui --screenshot", ["gui", "in.nanscope", "--screenshot", "out.png", "--size", "600x400"], "out.png",
                   lambda: ends_with(path("out.png"), b"IEND\xaeB`\x82")),
            Writer("gui --csv", ["gui", "in.nanscope", "--csv", "out.csv", "--view", "scales"], "out.csv",
                   lambda: digest(path("out.csv")) == csv),
        ]
    return found


def make_checkpoint(folder):
    """A file a layer."""
    os.mkdir(folder)
    files = {}
    for layer in range(3):
        header, data = {}, bytearray()
        for part, rows in (("mlp.up_proj", 2048), ("mlp.down_proj", 1024), ("input_layernorm", 0)):
            shape = [rows, 3072 - rows] if rows else [512]
            size = 2 * shape[0] * (shape[1] if rows else 1)
            name = f"model.layers.{layer}.{part}.weight"
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + size]}
            data += bytes((b"\x12\x3f\xa4\xbe\x77\x3d\x05\xc0" * (size // 8 + 1))[:size])
            files[name] = f"model-{layer}.safetensors"
        text = json.dumps(header).encode()
        with open(os.path.join(folder, f"model-{layer}.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
    for name, content in (("model.safetensors.index.json", {"weight_map": files}), ("config.json", {"model_type": "llama"}),
                          ("tokenizer.json", {"vocabulary": ["x" * 1000] * 1000})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def prepare(trials):
    make_checkpoint(trials.path("model"))
    with open(trials.path("killed.toml"), "w", encoding="utf-8") as file:
        file.write(SCENARIO)
    made = [trials.call("run", "killed.toml", "-o", "in.nanscope", "--capture", "all", "--trace"),
            trials.call("export", "in.nanscope", "-o", "dump"),
            trials.call("quantize", "model", "-o", "quantized", "--to", "fp8-block")]
    for one in made:
        if one.returncode not in (0, 1):
            sys.exit("the inputs cannot be made: " + one.stderr.decode())
    if trials.call("gui", "in.nanscope", "--csv", "reference.csv", "--view", "scales").returncode != 0:
        print("gui: left out, no picture can be drawn here")


def make_old(path, recording):
    """Of a new output one that is told from it; `run` replaces recordings of its scenario alone."""
    files = [os.path.join(root, name) for root, _, names in os.walk(path) for name in names] or [path]
    for file in [] if recording else files:
        with open(file, "wb") as out:
            out.write(b"old")


def try_writer(trials, writer, count, store):
    start = time.monotonic()
    trials.call(*writer.words)
    seconds = time.monotonic() - start
    if not writer.whole():
        print(f"{writer.name}: BROKEN, it makes no output")
        return False
    old = os.path.join(store, "old")
    shutil.rmtree(old, ignore_errors=True) if os.path.isdir(old) else os.path.exists(old) and os.remove(old)
    shutil.move(trials.path(writer.output), old)
    make_old(old, writer.output.endswith(".nanscope"))
    broken, left, slowest = [], 0, 0.0
    for number in range(count):
        found, temporary, took = trials.trial(writer, old, seconds, number)
        broken += found
        left += temporary
        slowest = max(slowest, took)
    print(f"{writer.name}: {count} kills within {seconds:.2f} s, {len(broken)} promises broken, "
          f"{left} temporaries after SIGKILL, slowest end {slowest:.2f} s", flush=True)
    for one in sorted(set(broken)):
        print(f"  {broken.count(one)} x {one}")
    return not broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("--count", type=int, default=100, help="trials a command (default: 100)")
    parser.add_argument("--only", help="one command, as its line names it")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as store:
        trials = Trials(os.path.abspath(options.nanscope), folder, options.seed)
        prepare(trials)
        fine = [try_writer(trials, writer, options.count, store) for writer in writers(trials)
                if options.only in (None, writer.name)]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
