#!/usr/bin/env python3
"""Verifies healthy dumps of every family that nanscope runs against their checkpoints.

    tests/real/families.py FOLDER [--nanscope COMMAND] [--only NAME,...] [--dtypes f32,bf16,f16] [--outputs-only]

Needs torch and transformers (tried with 2.15 and 5.24), so that no other test runs it. The tiny f32 checkpoints of
tests/unit/instrument/model/checkpoints run in transformers in each dtype (a prompt of 24 tokens and two decode steps),
captured by nanscope_capture. Prints a line a dump: outputs that are not the model's, and the share that was checked.
Exit code 1: an output of a healthy dump is not the model's, or less than 95 % of a dump's elements were checked. With
--outputs-only, modules' inputs are not dumped, `nanscope diagnose` looks at each dump as well, with and without the
checkpoint, and the share that was checked has no limit."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = ROOT / "tests/unit/instrument/model/checkpoints"
sys.path.insert(0, str(ROOT / "instrument" / "python"))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import nanscope_capture  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
LEAST = 0.95


def dump(name, dtype, folder, inputs):
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINTS / name, dtype=dtype, attn_implementation="eager")
    tokens = torch.randint(0, model.config.vocab_size, (1, 24), generator=torch.Generator().manual_seed(1))
    with nanscope_capture.attach(model.eval(), folder, inputs=inputs), torch.no_grad():
        past = None
        for _ in range(3):
            out = model(input_ids=tokens, past_key_values=past, use_cache=True)
            past, tokens = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)


def verified(command, folder, name):
    made = subprocess.run([*command.split(), "verify", folder, "--model", CHECKPOINTS / name, "--json"], capture_output=True,
                          text=True)
    return json.loads(made.stdout) if made.stdout else {"error": made.stderr.strip()}


def accused(command, folder, *more):
    made = subprocess.run([*command.split(), "diagnose", folder, *more, "--format", "json"], capture_output=True, text=True)
    if not made.stdout:
        return made.stderr.strip()
    found = json.loads(made.stdout)
    cause = found.get("root_cause") or {}
    return f"{cause.get('class')} in {cause.get('tensor')}" if found["verdict"] == "fault" else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nanscope", default=str(ROOT / "build/nanscope"))
    parser.add_argument("--only")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--outputs-only", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else sorted(one.name for one in CHECKPOINTS.iterdir())
    bad = off = 0
    for name in names:
        for dtype in options.dtypes.split(","):
            folder = options.folder / f"{name}-{dtype}"
            shutil.rmtree(folder, ignore_errors=True)
            dump(name, DTYPES[dtype], folder, not options.outputs_only)
            found = verified(options.nanscope, folder, name)
            if "error" in found:
                print(f"{name:14} {dtype:5} refused: {found['error']}")
                bad += 1
                continue
            wrong = [one["tensor"] for one in found["outputs"] if one["off"]]
            print(f"{name:14} {dtype:5} {len(wrong)} not the model's, {100 * found['coverage']:.1f} % of the elements checked",
                  *wrong[:3])
            off += len(wrong)
            bad += bool(wrong) or (found["coverage"] < LEAST and not options.outputs_only)
            for more in ([], ["--model", CHECKPOINTS / name]) if options.outputs_only else []:
                if said := accused(options.nanscope, folder, *more):
                    print(f"{name:14} {dtype:5} diagnose{' --model' if more else ''}: {said}")
                    bad += 1
    print(f"{len(names)} families, {off} outputs not the model's, {bad} dumps failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
