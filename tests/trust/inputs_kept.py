#!/usr/bin/env python3
"""Gives every command each of its inputs as an output, with --force, and checks that no input is replaced.

    tests/trust/inputs_kept.py build/nanscope [--only report] [--no-window]

A first run of each command writes outside of the inputs' folder; the kernel (inotify) says which files the command
opened. Then each output option is given each of these files in turn: by its name, by another spelling of it, by a
symbolic link and by a hard link; and each folder of inputs, where the option takes a folder. Afterwards every file of
the inputs has the bytes that it had. Prints a line a command; the exit code is 1 when an input was replaced or removed.
"""

import argparse
import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import tiny_scenarios
from kill_writers import digest

IN_OPEN, IN_ISDIR = 0x20, 0x40000000


class Opened:
    """The files of a tree that are opened between `with` and its end."""

    def __init__(self, root):
        self.root, self.libc, self.files = root, ctypes.CDLL(None, use_errno=True), set()

    def __enter__(self):
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        folders = [self.root] + [os.path.join(at, name) for at, names, _ in os.walk(self.root) for name in names]
        self.watched = {self.libc.inotify_add_watch(self.fd, os.fsencode(folder), IN_OPEN): folder for folder in folders}
        return self

    def __exit__(self, *_):
        while True:
            try:
                events = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                break
            at = 0
            while at < len(events):
                watch, mask, _, length = struct.unpack_from("iIII", events, at)
                name = os.fsdecode(events[at + 16:at + 16 + length].rstrip(b"\0"))
                at += 16 + length
                if name and not mask & IN_ISDIR:
                    self.files.add(os.path.join(self.watched[watch], name))
        os.close(self.fd)


class Command:
    """The words before an output, and the output options: (option, whether it takes a folder[, how its name ends])."""

    def __init__(self, words, *outputs, window=False):
        self.words, self.outputs, self.window = words.split(), outputs, window


FILE, FOLDER = False, True
COMMANDS = [
    Command("run inputs/kept.toml", ("-o", FILE)),
    Command("run --model inputs/model -p light --tokens 1", ("-o", FILE)),
    Command("run inputs/scaled.toml", ("-o", FILE)),
    Command("run inputs/checkpoint.toml", ("-o", FILE)),
    Command("attach inputs/dump", ("-o", FILE)),
    Command("export inputs/kept.nanscope", ("-o", FOLDER)),
    Command("export inputs/answer.nanscope", ("-o", FOLDER)),
    Command("replay inputs/kept.nanscope --set kv.format=bf16", ("-o", FILE)),
    Command("replay inputs/answer.nanscope --set kv.format=bf16", ("-o", FILE)),
    Command("trace inputs/kept.nanscope", ("-o", FILE)),
    Command("report inputs/kept.nanscope --no-counterfactuals", ("-o", FILE)),
    Command("report inputs/dump --model inputs/model", ("-o", FILE)),
    Command("report inputs/answer.nanscope", ("-o", FILE)),
    Command("quantize inputs/model --to fp8-block", ("-o", FOLDER)),
    Command("quantize inputs/model --to fp8 --calibrate inputs/text.txt --tokens 8", ("-o", FOLDER)),
    Command("scales inputs/model --policy geometry", ("-o", FILE)),
    Command("scales inputs/dump --model inputs/model --policy geometry", ("-o", FILE)),
    Command("scales inputs/answer.nanscope --policy geometry", ("-o", FILE)),
    Command("scales inputs/model --policy geometry --against inputs/model_scales.safetensors", ("-o", FILE)),
    Command("causality inputs/kept.toml", ("--map", FILE, ".csv")),
    Command("causality inputs/answer.nanscope", ("--map", FILE, ".csv")),
    Command("causality inputs/model -p light", ("--map", FILE, ".csv")),
    Command("verify inputs/dump --model inputs/model", ("--junit", FILE), ("--resume", FILE)),
    Command("verify inputs/dump --model inputs/model --prompt light", ("--junit", FILE), ("--resume", FILE)),
    Command("train inputs/trained.toml", ("-o", FOLDER), ("--csv", FILE), ("--record", FILE)),
    Command("gui inputs/kept.nanscope", ("--screenshot", FILE), window=True),
    Command("gui inputs/kept.nanscope --view tensors", ("--csv", FILE), window=True),
    Command("gui inputs/kept.nanscope --beside inputs/answer.nanscope", ("--screenshot", FILE), window=True),
    Command("gui inputs/dump --model inputs/model", ("--screenshot", FILE), window=True),
    Command("gui inputs/dump --model inputs/model --view tensors", ("--csv", FILE), window=True),
]


class Trials:
    def __init__(self, nanscope, folder):
        self.nanscope, self.folder, self.broken, self.tried, self.refused = nanscope, folder, [], 0, 0
        self.environment = {**os.environ, "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": os.path.join(folder, "state")}

    def call(self, *words):
        return subprocess.run([self.nanscope, *words], cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)

    def path(self, name):
        return os.path.join(self.folder, name)

    def made(self, *words):
        ran = self.call(*words)
        if ran.returncode not in (0, 1, 3):
            sys.exit(f"nanscope {' '.join(words)}: exit code {ran.returncode}: {ran.stderr}")

    def words_of(self, command, outputs):
        """The command with its outputs. Those that the trial is not about lie elsewhere."""
        force = [] if command.words[0] in ("quantize", "scales") else ["--force"]  # which never replace
        return command.words + [word for output in outputs for word in output] + force

    def elsewhere(self, command, but=None):
        return [(option, f"elsewhere/{option.strip('-')}{''.join(suffix)}") for option, _, *suffix in command.outputs
                if option != but]

    def try_command(self, command):
        before = self.tried
        os.makedirs(self.path("elsewhere"), exist_ok=True)
        with Opened(self.path("inputs")) as opened:
            self.made(*self.words_of(command, self.elsewhere(command)))
        files = sorted(os.path.relpath(file, self.folder) for file in opened.files if not file.endswith((".lock", "-journal")))
        for option, takes_folder, *suffix in command.outputs:
            for file in files:
                if takes_folder:
                    outputs = {os.path.dirname(file), os.path.dirname(file) + "/.", file}
                else:
                    outputs = {self.linked(file, os.symlink, *suffix), self.linked(file, os.link, *suffix)}
                    if not suffix:
                        outputs |= {file, self.folder + "/./" + file}
                for output in sorted(outputs):
                    self.try_output(command, option, output)
        shutil.rmtree(self.path("elsewhere"))
        print(f"{' '.join(command.words)}: opens {len(files)} files, {self.tried - before} outputs tried", flush=True)

    def linked(self, file, link, suffix=""):
        os.makedirs(self.path("links"), exist_ok=True)
        name = f"links/{link.__name__}{suffix}"
        if os.path.lexists(self.path(name)):
            os.remove(self.path(name))
        link(self.path(file), self.path(name))
        return name

    def try_output(self, command, option, output):
        if output.startswith("links/") and not os.path.lexists(self.path(output)):
            return
        self.tried += 1
        was = dict(digest(self.path("inputs")))
        ran = self.call(*self.words_of(command, [(option, output), *self.elsewhere(command, option)]))
        self.refused += ran.returncode == 2
        there = dict(digest(self.path("inputs")))
        lost = sorted(name for name, content in was.items() if there.get(name) != content)
        if lost:
            self.broken.append(f"{' '.join(command.words)} {option} {output} (exit code {ran.returncode}): replaced {lost}")
            self.restore()
        elif set(there) != set(was):
            self.restore()

    def keep(self):
        shutil.copytree(self.path("inputs"), self.path("kept"), symlinks=True)

    def restore(self):
        shutil.rmtree(self.path("inputs"))
        shutil.copytree(self.path("kept"), self.path("inputs"), symlinks=True)

    def prepare(self):
        os.makedirs(self.path("inputs"))
        texts = {"kept.toml": tiny_scenarios.run("kept"), "scaled.toml": tiny_scenarios.run("scaled", tiny_scenarios.STATIC_SCALES),
                 "trained.toml": tiny_scenarios.training(2),
                 "checkpoint.toml": 'name = "checkpoint"\n[model]\nweights = "model"\n[[request]]\ntext = "light"\nmax_tokens = 1\n'
                                    '[expect]\nverdict = "clean"\n',
                 "text.txt": tiny_scenarios.TEXT}
        for name, text in texts.items():
            with open(self.path(f"inputs/{name}"), "w", encoding="utf-8") as file:
                file.write(text)
        self.made("run", "inputs/kept.toml", "-o", "inputs/kept.nanscope", "--capture", "all", "--trace")
        self.made("export", "--reference-model", "-o", "inputs/model")
        self.made("run", "--model", "inputs/model", "-p", "light", "--tokens", "1", "-o", "inputs/answer.nanscope",
                  "--capture", "all")
        self.made("export", "inputs/answer.nanscope", "-o", "inputs/dump")
        self.made("scales", "inputs/kept.nanscope", "--policy", "geometry", "-o", "inputs/scales.safetensors")
        self.made("scales", "inputs/model", "--policy", "geometry", "-o", "inputs/model_scales.safetensors")
        self.keep()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("--only", help="one command's first word")
    parser.add_argument("--no-window", action="store_true", help="leave `gui` out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(os.path.abspath(options.nanscope), folder)
        trials.prepare()
        for command in COMMANDS:
            if options.only in (None, command.words[0]) and not (command.window and options.no_window):
                trials.try_command(command)
    for one in trials.broken:
        print(f"  {one}")
    print(f"{trials.tried} outputs tried, {trials.refused} refused, {len(trials.broken)} times an input was replaced")
    return 1 if trials.broken or not trials.tried else 0


if __name__ == "__main__":
    sys.exit(main())
