"""How long a person waits for `diagnose --counterfactuals`: until the diagnosis stands there, and for each result.

usage: first_answer.py NANSCOPE SCENARIO.toml [FOLDER]. Wall clock, through a pipe; the diagnosis is the median of
several turns. Exit 1 when its limit is missed.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

TURNS = 9
LIMIT = 0.3
NANSCOPE, SCENARIO = sys.argv[1:3]


def lines(recording):
    """Each line of the answer with the seconds until it came."""
    begin = time.perf_counter()
    with subprocess.Popen([NANSCOPE, "diagnose", recording, "--counterfactuals"], stdout=subprocess.PIPE, text=True) as run:
        try:
            for line in run.stdout:
                yield time.perf_counter() - begin, line
        finally:
            run.kill()


with tempfile.TemporaryDirectory(dir=sys.argv[3] if len(sys.argv) > 3 else None) as folder:
    recording = os.path.join(folder, "run.nanscope")
    subprocess.run([NANSCOPE, "run", SCENARIO, "-o", recording], stdout=subprocess.DEVNULL, check=True)
    diagnosed = []
    for _ in range(TURNS):
        # The heading of what comes after the diagnosis.
        diagnosed.append(next(at for at, line in lines(recording) if line.startswith("But for which setting?")))
    results = []
    end = 0.0
    for at, line in lines(recording):
        # A result, or what is put together at the end: the table has no empty line.
        if results and not line.strip():
            end = at
            break
        if results or line.startswith("  (as recorded)"):
            results.append((at, line.split()[0]))
    waits = [(after - before, name) for (before, _), (after, name) in zip(results, results[1:])]
    first = statistics.median(diagnosed)
    print(f"| until the diagnosis stands there, median of {TURNS}   | {first:6.3f} s | <= {LIMIT} s | {'ok' if first <= LIMIT else 'NO'} |")
    print(f"| until the run as recorded was run again      | {results[0][0]:6.3f} s | |  |")
    print(f"| for each of {len(waits)} lines after it, median         | {statistics.median(one for one, _ in waits):6.3f} s | |  |")
    print(f"| the longest of them, {max(waits)[1]:<24}| {max(waits)[0]:6.3f} s | |  |")
    print(f"| until the last of them                       | {end:6.3f} s | |  |")
sys.exit(first > LIMIT)
