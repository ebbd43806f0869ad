#!/usr/bin/env python3
"""Trains the tiny checkpoints of all families in transformers, by AdamW on the cross-entropy of the next token, and
writes what test_families.cpp holds the trainer to: losses and gradient norms of every step.

    families_transformers.py tests/unit/instrument/model/checkpoints tests/golden/training/families.json
        (needs torch, transformers)

Experts have zeros for a gradient where no token chose them, as they have where transformers keeps all of a layer's in
one parameter.
"""
import argparse
import json
import pathlib

import torch
import transformers

KNOBS = {"steps": 6, "batch": 2, "length": 24, "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6,
         "clip": 1.0}


def text(vocabulary):
    """Tokens of which each has a few that follow it."""
    tokens, state = [], 1
    for _ in range(KNOBS["steps"] * KNOBS["batch"] * KNOBS["length"] + 1):
        state = (state * 1103515245 + 12345) % 2**31
        tokens.append(((tokens[-1] if tokens else 0) * 7 + 5 + (state >> 16) % 3) % vocabulary)
    return tokens


def train(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()  # no dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=KNOBS["learning_rate"], betas=(KNOBS["beta1"], KNOBS["beta2"]),
                                  eps=KNOBS["eps"], weight_decay=0.0)
    length, batch = KNOBS["length"], KNOBS["batch"]
    tokens = torch.tensor(text(model.config.vocab_size))
    losses, norms = [], []
    for step in range(KNOBS["steps"]):
        begin = [(step * batch + one) * length for one in range(batch)]
        inputs = torch.stack([tokens[at : at + length] for at in begin])
        targets = torch.stack([tokens[at + 1 : at + length + 1] for at in begin])
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), KNOBS["clip"])))
        optimizer.step()
        losses.append(loss.item())
    return {"vocabulary": model.config.vocab_size, "losses": losses, "norms": norms}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", type=pathlib.Path)
    parser.add_argument("golden", type=pathlib.Path)
    options = parser.parse_args()
    families = {folder.name: train(folder) for folder in sorted(options.checkpoints.iterdir()) if folder.is_dir()}
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, f32, CPU"
    golden = {"made_by": f"tests/train/families_transformers.py, {versions}", "train": KNOBS, "families": families,
              "text": text(min(one["vocabulary"] for one in families.values()))}
    options.golden.write_text(json.dumps(golden, indent=0) + "\n")


if __name__ == "__main__":
    main()
