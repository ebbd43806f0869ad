"""Writes the small checkpoints that scenarios use. Needs numpy, ml_dtypes and safetensors; run by hand.

All are for the shipped vocabulary of 512, with Gaussian weights. Five are one model of 2 layers, width 64, 2 heads of
32, mlp_width 64, and differ as said:

offset_table.safetensors  every row is 100 plus noise of 0.01: a large common offset that a layer norm must
                          subtract. E[x^2] - E[x]^2 cannot hold it in f32; the two-pass form can.
nan_row.safetensors       the row of token 511, <|end|>, is NaN, as when a row that is never looked up was never
                          initialised; nothing else is unusual.
narrow_keys.safetensors   for a model with model.qk_norm: the rows of layer 0's key projection are one row times 100,
                          plus noise of 0.01, so that the channels of a key are nearly one number. A one-pass
                          variance of such a key is often below zero.
block_sums.safetensors    for a model with model.bias and model.mlp = gelu: the up projection of layer 1 has a bias of
                          100, and the down projection weighs the first half of the channels with 21 and the second
                          with -15, plus noise: sums over 32 channels are about 67,000 and -48,000, their sum 19,000.
biased_router.safetensors for a model with 4 experts of width 32: the choice has biases near 20, as they drift where they
                          balance the load, and the router's rows of layer 0 all point away from one direction, which
                          token 455, " great", has in its embedding: there every gate is below 1e-9.

The others have 3 layers, width 32, 1 head of 32, mlp_width 32:

bit_flip.safetensors      element [5,7] of layers.1.v_proj.weight has the highest bit of its bf16 exponent flipped.
lost_scale.safetensors    the projections are e4m3 codes with a scale each under NAME_scale, but that of
                          layers.1.down_proj.weight stands under NAME_scale_inv, where no loader of this layout looks.

Those of KV scales have width 32, 2 heads of 16, mlp_width 32, and a generator of their own each:

padding_row.safetensors   2 layers; the row of token 0 is zero, as torch's nn.Embedding(padding_idx=0) leaves it.
key_bias.safetensors      2 layers, whose projections have biases; all are zero but one of 600 on the last key channel of
                          head 0, which rotary embedding turns least.
massive_channel.safetensors  3 layers, of which 0 and 1 are recurrent with a decay of 0.999: they hardly forget. Channel
                          31 of every token is 6, the K and V projections of layer 2 read it with a gain of 5, and
                          the output head leaves it out.
massive_token.safetensors  2 layers; channel 31 is 40 in the row of token 455, " great", and 0 in all others, nothing
                          writes to it, and the K and V projections read it with a gain of 600: one token with massive
                          activations (arXiv 2402.17762).
"""

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

VOCABULARY = 512
LAYERS, WIDTH, MLP = 2, 64, 64  # of the first five


def gaussian(rng, rows, columns):
    return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(ml_dtypes.bfloat16)


def body(rng, layers=2, width=64, bias=False):
    def matrix(rows, columns):
        return gaussian(rng, rows, columns)

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
        if bias:
            for projection in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
                weights[prefix + projection + ".bias"] = zeros()
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


def narrow_keys(weights, rng):
    common = rng.standard_normal((1, WIDTH)) / np.sqrt(WIDTH)
    keys = 100 * common + 0.01 * rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
    gains = {f"layers.{n}.{p}_norm.weight": np.ones((1, 32), ml_dtypes.bfloat16) for n in range(LAYERS) for p in "qk"}
    return {**weights, **gains, "layers.0.k_proj.weight": keys.astype(np.float32)}


def block_sums(weights, rng):
    out = {name: value for name, value in weights.items() if "gate_proj" not in name}
    for layer in range(LAYERS):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"):
            out[f"layers.{layer}.{name}.bias"] = np.zeros((1, WIDTH), ml_dtypes.bfloat16)
    out["layers.1.up_proj.bias"] = np.full((1, MLP), 100, ml_dtypes.bfloat16)
    halves = np.where(np.arange(MLP) < MLP // 2, 21.0, -15.0)
    noise = rng.standard_normal((WIDTH, MLP)) / np.sqrt(MLP)
    out["layers.1.down_proj.weight"] = (halves + noise).astype(ml_dtypes.bfloat16)
    return out


def biased_router(weights, rng, table):
    experts, width = 4, 32
    out = {name: value for name, value in weights.items() if not any(p in name for p in ("gate_proj", "up_proj", "down_proj"))}

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(ml_dtypes.bfloat16)

    direction = np.zeros(WIDTH)
    direction[3::8] = 1
    for layer in range(LAYERS):
        away = 1.5 * direction if layer == 0 else 0
        router = rng.standard_normal((experts, WIDTH)) / np.sqrt(WIDTH) - away
        out[f"layers.{layer}.router.weight"] = router.astype(ml_dtypes.bfloat16)
        bias = 20 + rng.standard_normal((1, experts))
        out[f"layers.{layer}.router.e_score_correction_bias"] = bias.astype(np.float32)
        for e in range(experts):
            prefix = f"layers.{layer}.experts.{e}."
            out[prefix + "gate_proj.weight"] = matrix(width, WIDTH)
            out[prefix + "up_proj.weight"] = matrix(width, WIDTH)
            out[prefix + "down_proj.weight"] = matrix(WIDTH, width)
    table = table.copy()
    table[455] += 12 * direction
    return {**out, "embed.weight": table.astype(ml_dtypes.bfloat16)}


def narrow(seed, **shape):
    rng = np.random.default_rng(seed)
    weights = body(rng, width=32, **shape)
    weights["embed.weight"] = rng.standard_normal((VOCABULARY, 32)).astype(ml_dtypes.bfloat16)
    return rng, weights


def padding_row():
    _, weights = narrow(21)
    weights["embed.weight"][0] = 0
    save_file(weights, "padding_row.safetensors")


def key_bias():
    _, weights = narrow(22, bias=True)
    for layer in (0, 1):
        weights[f"layers.{layer}.k_proj.bias"][0, 15] = 600
    save_file(weights, "key_bias.safetensors")


def massive_channel():
    rng, weights = narrow(23, layers=3)
    weights["embed.weight"][:, 31] = 6
    weights["lm_head.weight"][:, 31] = 0
    for layer in (0, 1):
        prefix = f"layers.{layer}."
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            del weights[prefix + projection + ".weight"]
        for projection in ("in_proj", "out_proj"):
            weights[prefix + f"recurrent.{projection}.weight"] = gaussian(rng, 32, 32)
        weights[prefix + "recurrent.decay"] = np.full((1, 32), 0.999, np.float32)
    for projection in ("k_proj", "v_proj"):
        weights[f"layers.2.{projection}.weight"][:, 31] = 5 * rng.choice((-1.0, 1.0), 32)
    save_file(weights, "massive_channel.safetensors")


def massive_token():
    rng, weights = narrow(24)
    weights["embed.weight"][:, 31] = 0
    weights["embed.weight"][455] = 0
    weights["embed.weight"][455, 31] = 40
    for layer in (0, 1):
        prefix = f"layers.{layer}."
        for projection in ("o_proj", "down_proj"):
            weights[prefix + projection + ".weight"][31] = 0
        for projection in ("k_proj", "v_proj"):
            weights[prefix + projection + ".weight"][:, 31] = 100 * rng.choice((-1.0, 1.0), 32)
    save_file(weights, "massive_token.safetensors")


def main():
    rng = np.random.default_rng(20)
    weights = body(rng)
    noise = rng.standard_normal((VOCABULARY, 64))
    save_file({**weights, "embed.weight": (100 + 0.01 * noise).astype(np.float32)}, "offset_table.safetensors")
    table = noise.astype(ml_dtypes.bfloat16)
    table[511] = np.nan
    save_file({**weights, "embed.weight": table}, "nan_row.safetensors")
    table = noise.astype(ml_dtypes.bfloat16)
    own = np.random.default_rng(21)
    save_file({**narrow_keys(weights, own), "embed.weight": table}, "narrow_keys.safetensors")
    save_file({**block_sums(weights, own), "embed.weight": table}, "block_sums.safetensors")
    save_file(biased_router(weights, own, noise), "biased_router.safetensors")

    rng = np.random.default_rng(21)
    weights = body(rng, layers=3, width=32)
    weights["embed.weight"] = rng.standard_normal((VOCABULARY, 32)).astype(ml_dtypes.bfloat16)
    save_file(quantised(weights, "layers.1.down_proj.weight"), "lost_scale.safetensors")
    flip_exponent(weights["layers.1.v_proj.weight"], 5, 7)
    save_file(weights, "bit_flip.safetensors")

    padding_row()
    key_bias()
    massive_channel()
    massive_token()


if __name__ == "__main__":
    main()
