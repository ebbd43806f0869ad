#!/usr/bin/env python3
"""Diagnoses and verifies dumps of trained checkpoints, healthy ones and ones with a planted fault.

    tests/real/trained.py FOLDER CHECKPOINT... [--nanscope COMMAND] [--dtypes f32,bf16,f16] [--healthy]

Needs torch and transformers (tried with 2.15 and 5.24) and checkpoints of language models or BERT-like encoders, such as
SmolLM2-135M and all-MiniLM-L6-v2. Each is run on a CPU: a prompt of some hundred tokens and three decode steps, or a
padded batch. A healthy dump must not be accused, by `diagnose` alone or with `--model`, or by `verify`, also where the
checkpoint is served in another dtype. Then ten faults are planted, one a run, and each must be found at the planted module. Prints a
line a run; exit code 1 where something was accused or missed."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "instrument" / "python"))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import nanscope_capture  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

TEXT = ("The keeper of the lighthouse wrote down every night what he had seen: the ships that passed, the weather, and the hours "
        "at which the lamp had to be trimmed. ") * 6
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def module_named(model, ending):
    """The modules whose path ends so, in order of execution."""
    return [(path, module) for path, module in model.named_modules() if re.search(ending, path)]


def nan_in_weight(model):
    path, module = module_named(model, r"(up_proj|intermediate\.dense)$")[2]
    module.weight.data[5, 3] = float("nan")
    return path


def inf_in_norm(model):
    path, module = module_named(model, r"(input_layernorm|attention\.output\.LayerNorm)$")[2]
    module.weight.data[7] = float("inf")
    return path


def nan_in_embedding_row(model):
    path, module = module_named(model, r"(embed_tokens|word_embeddings)$")[0]
    module.weight.data[:, 11] = float("nan")
    return path


def hooked(ending, change, at=2):
    def plant(model):
        path, module = module_named(model, ending)[at]
        module.register_forward_hook(lambda _module, _given, made: change(made.clone()))
        return path
    return plant


def nan_row(made):
    made[0, min(7, made.shape[1] - 1)] = float("nan")
    return made


def zero_tail(made):
    made[:, made.shape[1] // 2:] = 0
    return made


def swapped_halves(made):
    return torch.roll(made, made.shape[-1] // 2, -1)


# Name, what plants it, and whether diagnose can see it without the weights (else verify has to).
FAULTS = [
    ("NaN in a weight", nan_in_weight, True),
    ("Inf in a norm's weight", inf_in_norm, True),
    ("NaN in a column of the embedding", nan_in_embedding_row, True),
    ("NaN in a row of a product", hooked(r"(down_proj|output\.dense)$", nan_row), True),
    ("NaN in a row of a norm", hooked(r"(post_attention_layernorm|output\.LayerNorm)$", nan_row), True),
    ("a product times 12", hooked(r"(v_proj|self\.value)$", lambda made: made * 12), False),
    ("a product negated", hooked(r"(q_proj|self\.query)$", lambda made: -made), False),
    ("zeros in the tail rows", hooked(r"(up_proj|intermediate\.dense)$", zero_tail), False),
    ("halves of a row swapped", hooked(r"(k_proj|self\.key)$", swapped_halves), False),
    ("a norm's output off by 2 %", hooked(r"(input_layernorm|output\.LayerNorm)$", lambda made: made * 1.02), False),
]


WAYS = [("diagnose", ["diagnose", "{dump}", "--format", "json"]),
        ("diagnose --model", ["diagnose", "{dump}", "--model", "{model}", "--format", "json"]),
        ("verify", ["verify", "{dump}", "--model", "{model}", "--json", "--no-free-run"])]  # exit code 2: no such family


def load(checkpoint, dtype):
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    causal = any("CausalLM" in name for name in config.architectures or [])
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    return kind.from_pretrained(checkpoint, dtype=dtype, attn_implementation="eager").eval(), causal


def run(model, causal, tokenizer):
    with torch.no_grad():
        if not causal:
            given = tokenizer([TEXT[:600], TEXT[:200], "A lamp."], return_tensors="pt", padding=True)
            model(**given)
            return
        given = tokenizer(TEXT[:700], return_tensors="pt")
        model.generate(**given, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0)


def ask(command, *arguments):
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.returncode, {"error": done.stderr.strip()}


def place_of(found):
    if found.get("root_cause"):
        return found["root_cause"].get("tensor", "")
    return (found.get("first") or {}).get("tensor", "")


def is_at(path, place):
    """Whether a tensor is of a module, or is the output of a module that ends with it."""
    container = place.split("/", 1)[-1].removesuffix(".output")
    return path in place or path.startswith(container + ".")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--nanscope", default=str(ROOT / "build" / "nanscope"))
    parser.add_argument("--dtypes", default="f32,bf16,f16")
    parser.add_argument("--healthy", action="store_true", help="plant nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    accused, missed, planted = [], [], 0
    dump = arguments.folder / "dump"
    for checkpoint in arguments.checkpoints:
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        for dtype in arguments.dtypes.split(","):
            for name, plant, alone in [("healthy", None, True)] + ([] if arguments.healthy or dtype == "f16" else FAULTS):
                shutil.rmtree(dump, ignore_errors=True)
                model, causal = load(checkpoint, DTYPES[dtype])
                path = plant(model) if plant else ""
                with nanscope_capture.attach(model, str(dump)):
                    run(model, causal, tokenizer)
                label = f"{checkpoint.name} {dtype}: {name}"
                told = []
                for way, words in WAYS:
                    words = [word.format(dump=dump, model=checkpoint) for word in words]
                    code, found = ask(arguments.nanscope, *words)
                    told.append((way, code, found, place_of(found)))
                    if plant is None and code not in ((0, 2, 3) if way == "verify" else (0, 3)):
                        accused.append(f"{label} by {way}")
                if plant:
                    planted += 1
                    # A weight's fault shows in the module's output; the input of the module behind it is that tensor.
                    right = [way for way, code, _found, place in told if code == 1 and is_at(path, place) and (alone or way != "diagnose")]
                    if not right:
                        missed.append(label)
                    print(f"{label} in {path}: {'found by ' + ' and '.join(right) if right else 'MISSED'}"
                          + ("" if right else f" ({'; '.join(f'{way} {code} {place}' for way, code, _f, place in told)})"), flush=True)
                    continue
                for way, code, found, place in told:
                    coverage = found.get("coverage", 0)
                    share = coverage if isinstance(coverage, float) else coverage["judged"] / max(1, coverage["outputs"]) if coverage else 0
                    print(f"{label}: {way} {found.get('verdict', found.get('error'))}, {100 * share:.0f} % judged"
                          + (f", {place}" if code == 1 else ""), flush=True)
    shutil.rmtree(dump, ignore_errors=True)
    print(f"{len(accused)} healthy runs accused{': ' + ', '.join(accused) if accused else ''}; "
          f"{planted - len(missed)} of {planted} planted faults found{', missed: ' + ', '.join(missed) if missed else ''}")
    return 1 if accused or missed else 0


if __name__ == "__main__":
    sys.exit(main())
