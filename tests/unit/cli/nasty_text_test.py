"""What files say is data: whatever stands in a text of a recording, a dump or a scenario, no command writes it raw.

Usage: nasty_text_test.py NANSCOPE SCENARIOS [--all | --slice N]: each N-th change alone. One nasty text is put into each field in turn; fields of recordings are
those of the file's own schema, so that a new column is tried without a change here. Every command and format must then end
with a known exit code and write valid UTF-8 (JSON, XML, HTML), without controls, bidirectional overrides, line breaks within a
field, markup or formulas, and no error of more than one line of a bounded length.
"""
import concurrent.futures
import csv
import io
import json
import os
import pathlib
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
import zipfile

NANSCOPE, SCENARIOS = map(os.path.abspath, sys.argv[1:3])
ALL = "--all" in sys.argv
SLICE = int(sys.argv[sys.argv.index("--slice") + 1]) if "--slice" in sys.argv else 1
WORKERS = os.cpu_count() or 1

# What a terminal, a browser, a spreadsheet or a reader would obey or not see.
UNSAFE = ("".join(map(chr, [*range(0, 0x20), 0x7F, *range(0x80, 0xA0)]))
          + "\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
          + "\u2060\u2066\u2067\u2068\u2069\ufeff\ufff9\U000e0001\ue000")
MARK = "INJECTED"
MARKUP = f"<img src=x onerror=alert(1)>![i](http://evil/x.png)|`</code>*_[{MARK}](http://evil)&lt;script&gt;"
FORMULA = "=cmd|' /C calc'!A0"
# Valid UTF-8, and then what is not: an overlong form, half a pair of surrogates, a lone byte.
VALID = FORMULA + "\x1b]0;owned\x07\x1b[2J\x1b[31m" + UNSAFE.replace("\0", "") + f"\r\n{MARK}\n{MARK}" + MARKUP
NASTY = VALID.encode() + b"\xc0\xaf\xed\xa0\x80\xff\x00tail"
LONG_LINE = 4000
ERROR_LINE = 450
CONTROL = re.compile("[" + re.escape(UNSAFE.replace("\n", "")) + "]")


def run(*arguments, cwd=None):
    return subprocess.run([NANSCOPE, *arguments], cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL, timeout=120,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"})


def text_problems(text, what):
    """Of any output: nothing raw."""
    found = CONTROL.search(text.replace("\n", ""))
    if found:
        yield f"{what}: {found.group()!r} near {text[max(0, found.start() - 40):found.start() + 20]!r}"
    if any(line.strip() == MARK for line in text.split("\n")):
        yield f"{what}: a line break of a field"


def problems(arguments, done, kind):
    what = " ".join(str(one)[:60] for one in arguments)
    if done.returncode not in (0, 1, 2, 3):
        yield f"{what}: exit code {done.returncode}: {done.stderr[-300:]!r}"
    try:
        out, err = done.stdout.decode(), done.stderr.decode()
    except UnicodeDecodeError as error:
        yield f"{what}: no UTF-8: {error}"
        return
    yield from text_problems(err, what + " (standard error)")
    if "internal error" in err:
        yield f"{what}: {err[:300]}"
    for line in err.splitlines():
        if len(line) > ERROR_LINE:
            yield f"{what}: an error of {len(line)} characters"
    if out:
        yield from document_problems(out, what, kind)


def document_problems(out, what, kind):
    if kind != "csv":
        yield from text_problems(out, what)
    if kind in ("text", "markdown") and any(len(line) > LONG_LINE for line in out.split("\n")):
        yield f"{what}: a line of {max(map(len, out.split(chr(10))))} characters"
    try:
        if kind == "json":
            json.loads(out)
        elif kind == "xml":
            xml.etree.ElementTree.fromstring(out)
        elif kind == "csv":
            yield from csv_problems(out, what)
    except (ValueError, xml.etree.ElementTree.ParseError) as error:
        yield f"{what}: no valid {kind}: {error}"
    if kind in ("markdown", "html") and ("<img src=x" in out or "<script" in out):
        yield f"{what}: HTML of a field"
    if kind == "markdown" and re.search(r"(?<!\\)\]\(http|(?<!\\)!\[i|\|`</|://evil", out):
        yield f"{what}: markup of a field"


def csv_problems(out, what):
    for row in csv.reader(io.StringIO(out)):
        for cell in row:
            yield from text_problems(cell, what)
            if cell.lstrip()[:1] in tuple("=@"):
                yield f"{what}: a formula: {cell[:40]!r}"


def looks(target, folder, name, recording=True, page_too=True):
    """Every command that reads a target, with what kind of output it writes, and files that it leaves."""
    page, trace, other = (os.path.join(folder, f"{name}.{end}") for end in ("html", "trace.json", "nanscope"))
    commands = [(["diagnose", target, "--format", form], kind) for form, kind in
                (("text", "text"), ("markdown", "markdown"), ("json", "json"), ("junit", "xml"), ("sarif", "json"))]
    commands += [(["diagnose", target, "--brief"], "text"),
                 (["why", target], "text"), (["why", target, "--format", "json"], "json"),
                 (["diff", target, target, "-n", "3"], "text"), (["diff", target, target, "--format", "json"], "json")]
    policies = ["policies", target, "--no-answers", "--no-claims", "--policy", "kivi-4", "--queries", "1"]
    commands += [([*policies, "--format", form], form) for form in ("text", "csv", *(["json"] if ALL else []))]
    if page_too:
        commands += [(["report", target, "-o", page, "--force", *([] if ALL else ["--no-counterfactuals"])], "text")]
    if recording:
        commands += [(["replay", target], "text"), (["replay", target, "--format", "json"], "json"),
                     (["trace", target, "-o", trace, "--force"], "text")]
    else:
        commands += [(["attach", target, "-o", other, "--force"], "text")]
    found = []
    for arguments, kind in commands:
        found += problems(arguments, run(*arguments), kind)
    for path, kind in ((page, "html"), (trace, "json")):
        if os.path.exists(path):
            content = pathlib.Path(path).read_bytes()
            try:
                # Pictures are text without controls; kernels' names may hold line breaks only as escapes.
                found += document_problems(content.decode(), f"{arguments[0]} {os.path.basename(path)}", kind)
            except UnicodeDecodeError as error:
                found.append(f"{path}: no UTF-8: {error}")
            os.remove(path)
    if not recording and os.path.exists(other):
        found += looks(other, folder, name + "-attached", page_too=ALL)
        os.remove(other)
    return found


def safetensors(tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, shape in tensors:
        count = 1
        for extent in shape:
            count *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *[float("nan") if i == 3 else 0.5 * i for i in range(count)])
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class NastyText(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="nanscope-nasty-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.recordings = []
        for scenario in ("prefix-poison", "calibrated-on-stale-state") if ALL else ("prefix-poison",):
            path = os.path.join(cls.folder, scenario + ".nanscope")
            done = run("run", os.path.join(SCENARIOS, scenario + ".toml"), "-o", path, "--trace")
            assert done.returncode == 0, done.stderr
            cls.recordings.append(path)

    def together(self, jobs):
        """Runs jobs that give lists of problems, and tells them all."""
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            found = [problem for problems in pool.map(lambda job: job(), jobs[::SLICE]) for problem in problems]
        self.assertEqual(found, [], "\n" + "\n".join(found[:30]))

    @staticmethod
    def text_columns(path):
        with sqlite3.connect(path) as base:
            tables = [name for name, in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                for _, column, kind, _, _, key in base.execute(f"PRAGMA table_info('{table}')"):
                    if kind in ("TEXT", "ANY", ""):
                        yield table, column, key
            # `run` is a table of keys and values: a field each.
            for key, in base.execute("SELECT key FROM run"):
                yield "run", key, None

    def changed(self, path, name, statements):
        target = os.path.join(self.folder, name + ".nanscope")
        shutil.copyfile(path, target)
        base = sqlite3.connect(target)
        base.text_factory = bytes
        try:
            for sql, values in statements:
                base.execute(sql, values)
            base.commit()
        except sqlite3.Error:
            return None
        finally:
            base.close()
        return target

    def look_at_changed(self, path, name, statements):
        target = self.changed(path, name, statements)
        if target is None:
            return []
        try:
            # A field that holds nothing else is mostly refused: its page, whose pictures take their time, tells nothing.
            return [f"{name}: {problem}" for problem in looks(target, self.folder, name, page_too=ALL or not name.endswith("-0"))]
        finally:
            os.remove(target)

    def test_every_column_of_a_recording(self):
        jobs = []
        for r, path in enumerate(self.recordings):
            for table, column, key in self.text_columns(path):
                where = ""
                if table == "run" and key is None:
                    where, column, name = f" WHERE key = '{column}'", "value", f"{r}-run.{column}"
                elif table == "run":
                    continue
                else:
                    name = f"{r}-{table}.{column}"
                for v, value in enumerate(("CAST(? AS TEXT)", f"CAST(? || {column} AS TEXT)")):
                    sql = f"UPDATE {table} SET {column} = {value}{where}"
                    jobs.append(lambda p=path, n=f"{name}-{v}", s=sql: self.look_at_changed(p, n, [(s, (NASTY,))]))
        self.assertGreater(len(jobs), 60)
        self.together(jobs)

    def test_every_text_in_the_json_of_a_recording(self):
        """Columns that hold JSON: each of its texts, which the reader then takes for what it expects."""
        jobs = []
        for r, path in enumerate(self.recordings):
            for table, column, key in list(self.text_columns(path)):
                name = column
                if table == "run":
                    if key is not None:
                        continue
                    query = f"SELECT rowid_, value FROM (SELECT key AS rowid_, value FROM run WHERE key = '{column}')"
                    update = "UPDATE run SET value = ? WHERE key = ?"
                elif key:
                    continue
                else:
                    query = f"SELECT rowid, {column} FROM {table}"
                    update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
                with sqlite3.connect(path) as base:
                    try:
                        rows = base.execute(query).fetchall()
                    except sqlite3.OperationalError:
                        continue
                statements = []
                for row, text in rows[:200]:
                    try:
                        value = json.loads(text)
                    except (TypeError, ValueError):
                        continue
                    if isinstance(value, (dict, list)) and value:
                        statements.append((update, (json.dumps(with_texts(value)), row)))
                if statements:
                    jobs.append(lambda p=path, n=f"{r}-{table}.{name}-json", s=statements: self.look_at_changed(p, n, s))
        self.assertGreater(len(jobs), 3)
        self.together(jobs)

    def test_names_of_a_dump(self):
        jobs = []
        layer = "model.layers.0.{}.output"
        for n, name in enumerate((VALID, VALID + "\0" + ".weight", layer.format("mlp") + VALID, layer.format(VALID))):
            for metadata in (None, {VALID: VALID}):
                path = os.path.join(self.folder, f"names{n}{bool(metadata)}.safetensors")
                pathlib.Path(path).write_bytes(safetensors([(name, [2, 8]), ("model.layers.0.mlp.input", [2, 8])], metadata))
                jobs.append(lambda p=path, n=n: looks(p, self.folder, os.path.basename(p) + "-out", recording=False))
        member = os.path.join(self.folder, "members.npz")
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n".encode()
        npy = b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + struct.pack("<8f", *[float("nan")] * 8)
        with zipfile.ZipFile(member, "w") as archive:
            archive.writestr(VALID.replace("\r\n", "").replace("/", "") + ".npy", npy)
        jobs.append(lambda: looks(member, self.folder, "npz", recording=False))
        for n, descr in enumerate((VALID.replace("'", ""), "<f4")):
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (2, 4), 'x{n}': '{MARK}'}}\n".encode()
            path = os.path.join(self.folder, f"header{n}.npy")
            pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(32))
            jobs.append(lambda p=path: looks(p, self.folder, os.path.basename(p), recording=False))
        self.together(jobs)

    def test_names_of_files_and_folders(self):
        whole = NASTY.replace(b"\0", b"").replace(b"/", b"")
        names = [b"n" + whole[i:i + 120] for i in range(0, len(whole), 100)]
        names += [b"\xff\xfe", "\u202egpj.exe".encode(), b"a\nINJECTED\nx", b"=1+1"]
        jobs = []
        for n, raw in enumerate(names):
            below = os.fsencode(os.path.join(self.folder, f"files{n}"))
            os.makedirs(os.path.join(below, raw))
            for path in (os.path.join(below, raw, b"x" + raw + b".safetensors"), os.path.join(below, raw + b"1.safetensors")):
                with open(path, "wb") as file:
                    file.write(safetensors([("model.layers.0.mlp.output", [2, 8])]))
            for ending in (b".npy", b".json", b".pt", b".bin"):
                with open(os.path.join(below, raw + ending), "wb") as file:
                    file.write(b"damaged")
            os.mkfifo(os.path.join(below, raw + b".pipe"))
            os.symlink(raw, os.path.join(below, raw + b".link"))
            for k, target in enumerate((below, os.path.join(below, raw), os.path.join(below, raw + b"1.safetensors"),
                                        os.path.join(below, raw + b".pt"))):
                jobs.append(lambda t=target, n=n, k=k: looks(os.fsdecode(t), self.folder, f"files{n}-{k}", recording=False))
        self.together(jobs)

    def test_manifests_and_overrides(self):
        good = {"name": "model.layers.0.mlp.output", "file": "a.bin", "dtype": "f32", "shape": [2, 4]}
        jobs = []
        for n, key in enumerate((*good, "order", "extra", "producer")):
            folder = os.path.join(self.folder, f"manifest{n}")
            os.makedirs(folder)
            pathlib.Path(folder, "a.bin").write_bytes(bytes(32))
            whole = {"tensors": [{**good, key: VALID}], VALID: VALID}
            pathlib.Path(folder, "manifest.json").write_text(json.dumps(whole))
            jobs.append(lambda f=folder: looks(f, self.folder, os.path.basename(f) + "-out", recording=False))
        quoted = toml_text(VALID)
        overrides = [f"[[name]]\npattern = {quoted}\nrole = \"x\"", f"[[name]]\npattern = \"mlp\"\nrole = {quoted}",
                     f"[[name]]\npattern = \"mlp\"\nop = {quoted}", f"order = [{quoted}]", f"order = {quoted}",
                     f"[[format]]\npattern = \"mlp\"\nformat = {quoted}", f"{quoted} = 1", f"x = {quoted}",
                     f"[[scale]]\npattern = \"mlp\"\ntensor = {quoted}\nvalue = 2.0", f"[[step]]\npattern = {quoted}"]
        for n, text in enumerate(overrides):
            folder = os.path.join(self.folder, f"overrides{n}")
            os.makedirs(folder)
            pathlib.Path(folder, "x.safetensors").write_bytes(safetensors([("model.layers.0.mlp.output", [2, 8])]))
            pathlib.Path(folder, "nanscope.toml").write_text(text)
            jobs.append(lambda f=folder: looks(f, self.folder, os.path.basename(f) + "-out", recording=False))
        self.together(jobs)

    def test_scenarios(self):
        base = {"name": '"evil"', "title": '"t"', "text": '"t"', "threads": '["t"]'}
        quoted = toml_text(VALID)
        tail = {"request.text": '"a"', "request.name": '"n"', "expect.verdict": '"clean"', "expect.chain": '["x"]',
                "expect.class": '"x"', "expect.requests_nan": '["x"]', "expect.not_reached": '["x"]', "kv.format": '"bf16"',
                "model.weights": '"random"', "engine.device": '"cpu"', "request.image": '"x.png"'}
        jobs = []
        for n, field in enumerate((*base, *tail, "expect.places")):
            head = {**base, **({field: f"[{quoted}]" if field == "threads" else quoted} if field in base else {})}
            parts = {"request": ['text = "a"', 'max_tokens = 1'], "expect": ['verdict = "clean"'], "kv": [], "model": [],
                     "engine": []}
            if field in tail:
                table, key = field.split(".")
                value = f"[{quoted}]" if tail[field].startswith("[") else quoted
                parts[table] = [line for line in parts[table] if not line.startswith(key + " ")] + [f"{key} = {value}"]
            text = "\n".join(f"{key} = {value}" for key, value in head.items())
            for table, lines in parts.items():
                if lines:
                    text += f"\n[[{table}]]\n" if table == "request" else f"\n[{table}]\n"
                    text += "\n".join(lines)
            if field == "expect.places":
                text += f"\n[expect.places]\n{quoted} = {quoted}"
            folder = os.path.join(self.folder, f"scenario{n}")
            os.makedirs(folder)
            file = os.path.join(folder, "evil.toml")
            pathlib.Path(file).write_text(text)
            jobs.append(lambda f=file, d=folder, k=field: [one for one in self.look_at_scenario(f, d)
                                                           if k != "text" or "a line break of a field" not in one])  # of lines
        self.together(jobs)

    @staticmethod
    def look_at_scenario(file, folder):
        recording = os.path.join(folder, "evil.nanscope")
        commands = [(["scenarios", file], "text"), (["scenarios", file, "--format", "json"], "json"),
                    (["scenarios", folder], "text"), (["run", folder], "text"), (["run", folder, "--format", "markdown"], "markdown")]
        commands += [(["run", file, "-o", recording, "--force", "--format", form], kind) for form, kind in
                     (("text", "text"), ("json", "json"), ("junit", "xml"), ("markdown", "markdown"))]
        found = []
        for arguments, kind in commands:
            found += [f"{os.path.basename(folder)}: {one}" for one in problems(arguments, run(*arguments, cwd=folder), kind)]
        if os.path.exists(recording):
            found += looks(recording, folder, "evil-out")
        return found

    def test_arguments(self):
        recording = self.recordings[0]
        word = VALID.replace("\0", "")
        baseline = os.path.join(self.folder, "baseline.json")
        document = json.loads(run("diagnose", recording, "--format", "json").stdout)
        pathlib.Path(baseline).write_text(json.dumps(with_texts(document)))
        jobs = [lambda a=arguments, k=kind: list(problems(a, run(*a), k)) for arguments, kind in (
            (["bits", word], "text"), (["bits", "1", "-f", word], "text"), (["bits", "--table", word], "text"), ([word], "text"),
            (["diagnose", word], "text"), (["diagnose", recording, "--fail-on", word], "text"),
            (["diagnose", recording, "--format", word], "text"), (["why", recording, word], "text"),
            (["diagnose", recording, "--baseline", baseline], "text"), (["diagnose", recording, "--baseline", word], "text"),
            (["replay", recording, "--at", word], "text"), (["replay", recording, "--set", word], "text"),
            (["replay", recording, "--set", "kv.format=" + word], "text"), (["replay", recording, "--device", word], "text"),
            (["run", word], "text"), (["scenarios", word], "text"), (["run", "prefix-poison", "--capture", word], "text"),
            (["diff", recording, word], "text"), (["report", recording, "-o", "/nonexistent/" + word], "text"),
            (["trace", recording, "-o", "/nonexistent/" + word], "text"), (["attach", word], "text"),
            (["policies", word], "text"), (["policies", recording, "--policy", word], "text"),
            (["policies", recording, "--k", word], "text"), (["policies", recording, "--model", word], "text"),
            (["quantize", word, "-o", "/nonexistent/x", "--to", "fp8"], "text"), (["inspect", word], "text"),
            (["train", word], "text"))]
        self.together(jobs)

    def test_texts_of_megabytes_stand_in_no_line(self):
        long = "model.layers.0." + "x" * 3_000_000
        path = os.path.join(self.folder, "long.safetensors")
        pathlib.Path(path).write_bytes(safetensors([(long, [2, 8])]))
        jobs = [lambda: looks(path, self.folder, "long-out", recording=False)]
        for n, text in enumerate((f"order = [\"{'y' * 60000}\"]", f"[[name]]\npattern = \"{'(' * 60000}\"",
                                  f"[[name]]\npattern = \"{'z' * 3_000_000}\"\nrole = \"x\"", "k" * 3_000_000 + " = 1")):
            folder = os.path.join(self.folder, f"long{n}")
            os.makedirs(folder)
            pathlib.Path(folder, "x.safetensors").write_bytes(safetensors([("model.layers.0.mlp.output", [2, 8])]))
            pathlib.Path(folder, "nanscope.toml").write_text(text)
            jobs.append(lambda f=folder: looks(f, self.folder, os.path.basename(f) + "-out", recording=False))
        for column in ("requests.name", "requests.output_text", "ops.name", "tensors.role", "run.value"):
            table, name = column.split(".")
            where = " WHERE key = 'device'" if table == "run" else ""
            sql = f"UPDATE {table} SET {name} = ?{where}"
            jobs.append(lambda s=sql, c=column: self.look_at_changed(self.recordings[0], "long-" + c, [(s, ("n" * 300_000,))]))
        self.together(jobs)

    def test_tables_of_the_window(self):
        """As CSV, where this build has a window that can be drawn without a screen."""
        probe = os.path.join(self.folder, "probe.csv")
        if run("gui", self.recordings[0], "--csv", probe, "--view", "front").returncode != 0:
            self.skipTest("no window without a screen")
        views = ("scales", "requests", "kernels")
        if ALL:
            views += ("front", "tensor", "cascade", "why", "kv", "bits")
        jobs = []
        for table, column, key in self.text_columns(self.recordings[0]):
            if table not in ("run", "progress") and not (key and table == "run"):
                jobs.append(lambda t=table, c=column: self.look_at_tables(t, c, views))
        self.together(jobs)

    def look_at_tables(self, table, column, views):
        sql = f"UPDATE {table} SET {column} = CAST(? AS TEXT)"
        name = f"csv-{table}.{column}"
        target = self.changed(self.recordings[0], name, [(sql, (NASTY,))])
        found = []
        for view in views if target else ():
            out = os.path.join(self.folder, f"{name}-{view}.csv")
            arguments = ["gui", target, "--csv", out, "--view", view]
            found += [f"{name}: {one}" for one in problems(arguments, run(*arguments), "text")]
            if os.path.exists(out):
                found += document_problems(pathlib.Path(out).read_bytes().decode(), f"{name} {view}", "csv")
        return found


def toml_text(text):
    """TOML knows no pairs of surrogates."""
    return '"' + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'


def with_texts(value):
    """The same JSON with each text nasty, but for keys."""
    if isinstance(value, dict):
        return {key: with_texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [with_texts(one) for one in value]
    return VALID if isinstance(value, str) else value


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + [one for one in sys.argv[3:] if one not in ("--all", "--slice", str(SLICE))])
