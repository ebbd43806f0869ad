"""What people type wrong: each mistake gets one line that helps, its exit code, and loses nothing.

Usage: mistakes_test.py NANSCOPE SCENARIOS. A row of the table is a command, its exit code and a part of the line.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import shlex
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

NANSCOPE, SCENARIOS = map(os.path.abspath, sys.argv[1:3])
WORKERS = os.cpu_count() or 1
LONGEST = 400  # characters of an error, see core/text/safe_text.h

SMALL = """name = "small"
[model]
weights = "random"
layers = 1
width = 32
heads = 1
kv_heads = 1
head_dim = 32
mlp_width = 32
[[request]]
text = "Moons pull tides"
max_tokens = 2
[expect]
verdict = "clean"
"""

# The folder holds small.toml and its recording small.nanscope, a dump and its recording attached.nanscope, a folder of
# scenarios, one of recordings, an empty one, one that nobody may write, note.txt, and a recording that is held locked.
MISTAKES = [
    # Commands and options.
    ("", 2, "give a command (try nanscope --help)"),
    ("daignose small.nanscope", 2, "unknown command 'daignose'; did you mean 'diagnose'?"),
    ("Run small.toml", 2, "unknown command 'Run'; did you mean 'run'?"),
    ("nonsense", 2, "unknown command 'nonsense' (try nanscope --help)"),
    ("help daignose", 2, "unknown command 'daignose'; did you mean 'diagnose'?"),
    ("help diagnose run", 2, "unexpected 'run': help takes no more arguments"),
    ("small.nanscope", 2, "unknown command 'small.nanscope'; did you mean 'nanscope diagnose small.nanscope'?"),
    ("dump", 2, "unknown command 'dump'; did you mean 'nanscope diagnose dump'?"),
    ("dump --brief", 2, "did you mean 'nanscope diagnose dump'?"),
    ("note.txt", 2, "did you mean 'nanscope diagnose note.txt'?"),
    ("small.toml", 2, "did you mean 'nanscope run small.toml'?"),
    ("suite", 2, "did you mean 'nanscope run suite'?"),
    ("kv-scale-lock", 2, "did you mean 'nanscope run kv-scale-lock'?"),
    ("--halp", 2, "nanscope has no option --halp; did you mean '--help'?"),
    ("diagnose small.nanscope --counterfactual", 2, "did you mean '--counterfactuals'?"),
    ("diagnose small.nanscope --breif", 2, "did you mean '--brief'?"),
    ("diagnose small.nanscope --fail_on=saturation", 2, "did you mean '--fail-on'?"),
    ("run small.toml --output-file x", 2, "did you mean '--output'?"),
    ("run wide.toml -o wide.nanscope", 2, "GiB of memory, more than the 2.0 GiB of --replay-memory"),
    ("run small.toml -o none.nanscope --replay-work 0", 2, "more than the 0 of --replay-work"),
    ("policies wide.toml", 2, "GiB of memory, more than the 2.0 GiB of --replay-memory"),
    ("causality wide.toml", 2, "GiB of memory, more than the 2.0 GiB of --replay-memory"),
    ("causality small.toml --replay-work 0", 2, "more than the 0 of --replay-work"),
    ("quantize checkpoint --to fp8 --calibrate note.txt -o quantized", 2, "--calibrate: checkpoint/tokenizer.json"),
    ("bits 430 --formt json", 2, "did you mean '--format'?"),
    ("replay small.nanscope kv.format=bf16", 2, "did you mean '--set kv.format=bf16'?"),
    ("diff small.nanscope", 2, "B is required (try nanscope diff --help)"),
    ("diff small.nanscope dump small.toml", 2, "unexpected 'small.toml': diff takes no more arguments"),
    ("diagnose", 2, "TARGET is required"),
    ("export small.nanscope", 2, "--output is required"),
    ("export -o x", 2, "needs a recording, or --reference-model"),
    ("export small.nanscope -o x --set kv.format=f32", 2, "--set is for --reference-model"),
    ("export small.nanscope -o x --reference-model", 2, "not both"),
    ("export --reference-model -o x --set model.window=4", 2, "model.window=4 has no place in the config.json"),
    ("export --reference-model -o dump", 2, "dump: is not empty"),
    ("replay small.nanscope -o x.nanscope", 2, "--output requires --set"),
    ("run small.toml --threads -3", 2, "--threads: Value -3 not in range "),
    ("run small.toml --jobs many", 2, "--jobs"),
    ("diagnose small.nanscope --format jsn", 2, "did you mean 'json'?"),
    ("diagnose small.nanscope --format yaml", 2, "'yaml' is not one of text, markdown, json, junit, sarif"),
    ("diagnose small.nanscope --brief --format json", 2, "--brief is for --format text"),
    ("run small.toml --brief --format junit", 2, "--brief is for --format text"),
    ("diagnose small.nanscope --brief --counterfactuals", 2, "leave one of the two out"),
    ("diagnose small.nanscope --fail-on weight-corupption", 2, "did you mean 'weight-corruption'?"),
    ("diagnose small.nanscope --baseline nope.json", 2, "nope.json"),
    # Names that are not there, or nearly.
    ("run KV-SCALE-LOCK", 2, "did you mean 'kv-scale-lock'?"),
    ("run kv-scale-lok", 2, "did you mean 'kv-scale-lock'?"),
    ("run kv_scale_lock", 2, "did you mean 'kv-scale-lock'?"),
    ("run absent.toml", 2, "absent.toml: no such file or folder"),
    ("run smal.toml", 2, "did you mean 'small.toml'?"),
    ("run ./absent", 2, "./absent: no such file or folder"),
    ("scenarios KV-Scale-Lock", 2, "did you mean 'kv-scale-lock'?"),
    ("diagnose absent.nanscope", 2, "absent.nanscope: no such file or folder"),
    ("diagnose absent", 2, "absent: no such file or folder"),
    ("diagnose Qwen/Qwen3-8B", 2, "no such file or folder; if it is a repository of Hugging Face"),
    ("diagnose small", 2, "did you mean 'small.nanscope'?"),
    ("why small", 2, "did you mean 'small.nanscope'?"),
    ("replay smal.nanscope", 2, "did you mean 'small.nanscope'?"),
    ("report SMALL.nanscope", 2, "did you mean 'small.nanscope'?"),
    ("diagnose kv-scale-lock", 2, "'nanscope run kv-scale-lock' makes a recording of that scenario"),
    ("diagnose dum/", 2, "no such file or folder"),
    ("diff small.nanscope dumb", 2, "did you mean 'dump'?"),
    ("diagnose nowhere.link", 2, "a link that leads nowhere"),
    # The right name for another command.
    ("run small.nanscope", 2, "is a recording: 'nanscope diagnose small.nanscope' explains it"),
    ("run attached.nanscope", 2, "is a recording of a dump"),
    ("run dump", 2, "is a dump, which cannot be run: 'nanscope diagnose dump' explains it"),
    ("run", 2, "run needs a SCENARIO, or --model DIR"),
    ("run checkpoint", 2, "is a checkpoint: 'nanscope run --model checkpoint -p PROMPT' runs it"),
    ("run --model checkpoint", 2, "--model needs a prompt: -p PROMPT, or --prompt-tokens ID,ID,..."),
    ("run --model checkpoint -p hi", 2, "no tokenizer.json: give the prompt as token ids"),
    ("run --model checkpoint --prompt-tokens 1,x", 2, "'x' is not a token id"),
    ("run --model checkpoint --prompt-tokens 5000", 2, "token 5000 is not in the model's vocabulary of 96"),
    ("run --model checkpoint --prompt-tokens 1 --set kv.fromat=f32", 2, "did you mean 'kv.format'?"),
    ("run --model checkpoint small.toml", 2, "give either --model or a SCENARIO, not both"),
    ("run --model dump --prompt-tokens 1", 2, "dump/config.json"),
    ("run --model absent -p hi", 2, "absent: expected a checkpoint's folder"),
    ("run small.toml -p hi", 2, "are for --model"),
    ("run empty", 2, "empty: no scenario (*.toml) in this folder"),
    ("run note.txt", 2, "note.txt:1:"),
    ("scenarios small.nanscope", 2, "is a recording"),
    ("attach small.nanscope", 2, "is a recording: 'nanscope diagnose small.nanscope' explains it"),
    ("attach small.toml", 2, "is a scenario: 'nanscope run small.toml' makes a recording of it"),
    ("attach dump dump", 2, "attach needs one DUMP"),
    ("attach --run", 2, "nanscope attach --run -- python serve.py"),
    ("diagnose small.toml", 2, "is a scenario: 'nanscope run small.toml' makes a recording of it"),
    ("diagnose suite", 2, "is a folder of scenarios: 'nanscope run suite' runs them"),
    ("diagnose recordings", 2, "name one of them, such as 'recordings/a.nanscope'"),
    ("diagnose empty", 2, "empty: holds no tensors that nanscope reads"),
    ("diagnose note.txt", 2, "note.txt: holds no tensors that nanscope reads"),
    ("diagnose zero.nanscope", 2, "zero.nanscope: empty file (0 bytes)"),
    ("diagnose text.nanscope", 2, "text.nanscope: not a recording"),
    ("replay dump", 2, "is a dump, which cannot be run"),
    ("replay attached.nanscope", 2, "is a recording of a dump, which cannot be run again"),
    ("export dump -o x", 2, "is a dump, which cannot be run"),
    ("export attached.nanscope -o x", 2, "is a recording of a dump, which cannot be run again"),
    ("trace dump", 2, "is a dump"),
    ("trace small.nanscope", 2, "`nanscope run SCENARIO --trace` records it"),
    ("gui small.toml --screenshot x.png", 2, "small.toml"),
    # Places, settings, formats.
    ("why small.nanscope logit", 2, "near: 'logits'"),
    ("why small.nanscope 0/0/-/LOGITS", 2, "near: 'logits'"),
    ("why small.nanscope 9/0/0/logits", 2, "there is no request 9"),
    ("why small.nanscope 0/0/7/mlp_act", 2, "'mlp_act' is in layers 0 to 0, not in 7"),
    ("why small.nanscope '0/0/-/logits[0,99999]'", 2, "channel 99999 is outside of it"),
    ("why small.nanscope '0/0/-/logits[0'", 2, "a '[' without its ']'"),
    ("why 0/0/-/logits small.nanscope", 2, "did you mean 'nanscope why small.nanscope 0/0/-/logits'?"),
    ("why dump model.layers.0.mlp.otput", 2, "near: 'model.layers.0.mlp.output'"),
    ("why dump Model.Layers.0.MLP.output", 2, "near: 'model.layers.0.mlp.output'"),
    ("why small.nanscope --brief --all", 2, "excludes"),
    ("causality small.nanscope --replay-work 0.000000001", 2, "of --replay-work"),
    ("diagnose small.nanscope --model checkpoint", 2, "--model is for dumps"),
    ("diagnose linked", 2, "is a link to a file out of its folder; --follow-links reads it"),
    ("replay small.nanscope --at 0/0/-/logit", 2, "near: 'logits'"),
    ("replay small.nanscope --set kv.format=fp8", 2, "did you mean 'e4m3'?"),
    ("replay small.nanscope --set kv.format=BF16", 2, "did you mean 'bf16'?"),
    ("replay small.nanscope --set kv.format=float16", 2, "did you mean 'f16'?"),
    ("replay small.nanscope --set kv.fromat=bf16", 2, "did you mean 'kv.format'?"),
    ("replay small.nanscope --set KV.FORMAT=bf16", 2, "did you mean 'kv.format'?"),
    ("replay small.nanscope --set kv.scrub=yes", 2, "did you mean 'true'?"),
    ("replay small.nanscope --set kv.format", 2, "expected SETTING=VALUE, for example kv.format=bf16"),
    ("replay small.nanscope --device gpu", 2, "unknown device 'gpu', expected cpu"),
    ("run small.toml -o x.nanscope --capture everything", 2, "capture policy 'everything': unknown; expected all, none"),
    ("bits", 2, "bits needs a VALUE (try nanscope bits --help)"),
    ("bits 4x0", 2, "'4x0' is no number"),
    ("bits 430 -f e4m4", 2, "did you mean 'e4m3'?"),
    ("bits --table bf61", 2, "did you mean 'bf16'?"),
    ("bits --block mxfp44 1", 2, "did you mean 'mxfp4'?"),
    ("bits --block mxfp4", 2, "which values are in the block?"),
    ("bits --block mxfp4 0.1 x", 2, "'x' is no number"),
    ("bits 1 2", 2, "several values need a format: add -f FORMAT, or --block PRESET"),
    # Outputs.
    ("run small.toml -o precious", 2, "name another file with -o"),
    ("run small.toml -o attached.nanscope", 2, "is a recording of a dump or a live process, not of scenario 'small'"),
    ("run small.toml -o other.nanscope", 2, "is a recording of scenario 'other', not of scenario 'small'"),
    ("run small.toml -o locked.nanscope", 2, "another process holds it locked: wait for its end"),
    ("run small.toml -o nodir/x.nanscope", 2, "nodir/x.nanscope: there is no folder 'nodir'"),
    ("run small.toml -o note.txt/x.nanscope", 2, "'note.txt' is no folder"),
    ("run small.toml -o dump", 2, "dump: is a folder"),
    ("run small.toml -o small.toml --force", 2, "is what this command reads"),
    ("run small.toml -o closed/x.nanscope", 2, "the folder 'closed' cannot be written"),
    ("run suite -o note.txt", 2, "note.txt"),
    ("attach dump -o precious", 2, "precious: exists already: name another file"),
    ("attach dump -o nodir/x.nanscope", 2, "there is no folder 'nodir'"),
    ("attach dump -o dump/model.layers.0.mlp.output.npy --force", 2, "lies in dump, which this command reads"),
    ("export small.nanscope -o dump", 2, "dump: is not empty"),
    ("export small.nanscope -o precious", 2, "precious: exists and is no folder"),
    ("report small.nanscope -o nodir/x.html", 2, "there is no folder 'nodir'"),
    ("report small.nanscope -o precious", 2, "precious: exists already"),
    ("report small.nanscope -o small.nanscope --force", 2, "is what this command reads"),
    ("report small.nanscope -o closed/x.html", 2, "the folder 'closed' cannot be written"),
    ("trace small.nanscope -o nodir/x.json", 2, "there is no folder 'nodir'"),
    ("replay small.nanscope --set kv.format=bf16 -o precious", 2, "precious: exists already"),
    ("replay small.nanscope --set kv.format=bf16 -o nodir/x.nanscope", 2, "there is no folder 'nodir'"),
    ("replay small.nanscope --set kv.format=bf16 -o small.nanscope --force", 2, "is what this command reads"),
    # An answer that nobody gets is no success.
    ("scenarios >/dev/full", 2, "standard output cannot be written: No space left"),
    ("diagnose small.nanscope >/dev/full", 2, "standard output cannot be written: No space left"),
    ("why small.nanscope 0/0/-/logits >/dev/full", 2, "standard output cannot be written: No space left"),
    ("diagnose small.nanscope --counterfactuals >/dev/full", 2, "standard output cannot be written: No space left"),
    ("report small.nanscope -o /dev/full", 2, "/dev/full: cannot be written: No space left"),
]

# Another process: closing any descriptor of the file in this one would lose its lock.
HOLD_LOCK = """import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""

# What is answered all the same, with a sentence where something was left out: command, code, part of the answer.
ANSWERED = [
    ("help", 0, "Start here:"),
    ("help diagnose", 0, "Usage: nanscope diagnose [OPTIONS] TARGET"),
    ("help help", 0, "Usage: nanscope help [OPTIONS] [COMMAND]"),
    ("report --help", 0, "--counterfactuals, --no-counterfactuals\n"),
    ("diagnose attached.nanscope --counterfactuals", 1, "No counterfactuals: nanscope cannot rerun a dump."),
    ("diagnose dump --counterfactuals", 1, "No counterfactuals: nanscope cannot rerun a dump."),
    ("diagnose small.nanscope --counterfactuals", 0, "none: the run as recorded is healthy"),
    ("run library", 0, "1 of 1 scenarios as expected"),
    ("diagnose library", 3, "library: nothing to judge"),
    ("report attached.nanscope -o /dev/stdout", 0, "No counterfactuals: nanscope cannot rerun a dump."),
    ("report dump -o /dev/stdout", 0, "<h2>But for which setting?</h2>"),
]


def npy(path, rows, columns, values):
    header = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, columns)).ljust(117) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", 118) + header.encode() + struct.pack(f"<{len(values)}f", *values))


def contents(folder):
    """Of every file its bytes, and every name."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else oct(path.lstat().st_mode)
    return found


class Mistakes(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = folder = pathlib.Path(cls.temporary.name)
        for name in ("suite", "library", "recordings", "empty", "closed"):
            (folder / name).mkdir()
        (folder / "small.toml").write_text(SMALL)
        (folder / "other.toml").write_text(SMALL.replace('"small"', '"other"'))
        (folder / "wide.toml").write_text(SMALL.replace("width = 32", "width = 1048576").replace("small", "wide"))
        (folder / "suite" / "a.toml").write_text(SMALL.replace('"small"', '"a"'))
        (folder / "library" / "b.toml").write_text(SMALL.replace('"small"', '"b"'))
        npy(folder / "library" / "weights" / "w.npy", 2, 2, [1.0] * 4)
        (folder / "note.txt").write_text("to do\n")
        checkpoints = pathlib.Path(__file__).parents[1] / "instrument" / "model" / "checkpoints"
        shutil.copytree(checkpoints / "llama2", folder / "checkpoint")
        (folder / "precious").write_text("mine")
        (folder / "zero.nanscope").write_text("")
        (folder / "text.nanscope").write_text("this is no recording")
        (folder / "nowhere.link").symlink_to("nowhere")
        npy(folder / "dump" / "model.layers.0.mlp.output.npy", 8, 16, [1.0] * 127 + [float("nan")])
        npy(folder / "linked" / "model.layers.0.mlp.output.npy", 8, 16, [1.0] * 128)
        (folder / "linked" / "nanscope.toml").symlink_to("../small.toml")
        for command in ("run small.toml", "run other.toml", "run small.toml -o locked.nanscope",
                        "run small.toml -o recordings/a.nanscope", "attach dump -o attached.nanscope"):
            done = cls.run_shell(command)
            assert done.returncode == 0, (command, done.stderr)
        (folder / "closed").chmod(stat.S_IRUSR | stat.S_IXUSR)
        cls.lock = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, folder / "locked.nanscope"], text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert cls.lock.stdout.readline() == "held\n"

    @classmethod
    def tearDownClass(cls):
        cls.lock.communicate("")
        (cls.folder / "closed").chmod(0o700)
        cls.temporary.cleanup()

    @classmethod
    def run_shell(cls, arguments):
        return subprocess.run(f"exec {shlex.quote(NANSCOPE)} {arguments}", shell=True, cwd=cls.folder, timeout=120,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "NANSCOPE_SCENARIOS": SCENARIOS})

    def all_of(self, table, problems_of):
        # Root may write everywhere.
        rows = [row for row in table if os.geteuid() != 0 or "closed/" not in row[0]]
        before = contents(self.folder)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            found = [one for problems in pool.map(lambda row: list(problems_of(*row)), rows) for one in problems]
        self.assertEqual(found, [])
        self.assertEqual(contents(self.folder), before, "a mistake changed a file")

    def test_weights_alone_get_no_list_of_activations(self):
        said = self.run_shell("diagnose checkpoint").stdout
        self.assertIn("it holds weights and no activation", " ".join(said.split()))
        self.assertNotIn("no scale was dumped", said)

    def test_each_mistake_gets_one_line_that_helps(self):
        def problems(arguments, code, part):
            done = self.run_shell(arguments)
            if done.returncode != code:
                yield f"{arguments}: exit code {done.returncode}, expected {code}: {done.stderr}"
            if done.stderr.count("\n") != 1 or not done.stderr.startswith("nanscope"):
                yield f"{arguments}: not one line of ours: {done.stderr!r}"
            if len(done.stderr) > LONGEST + len("nanscope: \n"):
                yield f"{arguments}: {len(done.stderr)} characters"
            if part not in done.stderr:
                yield f"{arguments}: no {part!r} in {done.stderr!r}"
            if done.stdout:
                yield f"{arguments}: an answer besides: {done.stdout[:200]!r}"

        self.assertGreaterEqual(len(MISTAKES), 60)
        self.all_of(MISTAKES, problems)

    def test_what_can_be_answered_is(self):
        def problems(arguments, code, part):
            done = self.run_shell(arguments)
            if done.returncode != code:
                yield f"{arguments}: exit code {done.returncode}, expected {code}: {done.stderr}"
            if part not in done.stdout:
                yield f"{arguments}: no {part!r} in {done.stdout[-400:]!r}"

        self.all_of(ANSWERED, problems)

    def test_a_reader_that_leaves_is_told_by_the_exit_code(self):
        for arguments in ("scenarios", "diagnose small.nanscope", "diagnose small.nanscope --counterfactuals"):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([NANSCOPE, *arguments.split()], cwd=self.folder, stdout=writer, stderr=subprocess.PIPE)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (141, b""), arguments)

    def test_help_names_what_stands_behind_an_option(self):
        commands = ["run", "replay", "diagnose", "why", "diff", "verify", "inspect", "quantize", "train", "policies", "attach", "export", "trace", "bits", "report", "scenarios", "scan", "merge"]
        for command in commands:
            done = self.run_shell(f"{command} --help")
            self.assertEqual(done.returncode, 0, done.stderr)
            for word in ("TEXT", "FLOAT", "UINT", "INT ", "BOOLEAN", "SUBCOMMAND", "KNOB", "Start here"):
                self.assertNotRegex(done.stdout, rf"\b{word}", command)
            self.assertNotIn("{", done.stdout, command)
        self.assertIn("text, markdown, json, junit, sarif", self.run_shell("diagnose --help").stdout)
        self.assertIn("e4m3fnuz", self.run_shell("bits --help").stdout)

    def test_each_help_has_its_exit_codes(self):
        listed = [line.split()[0] for line in self.run_shell("complete -- ''").stdout.splitlines()[1:]]
        self.assertIn("diagnose", listed)
        for command in listed + ["manual", "completions", "complete"]:
            text = " ".join(self.run_shell(f"{command} --help").stdout.split())
            self.assertRegex(text, r" Exit codes: 0 [^.]*[,;] 2 bad usage", command)
            self.assertEqual(self.run_shell(f"help {command}").stdout, self.run_shell(f"{command} --help").stdout)
        self.assertEqual(self.run_shell("help").stdout, self.run_shell("--help").stdout)

    def test_no_line_is_wider_than_the_terminal(self):
        commands = ["--help", "run --help", "diagnose --help", "why --help", "attach --help", "scenarios",
                    "scenarios kv-scale-lock", "diagnose attached.nanscope", "diagnose dump --counterfactuals",
                    "diagnose small.nanscope --counterfactuals", "why dump", "why small.nanscope 0/0/-/logits --all",
                    "diff small.nanscope other.nanscope", "replay small.nanscope",
                    "replay small.nanscope --set kv.format=e5m2", "replay small.nanscope --at 0/0/-/logits"]
        for width in (60, 80, 132):
            for arguments in commands:
                done = subprocess.run([NANSCOPE, *arguments.split()], cwd=self.folder, capture_output=True, text=True,
                                      env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": str(width),
                                           "NANSCOPE_SCENARIOS": SCENARIOS})
                for line in done.stdout.splitlines():
                    # Commands are to be copied, and a path is one word.
                    command = "nanscope " in line or len(line.split()) == 1
                    self.assertTrue(len(line) <= width or command, f"{arguments} at {width}: {line}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
