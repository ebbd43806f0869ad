"""Writes the small checkpoints that scenarios use. Needs numpy, ml_dtypes and safetensors; run by hand.

All are for the shipped vocabulary of 512, with Gaussian weights. Two are one model of 2 layers, width 64, 2 heads of
32, mlp_width 64, and differ in the token table:

offset_table.safetensors  every row is 100 plus noise of 0.01: a large common offset that a layer norm must
                          subtract. E[x^2] - E[x]^2 cannot hold it in f32; the two-pass form can.
nan_row.safetensors       the row of token 511, <|end|>, is NaN, as when a row that is never looked up was never
                          initialised; nothing else is unusual.

The others have 3 layers, width 32, 1 head of 32, mlp_width 32:

bit_flip.safetensors      element [5,7] of layers.1.v_proj.weight has the highest bit of its bf16 exponent flipped.
lost_scale.safetensors    the projections are e4m3 codes with a scale each under NAME_scale, but that of
                          layers.1.down_proj.weight stands under NAME_scale_inv, where no loader of this layout looks.
"""

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

VOCABULARY = 512


def body(rng, layers=2, width=64):
    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(ml_dtypes.bfloat16)

    def ones():
        return np.ones((1, width), ml_dtypes.bfloat16)

    def zeros():
        return np.zeros((1, width), ml_dtypes.bfloat16)

    # Pictures are not used; the loader asks for every weight. Patches of 1 x 1 pixel keep this one small.
    patches = {"patch_embed.weight": matrix(width, 3), "patch_embed.bias": zeros()}
    weights = {**patches, "lm_head.weight": matrix(VOCABULARY, width), "final_norm.weight": ones(), "final_norm.bias": zeros()}
    for layer in range(layers):
        prefix = f"layers.{layer}."
        for norm in ("attn_norm", "mlp_norm"):
            weights[prefix + norm + ".weight"] = ones()
            weights[prefix + norm + ".bias"] = zeros()
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weights[prefix + projection + ".weight"] = matrix(width, width)
        weights[prefix + "gate_proj.weight"] = matrix(width, width)
        weights[prefix + "up_proj.weight"] = matrix(width, width)
        weights[prefix + "down_proj.weight"] = matrix(width, width)
    return weights


def flip_exponent(weight, row, column):
    bits = weight.view(np.uint16)
    bits[row, column] ^= 0x4000


def quantised(weights, lost):
    """The projections as e4m3 codes with scale = absmax / 448; the scale of `lost` under another name."""
    out = {}
    for name, weight in weights.items():
        if not name.startswith("layers.") or "norm" in name:
            out[name] = weight
            continue
        scale = np.abs(weight.astype(np.float32)).max() / np.float32(448)
        out[name] = (weight.astype(np.float32) / scale).astype(ml_dtypes.float8_e4m3fn)
        out[name + ("_scale_inv" if name == lost else "_scale")] = np.array([scale], np.float32)
    return out


def main():
    rng = np.random.default_rng(20)
    weights = body(rng)
    noise = rng.standard_normal((VOCABULARY, 64))
    save_file({**weights, "embed.weight": (100 + 0.01 * noise).astype(np.float32)}, "offset_table.safetensors")
    table = noise.astype(ml_dtypes.bfloat16)
    table[511] = np.nan
    save_file({**weights, "embed.weight": table}, "nan_row.safetensors")

    rng = np.random.default_rng(21)
    weights = body(rng, layers=3, width=32)
    weights["embed.weight"] = rng.standard_normal((VOCABULARY, 32)).astype(ml_dtypes.bfloat16)
    save_file(quantised(weights, "layers.1.down_proj.weight"), "lost_scale.safetensors")
    flip_exponent(weights["layers.1.v_proj.weight"], 5, 7)
    save_file(weights, "bit_flip.safetensors")


if __name__ == "__main__":
    main()
