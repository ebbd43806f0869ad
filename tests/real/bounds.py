#!/usr/bin/env python3
"""Measures how wide the bounds of verify are, and whether it finds rows that are off by 32 roundings.

    tests/real/bounds.py FOLDER [--nanscope COMMAND] [--checkpoint DIR] [--dtypes f32,bf16,f16] [--places 1000]
                         [--elements 1e9] [--keep]

Needs torch and transformers. A Llama (by default a random one: 2 layers, width 512, 8 heads) reads 192 tokens on a CPU.
Its modules are captured, and in eager attention queries, keys, values, scores and probabilities. `verify` recomputes the
dump, which must show no fault. Prints for each kind of output the bound over the root mean square of its error, the
median and the largest over all outputs. Then rows are changed, one in a dump's output each: every element by
32 roundings (half units in the last place of the output's format), up or down. Prints how many of these rows are named.
With --elements, other healthy models (other seeds, 1,024 tokens, weights with heavy tails in every second one, some wide
channels in every third) are captured and verified until so many elements of each dtype were recomputed: no output may be
off. Elements beyond their bound are counted too; an output with fewer than one in a thousand of them is not off.
Exit code 1: a limit is missed (a linear layer, softmax and attention: 20 in f32, 10 in bf16 and f16; 99 % of rows)."""
import argparse
import collections
import json
import os
import random
import re
import shutil
import statistics
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
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
UNIT = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
LIMITS = {"f32": 20, "bf16": 10, "f16": 10}
LIMITED = {"linear", "softmax", "attention", "scores", "mix"}
PLANTED = LIMITED | {"norm"}
ROUNDINGS = 32
TOKENS = 192


def kind_of(name):
    """The kind of an output, by the last parts of its name."""
    for ending, kind in ((r"_proj\.output|lm_head\.output", "linear"), (r"norm\.output", "norm"), (r"probs", "softmax"),
                         (r"scores", "scores"), (r"attn_out", "mix"), (r"act_fn\.output", "activation")):
        if re.search(ending, name):
            return kind
    return "other"


def make(checkpoint, dtype, folder, seed=3):
    """A model and its checkpoint in that dtype. Seeds other than the first: see --elements above."""
    if not checkpoint:
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
            vocab_size=2048, max_position_embeddings=1024))
        for weight in model.parameters():
            if weight.dim() == 2:
                torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
                if seed % 2 == 0:  # Student's t with 4 degrees of freedom
                    chi = torch.distributions.Chi2(4.0).sample(weight.shape)
                    weight.data.div_((chi / 4).sqrt())
            elif seed % 3 == 0 and seed != 3:  # a norm's weight
                weight.data[torch.randint(0, len(weight), (4,))] = 30.0
        checkpoint = folder.parent / "random"
        model.save_pretrained(checkpoint)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype, attn_implementation="eager")
    model.eval().save_pretrained(folder)
    return model


def capture(model, folder, tokens=TOKENS, seed=5):
    """The healthy dump: the modules, and what is between in attention."""
    plain = modeling_llama.eager_attention_forward

    def eager(module, query, key, value, attention_mask, scaling, dropout=0.0, **rest):
        groups = module.num_key_value_groups
        keys, values = (modeling_llama.repeat_kv(one, groups) for one in (key, value))
        scores = torch.matmul(query, keys.transpose(2, 3)) * scaling
        masked = scores + attention_mask[:, :, :, : keys.shape[-2]] if attention_mask is not None else scores
        probs = torch.nn.functional.softmax(masked, dim=-1, dtype=torch.float32).to(query.dtype)
        out = torch.matmul(probs, values).transpose(1, 2).contiguous()
        at = f"model.layers.{module.layer_idx}.self_attn."
        for name, tensor in (("q", query), ("k", key), ("v", value)):
            kept.add(at + name, tensor.transpose(1, 2).flatten(2).contiguous())
        for name, tensor in (("scores", scores), ("probs", probs)):
            kept.add(at + name, tensor)
        kept.add(at + "attn_out", out.flatten(2))
        return out, probs

    torch.manual_seed(seed)
    ids = torch.randint(3, model.config.vocab_size, (1, tokens))
    modeling_llama.eager_attention_forward = eager
    try:
        with torch.no_grad(), nanscope_capture.attach(model, folder) as kept:
            model(ids)
    finally:
        modeling_llama.eager_attention_forward = plain


def verify(command, dump, model, ops=()):
    """`ops`: check these alone; all by default."""
    only = ["--ops", ",".join(sorted(ops))] if ops else []
    done = subprocess.run([command, "verify", str(dump), "--model", str(model), "--json", "--no-free-run", *only],
                          capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"verify of {dump}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def widths(report, dtype):
    """Prints the bound over the error of each kind. Returns whether the limits are met."""
    of_kind = collections.defaultdict(list)
    for output in report["outputs"]:
        if output.get("distance"):
            of_kind[kind_of(output["tensor"])].append(1 / output["distance"])
    met = True
    for kind, ratios in sorted(of_kind.items()):
        limit = LIMITS[dtype] if kind in LIMITED else None
        middle, most = statistics.median(ratios), max(ratios)
        good = limit is None or middle <= limit
        met = met and good
        print(f"{dtype:5} {kind:12} bound / rms error: median {middle:6.1f}, largest {most:6.1f} of {len(ratios):4} outputs"
              + (f"  limit {limit}{'' if good else '  NO'}" if limit else ""), flush=True)
    return met


def planted(command, place, report, dtype, places):
    """Changes rows of outputs of one kind at a time, each output in a row of its own, until there were so many places.
    Returns how many were named, of how many."""
    tensors = load_file(place / "dump" / "step_00000" / "tensors.safetensors")
    of_kind = collections.defaultdict(list)
    op_of = {}
    for output in report["outputs"]:
        key = output["tensor"].removeprefix("step_00000/")
        kind = kind_of(key)
        if kind in PLANTED and key in tensors and output.get("distance"):
            of_kind[kind].append(output["tensor"])
            op_of[output["tensor"]] = output["op"]
    changed = place / "changed"
    shutil.copytree(place / "dump", changed)
    rng = random.Random(1)
    named, tried = collections.Counter(), collections.Counter()
    while sum(tried.values()) < places:
        for kind, names in sorted(of_kind.items()):
            rows = dict(zip(names, rng.sample(range(TOKENS), len(names))))
            copies = dict(tensors)
            for name, row in rows.items():
                key = name.removeprefix("step_00000/")
                copies[key] = shifted(tensors[key], row, dtype, rng.choice((-1, 1)))
            save_file(copies, changed / "step_00000" / "tensors.safetensors")
            _, found = verify(command, changed, place / "model", {op_of[name] for name in names})
            by_name = {output["tensor"]: output for output in found["outputs"]}
            for name, row in rows.items():
                tried[kind] += 1
                named[kind] += by_name[name]["off"] and row in by_name[name].get("bad_rows", [])
    for kind in sorted(tried):
        print(f"{dtype:5} {kind:12} rows off by {ROUNDINGS} roundings: {named[kind]} of {tried[kind]} named", flush=True)
    return sum(named.values()), sum(tried.values())


def healthy(arguments, dtype, wanted):
    """Other healthy models until so many elements were recomputed. Returns whether none of them is off."""
    place = arguments.folder / f"{dtype}-healthy"
    seen = beyond = dumps = off = 0
    while seen < wanted:
        shutil.rmtree(place, ignore_errors=True)
        seed = 100 + dumps
        capture(make(arguments.checkpoint, DTYPES[dtype], place / "model", seed), place / "dump", 1024, seed)
        _, report = verify(arguments.nanscope, place / "dump", place / "model")
        wrong = [one["tensor"] for one in report["outputs"] if one.get("off")]
        if wrong:
            print(f"{dtype:5} seed {seed}: off: {', '.join(wrong[:4])}", flush=True)
        off += len(wrong)
        seen += report["elements"]
        beyond += report["elements"] - report["explained"]
        dumps += 1
    shutil.rmtree(place, ignore_errors=True)
    print(f"{dtype:5} {seen} elements of {dumps} other healthy dumps recomputed, beyond their bound: {beyond}, outputs that are off: "
          f"{off}", flush=True)
    return off == 0


def shifted(tensor, row, dtype, sign):
    """A copy whose row (the last dimension but one) is off by so many half units in the last place of its format."""
    made = tensor.clone()
    values = made.select(-2, row).double()
    _, exponents = torch.frexp(values)
    unit = torch.ldexp(torch.ones_like(values), exponents - 1) * UNIT[dtype]
    made.select(-2, row).copy_((values + torch.where(values == 0, 0, sign * ROUNDINGS * unit)).to(made.dtype))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nanscope", default="nanscope")
    parser.add_argument("--checkpoint")
    parser.add_argument("--dtypes", default="f32,bf16,f16")
    parser.add_argument("--places", type=int, default=1000)
    parser.add_argument("--elements", type=float, default=0)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    met = True
    for dtype in arguments.dtypes.split(","):
        place = arguments.folder / dtype
        shutil.rmtree(place, ignore_errors=True)
        model = make(arguments.checkpoint, DTYPES[dtype], place / "model")
        capture(model, place / "dump")
        code, report = verify(arguments.nanscope, place / "dump", place / "model")
        off = [one["tensor"] for one in report["outputs"] if one.get("off")]
        print(f"{dtype:5} {len(report['outputs'])} outputs, exit code {code}, off: {off[:4] or 'none'}", flush=True)
        met = widths(report, dtype) and not off and met
        named, tried = planted(arguments.nanscope, place, report, dtype, arguments.places)
        met = met and named >= 0.99 * tried
        if arguments.elements:
            met = healthy(arguments, dtype, arguments.elements) and met
        if not arguments.keep:
            shutil.rmtree(place)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
