"""Makes tests/golden/dumps/transformers_fp8_cache/: the locked scale of transformers' own fp8 KV cache, by its code.

usage: make_fp8_cache.py OUT    needs torch >= 2.13 and transformers >= 5.23 (CPU)

A tiny Kosmos-2 decoder with weights by seed serves as transformers' documentation shows for a prompt that many requests
begin with: the prompt is run once into a QuantizedCache(backend="fp8"), and each request goes on from a copy of it. The
scale of that cache is set by its first update, here the prompt, and kept for good (Fp8QuantizedLayer in cache_utils.py).
Request 2 brings image embeddings, which have a direction that no text has; layer 0 reads it into keys and values that are
several times larger than the prompt's, as the massive activations of vision towers are.

    clipped   transformers alone. Values are cut off at 448 x scale, and attention reads rows of equal numbers. torch's
              LayerNorm takes two passes: of those rows inner_attn_ln gives its bias alone. Wrong, finite, without a word;
              no NaN comes of it.
    nan       the same with inner_attn_ln in one pass, E[x^2] - E[x]^2 in f32, as ONNX Runtime's CPU kernel and ggml's
              CUDA kernel do it. This is the only line that is not transformers'. Of these equal numbers it is below
              zero: NaN, in every logit, and token 0 is answered.
    healthy   request 2 of `nan` with a cache of its own, whose scale its own values set.

Nothing writes a NaN, and no dumped byte is edited. Whether the one-pass variance is below zero depends on the bits of the
scale, thus on the prompt (docs/reference-model.md); of PROMPT_SEED 1 to 8 it is for 1 and 8.
"""

import copy
import os
import sys
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch
import transformers
from torch import nn
from transformers.models.kosmos2 import modeling_kosmos2 as kosmos2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "instrument", "python"))
import nanscope_capture  # noqa: E402

WIDTH, VOCABULARY = 24, 20
PROMPT, IMAGE, TEXT = 6, 2, 2
PROMPT_SEED = 1
OUTLIER = 30.0  # of the channels of an image's q, k and v in layer 0, where text has a few units
# What attention is made of, the norms, and the feed-forward network as a whole: a dump of everything is twice as large.
MODULES = r"embed_tokens$|embed_positions$|layers\.\d+$|_proj$|inner_attn_ln$|layer_norm$|ffn$|lm_head"


class OnePassLayerNorm(nn.LayerNorm):
    """One pass over the row, the variance as E[x^2] - E[x]^2."""

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True) - mean.square()
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


def build(one_pass):
    config = transformers.models.kosmos2.configuration_kosmos2.Kosmos2TextConfig(
        vocab_size=VOCABULARY, embed_dim=WIDTH, layers=2, ffn_dim=32, attention_heads=2, max_position_embeddings=64,
        scale_embedding=False, pad_token_id=1, bos_token_id=None, eos_token_id=None)
    config._attn_implementation = "eager"
    model = kosmos2.Kosmos2TextForCausalLM(config).eval()
    draw = torch.Generator().manual_seed(1)
    outlier = torch.randn(WIDTH, generator=draw)
    outlier = (outlier - outlier.mean()) / (outlier - outlier.mean()).norm()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=draw)
            if weight.dim() == 1:
                weight.copy_(0.1 * noise + (1.0 if "norm.weight" in name or "ln.weight" in name else 0.0))
            else:
                weight.copy_(noise * (1.0 if "embed" in name else weight.shape[1] ** -0.5))
        embeddings = model.model.embed_tokens.weight
        embeddings -= torch.outer(embeddings @ outlier, outlier)
        attention = model.model.layers[0].self_attn
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            gains = OUTLIER * (1 + 0.2 * torch.randn(WIDTH, generator=draw)) * WIDTH**-0.5
            linear.weight += torch.outer(gains, outlier)
        for layer in model.model.layers:  # small branches do not drown what the residual stream brings
            layer.self_attn.out_proj.weight *= 0.1
            layer.ffn.fc2.weight *= 0.1
            if one_pass:
                norm = layer.self_attn.inner_attn_ln
                layer.self_attn.inner_attn_ln = OnePassLayerNorm(WIDTH, norm.eps)
                layer.self_attn.inner_attn_ln.load_state_dict(norm.state_dict())
    return model, outlier


def watch_cache(capture):
    """Adds what a layer of the cache holds and what attention read of it: no module returns either."""
    layer_class = transformers.cache_utils.Fp8QuantizedLayer
    honest = layer_class.update

    def update(self, keys, values, *args, **kwargs):
        read = honest(self, keys, values, *args, **kwargs)
        name = f"model.layers.{self.number}.self_attn"
        for letter, (codes, scale), tensor in zip("kv", (self._quantized_keys, self._quantized_values), read):
            capture.add(f"{name}.{letter}_cache", codes)
            capture.add(f"{name}.{letter}_scale", scale)
            capture.add(f"{name}.{letter}_read", tensor)
        return read

    return mock.patch.object(layer_class, "update", update)


def new_cache(model):
    cache = transformers.QuantizedCache(backend="fp8", config=model.config)
    for number, layer in enumerate(cache.layers):
        layer.number = number  # a layer does not know which it is
    return cache


def serve(model, folder, request, cache, embeddings, decoded):
    """One request: its embeddings, then `decoded` greedy tokens more. Gives back the cache and the tokens."""
    tokens = []
    with nanscope_capture.attach(model, os.path.join(folder, f"request_{request}"), modules=MODULES) as capture:
        def choose(_, inputs, logits):
            tokens.append(logits[:, -1].argmax(-1))
            capture.add("next_token", tokens[-1])

        sampler = model.lm_head.register_forward_hook(choose)
        with torch.no_grad(), watch_cache(capture):
            model(inputs_embeds=embeddings, cache=cache, use_cache=True)
            while len(tokens) <= decoded:
                model(input_ids=tokens[-1].reshape(1, 1), cache=cache, use_cache=True)
        sampler.remove()
    return cache, [int(token) for token in tokens]


def make(folder, one_pass, shared, requests):
    model, outlier = build(one_pass)
    draw = torch.Generator().manual_seed(PROMPT_SEED)
    embed = model.model.embed_tokens
    prompt, text = (embed(torch.randint(2, VOCABULARY, (1, n), generator=draw)).detach() for n in (PROMPT, TEXT))
    image = 3 * WIDTH**0.5 * outlier + torch.randn((1, IMAGE, WIDTH), generator=draw)
    own = {1: text, 2: torch.cat([image, text], 1)}
    prefix = serve(model, folder, 0, new_cache(model), prompt, 0)[0] if shared else None
    for request in requests:
        cache = copy.deepcopy(prefix) if shared else new_cache(model)
        start = own[request] if shared else torch.cat([prompt, own[request]], 1)
        cache, tokens = serve(model, folder, request, cache, start, request - 1)
        scales = [f"{layer._quantized_values[1]:.4g}" for layer in cache.layers]
        print(f"{os.path.basename(folder)}, request {request}: answered {tokens}, scales of V {scales}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[2])
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for name, one_pass, shared, requests in (("clipped", False, True, [2]), ("nan", True, True, [1, 2]),
                                             ("healthy", True, False, [2])):
        make(os.path.join(sys.argv[1], name), one_pass, shared, requests)


if __name__ == "__main__":
    main()
