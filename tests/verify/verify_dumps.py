"""Dumps of transformers' models beside their checkpoints, healthy and with one planted fault each.

usage: verify_dumps.py OUT [--only NAME]    needs torch and transformers (CPU)

OUT/CASE/model is a checkpoint, OUT/CASE/dump what nanscope_capture wrote of a prefill and two decode steps, and
OUT/CASE/expected.json what `nanscope verify` should say: nothing of a healthy one, else the first op that is not the
model's and what it does otherwise. A fault is a change of what the model computes, made in transformers; no dumped byte is
edited. The checkpoints are the tiny ones of tests/unit/instrument/model.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKPOINTS = os.path.join(HERE, "..", "unit", "instrument", "model", "checkpoints")
sys.path.insert(0, os.path.join(HERE, "..", "..", "instrument", "python"))
import nanscope_capture  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
FAMILIES = ("gpt2", "gpt2-scaled", "llama2", "llama3", "llama-linear", "mistral", "qwen2", "qwen3", "phi3", "gemma2",
            "gemma3", "olmo2", "mixtral", "qwen2-moe", "qwen3-moe", "gpt-oss", "gemma1", "olmo3", "smollm3", "exaone4",
            "starcoder2", "stablelm", "seed-oss", "olmoe", "minimax-m2", "glm4-moe", "dots1",
            "deepseek-v2", "deepseek-v3", "glm4-moe-lite", "granite", "granitemoe", "arcee", "helium", "nemotron",
            "cohere", "cohere2", "phi", "gptj", "gpt-neox", "falcon", "falcon-new",
            "qwen3-next", "qwen3-5", "qwen3-5-moe")
GOLDEN = ("healthy-gemma2-f32", "healthy-mixtral-bf16", "healthy-phi3-f16", "fault-softcap-left-out", "fault-experts-swapped",
          "fault-stale-adapter", "fault-weight-in-memory", "fault-rope-scaling-left-out", "fault-rope-in-every-layer",
          "fault-routed-scale-left-out", "fault-rope-of-halves")
PREFILL = 24
DECODED = 2


@dataclass
class Fault:
    """What is planted: `plant(model)` changes the model, or gives a context manager to run it in."""

    name: str
    family: str
    plant: object
    ops: tuple  # any of them is the right first op
    alternatives: tuple  # any of them is right
    layer: object = None  # None: any
    dtype: str = "f32"
    attention: str = "eager"
    tokens: object = None  # changes the ids that the model is given
    weights: tuple = ()  # modules whose weight is dumped too
    config: dict = field(default_factory=dict)


def layers_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def modeling(model):
    return sys.modules[type(model).__module__]


def wrap(module, function):
    """The module computes function(its own forward, arguments)."""
    own = module.forward

    def forward(*args, **kwargs):
        return function(own, *args, **kwargs)

    module.forward = forward


def set_eps(model, eps):
    for module in model.modules():
        for name in ("variance_epsilon", "eps"):
            if "Norm" in type(module).__name__ and hasattr(module, name):
                setattr(module, name, eps)


def rope_base(base):
    def plant(model):
        rotary = model.model.rotary_emb
        rotary.inv_freq.copy_(base ** -(torch.arange(0, 2 * len(rotary.inv_freq), 2) / (2 * len(rotary.inv_freq))))
    return plant


def shift_positions(by):
    def plant(model):
        wrap(model.model.rotary_emb, lambda own, x, position_ids, *more, **kw: own(x, position_ids + by, *more, **kw))
    return plant


def patched(name, make):
    """A function of the family's module replaced."""
    return lambda model: mock.patch.object(modeling(model), name, make(getattr(modeling(model), name)))


def without_state(own):
    """Decode steps that begin at zeros."""
    def rule(*args, initial_state=None, **kwargs):
        return own(*args, initial_state=torch.zeros_like(initial_state), **kwargs)
    return rule


def without_decay(own):
    def rule(*args, g=None, **kwargs):
        return own(*args, g=torch.zeros_like(g), **kwargs)
    return rule


def interleaved(_):
    def rotate(q, k, cos, sin, *args, **kwargs):
        cos, sin = cos[:, None, :, : cos.shape[-1] // 2], sin[:, None, :, : sin.shape[-1] // 2]

        def one(x):
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        return one(q), one(k)
    return rotate


def backwards(own):
    return lambda q, k, cos, sin, *args, **kwargs: own(q, k, cos, -sin, *args, **kwargs)


def keys_not_rotated(own):
    return lambda q, k, cos, sin, *args, **kwargs: (own(q, k, cos, sin, *args, **kwargs)[0], k)


def tiled(_):
    return lambda states, groups: states.repeat(1, groups, 1, 1)


def attention_arguments(**changes):
    """Eager attention with other arguments; a function changes what was given."""
    def make(own):
        def attend(module, query, key, value, mask, **kwargs):
            for name, change in changes.items():
                if name == "mask":
                    mask = change(module, query, key, mask)
                elif name in kwargs or not callable(change):
                    kwargs[name] = change(kwargs[name], module) if callable(change) else change
            return own(module, query, key, value, mask, **kwargs)
        return attend
    return patched("eager_attention_forward", make)


def scale_is(change):
    return attention_arguments(scaling=change)


def causal(window=None, extra=0):
    def change(module, query, key, mask):
        rows, columns = query.shape[2], key.shape[2]
        at = torch.arange(columns - rows, columns)[:, None]
        keys = torch.arange(columns)[None]
        seen = keys <= at + extra
        if window:
            seen &= at - keys < window
        return torch.where(seen, 0.0, torch.finfo(query.dtype).min)[None, None].to(query.dtype)
    return change


def norms_without_one(model):
    for module in model.modules():
        if type(module).__name__ == "Gemma3RMSNorm":
            module.forward = lambda x, module=module: module._norm(x.float()).type_as(x) * module.weight


def layer_norms(model):
    norm = layers_of(model)[1].input_layernorm
    wrap(norm, lambda own, x: torch.nn.functional.layer_norm(x, x.shape[-1:], norm.weight, None, norm.variance_epsilon))


def weight_of(target, source):
    """`target.weight` is that of `source`, or what a function makes of it."""
    def plant(model):
        module = model.get_submodule(target)
        made = source(module.weight.data) if callable(source) else model.get_submodule(source).weight.data
        module.weight = torch.nn.Parameter(made.clone().to(module.weight.dtype))
    return plant


def adapter_of(weight):
    draw = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=draw) for shape in ((3, weight.shape[1]), (weight.shape[0], 3))]


def with_adapter(weight):
    down, up = adapter_of(weight)
    return weight + 0.05 * up @ down


def save_adapter(weight, module, folder):
    """What PEFT writes of this adapter."""
    down, up = adapter_of(weight)
    os.makedirs(folder)
    name = "base_model.model." + module
    save_file({name + ".lora_A.weight": down, name + ".lora_B.weight": up},
              os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": 3, "lora_alpha": 0.15, "target_modules": [module.split(".")[-1]]}, file)


def without_bias(target):
    def plant(model):
        model.get_submodule(target).bias.data.zero_()
    return plant


def swapped_experts(model):
    experts = layers_of(model)[1].mlp.experts
    for weight in (experts.gate_up_proj, experts.down_proj):
        weight.data[[1, 2]] = weight.data[[2, 1]]


def routed(change):
    def plant(model):
        gate = layers_of(model)[0].mlp.gate

        def forward(own, *args, **kwargs):
            logits, weights, ids = own(*args, **kwargs)
            return logits, change(logits, weights, ids), ids
        wrap(gate, forward)
    return plant


def other_activation(function):
    def plant(model):
        wrap(layers_of(model)[0].mlp.act_fn, lambda own, x: function(x))
    return plant


def rounded(x, dtype):
    scale = x.abs().max() / torch.finfo(dtype).max if torch.finfo(dtype).bits < 16 else 1.0
    return ((x / scale).to(dtype).to(x.dtype)) * scale


def rounded_input(target, dtype):
    def plant(model):
        wrap(model.get_submodule(target), lambda own, x: own(rounded(x, dtype)))
    return plant


def no_residual(model):
    layer = layers_of(model)[1]
    wrap(layer.mlp, lambda own, x: own(x))
    own = layer.forward

    def forward(hidden_states, *args, **kwargs):
        caught = {}
        handle = layer.mlp.register_forward_hook(lambda module, given, out: caught.update(out=out))
        out = own(hidden_states, *args, **kwargs)
        handle.remove()
        return (caught["out"], *out[1:]) if isinstance(out, tuple) else caught["out"]
    layer.forward = forward


def not_normed(name):
    def plant(model):
        wrap(getattr(layers_of(model)[0].self_attn, name), lambda own, x: x)
    return plant


def unscaled_embedding(model):
    model.model.embed_tokens.embed_scale.fill_(1.0)


def positions_of_table(by):
    def plant(model):
        wrap(model.transformer.wpe, lambda own, ids: own(ids + by))
    return plant


def short_factors(model):
    rotary = model.model.rotary_emb
    wrap(rotary, lambda own, x, position_ids, *args, **kw: own(x, position_ids, *args, **kw))
    factors = torch.tensor(model.config.rope_parameters["long_factor"])
    rotary.register_buffer("inv_freq", rotary.inv_freq / factors)


def unscaled_rope(model):
    rotary = model.model.rotary_emb
    base = model.config.rope_parameters["rope_theta"]
    rotary.inv_freq.copy_(base ** -(torch.arange(0, 2 * len(rotary.inv_freq), 2) / (2 * len(rotary.inv_freq))))


def global_angles_everywhere(model):
    rotary = model.model.rotary_emb
    wrap(rotary, lambda own, x, position_ids, layer_type=None, **kw: own(x, position_ids, "full_attention", **kw))


def all_channels(model):
    rotary = model.model.rotary_emb
    dim = model.config.hidden_size // model.config.num_attention_heads

    def forward(own, x, position_ids, *args, **kwargs):
        angles = position_ids[..., None] * 10000.0 ** -(torch.arange(0, dim, 2) / dim)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()
    wrap(rotary, forward)


def flipped_bit(weight):
    weight = weight.clone()
    weight[3, 5] *= -64
    return weight


def silu(x):
    return torch.nn.functional.silu(x)


def gelu(x):
    return torch.nn.functional.gelu(x)


FAULTS = (
    Fault("eps", "llama2", lambda m: set_eps(m, 1e-3), ("attn_norm",), ("eps",), 0),
    Fault("eps-of-another-library", "gpt2", lambda m: set_eps(m, 1e-12), ("attn_norm",), ("eps",), 0),
    Fault("rope-base", "qwen2", rope_base(5e5), ("cos", "sin"), ("rope-angles",)),
    Fault("rope-scaling-left-out", "llama3", unscaled_rope, ("cos", "sin"), ("rope-angles",)),
    Fault("rope-linear-left-out", "llama-linear", unscaled_rope, ("cos", "sin"), ("rope-angles",)),
    Fault("rope-yarn-left-out", "qwen3", unscaled_rope, ("cos", "sin"), ("rope-angles",)),
    Fault("rope-neighbours", "mistral", patched("apply_rotary_pos_emb", interleaved), ("softmax", "scores"),
          ("rope-pairs",), 0),
    Fault("rope-backwards", "llama2", patched("apply_rotary_pos_emb", backwards), ("softmax",), ("rope-pairs",), 0),
    Fault("rope-keys-left-out", "qwen3-moe", patched("apply_rotary_pos_emb", keys_not_rotated), ("softmax",),
          ("rope-left-out",), 0),
    Fault("rope-global-in-local-layers", "gemma3", global_angles_everywhere, ("cos", "sin"), ("rope-angles",)),
    Fault("position-off-by-one", "olmo2", shift_positions(1), ("cos", "sin"), ("rope-position",)),
    Fault("learned-position-off-by-two", "gpt2-scaled", positions_of_table(2), ("pos_embed",), ("other-ids",)),
    Fault("window-one-wider", "mistral", attention_arguments(mask=causal(7)), ("softmax",), ("window",), 0),
    Fault("window-left-out", "gemma2", attention_arguments(mask=causal()), ("softmax",), ("window", "mask"), 0),
    Fault("one-later-key", "llama2", attention_arguments(mask=causal(extra=1)), ("softmax",), ("mask",), 0),
    Fault("no-mask", "gpt2", attention_arguments(mask=lambda module, query, key, mask: None), ("softmax",), ("mask",), 0),
    Fault("score-factor", "gemma2", scale_is(lambda own, module: module.head_dim**-0.5), ("softmax",),
          ("score-factor",), 0),
    Fault("score-factor-of-sdpa", "llama3", scale_is(1.0), ("softmax",), ("score-factor",), 0),
    Fault("layer-number-left-out", "gpt2-scaled",
          lambda m: [setattr(b.attn, "scaling", b.attn.head_dim**-0.5) or
                     setattr(b.attn, "scale_attn_by_inverse_layer_idx", False) for b in m.transformer.h],
          ("softmax",), ("score-factor",), 1),
    Fault("softcap-left-out", "gemma2", attention_arguments(softcap=lambda own, module: None), ("softmax",),
          ("softcap",), 0),
    Fault("sinks-left-out", "gpt-oss", lambda m: layers_of(m)[0].self_attn.sinks.data.fill_(-1e9), ("softmax",),
          ("sinks-left-out",), 0),
    Fault("clamp-left-out", "gpt-oss", lambda m: setattr(layers_of(m)[1].mlp.experts, "limit", 1e9), ("experts",),
          ("activation",), 1),
    Fault("heads-in-turns", "llama3", patched("repeat_kv", tiled), ("softmax",), ("head-sharing",), 0),
    Fault("gain-without-one", "gemma3", norms_without_one, ("attn_norm",), ("norm-offset",), 0),
    Fault("layer-norm", "llama2", layer_norms, ("attn_norm",), ("norm-kind",), 1),
    Fault("q-norm-left-out", "qwen3", not_normed("q_norm"), ("q_norm",), ("norm-left-out",), 0),
    Fault("embedding-unscaled", "gemma3", unscaled_embedding, ("embed",), ("embedding-scale",)),
    Fault("weight-transposed", "gpt2", weight_of("transformer.h.1.attn.c_proj", lambda w: w.T), ("o_proj",),
          ("weight-transposed",), 1),
    Fault("square-weight-transposed", "llama2", weight_of("model.layers.0.self_attn.q_proj", lambda w: w.T),
          ("q_proj",), ("weight-transposed",), 0),
    Fault("weight-of-another-layer", "llama2", weight_of("model.layers.1.mlp.up_proj", "model.layers.0.mlp.up_proj"),
          ("up_proj",), ("other-weight",), 1),
    Fault("gate-is-up", "qwen2", weight_of("model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj"),
          ("gate_proj",), ("other-weight",), 1),
    Fault("v-is-k", "olmo2", weight_of("model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.k_proj"),
          ("v_proj",), ("other-weight",), 0),
    Fault("head-tied", "mistral", weight_of("lm_head", "model.embed_tokens"), ("lm_head",), ("other-weight",)),
    Fault("experts-swapped", "mixtral", swapped_experts, ("experts",), ("experts",), 1),
    Fault("router-not-normalised", "mixtral",
          routed(lambda logits, weights, ids: torch.softmax(logits.float(), -1).gather(-1, ids).to(weights.dtype)),
          ("route",), ("router",), 0),
    Fault("router-sigmoid", "qwen3-moe",
          routed(lambda logits, weights, ids: (lambda s: s / s.sum(-1, keepdim=True))(torch.sigmoid(logits).gather(-1, ids))),
          ("route",), ("router",), 0),
    Fault("bias-left-out", "qwen2", without_bias("model.layers.0.self_attn.k_proj"), ("k_proj",), ("bias-left-out",), 0),
    Fault("gelu-by-erf", "gemma2", other_activation(gelu), ("act",), ("activation",), 0),
    Fault("gelu-for-silu", "llama3", other_activation(gelu), ("act",), ("activation",), 0),
    Fault("input-in-bf16", "phi3", rounded_input("model.layers.0.self_attn.o_proj", torch.bfloat16), ("o_proj",),
          ("input-rounded",), 0),
    Fault("input-in-e4m3", "qwen3", rounded_input("model.layers.1.mlp.down_proj", torch.float8_e4m3fn), ("down_proj",),
          ("input-rounded",), 1),
    Fault("weight-in-e4m3", "llama3", weight_of("model.layers.1.self_attn.o_proj", lambda w: rounded(w, torch.float8_e4m3fn)),
          ("o_proj",), ("weight-rounded",), 1),
    Fault("residual-left-out", "qwen3", no_residual, ("mlp_residual",), ("residual",), 1),
    Fault("stale-adapter", "llama2", weight_of("model.layers.0.self_attn.v_proj", with_adapter), ("v_proj",),
          ("low-rank",), 0),
    Fault("adapter-in-bf16", "qwen3", weight_of("model.layers.1.mlp.gate_proj", with_adapter), ("gate_proj",),
          ("low-rank",), 1, dtype="bf16"),
    Fault("weight-in-memory", "gemma2", weight_of("model.layers.0.mlp.up_proj", flipped_bit), ("up_proj",),
          ("weight-in-memory", "weight", "other-weight"), 0, weights=("model.layers.0.mlp.up_proj",)),
    Fault("eps-in-bf16", "olmo2", lambda m: set_eps(m, 0.05), ("q_norm", "attn_post_norm"), ("eps",), 0, dtype="bf16"),
    Fault("score-factor-of-fused-attention", "llama2", lambda m: [setattr(b.self_attn, "scaling", 1.0) for b in layers_of(m)],
          ("attention",), ("score-factor",), 0, attention="sdpa"),
    Fault("routed-scale-left-out", "glm4-moe",
          lambda m: setattr(layers_of(m)[1].mlp.gate, "routed_scaling_factor", 1.0), ("route",), ("router",), 1),
    Fault("rope-of-halves", "deepseek-v3", lambda m: setattr(m.config, "rope_interleave", False), ("softmax",), ("rope-pairs",),
          0),
    Fault("mscale-of-scores-left-out", "deepseek-v3",
          lambda m: [setattr(b.self_attn, "scaling", b.self_attn.qk_head_dim ** -0.5) for b in layers_of(m)], ("softmax",),
          ("score-factor",), 0),
    Fault("delta-state-lost", "qwen3-next", patched("torch_recurrent_gated_delta_rule", without_state), ("delta",),
          ("delta-rule",), 0),
    Fault("delta-decay-left-out", "qwen3-5", patched("torch_chunk_gated_delta_rule", without_decay), ("delta",),
          ("delta-rule",), 0),
    Fault("residual-multiplier-left-out", "granite", lambda m: setattr(layers_of(m)[1], "residual_multiplier", 1.0),
          ("attn_residual", "mlp_residual"), ("residual",), 1),
    Fault("rope-in-every-layer", "smollm3", lambda m: setattr(layers_of(m)[1].self_attn, "use_rope", 1),
          ("softmax", "attn_mix"), ("rope-left-out", "rope-angles"), 1),
    # Planted after all of the above was found, to see how what is not foreseen fares.
    Fault("unforeseen-token-ids", "qwen2", lambda m: wrap(m.model.embed_tokens, lambda own, ids: own((ids + 1) % 96)),
          ("embed",), ("other-ids",)),
    Fault("unforeseen-post-norm-left-out", "olmo2",
          lambda m: wrap(layers_of(m)[1].post_attention_layernorm, lambda own, x: x), ("attn_post_norm",),
          ("norm-left-out",), 1),
    Fault("unforeseen-norm-bias-left-out", "gpt2", lambda m: layers_of(m)[1].ln_2.bias.data.zero_(), ("mlp_norm",),
          ("norm-bias-left-out", "bias-left-out"), 1),
    Fault("unforeseen-rotation-of-all-channels", "phi3", all_channels, ("cos", "sin", "softmax"), ("rope-pairs", "rope-angles")),
    Fault("unforeseen-positions-halved", "llama2",
          lambda m: wrap(m.model.rotary_emb, lambda own, x, position_ids, **kw: own(x, position_ids / 2, **kw)),
          ("cos", "sin"), ("rope-angles", "rope-position")),
    Fault("unforeseen-heads-reversed", "mistral",
          lambda m: wrap(layers_of(m)[0].self_attn.o_proj,
                         lambda own, x: own(x.unflatten(-1, (4, -1)).flip(-2).flatten(-2))), ("o_proj",),
          ("head-order",), 0),
    Fault("unforeseen-expert-down-transposed", "mixtral",
          lambda m: layers_of(m)[0].mlp.experts.down_proj.data[1].copy_(
              layers_of(m)[0].mlp.experts.down_proj.data[1].flip(0)), ("experts",), ("experts",), 0),
    Fault("unforeseen-output-doubled", "qwen3",
          lambda m: wrap(layers_of(m)[0].mlp.down_proj, lambda own, x: 2 * own(x)), ("down_proj",), ("scaled",), 0),
    Fault("unforeseen-relu", "qwen2", other_activation(torch.relu), ("act",), ("activation",), 0),
    Fault("unforeseen-softmax-in-bf16", "llama3",
          attention_arguments(scaling=lambda own, module: float(torch.tensor(own).to(torch.float8_e4m3fn))), ("softmax",),
          ("score-factor",), 0),
    Fault("unforeseen-value-of-token-before", "llama2",
          patched("repeat_kv", lambda own: lambda x, n: own(x, n) if x.shape[2] < 3 else own(x.roll(1, 2), n)),
          ("softmax", "attn_mix"), ("rows-shifted",), 0),
    Fault("unforeseen-router-temperature", "qwen3-moe",
          routed(lambda logits, weights, ids: (lambda s: s / s.sum(-1, keepdim=True))(
              torch.softmax(logits / 2, -1).gather(-1, ids))), ("route",), ("router",), 0),
    Fault("unforeseen-one-expert-for-two", "qwen3-moe",
          lambda m: layers_of(m)[1].mlp.experts.gate_up_proj.data[3].copy_(layers_of(m)[1].mlp.experts.gate_up_proj.data[2]),
          ("experts",), ("experts",), 1),
    Fault("unforeseen-window-of-other-layers", "gemma2", attention_arguments(mask=causal(6)), ("softmax",), ("window",), 1),
    Fault("unforeseen-columns-swapped", "llama2",
          weight_of("model.layers.1.mlp.down_proj", lambda w: w[:, torch.randperm(w.shape[1], generator=torch.Generator().manual_seed(3))]),
          ("down_proj",), ("weight-permuted",), 1),
)


def model_of(family, dtype, attention, out):
    """The model in a dtype, and its checkpoint in OUT/model as save_pretrained() writes it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(CHECKPOINTS, family), dtype=DTYPES[dtype],
                                                              attn_implementation=attention)
    folder = os.path.join(out, "model")
    if dtype == "f32":
        shutil.copytree(os.path.join(CHECKPOINTS, family), folder, ignore=shutil.ignore_patterns("expected*"))
    else:
        model.save_pretrained(folder)
    return model.eval()


def dump(model, family, out, weights=(), tokens=None):
    ids = load_file(os.path.join(CHECKPOINTS, family, "expected.safetensors"))["tokens"].long()[None]
    if tokens is not None:
        ids = tokens(ids)
    with torch.no_grad(), nanscope_capture.attach(model, os.path.join(out, "dump")) as capture:
        past = None
        for begin, end in [(0, PREFILL)] + [(PREFILL + i, PREFILL + i + 1) for i in range(DECODED)]:
            past = model(input_ids=ids[:, begin:end], past_key_values=past, use_cache=True).past_key_values
        del capture
    if weights:
        folder = os.path.join(out, "dump", "step_00000")
        tensors = {name + ".weight": model.get_submodule(name).weight.data.contiguous() for name in weights}
        save_file(tensors, os.path.join(folder, "weights.safetensors"))


def make(out, family, dtype, attention, expected, plant=None, weights=(), tokens=None):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    model = model_of(family, dtype, attention, out)
    if out.endswith("stale-adapter"):
        module = "model.layers.0.self_attn.v_proj"
        save_adapter(model.get_submodule(module).weight.data, module, os.path.join(out, "adapter"))
    with torch.no_grad():
        around = plant(model) if plant else None
    with around if hasattr(around, "__enter__") else contextlib.nullcontext():
        dump(model, family, out, weights, tokens)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    with open(os.path.join(out, "expected.json"), "w", encoding="utf-8") as file:
        json.dump({**expected, "family": family, "dtype": dtype, "attention": attention, "made_by": versions}, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--only", metavar="NAME", help="cases whose name holds this")
    parser.add_argument("--golden", action="store_true",
                        help="those of tests/golden/verify, which are short, those in f32 without their checkpoints")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)

    if options.golden:
        global PREFILL, DECODED
        PREFILL, DECODED = 12, 1

    def wanted(name):
        return name in GOLDEN if options.golden else not options.only or options.only in name

    for family in FAMILIES:
        for dtype in DTYPES:
            for attention in ("eager", "sdpa") if dtype == "f32" and family not in ("gemma2", "gpt-oss") else ("eager",):
                name = f"healthy-{family}-{dtype}" + ("-sdpa" if attention == "sdpa" else "")
                if wanted(name):
                    make(os.path.join(options.out, name), family, dtype, attention, {"healthy": True})
    for fault in FAULTS:
        if wanted("fault-" + fault.name):
            make(os.path.join(options.out, "fault-" + fault.name), fault.family, fault.dtype, fault.attention,
                 {"healthy": False, "ops": fault.ops, "alternatives": fault.alternatives, "layer": fault.layer},
                 fault.plant, fault.weights, fault.tokens)
    for name in GOLDEN if options.golden else ():
        if not name.endswith(("bf16", "f16")):
            shutil.rmtree(os.path.join(options.out, name, "model"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
