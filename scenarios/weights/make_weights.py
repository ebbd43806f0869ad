"""Writes the two small checkpoints that scenarios use. Needs numpy, ml_dtypes and safetensors; run by hand.

Both are one model of 2 layers, width 64, 2 heads of 32, mlp_width 64, for the shipped vocabulary of 512, with
Gaussian weights. They differ in the token table:

offset_table.safetensors  every row is 100 plus noise of 0.01: a large common offset that a layer norm must
                          subtract. E[x^2] - E[x]^2 cannot hold it in f32; the two-pass form can.
nan_row.safetensors       the row of token 511, <|end|>, is NaN, as when a row that is never looked up was never
                          initialised; nothing else is unusual.
"""

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

LAYERS, WIDTH, MLP, VOCABULARY = 2, 64, 64, 512


def body(rng):
    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(ml_dtypes.bfloat16)

    def ones():
        return np.ones((1, WIDTH), ml_dtypes.bfloat16)

    def zeros():
        return np.zeros((1, WIDTH), ml_dtypes.bfloat16)

    # Pictures are not used; the loader asks for every weight. Patches of 1 x 1 pixel keep this one small.
    patches = {"patch_embed.weight": matrix(WIDTH, 3), "patch_embed.bias": zeros()}
    weights = {**patches, "lm_head.weight": matrix(VOCABULARY, WIDTH), "final_norm.weight": ones(), "final_norm.bias": zeros()}
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        for norm in ("attn_norm", "mlp_norm"):
            weights[prefix + norm + ".weight"] = ones()
            weights[prefix + norm + ".bias"] = zeros()
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weights[prefix + projection + ".weight"] = matrix(WIDTH, WIDTH)
        weights[prefix + "gate_proj.weight"] = matrix(MLP, WIDTH)
        weights[prefix + "up_proj.weight"] = matrix(MLP, WIDTH)
        weights[prefix + "down_proj.weight"] = matrix(WIDTH, MLP)
    return weights


def main():
    rng = np.random.default_rng(20)
    weights = body(rng)
    noise = rng.standard_normal((VOCABULARY, WIDTH))
    save_file({**weights, "embed.weight": (100 + 0.01 * noise).astype(np.float32)}, "offset_table.safetensors")
    table = noise.astype(ml_dtypes.bfloat16)
    table[511] = np.nan
    save_file({**weights, "embed.weight": table}, "nan_row.safetensors")


if __name__ == "__main__":
    main()
