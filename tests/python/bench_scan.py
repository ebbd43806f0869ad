"""nanscope.scan() of an array against the command on a file of the same bytes.

    PYTHONPATH=build/python python3 tests/python/bench_scan.py build/nanscope [--gib 1] [--folder FOLDER]

Both are turned alternately, the file being in the page cache; the fastest turns are compared. Exit 1 when the array takes
more than 1.1 times the time of the command.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

import nanscope

LIMIT = 1.1


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", type=os.path.abspath, help="the nanscope command")
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--folder", default=None, help="where the file is written; the system's temporary one")
    options = parser.parse_args()
    array = np.random.default_rng(1).standard_normal(int(options.gib * 2**28), np.float32)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = pathlib.Path(folder, "x.npy")
        np.save(path, array)
        command = [options.command, "diagnose", str(path), "--brief"]
        subprocess.run(command, check=True, capture_output=True)
        nanscope.scan(array)
        times = {"scan": [], "command": []}
        for _ in range(options.turns):
            times["scan"].append(seconds(lambda: nanscope.scan(array)))
            times["command"].append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
    best = {name: min(all) for name, all in times.items()}
    ratio = best["scan"] / best["command"]
    rate = {name: array.nbytes / 1e9 / best[name] for name in best}
    print(f"{array.nbytes / 2**30:g} GiB f32, best of {options.turns} turns")
    print(f"  nanscope.scan(array)     {best['scan'] * 1e3:8.1f} ms  {rate['scan']:6.2f} GB/s")
    print(f"  nanscope diagnose x.npy  {best['command'] * 1e3:8.1f} ms  {rate['command']:6.2f} GB/s")
    print(f"  ratio {ratio:.3f}, limit {LIMIT}: {'ok' if ratio <= LIMIT else 'NO'}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
