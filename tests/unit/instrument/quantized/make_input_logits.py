#!/usr/bin/env python3
"""Writes tests/unit/instrument/quantized/input_logits.json: logits of checkpoints whose products read NVFP4 or e4m3 under fixed
scales, of the weights and prompts of make_checkpoints.py.

Needs torch, transformers and compressed-tensors (0.20.0 was used), which no test needs:
  python3 tests/unit/instrument/quantized/make_input_logits.py tests/unit/instrument/quantized

Inputs are quantized and decoded by compressed-tensors' own forward_quantize(), a scale for 16 elements from what runs beneath
the checkpoint's input_global_scale, of ModelOpt's 1 / input_scale, and multiplied in f32 by decoded weights. Those of e4m3
are divided by input_scale, clamped and cast by torch.
"""
import json
import pathlib
import sys

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme, QuantizationStatus
from compressed_tensors.quantization.lifecycle.forward import forward_quantize
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from make_checkpoints import E2M1, PROMPT

INPUTS = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True, dynamic="local",
                          scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn, observer="memoryless_minmax")


def decoded(tensors, module):
    """The weight, and the divisor of its inputs."""
    if f"{module}.weight_packed" not in tensors and tensors[f"{module}.weight"].dtype == torch.float8_e4m3fn:
        return tensors[f"{module}.weight"].float() * tensors[f"{module}.weight_scale"], tensors[f"{module}.input_scale"]
    codes = tensors.get(f"{module}.weight_packed", tensors.get(f"{module}.weight"))
    values = E2M1[torch.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1).long()]
    scales = tensors[f"{module}.weight_scale"].float()
    if f"{module}.weight_global_scale" in tensors:
        scales, divisor = scales / tensors[f"{module}.weight_global_scale"], tensors[f"{module}.input_global_scale"]
    else:
        scales, divisor = scales * tensors[f"{module}.weight_scale_2"], 1 / tensors[f"{module}.input_scale"].reshape(1)
    return values * scales.repeat_interleave(16, 1), divisor


def through_e4m3(x, scale):
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def logits_of(folder):
    tensors = load_file(folder / "model.safetensors")
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("quantization_config")
    model = LlamaForCausalLM(LlamaConfig(**settings)).eval()
    plain = {name: tensor for name, tensor in tensors.items() if name in model.state_dict() and tensor.is_floating_point()}
    model.load_state_dict(plain, strict=False)
    for name, linear in model.named_modules():
        if not isinstance(linear, torch.nn.Linear) or name == "lm_head":
            continue
        with torch.no_grad():
            weight, divisor = decoded(tensors, name)
            linear.weight.copy_(weight)
        if tensors.get(f"{name}.weight", torch.zeros(1)).dtype == torch.float8_e4m3fn:
            linear.register_forward_pre_hook(lambda _, x, scale=divisor: (through_e4m3(x[0], scale),))
            continue
        linear.input_global_scale = torch.nn.Parameter(divisor, requires_grad=False)
        linear.quantization_scheme = QuantizationScheme(targets=["Linear"], input_activations=INPUTS)
        linear.quantization_status = QuantizationStatus.FROZEN
        linear.register_forward_pre_hook(lambda module, x: (forward_quantize(module, x[0], "input", INPUTS),))
    with torch.no_grad():
        return [float(x) for x in model(torch.tensor([PROMPT])).logits[0, -1]]


def main():
    folder = pathlib.Path(sys.argv[1])
    made = {"prompt": PROMPT}
    for name in ("ct-nvfp4", "modelopt-nvfp4", "ct-fp8-tensor"):
        made[name] = logits_of(folder / "checkpoints" / name)
        print(name, made[name][:4])
    (folder / "input_logits.json").write_text(json.dumps(made, indent=1) + "\n")


main()
