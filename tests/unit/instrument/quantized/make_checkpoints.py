#!/usr/bin/env python3
"""Writes the checkpoints in tests/unit/instrument/quantized/checkpoints: a tiny Llama as its producers store it quantized, with what
the weights decode to and the logits that transformers gives for them.

Needs torch, transformers, compressed-tensors (0.20.0 was used), nvidia-modelopt (0.47.0) and torchao (0.18.0), which no test needs:
  python3 tests/unit/instrument/quantized/make_checkpoints.py tests/unit/instrument/quantized/checkpoints [gpt-oss]
"""
import json
import pathlib
import shutil
import sys

import compressed_tensors
import torch
import transformers
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

PROMPT = [3, 17, 42, 5, 29, 11, 60, 8]
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def fnv1a(tensor):
    """FNV-1a of 64 bits over the little-endian f32 of a tensor."""
    value = 0xCBF29CE484222325
    for byte in tensor.contiguous().to(torch.float32).numpy().tobytes():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def model():
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=False, dtype="float32")
    made = LlamaForCausalLM(config).eval()
    for name, weight in made.named_parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return made


def is_product(name):
    return name.endswith("proj.weight")


def minimum_and_maximum(weight, args):
    """Of what shares a scale, with the shape that calculate_qparams() wants."""
    rows, columns = weight.shape
    if args.strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    if args.strategy == "channel":
        return weight.min(1, keepdim=True).values, weight.max(1, keepdim=True).values
    if args.strategy == "block":
        height, width = args.block_structure
        blocks = [[weight[r:r + height, c:c + width] for c in range(0, columns, width)] for r in range(0, rows, height)]
        return (torch.stack([torch.stack([b.min() for b in row]) for row in blocks]),
                torch.stack([torch.stack([b.max() for b in row]) for row in blocks]))
    groups = weight.reshape(rows, columns // args.group_size, args.group_size)
    return groups.min(-1).values, groups.max(-1).values


def largest_inputs(made):
    """Of each product, over the prompt."""
    found = {}
    hooks = [module.register_forward_pre_hook(
        lambda _, inputs, name=name: found.__setitem__(name, inputs[0].abs().max()))
        for name, module in made.named_modules() if isinstance(module, torch.nn.Linear)]
    with torch.no_grad():
        made(torch.tensor([PROMPT]))
    for hook in hooks:
        hook.remove()
    return found


def fused_maximum(state, name):
    """The largest element of what servers run as one with a weight: llm-compressor gives them one scale of the whole."""
    for parts in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        if name.split(".")[-2] in parts:
            stem = name[:name.index(name.split(".")[-2])]
            return max(state[f"{stem}{part}.weight"].abs().max() for part in parts)
    return state[name].abs().max()


def compressed(folder, preset):
    """By compressed-tensors' own functions, as its presets say."""
    made = model()
    inputs = largest_inputs(made)
    scheme = QuantizationScheme(targets=["Linear"], **preset_name_to_scheme(preset, ["Linear"]).model_dump(exclude={"targets"}))
    state, decoded = {}, {}
    format_name = None
    for name, weight in made.state_dict().items():
        weight = weight.detach().clone()
        if not is_product(name):
            state[name] = weight.contiguous()
            continue
        args = scheme.weights
        low, high = minimum_and_maximum(weight, args)
        local = {"weight": weight}
        if args.strategy == "tensor_group":
            local["weight_global_scale"] = generate_gparam(
                -fused_maximum(made.state_dict(), name), fused_maximum(made.state_dict(), name))
            scale, _ = calculate_qparams(low, high, args, global_scale=local["weight_global_scale"])
        else:
            scale, _ = calculate_qparams(low, high, args)
        local["weight_scale"] = scale if args.scale_dtype == torch.uint8 else scale.to(torch.float32)
        compressor, format_name = compressor_of(scheme)
        packed = compressor.compress(local, scheme)
        module = name[:-len(".weight")]
        for part, tensor in packed.items():
            state[f"{module}.{part}"] = tensor.contiguous()
        if args.strategy == "tensor_group":
            state[f"{module}.input_global_scale"] = (448 * 6 / inputs[module]).reshape(1)
        elif scheme.input_activations is not None and not scheme.input_activations.dynamic:
            state[f"{module}.input_scale"] = (inputs[module] / 448).reshape(1)
        decoded[module] = decode(packed, compressor, scheme)
    config = made.config.to_dict()
    group = scheme.model_dump(mode="json")
    group["format"] = format_name
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": format_name,
                                     "quantization_status": "compressed", "ignore": ["lm_head"],
                                     "config_groups": {"group_0": group}}
    write(folder, made, config, state, decoded)


def compressor_of(scheme):
    for name in ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "float-quantized"):
        found = BaseCompressor.get_value_from_registry(name)
        if found.can_compress(torch.nn.Linear, scheme):
            return found, name
    raise ValueError("no compressor")


def decode(packed, compressor, scheme):
    if scheme.weights.strategy == "tensor_group":
        # Its own way goes through bf16.
        codes = packed["weight_packed"]
        values = E2M1[torch.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1).long()]
        factors = packed["weight_scale"].float() / packed["weight_global_scale"].float()
        return values * factors.repeat_interleave(16, 1)
    if "weight_packed" in packed:
        codes = packed["weight_packed"]
        values = E2M1[torch.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1).long()]
        return values * torch.exp2(packed["weight_scale"].float() - 127).repeat_interleave(32, 1)
    if packed["weight_scale"].dtype == torch.uint8:
        return packed["weight"].float() * torch.exp2(packed["weight_scale"].float() - 127).repeat_interleave(32, 1)
    return compressor.decompress(packed, scheme)["weight"].float()


def finegrained(folder, block):
    """As transformers' FineGrainedFP8 stores it: codes by x / (amax / 448), amax / 448 as weight_scale_inv."""
    made = model()
    state, decoded = {}, {}
    for name, weight in made.state_dict().items():
        if not is_product(name):
            state[name] = weight.contiguous()
            continue
        rows, columns = weight.shape
        height, width = block or weight.shape
        scales = torch.zeros(-(-rows // height), -(-columns // width))
        codes = torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
        value = torch.zeros(rows, columns)
        for r in range(scales.shape[0]):
            for c in range(scales.shape[1]):
                at = (slice(r * height, (r + 1) * height), slice(c * width, (c + 1) * width))
                scales[r, c] = weight[at].abs().max() / 448
                codes[at] = (weight[at] / scales[r, c]).clamp(-448, 448).to(torch.float8_e4m3fn)
                value[at] = codes[at].float() * scales[r, c]
        module = name[:-len(".weight")]
        state[f"{module}.weight"] = codes
        state[f"{module}.weight_scale_inv"] = scales if block else scales.reshape(())
        decoded[module] = value
    config = made.config.to_dict()
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                                     "weight_block_size": list(block) if block else None,
                                     "modules_to_not_convert": ["lm_head"]}
    write(folder, made, config, state, decoded)


def gpt_oss(folder):
    """Experts in MXFP4 as openai/gpt-oss has them: blocks of 32 along the inputs under each other, the scale by the floor
    rule of OCP MX 1.0, codes by the nearest; decoded by transformers' own function."""
    torch.manual_seed(9)
    config = transformers.GptOssConfig(
        vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
        sliding_window=4, swiglu_limit=2.0, dtype="float32",
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "truncate": False,
                         "original_max_position_embeddings": 16})
    config._attn_implementation = "eager"
    made = transformers.GptOssForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() == 1 or name.endswith("bias"):
                weight.copy_(0.3 * torch.randn(weight.shape) + ("norm" in name))
            else:
                weight.copy_(torch.randn(weight.shape) * (1.0 if "embed" in name else weight.shape[-1] ** -0.5))
    state, decoded = {}, {}
    for name, weight in made.state_dict().items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            state[name] = weight.contiguous()
            continue
        blocks = weight.transpose(1, 2).reshape(weight.shape[0], weight.shape[2], -1, 32)
        exponent = blocks.abs().amax(-1, keepdim=True).log2().floor() - 2  # E2M1's largest is 1.5 * 2^2
        scaled = (blocks * torch.exp2(-exponent)).clamp(-6, 6)
        codes = (scaled[..., None] - E2M1).abs().argmin(-1)
        state[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        state[f"{name}_scales"] = (exponent[..., 0] + 127).to(torch.uint8)
        value = convert_moe_packed_tensors(state[f"{name}_blocks"], state[f"{name}_scales"], dtype=torch.float32)
        with torch.no_grad():
            weight.copy_(value)
        decoded[name] = value.transpose(1, 2).reshape(-1, value.shape[1])
    settings = config.to_dict()
    settings["quantization_config"] = {"quant_method": "mxfp4",
                                       "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                  "model.embed_tokens", "lm_head"]}
    write(folder, made, settings, state, decoded)


def modelopt(folder, algo):
    """By ModelOpt's own tensors; NVFP4 with scales of the inputs, as its export writes them (amax / 2688)."""
    from modelopt.torch.quantization.qtensor import MXFP8QTensor, NVFP4QTensor
    made = model()
    inputs = largest_inputs(made)
    state, decoded = {}, {}
    for name, weight in made.state_dict().items():
        weight = weight.detach().clone()
        module = name[:-len(".weight")]
        if not is_product(name):
            state[name] = weight.contiguous()
        elif algo == "MXFP8":
            codes, scale = MXFP8QTensor.quantize(weight)
            state[name] = codes._quantized_data.contiguous()
            state[f"{module}.weight_scale"] = scale.contiguous()
            decoded[module] = state[name].float() * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
        else:
            second = fused_maximum(made.state_dict(), name) / (6 * 448)
            codes, scale, _ = NVFP4QTensor.quantize(weight, 16, weights_scaling_factor_2=second)
            state[name] = codes._quantized_data.contiguous()
            state[f"{module}.weight_scale"] = scale.contiguous()
            state[f"{module}.weight_scale_2"] = second.clone()
            state[f"{module}.input_scale"] = inputs[module] / (6 * 448)
            values = E2M1[torch.stack([state[name] & 15, state[name] >> 4], -1).reshape(weight.shape).long()]
            decoded[module] = values * (scale.float() * second).repeat_interleave(16, 1)
    config = made.config.to_dict()
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": algo, "ignore": ["lm_head"],
                                     "producer": {"name": "modelopt"}, "group_size": 16 if algo == "NVFP4" else 32}
    write(folder, made, config, state, decoded)


def torchao(folder, kind):
    """By torchao's own tensors and its way to put them into safetensors."""
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Float8Tensor
    from torchao.quantization.granularity import PerRow
    made = model()
    tensors, decoded = {}, {}
    for name, weight in made.state_dict().items():
        weight = weight.detach().clone()
        tensors[name] = weight
        if not is_product(name):
            continue
        if kind == "Float8":
            tensors[name] = Float8Tensor.from_hp(weight, granularity=PerRow())
            decoded[name[:-len(".weight")]] = tensors[name].dequantize()
        else:
            tensors[name] = NVFP4Tensor.to_nvfp4(weight, per_tensor_scale=weight.abs().max() / (448 * 6))
            codes, scale = tensors[name].qdata, tensors[name].scale.float() * tensors[name].per_tensor_scale
            values = E2M1[torch.stack([codes & 15, codes >> 4], -1).reshape(weight.shape).long()]
            decoded[name[:-len(".weight")]] = values * scale.reshape(weight.shape[0], -1).repeat_interleave(16, 1)
    state, metadata = flatten_tensor_state_dict(tensors)
    config = made.config.to_dict()
    config["quantization_config"] = {"quant_method": "torchao", "modules_to_not_convert": ["lm_head"]}
    write(folder, made, config, {name: tensor.contiguous() for name, tensor in state.items()}, decoded, metadata)


def write(folder, made, config, state, decoded, metadata=None):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt", **(metadata or {})})
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    with torch.no_grad():
        for name, value in decoded.items():
            if "experts" not in name:  # those are decoded in place
                made.get_submodule(name).weight.copy_(value)
        logits = made(torch.tensor([PROMPT])).logits[0, -1]
    expected = {"transformers": transformers.__version__, "compressed_tensors": compressed_tensors.__version__,
                "torch": torch.__version__, "prompt": PROMPT, "logits": [float(x) for x in logits],
                "decoded": {name: {"rows": value.shape[0], "columns": value.shape[1], "fnv1a": fnv1a(value)}
                            for name, value in sorted(decoded.items())}}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(folder.name, (folder / "model.safetensors").stat().st_size)


def plain(folder):
    """The weights that the others were made of."""
    made = model()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file({name: weight.contiguous() for name, weight in made.state_dict().items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(made.config.to_dict(), indent=1, sort_keys=True) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    gpt_oss(out / "gpt-oss-mxfp4")
    if sys.argv[2:] == ["gpt-oss"]:
        return
    plain(out / "plain")
    finegrained(out / "fp8-block", (32, 32))
    finegrained(out / "fp8-tensor", None)
    for preset, folder in (("FP8", "ct-fp8-tensor"), ("FP8_DYNAMIC", "ct-fp8-channel"), ("NVFP4", "ct-nvfp4"),
                           ("MXFP4", "ct-mxfp4"), ("MXFP8", "ct-mxfp8")):
        compressed(out / folder, preset)
    modelopt(out / "modelopt-nvfp4", "NVFP4")
    modelopt(out / "modelopt-mxfp8", "MXFP8")
    torchao(out / "torchao-fp8", "Float8")
    torchao(out / "torchao-nvfp4", "NVFP4")


if __name__ == "__main__":
    main()
