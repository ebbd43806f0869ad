#!/usr/bin/env python3
"""`mpirun -n N nanscope diagnose DUMP` gives the answer of one process, and a job that lost a rank is continued.

ranks_test.py NANSCOPE [--dump FOLDER] [--kills 5]

Needs mpirun and numpy. Without --dump, a dump of products is made."""

import argparse
import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import numpy

RANKS = (1, 2, 3, 4, 8)
FRAME, MAGIC = 24, len(b"nanscope facts 1\n")


def records(path: str) -> list[bytes]:
    """Kind and key of each whole record of a file of facts."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], MAGIC
    while len(data) - at >= FRAME:
        size = struct.unpack_from("<Q", data, at)[0]
        if size > len(data) - at - FRAME:
            break
        record = data[at + FRAME:at + FRAME + size]
        found.append(record[:17] if record[:1] in (b"T", b"J") else record)
        at += FRAME + size
    return found


def write_dump(folder: str) -> None:
    """Products of whole numbers, which f32 holds exactly, over several steps and layers; one output is wrong."""
    generator = numpy.random.default_rng(1)
    for step in range(4):
        os.makedirs(f"{folder}/step_{step}")
        for layer in range(16):
            name = f"{folder}/step_{step}/model.layers.{layer}.mlp.up_proj"
            x, weight = (generator.integers(-8, 9, shape).astype(numpy.float32) for shape in ((96, 512), (768, 512)))
            out = x @ weight.T
            if (step, layer) == (2, 7):
                out[40:, 5] += 1000
            for part, values in (("input", x), ("weight", weight), ("output", out)):
                numpy.save(f"{name}.{part}.npy", values)


class Job:
    def __init__(self, nanscope: str, dump: str) -> None:
        self.nanscope, self.dump = os.path.abspath(nanscope), dump

    def command(self, ranks: int, *options: str) -> list[str]:
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        if os.geteuid() == 0:
            launcher.insert(1, "--allow-run-as-root")
        return [*launcher, self.nanscope, "diagnose", self.dump, *options]

    def run(self, ranks: int, *options: str) -> tuple[int, bytes]:
        done = subprocess.run(self.command(ranks, *options), capture_output=True, timeout=600)
        return done.returncode, done.stdout

    def alone(self, *options: str) -> tuple[int, bytes]:
        done = subprocess.run([self.nanscope, "diagnose", self.dump, *options], capture_output=True, timeout=600)
        return done.returncode, done.stdout


def check_equal(job: Job) -> None:
    for options in ([], ["--format", "json"]):
        expected = job.alone(*options)
        assert expected[0] in (0, 1), expected
        for ranks in RANKS:
            assert job.run(ranks, *options) == expected, f"{ranks} ranks {options}: another answer"
    print(f"{', '.join(map(str, RANKS))} ranks: byte for byte the answer of one process")


def workers_of(launcher: int, nanscope: str) -> list[int]:
    """Processes of the job, by their parent: mpirun starts them itself on this machine."""
    text = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(launcher)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in text.splitlines() if nanscope in line]


def check_kills(job: Job, kills: int, folder: str) -> None:
    random.seed(1)
    expected = job.alone("--format", "json")
    begin = time.monotonic()
    assert job.run(2, "--format", "json") == expected
    length = time.monotonic() - begin
    ended, kept = 0, 0
    for number in range(kills):
        facts = os.path.join(folder, f"facts-{number}")
        process = subprocess.Popen(job.command(2, "--facts", facts, "--format", "json"), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.1, length))
        workers = workers_of(process.pid, job.nanscope)
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)
        code = process.wait(timeout=600)
        ended += code != expected[0]
        before = records(facts) if os.path.exists(facts) else []
        kept += any(one[:1] in b"TJ" for one in before)
        assert job.run(2, "--facts", facts, "--format", "json") == expected, f"kill {number}: another answer"
        after = records(facts)
        assert after[:len(before)] == before, f"kill {number}: facts are gone"
        computed = [one for one in after if one[:1] in (b"T", b"J")]
        assert len(computed) == len(set(computed)), f"kill {number}: a fact was computed twice"
    print(f"{kills} kills: {ended} ended the job, {kept} left facts; each was continued, and no fact computed twice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("--dump")
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        sys.exit("mpirun is not there: install openmpi-bin")
    with tempfile.TemporaryDirectory() as folder:
        dump = options.dump
        if dump is None:
            dump = os.path.join(folder, "dump")
            write_dump(dump)
        job = Job(options.nanscope, dump)
        check_equal(job)
        check_kills(job, options.kills, folder)


if __name__ == "__main__":
    main()
