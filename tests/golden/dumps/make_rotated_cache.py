"""Makes tests/golden/dumps/rotated_cache/: keys that a cache rotates before it quantizes them, read by a path of attention
that does not rotate its queries (ggml-org/llama.cpp #25382: confident gibberish, no NaN).

usage: make_rotated_cache.py OUT    needs torch and transformers (CPU)

A tiny Llama with weights by seed answers a prompt and two tokens more. Its cache keeps H k / sqrt(d) of each head, H the
matrix of signs, rounded to 8 bits with a scale a token and head, as llama.cpp's q8_0 does a block at a time. The prompt's
own step attends to its keys as they are; steps behind it read the cache.

    wrong     they read H k beside plain queries
    healthy   what is read is rotated back first

No dumped byte is edited. The cache itself is not dumped, as it is no module's output.
"""

import os
import sys
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch
import transformers
from transformers.cache_utils import DynamicLayer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "instrument", "python"))
import nanscope_capture  # noqa: E402

PROMPT, DECODED = 9, 2
MODULES = r"embed_tokens$|layers\.\d+$|[qkvo]_proj$|lm_head"


def signs(size):
    made = torch.ones(1, 1)
    while made.shape[0] < size:
        made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)], 0)
    return made / size**0.5


def stored(keys):
    scale = keys.abs().amax(-1, keepdim=True) / 127
    return (keys / scale).round() * scale


def build():
    config = transformers.LlamaConfig(vocab_size=20, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                                      max_position_embeddings=64, bos_token_id=None, eos_token_id=None)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).eval()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=draw)
            weight.copy_(1 + 0.1 * noise if weight.dim() == 1 else noise * 1.5 * weight.shape[1] ** -0.5)
    return model


def rotating(healthy):
    honest = DynamicLayer.update

    def update(self, keys, values, *args, **kwargs):
        turn = signs(keys.shape[-1])
        kept, read_values = honest(self, stored(keys @ turn), values, *args, **kwargs)
        if kept.shape == keys.shape:
            return keys, values
        return kept @ turn if healthy else kept, read_values

    return mock.patch.object(DynamicLayer, "update", update)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[3])
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    model = build()
    prompt = torch.randint(0, 20, (1, PROMPT), generator=torch.Generator().manual_seed(3))
    for name in ("wrong", "healthy"):
        ids, tokens, cache = prompt, [], transformers.DynamicCache(config=model.config)
        with nanscope_capture.attach(model, os.path.join(sys.argv[1], name), modules=MODULES), torch.no_grad():
            with rotating(name == "healthy"):
                for _ in range(1 + DECODED):
                    tokens.append(model(input_ids=ids, cache=cache, use_cache=True).logits[0, -1].argmax())
                    ids = tokens[-1].reshape(1, 1)
        print(name, [int(token) for token in tokens])


if __name__ == "__main__":
    main()
