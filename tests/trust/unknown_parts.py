"""Takes one part of a target away at a time and checks that nanscope never calls the rest clean.

    python3 tests/trust/unknown_parts.py build/nanscope [--every N] [--jobs N] [--dumps-alone | --flips]

The targets are dumps of transformers' models that are clean next to their checkpoints, recordings of small healthy and
faulty runs, and the dumps that `export` makes of these. Each tensor of a dump becomes absent (its file is removed),
unreadable (its file is cut short) and not understood (it has a name that no model has). Each column of each table of a
recording becomes absent (NULL) and not understood (a text or a number that the column never holds), each table loses its
rows, each stored tensor has one bit flipped, each setting is lost or changed. With --every N, one case of N is tried.
With --flips, one bit is flipped in each stored chunk of ten recordings of the library and of ten attached dumps, no more.
Exit code 1: a target whose part is gone is clean, one that is unreadable does not end with exit code 2, or what is left
of a healthy dump is accused.
"""

import argparse
import itertools
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = {"healthy-gemma2-f32": "gemma2"}
SCENARIO = """name = "{name}"
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
blocks = 16
{kv}
[attention]
{attention}
[[request]]
name = "first"
text = "Moons pull tides, tides turn wheels, wheels drive machines"
max_tokens = 3
[[request]]
name = "second"
text = "Moons pull tides, tides turn wheels, boats carry oil"
max_tokens = 2
[expect]
verdict = "{verdict}"
"""
E4M3 = 'format = "e4m3"\npolicy = "{}"'
RUNS = {
    "healthy-f32": {},
    "healthy-e4m3": {"kv": E4M3.format("per_request")},
    "poisoned": {"verdict": "fault", "kv": E4M3.format("per_request") + '\nmemory = "recycled"', "attention": 'mask = "multiply"'},
}

# Columns that say nothing about the values of the run: what a person wrote, where and when it ran, how long it took.
SAYS_NOTHING = {
    "requests.name", "requests.prompt", "kernels.id", "kernels.op", "kernels.name", "kernels.start_ns", "kernels.duration_ns",
    "kernels.details", "events.id", "events.fault", "events.tensor", "events.because", "events.summary", "events.evidence",
    "notes.id", "notes.tensor", "notes.text",
}


@dataclass
class Case:
    target: Path
    what: str
    must_fail: bool = False  # a part is unreadable: exit code 2
    healthy: bool = False  # what is left has no fault
    model: Path | None = None

    def verdict(self, nanscope: Path) -> tuple:
        """The verdict that `diagnose` writes, its exit code, and the judged and all outputs."""
        model = ["--model", self.model] if self.model else []
        ran = subprocess.run([nanscope, "diagnose", self.target, *model, "--format", "json"], capture_output=True, timeout=120)
        try:
            found = json.loads(ran.stdout)
        except ValueError:
            found = {"verdict": "error"}
        coverage = found.get("coverage") or {}
        return found["verdict"], ran.returncode, coverage.get("judged"), coverage.get("outputs")


def changed(base: Path, path: Path, statements: list) -> bool:
    """A copy of a recording after the statements; False where SQLite itself refuses each of them or nothing changed."""
    shutil.copy(base, path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA ignore_check_constraints = ON")
    before = database.total_changes
    for statement in statements:
        try:
            database.execute(*statement)
        except sqlite3.Error:
            pass
    done = database.total_changes > before
    database.commit()
    database.close()
    return done


def without_constraints(base: Path, path: Path):
    """A copy in which every column may be NULL or of another type: a damaged file obeys no constraint."""
    shutil.copy(base, path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA writable_schema = ON")
    rows = database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL").fetchall()
    for name, sql in rows:
        loose = sql.replace(" NOT NULL", "").replace(" STRICT, WITHOUT ROWID", " WITHOUT ROWID").replace(" STRICT", "")
        database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (loose, name))
    database.commit()
    database.close()


def flip(chunk: int, data: bytes) -> tuple:
    """The statement that flips one bit in the middle of a chunk."""
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0x10
    return "UPDATE chunks SET data = ? WHERE id = ?", (bytes(flipped), chunk)


def recording_changes(base: Path, loose: Path):
    """(the file to change, the statements, what they do, whether a part becomes unreadable)"""
    database = sqlite3.connect(base)
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info({table})")]
    columns = [(table, column) for table, column in columns if f"{table}.{column}" not in SAYS_NOTHING]
    filled = {table for table in tables if database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0}
    settings = [row[0] for row in database.execute("SELECT key FROM run")]
    chunks = database.execute("SELECT id, data FROM chunks").fetchall()
    database.close()
    for source, kind in ((base, ""), (loose, ", where the schema allows it")):
        for table, column in columns:
            for value in (None, "not a value", -77) if table in filled else ():
                yield source, (f"UPDATE OR IGNORE {table} SET {column} = ?", (value,)), f"{table}.{column} = {value!r}{kind}", False
    for table in filled & {table for table, _ in columns}:
        yield base, (f"DELETE FROM {table}",), f"no rows in {table}", False
        yield base, (f"DROP TABLE {table}",), f"no table {table}", True
    for key in settings:
        yield base, ("DELETE FROM run WHERE key = ?", (key,)), f"no setting {key}", False
        yield base, ("UPDATE run SET value = 'not a value' WHERE key = ?", (key,)), f"setting {key} is not a value", False
    for chunk, data in chunks:
        yield base, flip(chunk, data), f"one bit of chunk {chunk}", True


def recording_cases(base: Path, folder: Path, every: int):
    loose = folder / "loose.nanscope"
    without_constraints(base, loose)
    for number, (source, statement, what, must_fail) in enumerate(recording_changes(base, loose)):
        path = folder / f"case-{number}.nanscope"
        if number % every == 0 and changed(source, path, [statement]):
            yield Case(path, what, must_fail)


def split(dump: Path):
    """Gives each tensor of a dump a file of its own, so that one can be lost without the others."""
    for file in sorted(dump.rglob("*.safetensors")):
        raw = file.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        file.unlink()
        for number, (name, tensor) in enumerate(json.loads(raw[8 : 8 + size]).items()):
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                write_tensor(file.with_name(f"{number:03}.safetensors"), name, tensor, raw[8 + size + begin : 8 + size + end])


def write_tensor(file: Path, name: str, tensor: dict, data: bytes):
    header = json.dumps({name: {**tensor, "data_offsets": [0, len(data)]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + data)


def dump_cases(base: Path, folder: Path, every: int, healthy: bool, model: Path | None = None):
    for number, file in enumerate(sorted(base.rglob("*.safetensors"))):
        if number % every != 0:
            continue
        raw = file.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        ((name, tensor),) = json.loads(raw[8 : 8 + size]).items()
        what = f"{file.parent.relative_to(base)}/{name}"
        # Nothing says that a step should have one of these: the module that reads it was given the same.
        spare = name in ("input_ids", "past_length") or name.endswith("embed_tokens.input") or "rotary_emb.input" in name
        for way in ("removed", "cut short", "named zq81_quux")[1 if spare else 0:]:
            work = folder / f"dump-{number}-{way.split()[0]}"
            shutil.copytree(base, work)
            target = work / file.relative_to(base)
            target.unlink()
            if way == "cut short":
                target.write_bytes(raw[:-3])
            elif way != "removed":
                write_tensor(target, "zq81_quux", tensor, raw[8 + size :])
            yield Case(work, f"{what} {way}", way == "cut short", healthy, model)


def check(nanscope: Path, cases, jobs: int, title: str) -> int:
    """Diagnoses each case, prints what it found in numbers, and returns how many broke the promise."""
    verdicts, broken = Counter(), []

    def one(case: Case):
        verdict, code, judged, outputs = case.verdict(nanscope)
        shutil.rmtree(case.target) if case.target.is_dir() else case.target.unlink()
        verdicts[verdict] += 1
        if verdict == "clean" or (case.must_fail and code != 2) or (case.healthy and verdict == "fault"):
            broken.append(f"{case.what}: {verdict}, exit code {code}, {judged} of {outputs} outputs judged")

    cases = iter(cases)
    with ThreadPoolExecutor(jobs) as pool:
        while some := list(itertools.islice(cases, 4 * jobs)):  # each is a copy of its target
            list(pool.map(one, some))
    print(f"{title}: {sum(verdicts.values())} cases:", ", ".join(f"{count} {name}" for name, count in verdicts.most_common()), flush=True)
    for line in broken:
        print("  " + line)
    return len(broken)


def made_by(nanscope: Path, *words):
    ran = subprocess.run([nanscope, *words], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"nanscope {' '.join(map(str, words))}: exit code {ran.returncode}: {ran.stderr or ran.stdout}")


def check_golden(nanscope: Path, folder: Path, every: int, jobs: int) -> int:
    """Dumps that are clean next to their checkpoints."""
    failed = 0
    for name, checkpoint in GOLDEN.items():
        dump = folder / name
        shutil.copytree(HERE.parent / "golden" / "verify" / name / "dump", dump)
        split(dump)
        model = HERE.parent / "unit" / "instrument" / "model" / "checkpoints" / checkpoint
        whole = Case(dump, "whole", model=model).verdict(nanscope)
        if whole[0] != "clean":
            print(f"{name} is {whole} while it is whole")
            failed += 1
        failed += check(nanscope, dump_cases(dump, folder, every, True, model), jobs, f"{name}, next to its checkpoint")
    return failed


def check_run(nanscope: Path, name: str, folder: Path, every: int, jobs: int) -> int:
    scenario = folder / f"{name}.toml"
    settings = {"name": name, "verdict": "clean", "model": "", "kv": "", "attention": ""} | RUNS[name]
    scenario.write_text(SCENARIO.format(**settings))
    base, dump = folder / "base.nanscope", folder / "export"
    made_by(nanscope, "run", scenario, "--capture", "all", "-o", base)
    made_by(nanscope, "export", base, "-o", dump)
    split(dump)
    return (check(nanscope, recording_cases(base, folder, every), jobs, f"{name}, recording")
            + check(nanscope, dump_cases(dump, folder, every, settings["verdict"] == "clean"), jobs, f"{name}, dump"))


FLIPPED = ["kv-scale-lock", "onepass-variance", "masked-v-poison", "mlp-overflow-f16", "neighbour-sets-scale", "null-block-poison",
           "residual-overflow-f16", "weight-bit-flip", "legitimate-token-0", "empty-softmax-row"]


def flips(base: Path, folder: Path, every: int):
    database = sqlite3.connect(base)
    chunks = database.execute("SELECT id, data FROM chunks").fetchall()
    database.close()
    for number, (chunk, data) in enumerate(chunks):
        path = folder / f"flip-{number}.nanscope"
        if number % every == 0 and changed(base, path, [flip(chunk, data)]):
            yield Case(path, f"one bit of chunk {chunk}", True)


def check_flips(nanscope: Path, folder: Path, every: int, jobs: int) -> int:
    failed, attached = 0, 0
    for name in FLIPPED:
        base = folder / f"{name}.nanscope"
        made_by(nanscope, "run", name, "-o", base)
        failed += check(nanscope, flips(base, folder, every), jobs, f"{name}, recording")
        base.unlink()
    for dump in sorted((HERE.parent / "golden").glob("verify/*/dump")) + sorted((HERE.parent / "golden" / "dumps").iterdir()):
        base = folder / "attached.nanscope"
        if attached == 10 or subprocess.run([nanscope, "attach", dump, "-o", base, "--force"], capture_output=True).returncode != 0:
            continue
        attached += 1
        failed += check(nanscope, flips(base, folder, every), jobs, f"{dump.relative_to(HERE.parent)}, attached")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nanscope", type=Path)
    parser.add_argument("--every", type=int, default=1, help="try one case of so many")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dumps-alone", action="store_true", help="the dumps of transformers' models alone")
    parser.add_argument("--flips", action="store_true", help="one bit in each stored chunk of 20 targets, no more")
    arguments = parser.parse_args()
    nanscope = arguments.nanscope.resolve()
    with tempfile.TemporaryDirectory() as made:
        if arguments.flips:
            failed = check_flips(nanscope, Path(made), arguments.every, arguments.jobs)
            print(f"{failed} promises broken")
            return 1 if failed else 0
        failed = check_golden(nanscope, Path(made), arguments.every, arguments.jobs)
        for name in [] if arguments.dumps_alone else RUNS:
            folder = Path(made) / name
            folder.mkdir()
            failed += check_run(nanscope, name, folder, arguments.every, arguments.jobs)
    print(f"{failed} promises broken")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
