#!/usr/bin/env python3
"""Changes rows of the outputs of healthy models by 32 roundings, and counts how many of them `diagnose` names.

    tests/real/planted_roundings.py FOLDER [--nanscope COMMAND] [--families Llama,Qwen3,GPT2,Bert] [--dtypes f32,bf16]
                                    [--places 1000] [--at-once 4] [--seed 1] [--model] [-v]

Needs torch and transformers. Small random models of transformers (4 layers, width 64, 128 or 256) read 40 tokens on a
CPU. nanscope_capture dumps their modules, attention's scores, probabilities and output, and the weights. While the
model runs, one row of each of a few outputs is changed in every channel: by 32 half units in the last place of the
output's format, up or down at random; zeros stay. What reads the output goes on with the changed row, so that the rest
of the dump is consistent. `diagnose --format json` must name that output, or a tensor that is equal to it, in a fault.
A fault elsewhere is counted too: nothing else is wrong. With --model, diagnose also gets the checkpoint's config.json.
Before that, the same models are dumped unchanged, and must not be accused. Prints a line for each kind of op. Exit code
1: fewer than 99 % of the places were named, or something else was accused."""
import argparse
import collections
import contextlib
import io
import json
import os
import random
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
from safetensors.torch import load_file  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
ROUNDINGS = 32
LAYERS = 4
TOKENS = 40
WIDTHS = (64, 128, 256)
# Outputs of a layer by family: the path of a module below the layer, or a part of attention, and the kind of op.
# "" is the layer itself, whose output is a sum; "<" is a module's input that nothing else reads, a sum too.
PARTS = {"scores": "scores", "probs": "softmax", "attn_out": "attention"}
DECODER = {"self_attn.q_proj": "linear", "self_attn.k_proj": "linear", "self_attn.v_proj": "linear", "self_attn.o_proj": "linear",
           "mlp.gate_proj": "linear", "mlp.up_proj": "linear", "mlp.down_proj": "linear", "input_layernorm": "norm",
           "post_attention_layernorm": "norm", "mlp.act_fn": "activation", "": "add"}
PLACES = {
    "Llama": ("model.layers.{}", "self_attn", DECODER),
    "Qwen3": ("model.layers.{}", "self_attn", DECODER | {"self_attn.q_norm": "norm", "self_attn.k_norm": "norm"}),
    "GPT2": ("transformer.h.{}", "attn", {"attn.c_attn": "linear", "attn.c_proj": "linear", "mlp.c_fc": "linear",
                                          "mlp.c_proj": "linear", "ln_1": "norm", "ln_2": "norm", "mlp.act": "activation", "": "add"}),
    "Bert": ("bert.encoder.layer.{}", "attention.self", {
        "attention.self.query": "linear", "attention.self.key": "linear", "attention.self.value": "linear",
        "attention.output.dense": "linear", "intermediate.dense": "linear", "output.dense": "linear",
        "attention.output.LayerNorm": "norm", "output.LayerNorm": "norm", "intermediate.intermediate_act_fn": "activation",
        "<attention.output.LayerNorm": "add", "<output.LayerNorm": "add"})}


def make(family, dtype, width, seed):
    """A random model with weights of unit gain."""
    torch.manual_seed(seed)
    small = {"vocab_size": 320, "pad_token_id": 0, "attn_implementation": "parts"}
    if family == "GPT2":
        config = transformers.GPT2Config(n_embd=width, n_layer=LAYERS, n_head=4, n_positions=128, **small)
        model = transformers.GPT2LMHeadModel(config)
    elif family == "Bert":
        model = transformers.BertForMaskedLM(transformers.BertConfig(
            hidden_size=width, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=2 * width, **small))
    else:
        config = getattr(transformers, family + "Config")(
            hidden_size=width, intermediate_size=2 * width, num_hidden_layers=LAYERS, num_attention_heads=4,
            num_key_value_heads=2, head_dim=width // 4, **small)
        model = getattr(transformers, family + "ForCausalLM")(config)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            fan_in = weight.shape[0] if family == "GPT2" and ".h." in name else weight.shape[1]
            torch.nn.init.normal_(weight, std=fan_in**-0.5)
        elif name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.1)
        else:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    angles = {name: one.clone() for name, one in model.named_buffers() if name.endswith("inv_freq")}
    model.to(dtype).eval()
    for name, one in angles.items():  # stay in f32, as they do in a model that is loaded in that dtype
        model.get_submodule(name.rpartition(".")[0]).inv_freq = one
    return model


class Plan:
    """The rows to change in a run, and what changes them."""

    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)
        self.rows = {}  # by the name of an output
        self.kept = None  # of the capture
        self.hooks = []

    def changed(self, name, tensor):
        """The tensor, with its row changed if the plan says so: that of a token, in all heads."""
        if name not in self.rows:
            return tensor
        made = tensor.clone()
        values = made.select(-2 if made.shape[-2] == TOKENS else -3, self.rows[name])
        wide = values.double()
        _, exponents = torch.frexp(wide)
        unit = torch.ldexp(torch.ones_like(wide), exponents - 1) * UNIT[tensor.dtype]
        sign = torch.randint(0, 2, wide.shape, generator=self.rng).double() * 2 - 1
        values.copy_((wide + torch.where(wide == 0, 0, sign * ROUNDINGS * unit)).to(tensor.dtype))
        return made

    def hook(self, model, names):
        for name in names:
            path, _, side = name.rpartition(".")
            if side == "input":
                self.hooks.append(model.get_submodule(path).register_forward_pre_hook(
                    lambda _, args, name=name: (self.changed(name, args[0]), *args[1:])))
            elif side == "output":
                self.hooks.append(model.get_submodule(path).register_forward_hook(
                    lambda _, args, out, name=name: (self.changed(name, out[0]), *out[1:]) if isinstance(out, tuple)
                    else self.changed(name, out)))

    def unhook(self):
        for one in self.hooks:
            one.remove()


PLAN = Plan(0)
PATHS = {}  # of attention modules


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **rest):
    """Eager attention, with its parts in the dump."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (one.repeat_interleave(groups, dim=1) for one in (key, value))
    scaling = scaling if scaling is not None else query.shape[-1] ** -0.5
    at = PATHS[module]
    scores = PLAN.changed(f"{at}.scores", torch.matmul(query, keys.transpose(2, 3)) * scaling)
    causal = not at.startswith("bert")
    length = scores.shape[-1]
    hidden = torch.triu(torch.full((length, length), float("-inf"), dtype=scores.dtype), 1) if causal else None
    masked = scores + hidden if causal else scores
    probs = PLAN.changed(f"{at}.probs", torch.softmax(masked, dim=-1, dtype=torch.float32).to(query.dtype))
    out = torch.matmul(probs, values).transpose(1, 2).contiguous()
    flat = PLAN.changed(f"{at}.attn_out", out.flatten(2))
    if PLAN.kept is not None:
        for name, tensor in (("q", query), ("k", key), ("v", value)):
            PLAN.kept.add(f"{at}.{name}", tensor.transpose(1, 2).flatten(2).contiguous())
        for name, tensor in (("scores", scores), ("probs", probs), ("attn_out", flat)):
            PLAN.kept.add(f"{at}.{name}", tensor)
    return flat.view(out.shape), probs


def outputs_of(family):
    """All outputs that may be changed: by op, the names in each layer, and the kind."""
    layer, self_attention, places = PLACES[family]
    ops = {}
    for path, kind in places.items():
        side = "input" if path.startswith("<") else "output"
        inside = path.lstrip("<")
        names = [layer.format(i) + ("." + inside if inside else "") + "." + side for i in range(LAYERS)]
        ops[path or "layer"] = (kind, names)
    for part, kind in PARTS.items():
        ops[part] = (kind, [f"{layer.format(i)}.{self_attention}.{part}" for i in range(LAYERS)])
    return ops


def dump(model, folder, plan, seed):
    """Runs the model once with the plan's rows changed."""
    global PLAN
    shutil.rmtree(folder, ignore_errors=True)
    PLAN = plan
    PATHS.clear()
    PATHS.update({module: name for name, module in model.named_modules()})
    plan.hook(model, [name for name in plan.rows if name.endswith(("put",))])
    torch.manual_seed(seed)
    ids = torch.randint(3, model.config.vocab_size, (1, TOKENS))
    try:
        with contextlib.redirect_stderr(io.StringIO()), torch.no_grad(), \
                nanscope_capture.attach(model, folder, weights=True) as kept:
            plan.kept = kept
            model(ids)
    finally:
        plan.unhook()


def diagnose(arguments, folder):
    """The tensors of all faults, and the verdict."""
    model = ["--model", str(folder / "checkpoint")] if arguments.model else []
    done = subprocess.run([arguments.nanscope, "diagnose", str(folder), "--format", "json", *model], capture_output=True,
                          text=True, check=False)
    if not done.stdout:
        sys.exit(f"diagnose {folder}: {done.stderr}")
    found = json.loads(done.stdout)
    return [fault["tensor"].removeprefix("step_00000/") for fault in found["faults"]], found


def equal_to(tensors, name):
    """Names of tensors that hold the same numbers."""
    wanted = tensors[name]
    return {other for other, tensor in tensors.items() if tensor.dtype == wanted.dtype and tensor.numel() == wanted.numel()
            and torch.equal(tensor.flatten(), wanted.flatten())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nanscope", default="nanscope")
    parser.add_argument("--families", default=",".join(PLACES))
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--places", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", action="store_true")
    parser.add_argument("-v", action="store_true", help="print each place that is not named")
    arguments = parser.parse_args()
    transformers.AttentionInterface.register("parts", attention)
    rng = random.Random(arguments.seed)
    kinds = [(family, dtype) for family in arguments.families.split(",") for dtype in arguments.dtypes.split(",")]
    tried, named = collections.Counter(), collections.Counter()
    others, healthy, accused = [], 0, []
    round_ = 0
    while sum(tried.values()) < arguments.places:
        for family, dtype in kinds:
            width = WIDTHS[round_ % len(WIDTHS)]
            seed = arguments.seed * 10000 + round_
            model = make(family, DTYPES[dtype], width, seed)
            folder = arguments.folder / f"{family}-{dtype}"
            if round_ < len(WIDTHS):
                dump(model, folder, Plan(seed), seed)
                healthy += 1
                faults, _ = diagnose(arguments, folder)
                if faults:
                    accused.append(f"{family} {dtype} {width}: {faults[0]}")
            plan = Plan(seed)
            ops = outputs_of(family)
            chosen = {}
            for op in rng.sample(sorted(ops), arguments.at_once):
                kind, names = ops[op]
                name = rng.choice(names)
                plan.rows[name] = rng.randrange(1, TOKENS)
                chosen[name] = kind
            dump(model, folder, plan, seed)
            tensors = load_file(folder / "step_00000" / "tensors.safetensors")
            faults, _ = diagnose(arguments, folder)
            meant = set()
            for name, kind in chosen.items():
                same = equal_to(tensors, name)
                meant |= same
                tried[dtype, kind] += 1
                if same & set(faults):
                    named[dtype, kind] += 1
                elif arguments.v:
                    print(f"not named: {family} {dtype} width {width} seed {seed}: {name}[{plan.rows[name]}]; faults: {faults}",
                          flush=True)
            others += [f"{family} {dtype} width {width} seed {seed}: {fault} ({sorted(chosen)})" for fault in faults if fault not in meant]
        round_ += 1
    for one in accused:
        print(f"healthy, accused: {one}")
    for one in others[:20]:
        print(f"something else accused: {one}")
    for key in sorted(tried):
        print(f"{key[0]:5} {key[1]:10} rows off by {ROUNDINGS} roundings: {named[key]} of {tried[key]} named")
    total, found = sum(tried.values()), sum(named.values())
    print(f"all: {found} of {total} named ({100 * found / total:.2f} %); something else accused: {len(others)}; "
          f"healthy dumps accused: {len(accused)} of {healthy}")
    return 0 if found >= 0.99 * total and not accused and not others else 1


if __name__ == "__main__":
    sys.exit(main())
