#!/usr/bin/env python3
"""Takes away each thing that a replay of a recording needs, and runs every command that reads recordings.

    tests/trust/missing_inputs.py build/nanscope [--only leaks] [--no-window]

The recordings hold hashes alone: a command that asks for elements has to run the model again. One is of a checkpoint in
two files whose values leak to earlier tokens, one of training, one of scales from a file. Missing is the model's folder,
each of its files, a part of a file; the text; the file of scales; memory and work that the run would take. The answer
has to be the one that the command gives with everything in place, with the same exit code; or exit code 2 with one
line, next to what was found without; and never `clean`. Prints a table: `same`, `refused` (nothing but a line),
`partly` (an answer, and what is missing from it), `differs` (a replay that says so); the exit code is 1 when a cell is anything else.
"""

import argparse
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

import tiny_scenarios

CLEAN = re.compile(r'^Verdict .*: clean\b|"verdict": "clean"|: clean, every output', re.M)
LEAKS = ["--set", "attention.blocks_v=mxfp4", "--set", "attention.blocks_axis_v=tokens", "--set", "attention.blocks_k="]
COMMANDS = ["diagnose {0}", "diagnose {0} --format json", "diagnose {0} --counterfactuals", "report {0} -o out", "why {0}",
            "why {0} 0/0/0/attn_norm.out[1,1]", "diff {0} {0}.copy", "policies {0}", "scales {0}", "causality {0}", "replay {0}",
            "replay {0} --at 0/0/0/attn_norm.out[1,1]", "replay {0} --set kv.format=bf16 -o out", "export {0} -o out", "trace {0} -o out"]
WINDOW = ["gui {0} --csv out --view tensors", "gui {0} --screenshot out.png --tab tensor"]
RUN = {"little memory for a replay": ["--replay-memory", "0.0001"], "little work for a replay": ["--replay-work", "0.0000001"]}
WITH_LIMITS = ("diagnose", "report", "why", "policies", "causality", "replay", "export")


def split_checkpoint(folder):
    """Puts half of the tensors of model.safetensors into a file of their own."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        head, body = json.loads(file.read(size)), file.read()
    names, index = sorted(name for name in head if name != "__metadata__"), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard, data, file_name = {}, b"", f"model-0000{number}-of-00002.safetensors"
        for name in part:
            begin, end = head[name]["data_offsets"]
            shard[name] = {**head[name], "data_offsets": [len(data), len(data) + end - begin]}
            data += body[begin:end]
            index[name] = file_name
        text = json.dumps(shard).encode()
        with open(os.path.join(folder, file_name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)
    os.remove(os.path.join(folder, "model.safetensors"))


class Table:
    def __init__(self, nanscope, window):
        self.nanscope, self.commands = nanscope, COMMANDS + (WINDOW if window else [])
        self.bad, self.cells = [], 0

    def call(self, words, memory=None):
        for name in ("out", "out.png"):
            if os.path.isdir(name):
                shutil.rmtree(name)
            elif os.path.lexists(name):
                os.remove(name)

        def limit():
            if memory:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

        done = subprocess.run([self.nanscope, *words], capture_output=True, text=True, check=False, preexec_fn=limit,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "COLUMNS": "100"})
        made = ""
        if os.path.isfile("out") and words[0] != "replay":  # a recording has its date
            with open("out", "rb") as file:
                made = file.read().decode(errors="replace")
        # Times and addresses differ between two runs of one command.
        text = re.sub(r"[0-9.]+ (ms|s|us)\b", "T", done.stdout + made)
        return done.returncode, text, done.stderr

    def made(self, *words):
        code, _, error = self.call(words)
        if code not in (0, 1):
            sys.exit(f"nanscope {' '.join(words)}: exit code {code}: {error}")

    def verdict(self, words, whole, now):
        code, text, error = now
        if (code, text) == whole[:2]:
            return "same"
        if words[0] == "replay" and code == 1 and "Diverges" in text:
            return "differs"
        # All answers are left out with a reason, or some policies say why they were not run.
        if words[0] == "policies" and code == 0 and re.search(r"answers: |^  \S+ not run: ", text, re.M):
            return "partly"
        if code == 2 and error.count("\n") >= 1 and any(line.startswith("nanscope: ") for line in error.splitlines()) and not CLEAN.search(text):
            return "partly" if text.strip() else "refused"
        return f"BAD: exit code {code} instead of {whole[0]} or 2: {error.strip()[:200] or text[:200]!r}"

    def row(self, recording, what, whole, extra=(), memory=None):
        cells = []
        for command in self.commands:
            words = command.format(recording).split()
            if extra and words[0] not in WITH_LIMITS:
                cells.append("-")
                continue
            found = self.verdict(words, whole[command], self.call([*words, *extra], memory))
            self.cells += 1
            if found.startswith("BAD"):
                self.bad.append(f"{recording} without {what}: nanscope {' '.join([*words, *extra])}: {found}")
                found = "BAD"
            cells.append(found)
        print(f"  {what:44}" + " ".join(f"{cell:8}" for cell in cells), flush=True)

    def recording(self, name, missing):
        """`missing`: what is taken away, and a function that does it to the path."""
        recording = f"{name}.nanscope"
        shutil.copy(recording, f"{recording}.copy")
        whole = {command: self.call(command.format(recording).split()) for command in self.commands}
        print(f"{recording}\n  {'exit codes with everything':44}" + " ".join(f"{whole[one][0]:<8}" for one in self.commands))
        for path, how, take in missing:
            kept = f"{path}.kept"
            (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, kept)
            take(path)
            self.row(recording, f"{os.path.basename(path)} {how}", whole)
            remove(path)
            os.rename(kept, path)
        for what, extra in RUN.items():
            self.row(recording, what, whole, extra)
        self.row(recording, "80 MiB of address space", whole, memory=80 << 20)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def change(path):
    """One byte, as long as before: in the middle of a text, near the end of a file of tensors (a scale that is used)."""
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        file.seek(size - 14 if path.endswith(".safetensors") else size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x40]))


def write(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def each_way(path):
    return [(path, "missing", remove), (path, "cut", cut), (path, "changed", change)]


def leaks(table):
    table.made("export", "--reference-model", "-o", "model")
    split_checkpoint("model")
    ids = ",".join(str(i) for i in range(1, 41))
    table.made("run", "--model", "model", "--prompt-tokens", ids, "--tokens", "2", *LEAKS, "-o", "leaks.nanscope", "--capture", "none")
    shards = [f"model/model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    table.recording("leaks", [("model", "missing", remove), ("model/config.json", "missing", remove),
                              ("model/model.safetensors.index.json", "missing", remove), *each_way(shards[0]),
                              (shards[1], "missing", remove)])


def train(table):
    write("train.toml", tiny_scenarios.training(3))
    write("text.txt", tiny_scenarios.TEXT)
    table.made("train", "train.toml", "-o", "trained", "--record", "train.nanscope")
    table.recording("train", each_way("text.txt"))


def scaled(table):
    write("kept.toml", tiny_scenarios.run("kept"))
    table.made("run", "kept.toml", "-o", "kept.nanscope", "--capture", "all")
    table.made("scales", "kept.nanscope", "--policy", "geometry", "-o", "scales.safetensors")
    write("scaled.toml", tiny_scenarios.run("scaled", tiny_scenarios.STATIC_SCALES))
    table.made("run", "scaled.toml", "-o", "scaled.nanscope", "--capture", "none")
    table.recording("scaled", each_way("scales.safetensors"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("--only", help="one recording: leaks, train, scaled")
    parser.add_argument("--no-window", action="store_true", help="leave `gui` out")
    options = parser.parse_args()
    table = Table(os.path.abspath(options.nanscope), not options.no_window)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, make in (("leaks", leaks), ("train", train), ("scaled", scaled)):
            if options.only in (None, name):
                make(table)
        os.chdir("/")
    for one in table.bad:
        print(one)
    print(f"{table.cells} cells, {len(table.bad)} bad")
    return 1 if table.bad or not table.cells else 0


if __name__ == "__main__":
    sys.exit(main())
