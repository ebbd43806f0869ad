"""Changes recordings in every way that a program can think of and runs whole commands on them.

    python3 tests/trust/mutate_recordings.py build/nanscope [--cases 20000] [--seed 1] [--asan] [--keep DIR]

A case is one command on one changed recording. It passes when the command ends by itself within its time, with exit code
0, 1 or 2, with one line on standard error where that is 2, without an internal error, and within its memory. Ends with
exit code 1 when one did not, and says which: the same seed makes the same cases.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SECONDS = 10
GIB = 1 << 30
PAGE = 65536
SMALL = """name = "{name}"
[model]
weights = "random"
layers = 2
width = 64
heads = 2
kv_heads = 1
head_dim = 32
mlp_width = 64
{model}
[kv]
format = "e4m3"
policy = "per_request"
memory = "recycled"
blocks = 16
[attention]
mask = "multiply"
[[request]]
name = "first"
text = "Moons pull tides, tides turn wheels, wheels drive machines"
max_tokens = {tokens}
[[request]]
name = "second"
text = "Moons pull tides, tides turn wheels, boats carry oil"
max_tokens = 2
[expect]
verdict = "clean"
"""


@dataclass
class Case:
    file: Path
    what: str
    command: str
    words: list


@dataclass
class Failure:
    case: Case
    why: str


INTEGERS = [-1, 0, 1, 2, 3, 7, 1 << 16, 1 << 26, (1 << 31) - 1, 1 << 31, 1 << 40, 1 << 48, (1 << 62) + 1, (1 << 63) - 1,
            -(1 << 63), -(10**9)]
REALS = [None, 0.0, -0.0, -1.0, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), 448.0]
TEXTS = ["", "x", "out", "logits", "\x00", "\x1b[2J", "\udcff", "a" * 100000, "0", "-1", "null", "[]", "{}", "[[]]",
         '[["x",1]]', '[["x",-1]]', '[["x",999999999]]', '{"heads":1}', '{"heads":0}', '{"heads":-4,"kv_heads":1000000000}',
         "[" * 100000, '{"a":' * 1000 + "1" + "}" * 1000, "'; DROP TABLE ops; --", "\u202e\u2028"]


def variations(value, others, rng):
    """Values to put where `value` stands; `others` stand in the same column."""
    if isinstance(value, int):
        near = [value + 1, value - 1, value * 1000, value * 2, -value, value ^ (1 << rng.randrange(40))]
        near = [v for v in near if -(1 << 63) <= v < 1 << 63]
        return INTEGERS + near + others
    if isinstance(value, float) or value is None:
        return REALS + others
    if isinstance(value, bytes):
        cut = [b"", value[: len(value) // 2], value + value, bytes(len(value)), b"\xff" * len(value)]
        flips = []
        for _ in range(6):
            changed = bytearray(value)
            if changed:
                changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            flips.append(bytes(changed))
        return cut + flips + others
    return TEXTS + [value[:-1], value + "x", value.upper(), value * 3] + others


class Columns:
    """Every column of every table x values, in one row or in all."""

    def __init__(self, base: Path):
        self.base = base
        with sqlite3.connect(base) as db:
            db.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            self.columns = []
            for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                for _, column, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
                    values = [row[0] for row in db.execute(f"SELECT DISTINCT {column} FROM {table} LIMIT 40")]
                    if values:
                        self.columns.append((table, column, values))
        db.close()

    def mutate(self, path: Path, rng) -> str:
        table, column, values = rng.choice(self.columns)
        old = rng.choice(values)
        new = rng.choice(variations(old, rng.sample(values, min(4, len(values))), rng))
        where, told = "", "all"
        how = rng.randrange(4)
        if how == 0:
            where, told = f" WHERE {column} IS ?", "those alike"
        elif how in (1, 2):
            keys = f"SELECT min({column}) FROM {table}" if how == 1 else f"SELECT max({column}) FROM {table}"
            where, told = f" WHERE {column} IS ({keys})", "an end"
        with sqlite3.connect(path) as db:
            parameters = [new, old] if how == 0 else [new]
            if isinstance(new, str):
                parameters[0] = new.encode(errors="surrogateescape").decode("utf-8", errors="replace")
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?{where}", parameters)
        db.close()
        return f"{table}.{column} = {str(new)[:60]!r} ({told})"


class Lies:
    """Changes that agree with each other: what a check of one row by another lets pass."""

    def __init__(self, base: Path):
        self.base = base
        self.lies = [getattr(self, name) for name in dir(self) if name.startswith("lie_")]

    def mutate(self, path: Path, rng) -> str:
        lie = rng.choice(self.lies)
        with sqlite3.connect(path) as db:
            told = lie(db, rng)
        db.close()
        return f"{lie.__name__[4:]}: {told}"

    @staticmethod
    def forget_elements(db):
        db.execute("DELETE FROM chunks")
        db.execute("DELETE FROM detail")
        db.execute("UPDATE tensors SET detail = 0")
        db.execute("UPDATE progress SET stored_tensors = 0")

    @staticmethod
    def agree(db):
        db.execute("UPDATE tensors SET elements = tokens * channels, nan = 0, pos_inf = 0, neg_inf = 0, bad = 0, "
                   "saturated = 0, subnormal = 0, zero = 0, flushed = 0, clipped = 0, first_bad = -1 "
                   "WHERE known AND NOT stated")

    def lie_wider(self, db, rng):
        """Tensors are some times wider, and nothing says otherwise."""
        times = rng.choice([2, 3, 1000, 1 << 20])
        roles = [row[0] for row in db.execute("SELECT DISTINCT role FROM tensors")]
        role = rng.choice(roles + [None])
        self.forget_elements(db)
        db.execute("UPDATE tensors SET channels = channels * ? WHERE ? IS NULL OR role = ?", (times, role, role))
        self.agree(db)
        if rng.randrange(2):
            db.execute("UPDATE tensors SET nan = elements, bad = elements, first_bad = 0 WHERE role = 'out' AND elements > 0")
        return f"{role} x {times}"

    def lie_longer(self, db, rng):
        """Steps, their sequences and their tensors have more tokens."""
        times = rng.choice([2, 100, 1 << 12, 1 << 20, 1 << 24])
        self.forget_elements(db)
        db.execute("UPDATE steps SET tokens = tokens * ?", (times,))
        db.execute("UPDATE spans SET row_count = row_count * ?, first_row = first_row * ?, context = context * ?", (times,) * 3)
        db.execute("UPDATE tensors SET tokens = tokens * ? WHERE axis IN ('rows', 'live', 'part', 'keys')", (times,))
        self.agree(db)
        if rng.randrange(2):
            db.execute("UPDATE tensors SET nan = elements, bad = elements, first_bad = 0 WHERE axis = 'rows' AND elements > 0")
        return f"x {times}"

    def lie_transposed(self, db, rng):
        db.execute("UPDATE tensors SET tokens = channels, channels = tokens, heads = 1, axis = ?, first_bad = -1, bad = 0, nan = 0, "
                   "pos_inf = 0, neg_inf = 0", (rng.choice(["part", "slots", "none", "keys"]),))
        self.forget_elements(db)
        return ""

    def lie_axis(self, db, rng):
        axis = rng.choice(["keys", "part", "slots", "none"])
        many = rng.choice([1, 5, 10000])
        db.execute("UPDATE tensors SET axis = ?, sequence = ? WHERE id % ? = 0", (axis, rng.choice([-1, 0]), many))
        return f"{axis}, each {many}th"

    def lie_kind(self, db, rng):
        """Ops are of another kind."""
        kinds = [row[0] for row in db.execute("SELECT DISTINCT kind FROM ops")] + ["route", "expert_mix", "dumped", "parameter",
                 "all_reduce", "token_softmax", "recurrent_scan", "attention", "block", "patch_embedding", "block_gemm"]
        old, new = rng.choice(kinds), rng.choice(kinds)
        db.execute("UPDATE ops SET kind = ? WHERE kind = ?", (new, old))
        return f"{old} is {new}"

    def lie_inputs(self, db, rng):
        """Ops read each other's tensors, forwards too."""
        ids = [row[0] for row in db.execute("SELECT id FROM tensors")]
        for op, inputs in db.execute("SELECT id, inputs FROM ops").fetchall():
            if rng.randrange(6):
                continue
            changed = [[role, rng.choice(ids) if isinstance(one, int) else one] for role, one in json.loads(inputs)]
            rng.shuffle(changed)
            db.execute("UPDATE ops SET inputs = ? WHERE id = ?", (json.dumps(changed), op))
        return ""

    def lie_cycle(self, db, rng):
        ids = [row[0] for row in db.execute("SELECT id FROM tensors ORDER BY id")]
        db.execute("UPDATE ops SET inputs = ?", (json.dumps([["x", rng.choice(ids)], ["residual", ids[-1]]]),))
        return ""

    def lie_attributes(self, db, rng):
        """Numbers among the attributes of ops are others."""
        new = rng.choice(INTEGERS + [0.5, -1e300, "nan", True, [], [1 << 40]])
        wanted = None
        for op, text in db.execute("SELECT id, attributes FROM ops").fetchall():
            attributes = json.loads(text or "{}")
            wanted = wanted or (rng.choice(sorted(attributes)) if attributes else None)
            if wanted in attributes:
                attributes[wanted] = new
                db.execute("UPDATE ops SET attributes = ? WHERE id = ?", (json.dumps(attributes), op))
        return f"{wanted} = {new}"

    def lie_heads(self, db, rng):
        heads = rng.choice([1, 2, 4, 8, 16, 64])
        db.execute("UPDATE tensors SET heads = ? WHERE channels % ? = 0", (heads, heads))
        return str(heads)

    def lie_layers(self, db, rng):
        layer = rng.choice(["id", "0", "-1", "layer * 1000000", "1099511627775 - layer"])
        db.execute(f"UPDATE ops SET layer = {layer}")
        return layer

    def lie_names(self, db, rng):
        names = [row[0] for row in db.execute("SELECT DISTINCT name FROM ops")]
        one, other = rng.choice(names), rng.choice(names)
        db.execute("UPDATE ops SET name = CASE name WHEN ? THEN ? ELSE name END", (one, other))
        return f"{one} is {other}"

    def lie_bad(self, db, rng):
        """Healthy tensors are said to be bad, and bad ones healthy."""
        db.execute("DELETE FROM detail WHERE 0")
        share = rng.choice([1, 3, 20])
        db.execute("UPDATE tensors SET nan = 1, pos_inf = 0, neg_inf = 0, bad = 1, first_bad = 0 WHERE elements > 0 AND id % ? = 0",
                   (share,))
        return f"each {share}th"

    def lie_positions(self, db, rng):
        shift = rng.choice([1, 5, 1 << 20, 1 << 39])
        db.execute("UPDATE spans SET first_token = first_token + ?, context = context + ?", (shift, shift))
        if rng.randrange(2):
            db.execute("UPDATE tensors SET first_token = first_token + ?", (shift,))
        return str(shift)

    def lie_formats(self, db, rng):
        """Bytes are read as another format of the same width."""
        for pair in rng.choice([[("f32", "i32")], [("e4m3", "e5m2")], [("f32", "i32"), ("i32", "f32")], [("bf16", "f16")]]):
            db.execute("UPDATE tensors SET format = ? WHERE format = ?", pair[::-1])
        return ""

    def lie_fewer(self, db, rng):
        """A part of the run is missing, and the counts know."""
        last = db.execute("SELECT max(id) FROM steps").fetchone()[0]
        step = rng.randrange(1, last + 1)
        db.execute("DELETE FROM tensors WHERE op IN (SELECT id FROM ops WHERE step = ?)", (step,))
        db.execute("DELETE FROM chunks WHERE id / 65536 NOT IN (SELECT id FROM tensors)")
        db.execute("DELETE FROM detail WHERE tensor NOT IN (SELECT id FROM tensors)")
        if rng.randrange(2):
            db.execute("DELETE FROM ops WHERE step = ?", (step,))
        if rng.randrange(2):
            db.execute("UPDATE ops SET inputs = '[]'")
        db.execute("UPDATE progress SET ops = (SELECT count(*) FROM ops), tensors = (SELECT count(*) FROM tensors), "
                   "stored_tensors = (SELECT count(DISTINCT id / 65536) FROM chunks)")
        return f"step {step}"

    def lie_empty(self, db, rng):
        """Tensors without tokens, or without channels."""
        side = rng.choice(["tokens", "channels"])
        each = rng.choice([1, 4, 30])
        self.forget_elements(db)
        db.execute(f"UPDATE tensors SET {side} = 0, heads = 1, axis = 'part' WHERE id % ? = 0", (each,))
        self.agree(db)
        return f"{side} of each {each}th"

    def lie_tables(self, db, rng):
        table = rng.choice(["requests", "tokens", "weights", "scales", "kv", "kernels", "events", "spans", "chunks", "detail"])
        db.execute(f"DELETE FROM {table}")
        if table == "requests":
            db.execute("UPDATE progress SET requests = 0")
        if table == "chunks":
            db.execute("UPDATE progress SET stored_tensors = 0")
        if table == "detail":
            db.execute("UPDATE tensors SET detail = 0")
        return f"no {table}"

    def lie_slots(self, db, rng):
        what = rng.choice(["block = block * 1000000", "slot_end = 16777216", "slot_begin = slot_end", "first_token = -5",
                           "layer = 1000000", "step = 1", "request = 77", "slot_end = slot_end + 1", "first_token = 1099511627775"])
        db.execute(f"UPDATE OR IGNORE kv SET {what}")
        return what

    def lie_requests(self, db, rng):
        what = rng.choice(["prompt_tokens = '[]', cached_tokens = 0", "output_tokens = '[]'", "output_tokens = '[" + "7," * 20000 + "7]'",
                           "cached_tokens = 1", "prompt_tokens = '[-1,-1,-1]'", "prompt_tokens = '[2147483647]'", "id = id + 100"])
        db.execute(f"UPDATE requests SET {what}")
        return what[:50]

    def lie_scales(self, db, rng):
        what = rng.choice(["scale = 0", "scale = NULL", "scale = 9e999", "headroom = 0.001", "target = 'q'", "layer = 1000000",
                           "calibrated_step = 999", "calibrated_request = -7", "policy = ''", "op = 1", "step = 1"])
        db.execute(f"UPDATE scales SET {what}")
        return what

    def lie_state(self, db, rng):
        state = rng.choice(["recording", "interrupted"])
        db.execute("UPDATE progress SET state = ?, expected_ops = ?", (state, rng.choice([0, 5, 1 << 40])))
        return state


class Bytes:
    """Bytes of the file, anywhere."""

    def __init__(self, base: Path):
        self.base = base

    def mutate(self, path: Path, rng) -> str:
        data = bytearray(path.read_bytes())
        how = rng.randrange(5)
        if how == 0:
            del data[rng.randrange(len(data)):]
            told = f"cut at {len(data)}"
        elif how == 1:
            for _ in range(rng.choice([1, 10, 1000])):
                data[rng.randrange(len(data))] = rng.randrange(256)
            told = "bytes"
        elif how == 2:
            pages = len(data) // PAGE
            one, other = rng.randrange(pages), rng.randrange(pages)
            data[one * PAGE:(one + 1) * PAGE] = data[other * PAGE:(other + 1) * PAGE]
            told = f"page {one} is page {other}"
        elif how == 3:
            at = rng.randrange(200)
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            told = f"header byte {at}"
        else:
            page = rng.randrange(len(data) // PAGE) * PAGE
            for _ in range(3):
                struct.pack_into(">H", data, page + rng.randrange(0, 64, 2), rng.choice([0, 1, 8, 0xFFFF, 0x8000, PAGE - 1]))
            told = f"the head of page {page // PAGE}"
        path.write_bytes(data)
        return told


class Structure:
    """Tables, indexes, views and triggers."""

    def __init__(self, base: Path):
        with sqlite3.connect(base) as db:
            self.names = db.execute("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'").fetchall()
        db.close()

    def mutate(self, path: Path, rng) -> str:
        kind, name = rng.choice(self.names)
        statements = [f"DROP {kind} {name}", f"CREATE TABLE extra_{rng.randrange(9)} (x)",
                      "CREATE TRIGGER harm AFTER INSERT ON events BEGIN DELETE FROM tensors; END",
                      f"PRAGMA user_version = {rng.choice([0, 1, 2, 3, 5, 1 << 30])}", "PRAGMA application_id = 1",
                      "PRAGMA auto_vacuum = FULL; VACUUM", "PRAGMA encoding = 'UTF-16'", "REINDEX", "PRAGMA journal_mode = WAL"]
        if kind == "table":
            statements += [f"ALTER TABLE {name} ADD COLUMN extra INTEGER", f"DELETE FROM {name}",
                           f"CREATE TEMP TABLE t AS SELECT * FROM {name}"]
        statement = rng.choice(statements)
        db = sqlite3.connect(path)
        try:
            db.executescript(statement)
        except sqlite3.Error:
            pass
        db.close()
        return statement


class Configuration:
    """The run that a replay is to make."""

    def __init__(self, base: Path):
        self.base = base

    def mutate(self, path: Path, rng) -> str:
        with sqlite3.connect(path) as db:
            config = json.loads(db.execute("SELECT value FROM run WHERE key = 'config'").fetchone()[0])
            told = []
            for _ in range(rng.choice([1, 1, 2, 4])):
                knob = rng.choice(sorted(config["knobs"]))
                old = config["knobs"][knob]
                if isinstance(old, bool):
                    new = not old
                elif isinstance(old, (int, float)):
                    new = rng.choice([0, 1, 2, 3, 16, 1000, 65536, 1 << 20, 1 << 31, 1 << 53, -1, 0.5, 1e30])
                else:
                    new = rng.choice(["", "bf16", "f16", "e5m2", "auto", "none", "x" * 1000, "/dev/null", "/proc/kmsg", "reference"])
                config["knobs"][knob] = new
                told.append(f"{knob} = {str(new)[:30]}")
            if rng.randrange(6) == 0 and config["requests"]:
                config["requests"][0]["max_tokens"] = rng.choice([0, 1, 200, 1 << 20, (1 << 31) - 1])
                told.append("max_tokens")
            if rng.randrange(6) == 0 and config["requests"]:
                config["requests"][0]["parts"] = rng.choice([[], [{"text": "a " * 20000}], [{"image": "x", "png": "AAAA"}], [[]], [7]])
                told.append("parts")
            db.execute("UPDATE run SET value = ? WHERE key = 'config'", (json.dumps(config),))
            if rng.randrange(2):
                Lies.forget_elements(db)
                told.append("no elements")
        db.close()
        return ", ".join(told)


def commands(file: Path, folder: Path, base: Path, window: bool) -> dict:
    name = str(file)
    all_of_them = {
        "diagnose": ["diagnose", name],
        "diagnose json": ["diagnose", name, "--format", "json"],
        "why": ["why", name],
        "why place": ["why", name, "0/0/0/scores.out[1,1]", "--format", "json"],
        "replay": ["replay", name],
        "replay at": ["replay", name, "--at", "0/0/1/o_proj.out[1,1]"],
        "diff": ["diff", name, str(base)],
        "export": ["export", name, "-o", str(folder / "exported"), "--force"],
        "trace": ["trace", name, "-o", str(folder / "trace.json"), "--force"],
    }
    if window:
        all_of_them["report"] = ["report", name, "-o", str(folder / "report.html"), "--force", "--no-counterfactuals"]
        all_of_them["gui csv"] = ["gui", name, "--csv", str(folder / "scales.csv"), "--view", "scales"]
        all_of_them["gui front"] = ["gui", name, "--screenshot", str(folder / "front.png")]
        all_of_them["gui tensor"] = ["gui", name, "--screenshot", str(folder / "tensor.png"), "--tab", "tensor"]
    return all_of_them


class Harness:
    def __init__(self, options):
        self.binary = os.path.abspath(options.nanscope)
        self.memory = int(options.memory * GIB)
        self.seconds = options.seconds
        self.asan = options.asan
        self.keep = Path(options.keep) if options.keep else None
        self.peak = 0
        self.slowest = 0.0
        self.codes = Counter()

    def limits(self):
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.asan:
            resource.setrlimit(resource.RLIMIT_DATA, (4 * GIB, 4 * GIB))

    def run(self, case: Case):
        folder = case.file.parent
        # Pictures and tables are written over files of their own.
        for old in ("scales.csv", "front.png", "tensor.png"):
            (folder / old).unlink(missing_ok=True)
        with open(folder / "err.txt", "w+b") as err:
            process = subprocess.Popen([self.binary, *case.words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                                       preexec_fn=self.limits, cwd=folder,
                                       env={**os.environ, "XDG_CONFIG_HOME": str(folder), "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=0"})
            usage, taken, late = self.wait(process)
            err.seek(0)
            said = err.read(1 << 16).decode(errors="replace")
        self.slowest = max(self.slowest, taken)
        self.codes[process.returncode] += 1
        self.peak = max(self.peak, usage)
        return self.judge(case, process.returncode, said, usage, late)

    def wait(self, process):
        """Memory, seconds, and whether these are too many: those of its CPUs, or of a clock where these are fewer, as
        other programs may run at the same time."""
        start = time.time()

        def seconds(usage):
            return min(time.time() - start, usage.ru_utime + usage.ru_stime)

        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                taken = seconds(usage)
                return usage.ru_maxrss << 10, taken, taken > self.seconds
            if time.time() > start + 12 * self.seconds:
                os.killpg(process.pid, signal.SIGKILL)
                _, _, usage = os.wait4(process.pid, 0)
                process.returncode = -9
                return usage.ru_maxrss << 10, seconds(usage), True
            time.sleep(0.002)

    def judge(self, case, rc, said, memory, late):
        last = said.strip().splitlines()[-1][:300] if said.strip() else ""
        if late:
            return Failure(case, f"not over after {self.seconds} s")
        if rc not in (0, 1, 2):
            place = next((line.strip() for line in said.splitlines() if "SUMMARY" in line), last)
            return Failure(case, f"ended with {rc}: {place}")
        if "internal error" in said or "AddressSanitizer" in said or "runtime error" in said:
            return Failure(case, last)
        if rc == 2 and said.count("\n") != 1:
            return Failure(case, f"{said.count(chr(10))} lines on standard error: {last}")
        if memory > self.memory and not self.asan:
            return Failure(case, f"took {memory >> 20} MiB")
        return None


def small(model, tokens):
    return SMALL.replace("{model}", model).replace("{tokens}", str(tokens))


def make_base(binary, folder: Path, scenario: str, name: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(scenario.replace("{name}", name))
    out = folder / f"{name}.nanscope"
    subprocess.run([binary, "run", str(file), "-o", str(out), "--capture", "all" if name != "hashes" else "none", "--trace"],
                   stdout=subprocess.DEVNULL, check=False)
    if not out.exists():
        sys.exit(f"cannot record {file}")
    return out


def bases(binary, folder: Path):
    yield make_base(binary, folder, small("", 2), "small")
    yield make_base(binary, folder, small("", 1), "hashes")
    yield make_base(binary, folder, small("experts = 4\nrecurrent_layers = [1]\nqk_norm = true", 1), "experts")


def add_options(parser):
    """Those of every harness that changes files."""
    parser.add_argument("nanscope")
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--asan", action="store_true", help="the binary has AddressSanitizer: its memory is not measured")
    parser.add_argument("--memory", type=float, default=1, help="GiB that a command may take")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", help="a folder for the files of failed cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--only", help="one kind: columns, lies, bytes, structure, configuration")
    parser.add_argument("--no-window", action="store_true", help="leave the window, its pictures and tables out")
    options = parser.parse_args()
    harness = Harness(options)
    work = Path(tempfile.mkdtemp(prefix="nanscope-mutate-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        failures, counts = run_all(harness, options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for failure in failures[:200]:
        print(f"FAILED {failure.case.command}: {failure.case.what}: {failure.why}")
    total = sum(counts.values())
    print(f"{total} cases ({', '.join(f'{kind} {n}' for kind, n in counts.items())}): {len(failures)} failed; "
          f"{harness.codes[2]} refused; slowest {harness.slowest:.1f} s, most memory {harness.peak >> 20} MiB")
    sys.exit(1 if failures else 0)


def run_all(harness, options, work: Path):
    originals = list(bases(harness.binary, work))
    kinds = {"columns": Columns, "lies": Lies, "bytes": Bytes, "structure": Structure, "configuration": Configuration}
    weights = {"columns": 8, "lies": 6, "bytes": 2, "structure": 1, "configuration": 2}
    if options.only:
        weights = {options.only: 1}
    mutators = {(kind, base): kinds[kind](base) for kind in weights for base in originals}
    counts = dict.fromkeys(weights, 0)
    failures = []
    per_file = len(commands(work, work, work, not options.no_window))
    files = -(-options.cases // per_file)

    def one_file(number):
        rng = random.Random(f"{options.seed}/{number}")
        kind = rng.choices(list(weights), list(weights.values()))[0]
        base = rng.choice(originals)
        folder = work / f"case{number}"
        folder.mkdir()
        file = folder / "run.nanscope"
        shutil.copy(base, file)
        try:
            what = f"#{number} {base.stem} {kind} " + mutators[kind, base].mutate(file, rng)
        except (sqlite3.Error, OverflowError, ValueError, KeyError, IndexError, TypeError):
            # SQLite itself refuses it.
            shutil.rmtree(folder, ignore_errors=True)
            return kind, 0, []
        found = []
        calls = commands(file, folder, base, not options.no_window)
        pristine = file.read_bytes()
        for command, words in calls.items():
            failure = harness.run(Case(file, what, command, words))
            if not failure and file.read_bytes() != pristine:
                failure = Failure(Case(file, what, command, words), "the recording was changed")
            if failure:
                found.append(failure)
        if found and harness.keep:
            harness.keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, harness.keep / f"{number}.nanscope")
        shutil.rmtree(folder, ignore_errors=True)
        return kind, len(calls), found

    with ThreadPoolExecutor(options.jobs) as pool:
        for kind, ran, found in pool.map(one_file, range(files)):
            counts[kind] += ran
            failures += found
            for failure in found:
                print(f"  {failure.case.command}: {failure.case.what}: {failure.why}", flush=True)
    return failures, counts


if __name__ == "__main__":
    main()
