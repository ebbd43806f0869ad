"""Measures what `nanscope attach --run --watch` costs a PyTorch decode loop at the default budget.

torch_decode.py runs alone and watched in turns. It takes its own time, a token's mean after a warm-up, so that starting
Python and CUDA counts for neither side and the watch has spent by then what its budget saved up meanwhile. Exits 1 when
the median ratio is beyond the limit, a digest differs or nothing was watched, 2 on bad input.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_decode.py")


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def options_of(arguments):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope", metavar="NANSCOPE", help="the nanscope program")
    parser.add_argument("--python", default=sys.executable, metavar="PATH",
                        help="a Python with torch (default: the one that runs this)")
    parser.add_argument("--pairs", type=int, default=5, metavar="N",
                        help="runs alone and runs watched, in turns, 5 or more (default: 5)")
    parser.add_argument("--limit", type=float, default=1.05, metavar="R", help="of watched / alone (default: 1.05)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where it decodes (default: cuda)")
    parser.add_argument("--layers", default="8", metavar="N", help="layers of the model (default: 8)")
    parser.add_argument("--width", default="4096", metavar="N", help="elements of its residual (default: 4096)")
    parser.add_argument("--tokens", default="1024", metavar="N", help="tokens that are decoded (default: 1024)")
    parser.add_argument("--warm-up", default="256", metavar="N", help="of these, before time is taken (default: 256)")
    options = parser.parse_args(arguments)
    for program in (options.nanscope, options.python):
        if shutil.which(program) is None:
            parser.error(f"{program}: no such program")
    if options.pairs < 5:
        parser.error(f"argument --pairs: {options.pairs} are too few for a median, 5 or more")
    return options


class Failure(Exception):
    pass


def run(command):
    """What the script printed, by its first word, and what was said on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise Failure(f"{command[0]} exited {done.returncode}: {said[-1]}")
    printed = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    if "digest" not in printed or "seconds" not in printed:
        raise Failure(f"{command[0]} printed no digest and seconds")
    return printed, done.stderr


def pair(options, folder, number):
    """Seconds of a token alone and watched, and the launches that were watched and all."""
    decode = [options.python, SCRIPT, "--device", options.device, "--layers", options.layers, "--width", options.width,
              "--tokens", options.tokens, "--warm-up", options.warm_up]
    recording = os.path.join(folder, f"{number}.nanscope")
    alone, _ = run(decode)
    watched, said = run([options.nanscope, "attach", "--run", "--watch", "-o", recording, "--", *decode])
    if alone["digest"] != watched["digest"]:
        raise Failure(f"digest {alone['digest']} alone, {watched['digest']} watched")
    launches = re.search(r"watched ([1-9]\d*) of \d+ launches that match, (\d+) in all", said)
    if launches is None:
        raise Failure("nothing was watched: " + (said.strip().splitlines() or ["nothing was said"])[-1])
    return float(alone["seconds"]), float(watched["seconds"]), *map(int, launches.groups())


def main(arguments):
    options = options_of(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            alone, watched, looked_at, launches = zip(*(pair(options, folder, i) for i in range(options.pairs)))
    except Failure as failure:
        print(f"watch_bench.py: {failure}", file=sys.stderr)
        return 1
    ratio = statistics.median(b / a for a, b in zip(alone, watched))
    met = ratio <= options.limit
    detail = (f"{1e6 * statistics.median(watched):.0f} / {1e6 * statistics.median(alone):.0f} us a token, "
              f"{sum(looked_at)} of {sum(launches)} launches watched, digests equal")
    print(f"medians of {options.pairs} turns\n")
    print(f"| {'measure':<52} | {'value':>8} | {'limit':>8} | {'met':<3} | detail")
    print(f"| {'a decoded token in PyTorch, watched / alone':<52} | {ratio:>8.3f} | {f'<= {options.limit:g}':>8} | "
          f"{'yes' if met else 'NO':<3} | {detail}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
