#!/usr/bin/env python3
"""Says what the bound of a softmax in f32 is made of, next to the error that torch has on a CPU.

    tests/real/softmax_bound.py [--keys 192] [--deviation 1]

Needs torch. Random scores of that standard deviation, 8 heads, behind a causal mask. The bound is the one of
softmax_line() in instrument/recompute/attention_rows.cpp. Its terms: the documented error of CUDA's fast exp, of the
element's own power and of those in the sum; six deviations of the roundings, most of all those of a sum that adds one
power after the other. Prints each in roundoffs of the element, and the bound over the error's root mean square as it is,
and for kernels that are known to be better."""
import argparse
import math

import torch

U = 2.0**-24
HEADS = 8


def terms(scores, hidden, constant, slope, sequential):
    """Own exp, exp of the sum, and six deviations: of the element, in its own magnitude."""
    wide = scores.double()
    below = wide.max(-1, keepdim=True).values - wide
    powers = torch.exp(-below)
    total = powers.sum(-1, keepdim=True)
    share = powers / total
    off = torch.where(hidden, 0.0, U * (constant + slope * below))
    rounding = torch.where(hidden, 0.0, U**2 * (wide**2 + below**2 + 2) / 3)
    of_sum = (share * off).sum(-1, keepdim=True)
    variance = (share**2 * rounding).sum(-1, keepdim=True)
    if sequential:
        count = (~hidden).sum(-1, keepdim=True).double()
        variance = variance + U**2 * (count * (share**2).sum(-1, keepdim=True) / 2 + count / 3) / 3
    six = 6 * torch.sqrt(((1 - 2 * share) * rounding + variance).clamp(min=0))
    return (1 - 2 * share) * off, of_sum.expand_as(off), six


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=192)
    parser.add_argument("--deviation", type=float, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    keys = arguments.keys
    hidden = torch.triu(torch.ones(keys, keys, dtype=torch.bool), 1).expand(HEADS, keys, keys)
    scores = (torch.randn(HEADS, keys, keys) * arguments.deviation).masked_fill(hidden, -math.inf)
    exact = torch.softmax(scores.double(), -1)
    off = ((torch.softmax(scores, -1).double() - exact) / exact)[~hidden]
    print(f"torch's error, root mean square: {off.square().mean().sqrt() / U:.2f} u")
    for name, constant, slope, sequential in (("as it is", 4, 2.346, True), ("sum of powers in any tree", 4, 2.346, False),
                                              ("exp within one unit", 2, 0, True), ("both", 2, 0, False)):
        parts = terms(scores, hidden, constant, slope, sequential)
        bound = (1.01 * U + (parts[0] + parts[1]).clamp(min=0) + parts[2])[~hidden]
        ratio = 1 / (off / bound).square().mean().sqrt()
        own, of_sum, six = (float(part[~hidden].mean() / U) for part in parts)
        print(f"{name:26} mean bound {bound.mean() / U:5.1f} u: own exp {own:4.1f}, exp of the sum {of_sum:4.1f}, six deviations "
              f"{six:4.1f}; bound / rms error {ratio:4.1f}")


if __name__ == "__main__":
    main()
