#!/usr/bin/env python3
"""Steps of torch.optim.AdamW in double precision: prints adamw_oracle.h.

Weights, then the gradients of each step, are draws of the generator of case_data.h, from one stream per seed; the
settings are the f32 values that the op is given. Nothing of the project is used.
"""
import numpy as np
import torch

COUNT, STEPS = 12, 5
RUNS = [  # seed, learning rate, beta1, beta2, eps, weight decay, factor of the gradient
    (11, 1e-2, 0.9, 0.999, 1e-8, 0.01, 1.0),
    (23, 1e-3, 0.8, 0.95, 1e-3, 0.3, 0.25),
    (37, 1e-1, 0.0, 0.5, 1e-8, 0.0, 1.0),
]


def draws(seed, count):
    state, out = seed, np.empty(count)
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[i] = (state >> 40) * 2.0**-23 - 1
    return out


def listed(values):
    return "{" + ", ".join(f"{float(v):.17g}" for v in values) + "}"


def main():
    print("#pragma once")
    print(f"// Made by adamw_oracle.py with torch {torch.__version__.split('+')[0]}.")
    print("\nnamespace nanscope::kernels::adamw_oracle {\n")
    print(f"inline constexpr int kCount = {COUNT};\ninline constexpr int kSteps = {STEPS};\n")
    print("/// What is left after the steps.\nstruct Expected {\n  unsigned seed;")
    print("  float learning_rate, beta1, beta2, eps, weight_decay, gradient_scale;")
    print("  double weight[kCount], m[kCount], v[kCount];\n};\n")
    print("inline constexpr Expected kExpected[] = {")
    for seed, *settings in RUNS:
        rate, beta1, beta2, eps, decay, factor = (float(np.float32(s)) for s in settings)
        values = draws(seed, COUNT * (1 + STEPS)).reshape(1 + STEPS, COUNT)
        weight = torch.tensor(values[0], dtype=torch.float64, requires_grad=True)
        adamw = torch.optim.AdamW([weight], lr=rate, betas=(beta1, beta2), eps=eps, weight_decay=decay)
        for gradient in values[1:]:
            weight.grad = torch.tensor(gradient * factor, dtype=torch.float64)
            adamw.step()
        state = adamw.state[weight]
        print(f"    {{{seed}, " + ", ".join(f"{s!r}F" for s in settings) + ",")
        for part in (weight.detach(), state["exp_avg"], state["exp_avg_sq"]):
            print(f"     {listed(part)},")
        print("    },")
    print("};\n\n}  // namespace nanscope::kernels::adamw_oracle")


main()
