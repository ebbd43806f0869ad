"""Compares the engine with transformers on checkpoints whose sizes and options are drawn at random.

usage: check_families.py TEST_PROGRAM [--seeds N] [--first SEED]    needs torch and transformers (CPU)

TEST_PROGRAM is the build's test_model. Prints, by family, over all seeds, how far the worst logit was off in f32 in
units of the largest, and in bf16, ours and transformers', in units of what rounding can do; exits with 1 where one was off by
more than the test allows, or a token differed.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=100)
    arguments = parser.parse_args()
    worst = collections.defaultdict(float)
    in_bf16 = collections.defaultdict(lambda: (0.0, 0.0))
    failed = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, os.path.join(HERE, "make_checkpoints.py"), folder, "--seed", str(seed)],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            run = subprocess.run([arguments.program, "--gtest_filter=Checkpoints/*"], capture_output=True, text=True,
                                 env={**os.environ, "NANSCOPE_CHECKPOINTS": folder}, check=False)
        for family, error in re.findall(r"^(\S+) +(\S+) of the largest logit$", run.stdout, re.MULTILINE):
            worst[family] = max(worst[family], float(error))
        for family, ours, theirs in re.findall(r"^(\S+) +ours (\S+), theirs (\S+) of the bound", run.stdout, re.MULTILINE):
            in_bf16[family] = tuple(map(max, in_bf16[family], (float(ours), float(theirs))))
        failed += [f"seed {seed}: {name}" for name in re.findall(r"^\[  FAILED  \] (\S+), where", run.stdout, re.MULTILINE)]
        if run.returncode != 0 and not failed:
            failed.append(f"seed {seed}: {run.stdout[-300:]} {run.stderr[-300:]}")
    for family, error in sorted(worst.items()):
        print(f"{family:16} {error:.2e}   bf16: ours {in_bf16[family][0]:.2f}, theirs {in_bf16[family][1]:.2f}")
    for line in failed:
        print("FAILED", line)
    return 1 if failed or not worst else 0


if __name__ == "__main__":
    sys.exit(main())
