#!/usr/bin/env python3
"""Starts two commands that write the same file or folder, kills one at a random moment, and looks at what is left.

    tests/trust/two_writers.py build/nanscope [--trials 200] [--seed 1] [--only "run, attach"]

A trial takes a random pair of writing commands, in a half of the trials over an old output. The second starts up to the
first's whole time later. One of them, or neither, ends by SIGKILL or SIGTERM. Afterwards

- a command that ended with 0 or 1 left a whole output, its own or that of the other which ended later;
- a command that was refused ended with 2 and one line that names the output;
- where neither ended with 0 or 1, the old output is there as it was, or no output, or an interrupted one;
- the inputs are as they were, and nothing else lies next to the output but temporaries of a killed command;
- the first command alone, started once more, makes a whole output: no lock of a dead command stands in its way.

Prints a line a pair; the exit code is 1 when a promise was broken.
"""

import argparse
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import tiny_scenarios
from kill_writers import TEMPORARY, Trials, digest, ends_with, is_json, prepare

FILE, FOLDER = "out.nanscope", "out"


class Writer:
    """A command that writes `output`, a file or a folder, and how a whole output of it looks."""

    def __init__(self, name, words, output, whole, again=None):
        self.name, self.words, self.output, self.whole = name, words, output, whole
        self.again = again or words  # the command that goes on after a kill


def writers(trials):
    path = trials.path
    quantized, trained = digest(path("quantized")), path("trained")

    def export_is_whole():
        # Files of another writer in the folder stay.
        there = dict(digest(path(FOLDER))) if os.path.isdir(path(FOLDER)) else {}
        return all(there.get(name) == content for name, content in digest(path("dump")))

    def quantized_is_whole():
        return os.path.isdir(path(FOLDER)) and [one for one in digest(path(FOLDER)) if one[0] != "quantize.json"] == quantized

    def training_is_whole():
        name = "model.safetensors"
        return os.path.isfile(path(f"{FOLDER}/{name}")) and digest(path(f"{FOLDER}/{name}")) == digest(f"{trained}/{name}")

    recording = lambda: trials.is_recording(FILE)
    train = ["train", "trained.toml", "--save-every", "4", "-o", FOLDER]
    return [
        Writer("run", ["run", "killed.toml", "-o", FILE, "--capture", "all", "--force"], FILE, recording),
        Writer("attach", ["attach", "dump", "-o", FILE, "--force"], FILE, recording),
        Writer("replay", ["replay", "in.nanscope", "--set", "kv.format=bf16", "-o", FILE, "--force"], FILE, recording),
        Writer("report", ["report", "in.nanscope", "-o", FILE, "--no-counterfactuals", "--force"], FILE,
               lambda: ends_with(path(FILE), b"</html>")),
        Writer("trace", ["trace", "in.nanscope", "-o", FILE, "--force"], FILE, lambda: is_trace(path(FILE))),
        Writer("export", ["export", "in.nanscope", "-o", FOLDER, "--force"], FOLDER, export_is_whole),
        Writer("quantize", ["quantize", "model", "-o", FOLDER, "--to", "fp8-block"], FOLDER, quantized_is_whole),
        Writer("train", train, FOLDER, training_is_whole, [*train, "--resume"]),
    ]


def is_trace(path):
    try:
        return is_json(path)
    except (UnicodeDecodeError, KeyError, TypeError):
        return False


class Pair:
    def __init__(self, trials, first, second, seconds):
        self.trials, self.writers, self.seconds = trials, (first, second), seconds
        self.output = first.output

    def state(self):
        return digest(self.trials.path(self.output)) if os.path.lexists(self.trials.path(self.output)) else None

    def start(self, writer):
        return subprocess.Popen([self.trials.nanscope, *writer.words], cwd=self.trials.folder, env=self.trials.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def run(self, old):
        """What was broken in one trial."""
        trials, chance = self.trials, self.trials.random
        before = {name: digest(trials.path(name)) for name in os.listdir(trials.folder)}
        if old:
            make_old(trials.path(self.output), self.output == FOLDER)
        was = self.state()
        processes = [self.start(self.writers[0])]
        time.sleep(chance.random() * self.seconds[0])
        processes.append(self.start(self.writers[1]))
        victim, kill = chance.choice([None, 0, 1]), chance.choice([signal.SIGKILL, signal.SIGTERM])
        if victim is not None:
            time.sleep(chance.random() * self.seconds[victim])
            processes[victim].send_signal(kill)
        ends = []
        for process in processes:
            errors = process.communicate(timeout=60)[1]
            ends.append((process.returncode, errors))
        broken = self.look(before, was, ends, kill if victim is not None else None)
        broken += self.go_on()
        trials.clean(set(before))
        how = "no kill" if victim is None else f"{kill.name} to {self.writers[victim].name}"
        return [f"{how}, {'over an old output' if old else 'no old output'}: {one}" for one in broken]

    def look(self, before, was, ends, kill):
        broken = []
        for writer, (code, errors) in zip(self.writers, ends):
            lines = [line for line in errors.splitlines() if not line.startswith("step ")]  # the progress of `train`
            if code == 2 and (len(lines) != 1 or self.output not in lines[0]):
                broken.append(f"{writer.name} ended with 2 and: {errors.strip()[:200]}")
            elif code not in (0, 1, 2, 143, -signal.SIGKILL, -signal.SIGTERM):
                broken.append(f"{writer.name} ended with {code}: {errors.strip()[:200]}")
        done = [writer for writer, (code, _) in zip(self.writers, ends) if code in (0, 1)]
        whole = [writer for writer in self.writers if self.state() is not None and writer.whole()]
        if done and not whole:
            broken.append(f"{[writer.name for writer in done]} ended well, and no whole output is there")
        if not done and self.state() != was and not whole and not self.interrupted(was):
            broken.append("neither ended well, and the old output is lost")
        for name, content in before.items():
            if not os.path.lexists(self.trials.path(name)) or digest(self.trials.path(name)) != content:
                broken.append(f"{name} is not as it was")
        allowed = {self.output, f"{self.output}-journal", f"{self.output}.partial", f".{self.output}.lock"}
        foreign = [name for name in os.listdir(self.trials.folder) if name not in before and name not in allowed]
        if kill == signal.SIGKILL:
            foreign = [name for name in foreign if not TEMPORARY.search(name)]
        return broken + ([f"{sorted(foreign)} is left"] if foreign else [])

    def interrupted(self, was):
        """Whether what is left is the beginning of an output, where there was none, or a folder with old files in it."""
        if self.output == FOLDER:
            there = dict(self.state() or [])
            return all(there.get(name) == content for name, content in was or [])
        recordings = any(writer.name in ("run", "replay") for writer in self.writers)
        return was is None and recordings and (os.path.getsize(self.trials.path(FILE)) == 0 or self.trials.is_recording(FILE))

    def go_on(self):
        writer = self.writers[0]
        if writer.name == "quantize":
            if writer.whole():
                return []
            self.trials.remove(FOLDER)  # what another command wrote; quantize refuses a folder that is there
        again = self.trials.call(*(writer.again if os.path.isdir(self.trials.path(FOLDER)) else writer.words))
        if writer.name == "train" and again.returncode == 2:  # the folder holds what another command wrote
            again = self.trials.call(*writer.words, "--force")
        if again.returncode in (0, 1) and writer.whole():
            return []
        return [f"{writer.name} cannot go on: exit code {again.returncode}: {again.stderr.decode().strip()[:200]}"]


def make_old(path, folder):
    if folder:
        os.mkdir(path)
        path = os.path.join(path, "old")
    with open(path, "w", encoding="utf-8") as file:
        file.write("old")


def timed(trials, writer):
    """The seconds that the command takes alone."""
    start = time.monotonic()
    ran = trials.call(*writer.words)
    seconds = time.monotonic() - start
    if ran.returncode not in (0, 1) or not writer.whole():
        sys.exit(f"{writer.name} makes no output: {ran.stderr.decode()}")
    trials.remove(writer.output)
    trials.remove(f".{writer.output}.lock")
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("--trials", type=int, default=200, help="in all (default: 200)")
    parser.add_argument("--only", help="one pair, as its line names it")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(os.path.abspath(options.nanscope), folder, options.seed)
        prepare(trials)
        for name, text in (("trained.toml", tiny_scenarios.training(12)), ("text.txt", tiny_scenarios.TEXT)):
            with open(trials.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        if trials.call("train", "trained.toml", "-o", "trained").returncode != 0:
            sys.exit("the training does not run")
        all_writers = writers(trials)
        seconds = {writer.name: timed(trials, writer) for writer in all_writers}
        pairs = [(a, b) for a in all_writers for b in all_writers if a.output == b.output]
        if options.only:
            pairs = [(a, b) for a, b in pairs if f"{a.name}, {b.name}" == options.only]
        trials.random.shuffle(pairs)
        broken, done = collections.defaultdict(list), collections.Counter()
        for number in range(options.trials):
            first, second = pairs[number % len(pairs)]
            pair = Pair(trials, first, second, (seconds[first.name], seconds[second.name]))
            name = f"{first.name}, {second.name}"
            broken[name] += pair.run(trials.random.random() < 0.5)
            done[name] += 1
    for name in sorted(done):
        print(f"{name}: {done[name]} trials, {len(broken[name])} promises broken")
        for one in sorted(set(broken[name])):
            print(f"  {broken[name].count(one)} x {one}")
    count = sum(map(len, broken.values()))
    print(f"{sum(done.values())} trials of {len(done)} pairs: {count} promises broken")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
