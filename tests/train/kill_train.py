#!/usr/bin/env python3
"""Kills `nanscope train` at random moments, and goes on from what is left.

    tests/train/kill_train.py build/nanscope [--count 20] [--seed 1] [--steps 40] [--device cpu]

A run that is never stopped comes first. Each trial begins the same run anew, ends it at a random moment, by SIGKILL or,
one in four, by SIGTERM, and starts it again with --resume, ends that one in two times, and so on until it is through.
Afterwards

- weights, optimizer state, step and loss scale are those of the run that was never stopped, in every bit;
- the CSV has the same rows but for the seconds: every step once, every digit of every number;
- after SIGTERM the step was finished and saved, and the exit code was 143;
- nothing else lies in the folder, no temporary file of a process that was killed either.

Prints a line a trial; the exit code is 1 when a promise was broken.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TRAIN = """[model]
weights = "random"
layers = 2
width = 64
heads = 4
kv_heads = 2
head_dim = 16
mlp_width = 96
init_scale = 0.5
[train]
text = "text.txt"
steps = {steps}
batch = 4
length = 48
seed = 3
learning_rate = 3e-3
warm_up = 5
decay = "cosine"
loss_scaling = "dynamic"
loss_scale = 1024.0
loss_scale_growth = 7
"""
SAVE_EVERY = "3"


def text(words=4000):
    """A text with something to learn: words follow each other by a few rules."""
    rng = random.Random(0)
    follow = {w: rng.sample(range(40), 3) for w in range(40)}
    names = ["".join(rng.choice("aeiou" if i % 2 else "bdfglmnprst") for i in range(rng.randint(2, 6))) for _ in range(40)]
    word, out = 0, []
    for i in range(words):
        out.append(names[word] + (".\n" if i % 9 == 8 else ""))
        word = rng.choice(follow[word])
    return " ".join(out)


class Trial:
    def __init__(self, options, base, name):
        self.folder = os.path.join(base, name)
        os.mkdir(self.folder)
        self.model = os.path.join(self.folder, "model")
        self.csv = os.path.join(self.folder, "curves.csv")
        self.command = [os.path.abspath(options.nanscope), "train", os.path.join(base, "train.toml"), "-o", self.model,
                        "--csv", self.csv, "--save-every", SAVE_EVERY, "--resume", "--device", options.device, "--threads", "1"]

    def start(self):
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self):
        done = self.start()
        out, err = done.communicate()
        return done.returncode, out, err

    def rows(self):
        """The curves without the seconds, which are the last column."""
        with open(self.csv) as file:
            return [line.rsplit(",", 1)[0] for line in file.read().splitlines()]

    def files(self):
        found = {}
        for name in sorted(os.listdir(self.model)):
            with open(os.path.join(self.model, name), "rb") as file:
                found[name] = file.read()
        return found


def one_trial(options, base, number, rng, whole, seconds):
    trial = Trial(options, base, f"trial-{number}")
    kills, problems = [], []
    while not kills or (len(kills) < 4 and rng.random() < 0.5):
        how = signal.SIGTERM if rng.random() < 0.25 else signal.SIGKILL
        process = trial.start()
        wait = rng.uniform(0.01, 1.0) * seconds
        try:
            process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(how)
        _, err = process.communicate()
        kills.append(f"{'TERM' if how == signal.SIGTERM else 'KILL'} at {wait:.2f} s")
        if process.returncode not in (0, -int(how), 128 + int(how)):
            problems.append(f"exit code {process.returncode}: {err.strip()}")
        if how == signal.SIGTERM and "stopped after" in err and not os.path.exists(os.path.join(trial.model, "trainer.json")):
            problems.append("stopped, and saved nothing")
    code, _, err = trial.finish()
    if code != 0:
        problems.append(f"going on: exit code {code}: {err.strip()}")
    elif trial.rows() != whole.rows():
        problems.append("the curves are others")
    else:
        for name, data in whole.files().items():
            if trial.files().get(name) != data:
                problems.append(f"{name} is another")
        problems += [f"{name} lies there" for name in trial.files() if name not in whole.files()]
    print(f"{number + 1}: {', '.join(kills)}: {'; '.join(problems) if problems else 'the same in every bit'}", flush=True)
    shutil.rmtree(trial.folder)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="nanscope-kill-") as base:
        with open(os.path.join(base, "train.toml"), "w") as file:
            file.write(TRAIN.format(steps=options.steps))
        with open(os.path.join(base, "text.txt"), "w") as file:
            file.write(text())
        whole = Trial(options, base, "whole")
        begin = time.monotonic()
        code, out, err = whole.finish()
        seconds = time.monotonic() - begin
        if code != 0:
            print(f"the run that is not stopped ends with {code}: {err.strip()}")
            return 1
        print(f"never stopped: {seconds:.2f} s, {out.splitlines()[0]}", flush=True)
        same = sum(one_trial(options, base, number, rng, whole, seconds) for number in range(options.count))
    print(f"{same} of {options.count} runs end with the bits of the one that was never stopped")
    return 0 if same == options.count else 1


if __name__ == "__main__":
    sys.exit(main())
