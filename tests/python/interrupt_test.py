"""Ctrl+C during a long call: a KeyboardInterrupt, soon."""

import os
import signal
import subprocess
import sys
import textwrap
import time

UNDER_WAY = 0.2  # seconds: what is called next has begun, and has not ended


def interrupted(code, *arguments):
    """Runs a program that says "begun" where it is ready to be interrupted, and then takes long; interrupts it; gives what
    it printed."""
    program = subprocess.Popen([sys.executable, "-u", "-c", textwrap.dedent(code), *map(str, arguments)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert program.stdout.readline() == "begun\n"
    time.sleep(UNDER_WAY)
    os.kill(program.pid, signal.SIGINT)
    try:
        out, _ = program.communicate(timeout=60)
    finally:
        program.kill()
    return program.returncode, out


def test_a_scan_is_interrupted():
    code, out = interrupted("""
        import numpy as np, nanscope
        array = np.zeros(1 << 26, np.float64)
        try:
            print("begun")
            while True:
                nanscope.scan(array)
        except KeyboardInterrupt:
            print("interrupted")
        print(nanscope.scan(np.ones(3, np.float32)).max)
    """)
    assert (code, out) == (0, "interrupted\n1.0\n")


def test_a_replay_is_interrupted_and_ends_its_run(unstored):
    code, out = interrupted("""
        import sys, nanscope
        path = sys.argv[1]
        run = nanscope.open(path)
        try:
            print("begun")
            while True:
                run.diagnose()
        except KeyboardInterrupt:
            print("interrupted")
        try:
            run["4/0/0/logits"].numpy()
        except nanscope.Error as error:
            print(str(error).endswith("was interrupted: open it again"))
        print(nanscope.diagnose(path).verdict)
    """, unstored)
    assert (code, out) == (0, "interrupted\nTrue\nfault\n")


def test_another_signal_handler_runs_at_once():
    code, out = interrupted("""
        import signal, numpy as np, nanscope
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        array = np.zeros(1 << 24, np.float64)
        print("begun")
        while True:
            health = nanscope.scan(array)
            if seen:
                break
        print(health.count)
    """)
    assert (code, out) == (0, f"{1 << 24}\n")
