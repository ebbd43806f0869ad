"""Dumps of transformers' own models, healthy and with one planted wrong result each. usage: transformers_dumps.py OUT

Needs torch and transformers, no download: every model is made here from its config class, with random weights by seed.
OUT/CASE/dump is what nanscope_capture wrote, mostly with the weights beside it in OUT/CASE/dump/checkpoint, and
OUT/CASE/expected.json what a diagnosis should say. check_transformers.py asks for it.

A planted fault is a function of one module that really computes the wrong thing; no dumped byte is edited. Each is
checked against its healthy twin, the same model on the same prompt: nothing that ran before the tensor named in
expected.json differs, and that tensor does, by more than rounding.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import re
import shutil
import sys
import tempfile
import zlib
from dataclasses import dataclass, field, replace
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from torch import nn
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
except ImportError as missing:
    sys.exit(f"transformers_dumps.py: {missing.name} is not installed")

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "instrument", "python"))
import nanscope_capture  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOKENS = 24  # of a prompt
SHORTER = (TOKENS, 17, 9)  # of the prompts of a padded batch
NEW_TOKENS = 4
FIRST_ID = 3  # smaller ones are padding and marks

WIDTH = dict(hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
             vocab_size=320, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)

# Model class and what its config says besides WIDTH; None takes an entry of WIDTH away.
FAMILIES = {
    "gpt2": ("GPT2LMHeadModel", dict.fromkeys(WIDTH) | dict(n_embd=96, n_layer=3, n_head=6, n_positions=128,
                                                            vocab_size=320)),
    "llama": ("LlamaForCausalLM", {}),
    "llama3-rope": ("LlamaForCausalLM", dict(rope_parameters=LLAMA3_ROPE, num_hidden_layers=2)),
    "qwen2": ("Qwen2ForCausalLM", dict(tie_word_embeddings=True)),
    "qwen3": ("Qwen3ForCausalLM", dict(head_dim=32, num_attention_heads=4)),
    "mistral": ("MistralForCausalLM", dict(sliding_window=8, num_hidden_layers=4)),
    "gemma2": ("Gemma2ForCausalLM", dict(num_hidden_layers=4, head_dim=32, num_attention_heads=4, sliding_window=8,
                                         query_pre_attn_scalar=24, attn_logit_softcapping=20.0)),
    "mixtral": ("MixtralForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=128)),
    "phi3": ("Phi3ForCausalLM", {}),
    "olmo2": ("Olmo2ForCausalLM", dict(num_hidden_layers=2, num_key_value_heads=6)),
    "vit": ("ViTForImageClassification", dict(image_size=32, patch_size=8, num_labels=10, num_key_value_heads=None,
                                              vocab_size=None, max_position_embeddings=None)),
    "bert": ("BertForMaskedLM", dict(num_key_value_heads=None, bos_token_id=None, eos_token_id=None)),
}


@dataclass
class Case:
    """One dump. `run` is single, left or right (a padded batch), generate, generate-left, fp8-cache or static-cache."""

    family: str
    dtype: str
    attention: str = "eager"
    run: str = "single"
    suffix: str = ""
    config: dict = field(default_factory=dict)
    checkpoint: str = "state_dict, config"  # or state_dict; saved, as save_pretrained writes it; none
    capture: dict = field(default_factory=dict)  # arguments of attach()
    call: dict = field(default_factory=dict)  # arguments of the model
    prepare: object = None  # called with the model, also of a healthy twin
    watch: object = None  # called with model and capture
    embedding: float = 0.5  # standard deviation
    load: dict = field(default_factory=dict)  # arguments of from_pretrained
    prompt: str = ""  # another prompt than the family's
    note: str = ""
    planted: object = None

    @property
    def name(self):
        return "-".join(filter(None, (self.family, self.dtype, self.attention, self.run, self.suffix)))


@dataclass
class Planted:
    """A wrong result. `plant(model, layer)` changes what the model computes; names stand below the layer."""

    plant: object
    first_bad: str
    region: str
    layer: int | None = None
    neighbours: tuple = ()
    step: int = 0
    kind: str = "wrong-result"
    acceptable: tuple = ()
    k: tuple = ()  # the first and the last that is in no sum


def seeded(text):
    return torch.Generator().manual_seed(zlib.crc32(text.encode()))


def config_of(case):
    class_name, changes = FAMILIES[case.family]
    model_class = getattr(transformers, class_name)
    entries = {key: value for key, value in (WIDTH | changes | case.config).items() if value is not None}
    return model_class, model_class.config_class(**entries)


def draw_weights(model, case):
    """Weights of which activations of size one come about, and no two layers alike."""
    draw = seeded(case.family)

    def normal(parameter, deviation, mean=0.0):
        parameter.copy_(torch.randn(parameter.shape, generator=draw) * deviation + mean)

    tied = getattr(model.config, "tie_word_embeddings", False)
    for path, module in model.named_modules():
        kind, last = type(module).__name__, path.rpartition(".")[2]
        for name, parameter in module.named_parameters(recurse=False):
            if "Norm" in kind and name == "weight":
                normal(parameter, 0.1, 0.0 if kind.startswith("Gemma") else 1.0)
            elif isinstance(module, nn.Embedding):
                normal(parameter, 1.5 * parameter.shape[1] ** -0.5 if tied else case.embedding)
            elif parameter.dim() == 1:
                normal(parameter, 0.5 if last in ("q_proj", "k_proj", "query", "key") else 0.1)
            elif name in ("cls_token", "position_embeddings"):
                normal(parameter, case.embedding)
            else:
                fan_in = parameter.shape[0] if kind == "Conv1D" else math.prod(parameter.shape[1:])
                if parameter.dim() == 3:  # experts x rows x columns
                    fan_in = parameter.shape[2]
                # Queries and keys a little larger: attention that looks at everything alike hides its faults.
                gain = 1.4 if last in ("q_proj", "k_proj", "query", "key", "qkv_proj", "c_attn") else 1.0
                normal(parameter, gain * fan_in**-0.5)


def build(case):
    """The model as from_pretrained gives it: what its class keeps in f32, such as the frequencies of RoPE, is f32."""
    model_class, config = config_of(case)
    model = model_class(config)
    with torch.no_grad():
        draw_weights(model, case)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model = model_class.from_pretrained(folder, dtype=DTYPES[case.dtype], attn_implementation=case.attention,
                                            **case.load)
    model.eval()
    with torch.no_grad():
        if case.prepare:
            case.prepare(model)
    return model


def prompt_of(case, config):
    """The model's arguments."""
    draw = seeded(f"{case.family} prompt {case.prompt}")
    if case.family == "vit":
        return {"pixel_values": torch.randn((2, 3, 32, 32), generator=draw)}
    lengths = SHORTER if case.run in ("left", "right", "generate-left") else (TOKENS,)
    ids = torch.randint(FIRST_ID, config.vocab_size, (len(lengths), TOKENS), generator=draw)
    if len(lengths) == 1:
        return {"input_ids": ids}
    place = torch.arange(TOKENS)
    mask = torch.stack([place < n if case.run == "right" else place >= TOKENS - n for n in lengths])
    return {"input_ids": torch.where(mask, ids, config.pad_token_id or 0), "attention_mask": mask.long()}


def run(case, model, capture=None):
    arguments = prompt_of(case, model.config) | case.call
    with torch.no_grad(), contextlib.ExitStack() as stack:
        if case.watch and capture:
            case.watch(model, capture, stack)
        if case.run.startswith("generate") or case.run.endswith("-cache"):
            model.generation_config.eos_token_id = None  # all of the tokens that were asked for
            if case.run == "fp8-cache":
                stack.enter_context(refuse_clipped_keys())
                arguments["past_key_values"] = transformers.QuantizedCache(backend="fp8", config=model.config)
            elif case.run == "static-cache":
                arguments["cache_implementation"] = "static"
            arguments.setdefault("attention_mask", torch.ones_like(arguments["input_ids"]))
            model.generate(**arguments, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)
        else:
            model(**arguments)


@contextlib.contextmanager
def refuse_clipped_keys():
    """The scale of an fp8 cache is locked by the prompt; a dump is healthy only as long as later tokens fit into it."""
    cache_layer = transformers.cache_utils.Fp8QuantizedLayer
    honest, largest = cache_layer._quantize, torch.finfo(torch.float8_e4m3fn).max

    def quantize(self, tensor, scale=None):
        if scale is not None and tensor.abs().max() > scale * (largest + 16):  # half a step of the codes up there
            sys.exit("transformers_dumps.py: a token of the fp8 cache is clipped, take another prompt")
        return honest(self, tensor, scale)

    with mock.patch.object(cache_layer, "_quantize", quantize):
        yield


class Order:
    """When each module was entered and left: which of two tensors was there first."""

    def __init__(self, model):
        self.entered, self.left, self._count = {}, {}, 0
        for name, module in model.named_modules():
            module.register_forward_pre_hook(functools.partial(self._note, self.entered, name))
            module.register_forward_hook(functools.partial(self._note, self.left, name))

    def _note(self, times, name, *_):
        self._count += 1
        times.setdefault(name, []).append(self._count)

    def of(self, key):
        """Of a dumped tensor: inputs when their module was entered, outputs when it was left."""
        for port, times in ((".input", self.entered), (".kwargs", self.entered), (".output", self.left)):
            module, found, _ = key.partition(port)
            if found and module in times:
                again = re.search(r"_again(\d+)", key)
                return times[module][int(again[1]) - 1 if again else 0]
        return 0


def dump(case, folder, plant=None):
    """Runs a case and writes its dump. Gives back the model, when its modules ran, and the steps that were written."""
    model = build(case)
    layer = None
    if plant:
        with torch.no_grad():
            layer = None if plant.layer is None else layers_of(model)[plant.layer]
            plant.plant(model, layer)
    order = Order(model)
    with nanscope_capture.attach(model, folder, **case.capture) as capture:
        run(case, model, capture)
    return model, order, capture.written


def save_checkpoint(case, model, folder):
    if case.checkpoint == "none":
        return
    if case.checkpoint == "saved":
        model.save_pretrained(folder)
        return
    os.makedirs(folder, exist_ok=True)
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    nanscope_capture.save_safetensors(weights, os.path.join(folder, "model.safetensors"))
    if "config" in case.checkpoint:
        model.config.save_pretrained(folder)


def layers_of(model):
    """The layers, whatever the family calls them."""
    return next(module for _, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) > 1)


def name_of(model, wanted):
    return next(name for name, module in model.named_modules() if module is wanted)


# What faults are planted with.


def during(module, *patches):
    """Holds patches, which are functions that give context managers, while `module` runs and at no other time."""
    forward = module.forward

    @functools.wraps(forward)
    def patched(*args, **kwargs):
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            return forward(*args, **kwargs)

    module.forward = patched


def after(module, change):
    """The module's result goes through `change`, before any hook sees it."""
    forward = module.forward

    @functools.wraps(forward)
    def patched(*args, **kwargs):
        return change(forward(*args, **kwargs), *args, **kwargs)

    module.forward = patched


def around_attention(module, change):
    """`change(attention, query, key, value, mask, **rest)` is called instead of eager or sdpa attention."""
    get_interface = type(ALL_ATTENTION_FUNCTIONS).get_interface

    def changed(self, *which):
        function = get_interface(self, *which)

        def attention(owner, query, key, value, mask, **rest):
            def honest(query, key, value, mask, **rest):
                return function(owner, query, key, value, mask, **rest)

            return change(honest, query, key, value, mask, **rest)

        return attention

    during(module, lambda: mock.patch.object(type(ALL_ATTENTION_FUNCTIONS), "get_interface", changed))


def around_rope(module, change):
    """`change(rope, q, k, cos, sin)` is called in place of the function that turns queries and keys."""
    code = sys.modules[type(module).__module__]
    honest = code.apply_rotary_pos_emb
    during(module, lambda: mock.patch.object(code, "apply_rotary_pos_emb", functools.partial(change, honest)))


@contextlib.contextmanager
def other_parameter(module, name, tensor):
    held = module._parameters[name]
    module._parameters[name] = None if tensor is None else nn.Parameter(tensor, requires_grad=False)
    try:
        yield
    finally:
        module._parameters[name] = held


def with_parameter(module, name, tensor):
    during(module, lambda: other_parameter(module, name, tensor))


def causal_mask(query, key, window=None):
    """Additive, for a prompt without padding."""
    queries, keys = query.shape[-2], key.shape[-2]
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)[None, :]
    seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return torch.zeros(queries, keys, dtype=query.dtype).masked_fill(~seen, torch.finfo(query.dtype).min)


# The faults. Each takes the model and the layer it is planted in.


def drop_k_tile(model, layer):
    linear = layer.mlp.down_proj
    weight = linear.weight.clone()
    weight[:, -16:] = 0  # what is left out of a sum counts as nothing
    with_parameter(linear, "weight", weight)


def stale_tile(model, layer):
    """32 columns hold what the same projection of the layer before wrote there."""
    before, seen = layers_of(model)[0].mlp.up_proj, []
    before.register_forward_hook(lambda _, __, result: seen.append(result[..., 64:96].clone()))

    def change(result, *_, **__):
        result = result.clone()
        result[..., 64:96] = seen[-1]
        return result

    after(layer.mlp.up_proj, change)


def zero_tile(model, layer):
    def change(result, *_, **__):
        result = result.clone()
        result[:, 16:, 32:64] = 0
        return result

    after(layer.self_attn.qkv_proj, change)


def unwritten_logits(model, layer):
    def change(result, *_, **__):
        result = result.clone()
        result[..., -32:] = 0
        return result

    after(model.lm_head, change)


def wrong_row(model, layer):
    def change(result, ids, **_):
        result = result.clone()
        result[0, 5] = model.model.embed_tokens.weight[ids[0, 5] + 1]
        return result

    after(model.model.embed_tokens, change)


def swap_heads(model, layer):
    def change(attention, query, key, value, mask, **rest):
        result, probabilities = attention(query, key, value, mask, **rest)
        heads = list(range(result.shape[2]))  # batch x tokens x heads x channels
        heads[1], heads[4] = heads[4], heads[1]
        return result[:, :, heads], probabilities

    around_attention(layer.self_attn, change)


def rope_off_by_one(model, layer):
    """Queries are turned as the position before theirs."""

    def change(rope, q, k, cos, sin, *rest, **more):
        shifted = [torch.cat((table[:, :1], table[:, :-1]), dim=1) for table in (cos, sin)]
        return rope(q, k, *shifted, *rest, **more)[0], rope(q, k, cos, sin, *rest, **more)[1]

    around_rope(layer.self_attn, change)


def rope_unscaled(model, layer):
    """Angles as if rope_parameters said "default"."""
    head = layer.self_attn.head_dim
    frequencies = 1.0 / LLAMA3_ROPE["rope_theta"] ** (torch.arange(0, head, 2).float() / head)

    def change(rope, q, k, cos, sin, *rest, **more):
        angles = torch.arange(q.shape[2])[None, :, None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return rope(q, k, angles.cos().to(q.dtype), angles.sin().to(q.dtype), *rest, **more)

    around_rope(layer.self_attn, change)


def see_one_ahead(model, layer):
    """Every query sees the key after its own."""
    attention_module = getattr(layer, "attn", None) or layer.self_attn

    def change(attention, query, key, value, mask, **rest):
        mask = causal_mask(query, key) if mask is None else mask.clone()
        mask.diagonal(offset=1, dim1=-2, dim2=-1).fill_(0)
        return attention(query, key, value, mask, **rest)

    around_attention(attention_module, change)


def no_scale(model, layer):
    (getattr(layer, "attn", None) or layer.self_attn).scaling = 1.0


def no_softcap(model, layer):
    layer.self_attn.attn_logit_softcapping = None


def no_window(model, layer):
    around_attention(layer.self_attn, lambda attention, query, key, value, mask, **rest: attention(
        query, key, value, causal_mask(query, key), **rest))


def keys_for_values(model, layer):
    around_attention(layer.self_attn, lambda attention, query, key, value, mask, **rest: attention(
        query, key, key, mask, **rest))


def tiled_groups(model, layer):
    """Query head h reads key head h mod 2 instead of h / 3."""

    def change(attention, query, key, value, mask, **rest):
        order = [h % 2 * 3 + h // 2 for h in range(6)]  # the place among the repeated heads where head h mod 2 stands
        groups = layer.self_attn.num_key_value_groups
        key, value = (x.repeat_interleave(groups, 1)[:, order] for x in (key, value))
        with mock.patch.object(layer.self_attn, "num_key_value_groups", 1):
            return attention(query, key, value, mask, **rest)

    around_attention(layer.self_attn, change)


def stale_slot(model, layer):
    """In the third step the new token's key was not written: its slot holds that of the token before."""

    def change(attention, query, key, value, mask, **rest):
        if key.shape[2] == TOKENS + 2 and query.shape[2] == 1:
            key = key.clone()
            key[:, :, -1] = key[:, :, -2]
        return attention(query, key, value, mask, **rest)

    around_attention(layer.self_attn, change)


def norm_without_eps(model, layer):
    layer.input_layernorm.variance_epsilon = 0.0


def norm_of_other_layer(model, layer):
    other = layers_of(model)[0].post_attention_layernorm
    with_parameter(layer.post_attention_layernorm, "weight", other.weight.clone())


def norm_without_one(model, layer):
    """Weights of Gemma taken for Llama's: x * w instead of x * (1 + w)."""
    with_parameter(layer.pre_feedforward_layernorm, "weight", layer.pre_feedforward_layernorm.weight - 1)


def norm_of_part(model, layer):
    """The mean of squares leaves out the last eighth of the row."""
    norm = layer.self_attn.q_norm

    def forward(hidden_states):
        x = hidden_states.float()
        part = x[..., : x.shape[-1] * 7 // 8].pow(2).sum(-1, keepdim=True) / x.shape[-1]
        return (norm.weight * (x * torch.rsqrt(part + norm.variance_epsilon))).to(hidden_states.dtype)

    norm.forward = forward


def residual_twice(model, layer):
    """The first residual is added again behind the MLP: x + attention + MLP + x."""
    after(layer, lambda result, hidden_states, **_: result + hidden_states)


def residual_left_out(model, layer):
    """What came into the block is not added to the attention's result."""

    def forward(hidden_states, past_key_values=None, attention_mask=None, *_, **more):
        attended = layer.attn(layer.ln_1(hidden_states), past_key_values=past_key_values, attention_mask=attention_mask,
                              **more)[0]
        return attended + layer.mlp(layer.ln_2(attended))

    layer.forward = forward


def no_bias_query(model, layer):
    query = layer.attention.self.query
    with_parameter(query, "bias", torch.zeros_like(query.bias))


def no_bias_value(model, layer):
    value = layer.self_attn.v_proj
    with_parameter(value, "bias", torch.zeros_like(value.bias))


def other_expert(model, layer):
    experts = layer.mlp.experts
    weights = experts.down_proj.clone()
    weights[2] = experts.down_proj[1]
    with_parameter(experts, "down_proj", weights)


def no_activation(model, layer):
    def change(result, gate, **_):
        result = result.clone()
        result[:, 5:9] = gate[:, 5:9]
        return result

    after(layer.mlp.act_fn, change)


def stale_row_into_mlp(model, layer):
    """Between the norm and the MLP, row 7 is the row before it."""

    def shifted(honest):
        @functools.wraps(honest)
        def forward(hidden_states):
            hidden_states = hidden_states.clone()
            hidden_states[:, 7] = hidden_states[:, 6]
            return honest(hidden_states)

        return forward

    layer.mlp.forward = shifted(layer.mlp.forward)


def shifted_rows_into_fc2(model, layer):
    """What fc2 reads lies one row off from what the activation wrote."""
    layer.mlp.fc2.register_forward_pre_hook(lambda _, args: (torch.roll(args[0], 1, dims=1),))


def previous_scale(model, layer):
    before = layers_of(model)[1].mlp.down_proj
    with_parameter(layer.mlp.down_proj, "weight_scale", before.weight_scale.clone())


# What some models are prepared with, healthy ones too.


class Fp8Linear(nn.Module):
    """A linear layer whose weight is stored in fp8, with one scale for all of it."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.abs().amax().float() / torch.finfo(torch.float8_e4m3fn).max
        self.weight = nn.Parameter((linear.weight.float() / scale).to(torch.float8_e4m3fn), requires_grad=False)
        self.weight_scale = nn.Parameter(scale, requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, (self.weight.float() * self.weight_scale).to(x.dtype))


def quantize_down_proj(model):
    for factor, layer in zip((0.8, 1.1, 1.5, 2.0), layers_of(model)):
        layer.mlp.down_proj.weight *= factor
        layer.mlp.down_proj = Fp8Linear(layer.mlp.down_proj)


def grow_outliers(model):
    """Two channels of the residual far above the others, as trained models have them."""
    model.model.embed_tokens.weight[:, [7, 51]] *= 40


def watch_fp8_cache(model, capture, stack):
    """Adds what the cache holds and what attention read of it: no module returns either."""
    cache_layer = transformers.cache_utils.Fp8QuantizedLayer
    honest, names = cache_layer.update, {}
    attentions = [name_of(model, layer.self_attn) for layer in layers_of(model)]

    def update(self, keys, values, *args, **kwargs):
        name = names.setdefault(self, attentions[min(len(names), len(attentions) - 1)])
        read = honest(self, keys, values, *args, **kwargs)
        for letter, (codes, scale), tensor in zip("kv", (self._quantized_keys, self._quantized_values), read):
            capture.add(f"{name}.{letter}_cache", codes)
            capture.add(f"{name}.{letter}_scale", scale)
            capture.add(f"{name}.{letter}_read", tensor)
        return read

    stack.enter_context(mock.patch.object(cache_layer, "update", update))


def healthy_cases():
    dtypes, decoders = list(DTYPES), [family for family in FAMILIES if family not in ("vit", "bert")]
    for number, family in enumerate(decoders):
        runs = (("single", "eager"), ("left", "sdpa"), ("right", "eager"), ("generate", "sdpa"))
        for turn, (run_kind, attention) in enumerate(runs):
            checkpoint = "state_dict, config"
            if turn == number % 4:
                checkpoint = ("state_dict", "saved", "none")[number % 3]
            yield Case(family, dtypes[(number + turn) % 3], "eager" if family == "gemma2" else attention, run_kind,
                       checkpoint=checkpoint, call={"output_attentions": True} if run_kind == "single" else {})
    yield Case("vit", "f32", call={"output_attentions": True})
    yield Case("vit", "bf16", "sdpa")
    yield Case("vit", "f16", checkpoint="state_dict")
    yield Case("bert", "f32", call={"output_attentions": True})
    yield Case("bert", "bf16", "sdpa", "right")
    yield Case("bert", "f16", "eager", "left", checkpoint="saved")
    yield Case("llama", "f16", "eager", "generate-left", note="positions of generate() begin where the padding ends")
    yield Case("gpt2", "bf16", "sdpa", "generate-left")
    yield Case("gemma2", "f16", "eager", "generate", "hybrid-cache", note="a cache of 8 tokens in the sliding layers")
    yield Case("llama", "bf16", "sdpa", "static-cache", note="a cache longer than what is in it, the rest masked")
    yield Case("llama", "bf16", "sdpa", "fp8-cache", prompt="2",
               note="attention reads fp8 keys and values from the second step on")
    yield Case("qwen2", "f32", "eager", "fp8-cache", "watched", watch=watch_fp8_cache,
               note="codes, scales and what was read are in the dump; the first step reads what was not quantized")
    yield Case("llama", "bf16", "sdpa", suffix="fp8-linear", prepare=quantize_down_proj, checkpoint="state_dict")
    yield Case("llama", "bf16", suffix="outliers", prepare=grow_outliers)
    yield Case("mistral", "f16", "sdpa", suffix="outliers", prepare=grow_outliers)
    yield Case("qwen2", "bf16", "sdpa", suffix="outputs-only", capture={"inputs": False})
    yield Case("gpt2", "bf16", suffix="upcast",
               config={"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True})
    yield Case("phi3", "f32", suffix="partial-rope",
               config={"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}})
    yield Case("mixtral", "f32", suffix="expert-by-expert", load={"experts_implementation": "eager"},
               note="experts one after the other, where the others run grouped")
    yield Case("llama", "f16", suffix="biases", config={"attention_bias": True, "mlp_bias": True})


def planted_cases():
    def case(family, dtype, suffix, plant, first_bad, region, layer=None, *, attention="eager", run="single", step=0,
             neighbours=(), kind="wrong-result", acceptable=(), k=(), **more):
        note = " ".join((plant.__doc__ or "").split()).removesuffix(".")
        planted = Planted(plant, first_bad, region, layer, neighbours, step, kind, acceptable, k)
        return Case(family, dtype, attention, run, suffix, note=note, planted=planted, **more)

    probs = dict(first_bad="self_attn.output.1", neighbours=("self_attn.o_proj.input", "self_attn.output"))
    attended = dict(first_bad="self_attn.o_proj.input", neighbours=("self_attn.output",))
    yield case("llama", "bf16", "k-tile-left-out", drop_k_tile, "mlp.down_proj.output",
               "all rows and columns, k 240..255 missing from the sums", 1, attention="sdpa", k=(240, 255))
    yield case("qwen2", "f16", "stale-tile", stale_tile, "mlp.up_proj.output", "columns 64..95 of all rows", 1)
    yield case("phi3", "f32", "zero-tile", zero_tile, "self_attn.qkv_proj.output", "rows 16..23, columns 32..63", 2)
    yield case("olmo2", "f16", "unwritten-logits", unwritten_logits, "lm_head.output", "columns 288..319 of all rows")
    yield case("llama", "f32", "wrong-embedding-row", wrong_row, "model.embed_tokens.output", "row 5")
    yield case("mistral", "f32", "swapped-heads", swap_heads, region="heads 1 and 4 of all rows", layer=2,
               attention="sdpa", **attended)
    yield case("qwen3", "bf16", "rope-off-by-one", rope_off_by_one, region="all heads, rows 1..23", layer=1, **probs)
    yield case("llama", "f16", "rope-off-by-one", rope_off_by_one, region="all heads, rows 1..23", layer=2,
               attention="sdpa", **attended)
    yield case("llama3-rope", "f32", "rope-unscaled", rope_unscaled, region="all heads, rows 1..23", layer=1, **probs)
    yield case("gpt2", "f32", "one-ahead", see_one_ahead, "attn.output.1", "key q + 1 of every query q", 1,
               neighbours=("attn.c_proj.input", "attn.output"), kind="future-leakage", acceptable=("wrong-result",))
    yield case("llama", "bf16", "one-ahead", see_one_ahead, region="key q + 1 of every query q", layer=1,
               attention="sdpa", kind="future-leakage", acceptable=("wrong-result",), **attended)
    yield case("gpt2", "f16", "no-scale", no_scale, "attn.output.1", "all heads and rows but the first", 2,
               neighbours=("attn.c_proj.input", "attn.output"))
    yield case("gemma2", "f32", "no-softcap", no_softcap, region="all heads and rows but the first", layer=1, **probs)
    yield case("mistral", "bf16", "no-window", no_window, region="rows 8..23, keys 8 and more behind", layer=1, **probs)
    yield case("llama", "f16", "keys-for-values", keys_for_values, region="all heads and rows", layer=1,
               attention="sdpa", **attended)
    yield case("qwen2", "f32", "tiled-groups", tiled_groups, region="heads 1 and 4", layer=0, attention="sdpa",
               **attended)
    yield case("llama", "f32", "stale-slot", stale_slot, region="the last key of the third step", layer=1,
               attention="sdpa", run="generate", step=2, **attended)
    yield case("llama", "f32", "no-eps", norm_without_eps, "input_layernorm.output", "all rows, about 1 % too large", 0,
               attention="sdpa", config={"rms_norm_eps": 1e-5}, embedding=0.02)
    yield case("llama", "bf16", "norm-of-other-layer", norm_of_other_layer, "post_attention_layernorm.output",
               "all rows and columns", 2)
    yield case("gemma2", "bf16", "norm-without-one", norm_without_one, "pre_feedforward_layernorm.output",
               "all rows and columns", 2)
    yield case("olmo2", "f32", "norm-of-part", norm_of_part, "self_attn.q_norm.output", "all rows", 1)
    yield case("qwen2", "f32", "residual-twice", residual_twice, ".output", "all rows and columns", 1)
    yield case("gpt2", "f16", "residual-left-out", residual_left_out, "ln_2.input", "all rows and columns", 1,
               attention="sdpa")
    yield case("bert", "f32", "no-bias", no_bias_query, "attention.self.query.output", "all rows and columns", 1)
    yield case("qwen2", "bf16", "no-bias", no_bias_value, "self_attn.v_proj.output", "all rows and columns", 2,
               attention="sdpa")
    yield case("mixtral", "bf16", "other-expert", other_expert, "mlp.experts.output", "rows that go to expert 2", 1,
               neighbours=("mlp.output",))
    yield case("llama", "f32", "no-activation", no_activation, "mlp.act_fn.output", "rows 5..8", 1, attention="sdpa")
    yield case("gemma2", "f16", "stale-row", stale_row_into_mlp, "mlp.gate_proj.input", "row 7 holds row 6", 2,
               neighbours=("mlp.up_proj.input", "mlp.input", "mlp.output"))
    yield case("vit", "bf16", "shifted-rows", shifted_rows_into_fc2, "mlp.fc2.input",
               "every row holds the one before", 1, attention="sdpa")
    yield case("llama", "bf16", "stale-scale", previous_scale, "mlp.down_proj.output",
               "all rows and columns, times the scale of layer 1 instead of 2", 2, attention="sdpa",
               kind="scale-misapplied", acceptable=("wrong-result",), prepare=quantize_down_proj,
               checkpoint="state_dict", neighbours=("mlp.down_proj.weight_scale",))


def steps_of(written):
    return [load_file(os.path.join(folder, "tensors.safetensors")) for folder in written]


def same_bits(a, b):
    return nanscope_capture._same_bytes(a, b)


def ranges(chosen):
    """The places of what is true, as nanscope says them: 3, 5 to 7."""
    numbers, found = chosen.nonzero().flatten().tolist(), []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{first} to {last}" if last > first else f"{first}" for first, last in found)


def places(off, least):
    """What differs at all, and what differs by more than `least`: whatever lies between may be told or not."""
    return {"any": ranges(off > 0), "clear": ranges(off > least)}


def measured_region(off, noise, heads, k):
    """Rows, heads and columns of a tensor that are off; it is batch x tokens x channels, or has heads and keys."""
    if off.dim() == 4:
        heads = off.shape[1]
        off = off.transpose(1, 2)
    off = off.reshape(-1, heads, off.shape[-1] if off.dim() == 4 else off.shape[-1] // heads)
    least = max(noise, off.max().item() / 10)
    measured = {"of": list(off.shape), "rows": places(off.amax((1, 2)), least),
                "heads": places(off.amax((0, 2)), least), "columns": places(off.amax(0).flatten(), least)}
    return measured | ({"k": list(k)} if k else {})


def expectation(case, model, order, written):
    """expected.json of a planted case, which is first compared with its healthy twin."""
    planted = case.planted
    prefix = "" if planted.layer is None else name_of(model, layers_of(model)[planted.layer])
    full = [prefix + tail if tail.startswith(".") else ".".join(filter(None, (prefix, tail)))
            for tail in (planted.first_bad, *planted.neighbours)]
    with tempfile.TemporaryDirectory() as folder:
        healthy = steps_of(dump(replace(case, planted=None), folder)[2])
    steps = steps_of(written)
    for step in range(planted.step):
        if not all(same_bits(steps[step][key], healthy[step][key]) for key in healthy[step]):
            sys.exit(f"{case.name}: step {step} differs from the healthy twin's already")
    bad, good = steps[planted.step], healthy[planted.step]
    differing = [key for key in good if not same_bits(bad[key], good[key])]
    first = full[0]
    # Other names of the same numbers: the output of one module is the input of the next.
    named = set(full) | {key for key in differing if bad[key].numel() == bad[first].numel()
                         and same_bits(bad[key].reshape(-1), bad[first].reshape(-1))}
    earliest = min(differing, key=order.of, default=None)
    if first not in differing or earliest not in named:
        sys.exit(f"{case.name}: {first} is said to be the first bad tensor, {earliest} is")
    off = (bad[first].double() - good[first].double()).abs()
    size, noise = good[first].double().pow(2).mean().sqrt(), torch.finfo(good[first].dtype).eps
    noise = 16 * noise * size.item()
    if off.max() < noise:
        sys.exit(f"{case.name}: {first} is off by rounding alone")
    attended = first.endswith(("attn.o_proj.input", "attn.c_proj.input"))
    heads = model.config.num_attention_heads if attended else 1
    step = f"step_{planted.step:05d}/"
    acceptable = sorted(step + key for key in named - {first} if key in bad)
    measured = (f"{int((off > 0).sum())} of {off.numel()} elements of it differ from the healthy model's, by up to "
                f"{(off.max() / size).item():.3g} of their root mean square")
    return {"class": planted.kind, "acceptable": list(planted.acceptable), "verdict": "fault",
            "first_bad_tensor": step + first, "acceptable_tensors": acceptable, "layer": planted.layer,
            "region": planted.region, "measured": measured_region(off, noise, heads, planted.k), "note": "; ".join(filter(None, (case.note, measured)))}


def make(case, out):
    folder = os.path.join(out, case.name)
    shutil.rmtree(folder, ignore_errors=True)
    model, order, written = dump(case, os.path.join(folder, "dump"), case.planted)
    save_checkpoint(case, model, os.path.join(folder, "dump", "checkpoint"))
    if case.planted:
        expected = expectation(case, model, order, written)
    else:
        expected = {"class": "clean", "acceptable": [], "verdict": "clean", "first_bad_tensor": None,
                    "acceptable_tensors": [], "layer": None, "note": case.note or f"{type(model).__name__}, {case.run}"}
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", help="folder for the cases")
    parser.add_argument("--only", metavar="NAME", help="cases whose name holds this")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of sums, and so the bits, must not hang on the machine
    cases = [case for case in (*healthy_cases(), *planted_cases()) if not options.only or options.only in case.name]
    if not cases:
        parser.error(f"argument --only: no case is called {options.only}")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    total = 0
    for case in cases:
        size = make(case, options.out)
        total += size
        print(f"{case.name:48s}{size / 1e6:8.2f} MB")
    print(f"{len(cases)} cases, {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
