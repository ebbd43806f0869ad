#!/usr/bin/env python3
"""Trains the model of a folder that `bench_training TEXT FOLDER` wrote in PyTorch, on the same batches, and compares
losses and gradient norms of every step.

    losses_torch.py FOLDER [--threads N] [--golden FILE]    (needs torch, numpy, safetensors)

--golden writes the knobs and torch's losses and norms, none of ours, as tests/golden/training/ has them:

    bench_training scenarios/texts/village.txt FOLDER KNOB=VALUE... && losses_torch.py FOLDER --golden FILE

Exit 1 where a loss differs by more than 1e-4 of it.
"""
import argparse
import json
import math
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file

LIMIT = 1e-4


ACTIVATIONS = {
    "silu": torch.nn.functional.silu, "swiglu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "geglu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def yarn(knobs, base, turns, width):
    """transformers.modeling_rope_utils._compute_yarn_parameters."""
    factor = knobs["rope.factor"]

    def pair(count):
        return width * math.log(knobs["rope.trained"] / (count * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair(knobs["rope.fast"])), 0), min(math.ceil(pair(knobs["rope.slow"])), width - 1)
    ramp = ((torch.arange(width // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return turns / factor * ramp + turns * (1 - ramp), 0.1 * math.log(factor) + 1


def angles(knobs, local, width):
    """Of a turn by one position, by pair of channels, and what cosine and sine are multiplied by."""
    base = knobs["model.local_rope_base"] if local and knobs["model.local_rope_base"] else knobs["model.rope_base"]
    turns = base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    factor, scaling = knobs["rope.factor"], knobs["rope.scaling"]
    if scaling == "none" or local and knobs["model.local_rope_base"]:
        return turns, 1
    if scaling == "linear":
        return turns / factor, 1
    if scaling == "yarn":
        return yarn(knobs, base, turns, width)
    assert scaling == "llama3", scaling  # transformers.modeling_rope_utils._compute_llama3_parameters
    waves = 2 * math.pi / turns
    low, high, trained = knobs["rope.low_factor"], knobs["rope.high_factor"], knobs["rope.trained"]
    smooth = ((trained / waves - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * turns / factor + smooth * turns, 1


E4M3 = 448.0


class RoundedStraightThrough(torch.autograd.Function):
    """e4m3 codes of x / scale, saturated, times scale; the gradient passes as it is (Bengio et al. 2013)."""

    @staticmethod
    def forward(ctx, x, scale):
        codes = (x / scale).clamp(-E4M3, E4M3).to(torch.float8_e4m3fn)
        return codes.float() * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class RoundedInBlocks(torch.autograd.Function):
    """Blocks of 32 columns in e4m3 under a power of two (OCP MX 1.0): that below the largest value over 2^8 (`floor`), or
    the smallest under which nothing is clipped (`up`). The gradient passes as it is."""

    @staticmethod
    def forward(ctx, x, rule):
        blocks = x.reshape(-1, 32).double()
        largest = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30)
        exponent = torch.ceil(torch.log2(largest / E4M3)) if rule == "up" else torch.floor(torch.log2(largest)) - 8
        scale = torch.exp2(exponent)
        codes = (blocks / scale).clamp(-E4M3, E4M3).float().to(torch.float8_e4m3fn)
        return (codes.float() * scale.float()).reshape(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class ScaleOfSteps:
    """The scale of a tensor by scores.policy: `current` one a sequence, the others one a training step, from what the
    steps before had in all sequences (TransformerEngine's DelayedScaling)."""

    def __init__(self, knobs, policy):
        self.policy, self.margin, self.history = policy, knobs["scores.margin"], knobs["scores.history"]
        self.seen, self.largest, self.first = [], 0.0, knobs["scores.start"]

    def quantize(self, x):
        own = x.detach().abs().amax(dim=tuple(range(1, x.dim())), keepdim=True)
        if self.policy == "current":
            return RoundedStraightThrough.apply(x, own / E4M3)
        assert self.policy in ("delayed", "monotonic"), self.policy
        self.largest = max(self.largest, float(own.max()))
        seen = self.seen[-self.history:] if self.policy == "delayed" else self.seen
        before = max(seen) if seen else self.first
        if self.policy == "monotonic":
            before = max(before, self.first)
        return RoundedStraightThrough.apply(x, torch.tensor(before / (self.margin * E4M3), dtype=torch.float32))

    def end_step(self):
        self.seen.append(self.largest)
        self.largest = 0.0


class Model(torch.nn.Module):
    """A transformer, as the model's knobs describe it (docs/reference-model.md). Experts see their own tokens alone."""

    def __init__(self, knobs, weights):
        super().__init__()
        self.knobs = knobs
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", "/"): torch.nn.Parameter(value if value.shape[0] > 1 else value[0])
             for name, value in weights.items()})
        self.scales = {}

    def quantized(self, x, kind, number, policy):
        """Scores, queries or keys of a layer as attention reads them."""
        format = self.knobs["scores.format" if kind == "scores" else "scores.qk_format"]
        if format == "f32":
            return x
        assert format == "e4m3" and self.knobs["scores.per"] == "layer", format
        return self.scales.setdefault((kind, number), ScaleOfSteps(self.knobs, self.knobs[policy])).quantize(x)

    def knob(self, name):
        return self.knobs["model." + name]

    def weight(self, name):
        return self.weights[name.replace(".", "/")]

    def linear(self, x, name):
        bias, weight = name + ".bias", self.weight(name + ".weight")
        if name.endswith("_proj"):
            attention = name.split(".")[-1] in ("q_proj", "k_proj", "v_proj", "o_proj")
            if self.knobs["activation.blocks"] == "mxfp8" and (
                    not attention or self.knobs["activation.block_ops"] == "linears"):
                x = RoundedInBlocks.apply(x, "up")
            if self.knobs["train.weight_blocks"]:
                assert self.knobs["train.weight_blocks"] == "mxfp8", self.knobs["train.weight_blocks"]
                weight = RoundedInBlocks.apply(weight, "floor")
        return torch.nn.functional.linear(
            x, weight, self.weight(bias) if bias.replace(".", "/") in self.weights else None)

    def norm(self, x, name):
        weight, eps = self.weight(name + ".weight"), self.knobs["norm.eps"]
        if self.knob("norm") == "rms_norm":
            return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
        return torch.nn.functional.layer_norm(x, weight.shape, weight, self.weight(name + ".bias"), eps)

    def window(self, number):
        return 0 if str(number) in str(self.knob("full_layers")).split(",") else self.knob("window")

    def rotate(self, x, number):
        if self.knob("positions"):
            return x
        length, width = x.shape[-2], self.knob("rotated") or x.shape[-1]
        turns, amplitude = angles(self.knobs, self.window(number) > 0, width)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * turns
        cosine, sine = (angle.cos() * amplitude).float(), (angle.sin() * amplitude).float()
        low, high = x[..., :width].chunk(2, dim=-1)
        return torch.cat([low * cosine - high * sine, high * cosine + low * sine, x[..., width:]], dim=-1)

    def attention(self, x, number):
        batch, length, _ = x.shape
        layer, heads, groups, width = f"layers.{number}", self.knob("heads"), self.knob("kv_heads"), self.knob("head_dim")

        def project(name, count):
            y = self.linear(x, f"{layer}.{name}_proj")
            normed, each = self.knob("qk_norm") and name != "v", self.knob("qk_norm_over") == "head"
            if normed and not each:
                y = self.norm(y, f"{layer}.{name}_norm")
            y = y.view(batch, length, count, width)
            if normed and each:
                y = self.norm(y, f"{layer}.{name}_norm")
            y = y.transpose(1, 2)
            return y if name == "v" else self.rotate(y, number)

        q, k, v = project("q", heads), project("k", groups), project("v", groups)
        q, k = self.quantized(q, "queries", number, "scores.qk_policy"), self.quantized(k, "keys", number, "scores.qk_policy")
        k, v = (one.repeat_interleave(heads // groups, dim=1) for one in (k, v))
        scale = (self.knob("attention_scale") or width ** -0.5) / (number + 1 if self.knob("scale_by_layer") else 1)
        scores = q @ k.transpose(-1, -2) * scale
        scores = softcap(scores, self.knob("attention_softcap"))
        scores = self.quantized(scores, "scores", number, "scores.policy")
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        if self.window(number):
            hidden |= torch.ones(length, length, dtype=torch.bool).tril(-self.window(number))
        scores = scores.masked_fill(hidden, -torch.inf)
        if self.knob("attention_sinks"):  # eager_attention_forward of transformers' gpt_oss
            sinks = self.weight(f"{layer}.attention.sinks").view(1, heads, 1, 1).expand(batch, heads, length, 1)
            probs = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
        else:
            probs = scores.softmax(-1)
        out = (probs @ v).transpose(1, 2).reshape(batch, length, -1)
        return self.linear(self.norm(out, f"{layer}.inner_norm") if self.knob("inner_norm") else out, f"{layer}.o_proj")

    def expert(self, x, name):
        kind = self.knob("mlp")
        up = self.linear(x, f"{name}.up_proj")
        if kind == "swiglu_clamped":  # GptOssExperts of transformers
            limit = self.knob("swiglu_limit")
            gate = self.linear(x, f"{name}.gate_proj").clamp(max=limit)
            gated = gate * torch.sigmoid(gate * self.knob("swiglu_alpha"))
            return self.linear((up.clamp(-limit, limit) + 1) * gated, f"{name}.down_proj")
        if kind in ("swiglu", "geglu_tanh"):
            return self.linear(ACTIVATIONS[kind](self.linear(x, f"{name}.gate_proj")) * up, f"{name}.down_proj")
        return self.linear(ACTIVATIONS[kind](up), f"{name}.down_proj")

    def route(self, x, layer):
        """Weights of all experts, 0 of those that were not chosen: MixtralTopKRouter, GptOssTopKRouter of transformers,
        and for sigmoids DeepseekV3TopkRouter with one group."""
        logits = self.linear(x, f"{layer}.router")
        score, chosen = self.knobs["moe.score"], self.knob("experts_per_token")
        gates = {"sigmoid": torch.sigmoid, "softmax": lambda one: one.softmax(-1), "softmax_of_chosen": lambda one: one}
        gates = gates[score](logits)
        bias = f"{layer}.router.e_score_correction_bias"
        choice = gates + self.weight(bias).detach() if bias.replace(".", "/") in self.weights else gates
        ids = choice.topk(chosen, dim=-1).indices
        weights = gates.gather(-1, ids)
        if score == "softmax_of_chosen":
            weights = weights.softmax(-1)
        elif self.knobs["moe.normalise"]:
            weights = weights / (weights.sum(-1, keepdim=True) + self.knobs["moe.eps"])
        return torch.zeros_like(logits).scatter(-1, ids, weights), ids

    def mlp(self, x, number):
        layer = f"layers.{number}"
        if not self.knob("experts") or str(number) in str(self.knob("dense_layers")).split(","):
            return self.expert(x, layer)
        shape, x = x.shape, x.flatten(0, -2)
        weights, ids = self.route(x, layer)
        out = torch.zeros_like(x)
        for number in range(self.knob("experts")):
            rows = (ids == number).any(-1).nonzero()[:, 0]
            y = self.expert(x[rows], f"{layer}.experts.{number}")
            out = out.index_add(0, rows, y * weights[rows, number][:, None])
        if self.knob("shared_expert_width"):  # Qwen2MoeSparseMoeBlock
            gate = torch.nn.functional.linear(x, self.weight(f"{layer}.shared_gate.weight").view(1, -1))
            out = out + torch.sigmoid(gate) * self.expert(x, f"{layer}.shared_expert")
        return out.view(shape)

    def branch(self, x, number, branch, name):
        placement = self.knob("norm_placement")
        before, behind = f"layers.{number}.{name}_norm", f"layers.{number}.{name}_post_norm"
        y = branch(self.norm(x, before) if placement in ("pre", "sandwich") else x, number)
        y = x + (self.norm(y, behind) if placement in ("sandwich", "branch") else y)
        return self.norm(y, behind) if placement == "post" else y

    def forward(self, tokens):
        x = self.weight("embed.weight")[tokens] * self.knob("embedding_scale")
        if self.knob("positions"):
            x = x + self.weight("positions.weight")[: tokens.shape[-1]]
        for number in range(self.knob("layers")):
            x = self.branch(x, number, self.attention, "attn")
            x = self.branch(x, number, self.mlp, "mlp")
        head = self.weight("embed.weight" if self.knob("tied_head") else "lm_head.weight")
        return softcap(torch.nn.functional.linear(self.norm(x, "final_norm"), head), self.knob("logit_softcap"))


def softcap(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def optimizer_of(model, knobs):
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": knobs["train.weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
        lr=knobs["train.learning_rate"], betas=(knobs["train.beta1"], knobs["train.beta2"]), eps=knobs["train.eps"])


def train(folder):
    run = json.loads((folder / "run.json").read_text())
    knobs = run["knobs"]
    model = Model(knobs, load_file(folder / "weights.safetensors"))
    optimizer = optimizer_of(model, knobs)
    losses, norms = [], []
    begin = time.perf_counter()
    for step, batch in enumerate(run["batches"]):
        for group in optimizer.param_groups:
            group["lr"] = knobs["train.learning_rate"] * min(1.0, (step + 1) / max(1, knobs["train.warm_up"]))
        tokens = torch.tensor([one["tokens"] for one in batch])
        targets = torch.tensor([one["targets"] for one in batch])
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), knobs["train.clip"])))
        optimizer.step()
        for scale in model.scales.values():
            scale.end_step()
        losses.append(loss.item())
    return run, losses, norms, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--golden", type=pathlib.Path, help="write torch's losses and norms there")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run, losses, norms, seconds = train(options.folder)
    apart = [abs(ours - theirs) / abs(theirs) for ours, theirs in zip(run["losses"], losses)]
    norms_apart = [abs(ours - theirs) / abs(theirs) for ours, theirs in zip(run["norms"], norms)]
    print(f"{len(losses)} steps, losses {losses[0]:.6f} to {losses[-1]:.6f} (torch {torch.__version__}, f32, CPU)")
    print(f"largest relative difference: loss {max(apart):.2e} (limit {LIMIT:.0e}), gradient norm {max(norms_apart):.2e}")
    print(f"in the first step: loss {apart[0]:.2e}, gradient norm {norms_apart[0]:.2e}")
    print(f"seconds: {run['seconds']:.2f} here, {seconds:.2f} torch, ratio {run['seconds'] / seconds:.2f}")
    if options.golden:
        by = f"tests/train/losses_torch.py, torch {torch.__version__}, f32, CPU"
        golden = {"made_by": by, "knobs": run["set"], "losses": losses, "norms": norms}
        options.golden.write_text(json.dumps(golden, indent=0) + "\n")
    return 0 if len(apart) == len(losses) and max(apart) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
