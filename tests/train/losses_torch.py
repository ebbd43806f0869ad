#!/usr/bin/env python3
"""Trains the model of a folder that `bench_training TEXT FOLDER` wrote in PyTorch, on the same batches, and compares
losses and gradient norms of every step.

    losses_torch.py FOLDER [--threads N] [--golden FILE]    (needs torch, numpy, safetensors)

Exit 1 where a loss differs by more than 1e-4 of it.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file

LIMIT = 1e-4


class Model(torch.nn.Module):
    """Pre-norm transformer with RMSNorm, rotary embedding in halves, grouped queries and SwiGLU."""

    def __init__(self, knobs, weights):
        super().__init__()
        self.knobs = knobs
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", "/"): torch.nn.Parameter(value if value.shape[0] > 1 else value[0])
             for name, value in weights.items()})

    def weight(self, name):
        return self.weights[name.replace(".", "/")]

    def norm(self, x, name):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight(name + ".weight"), self.knobs["norm.eps"])

    def rotate(self, x):
        length, width = x.shape[-2], x.shape[-1]
        pairs = torch.arange(width // 2, dtype=torch.float64)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * self.knobs["model.rope_base"] ** (-2 * pairs / width)
        cosine, sine = angle.cos().float(), angle.sin().float()
        low, high = x.chunk(2, dim=-1)
        return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)

    def attention(self, x, layer):
        batch, length, _ = x.shape
        heads, groups, width = (self.knobs["model." + name] for name in ("heads", "kv_heads", "head_dim"))

        def project(name, count):
            y = torch.nn.functional.linear(x, self.weight(f"{layer}.{name}.weight"))
            return y.view(batch, length, count, width).transpose(1, 2)

        q, k = self.rotate(project("q_proj", heads)), self.rotate(project("k_proj", groups))
        v = project("v_proj", groups).repeat_interleave(heads // groups, dim=1)
        k = k.repeat_interleave(heads // groups, dim=1)
        scores = q @ k.transpose(-1, -2) / width ** 0.5
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        return torch.nn.functional.linear(out, self.weight(f"{layer}.o_proj.weight"))

    def mlp(self, x, layer):
        gate, up = (torch.nn.functional.linear(x, self.weight(f"{layer}.{name}_proj.weight")) for name in ("gate", "up"))
        return torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, self.weight(f"{layer}.down_proj.weight"))

    def forward(self, tokens):
        x = self.weight("embed.weight")[tokens] * self.knobs["model.embedding_scale"]
        for number in range(self.knobs["model.layers"]):
            layer = f"layers.{number}"
            x = x + self.attention(self.norm(x, layer + ".attn_norm"), layer)
            x = x + self.mlp(self.norm(x, layer + ".mlp_norm"), layer)
        return torch.nn.functional.linear(self.norm(x, "final_norm"), self.weight("lm_head.weight"))


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
    print(f"seconds: {run['seconds']:.2f} here, {seconds:.2f} torch, ratio {run['seconds'] / seconds:.2f}")
    if options.golden:
        lines = [f"{loss!r} {norm!r}" for loss, norm in zip(losses, norms)]
        options.golden.write_text("\n".join([f"# loss and gradient norm by step, torch {torch.__version__}"] + lines) + "\n")
    return 0 if len(apart) == len(losses) and max(apart) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
