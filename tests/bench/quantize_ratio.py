#!/usr/bin/env python3
"""How fast `nanscope quantize` is, beside reading and writing the same bytes plainly, and what memory it takes.

  python3 quantize_ratio.py NANSCOPE CHECKPOINT [--to fp8-block] [--runs 3]

A plain run reads the checkpoint's files and writes as many bytes as the result has, in pieces of 4 MiB. Both in turns,
the best of each counts. Memory is what is not of files (RssAnon), the most that was seen.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PIECE = 4 << 20


def tensors(folder):
    return sorted(pathlib.Path(folder).glob("*.safetensors"))


def plain(folder, to, size):
    begin = time.monotonic()
    piece = bytearray(PIECE)
    with open(to, "wb") as out:
        read = 0
        total = sum(file.stat().st_size for file in tensors(folder))
        for file in tensors(folder):
            with open(file, "rb", buffering=0) as source:
                while count := source.readinto(piece):
                    read += count
                    due = size * read // total - out.tell()
                    out.write(memoryview(piece)[:min(due, count)])
    return time.monotonic() - begin


def anonymous(process):
    """KiB."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            return max((int(line.split()[1]) for line in file if line.startswith("RssAnon")), default=0)
    except OSError:
        return 0


def quantized(nanscope, folder, to, target):
    begin = time.monotonic()
    process = subprocess.Popen([nanscope, "quantize", folder, "-o", to, "--to", target], stdout=subprocess.DEVNULL)
    most = 0
    done = threading.Event()

    def watch():
        nonlocal most
        while not done.wait(0.02):
            most = max(most, anonymous(process))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    done.set()
    watcher.join()
    if code != 0:
        sys.exit(f"nanscope quantize gave {code}")
    return time.monotonic() - begin, most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("checkpoint")
    parser.add_argument("--to", default="fp8-block")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    times, plains, memory, size = [], [], 0, 0
    before = sum(file.stat().st_size for file in tensors(arguments.checkpoint))
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory(dir=pathlib.Path(arguments.checkpoint).resolve().parent) as name:
            out = pathlib.Path(name) / "out"
            took, most = quantized(arguments.nanscope, arguments.checkpoint, out, arguments.to)
            times.append(took)
            memory = max(memory, most)
            size = sum(file.stat().st_size for file in tensors(out))
            shutil.rmtree(out)
            plains.append(plain(arguments.checkpoint, pathlib.Path(name) / "plain", size))
    print(f"{arguments.to}: {before / 2**30:.2f} GiB to {size / 2**30:.2f} GiB")
    print(f"quantize {min(times):.2f} s, plain {min(plains):.2f} s: {min(plains) / min(times):.2f} of the plain speed")
    print(f"memory besides files: {memory / 1024:.0f} MiB at most")


main()
