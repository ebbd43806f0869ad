#!/usr/bin/env python3
"""Writes checkpoints into tests/unit/instrument/quantized/checkpoints: the model of its folder `plain`, rounded to
f16, as packed integers and as 4 bits of bitsandbytes by their producers' own packages, with hashes of what its weights
decode to.

The hashes are of what the packages' own code gives with f32 scales, so that it rounds once: compressed-tensors'
decompress(), GPTQModel's dequantize_weight(), AutoAWQ's dequantize_gemm(), bitsandbytes' dequantize_4bit() to f32.
gptq-int4-asym has zero points of 0: GPTQModel takes 1 from each by one subtraction from the whole word, which borrows
from the next zero point, and adds it again in the same way.

Needs torch, transformers, compressed-tensors and the package beside the names; no test needs them. Several environments
are needed, so only the checkpoints named are written:
  python3 tests/unit/instrument/quantized/make_packed_checkpoints.py tests/unit/instrument/quantized/checkpoints NAME...
  ct-int4 ct-int4-asym ct-int3     compressed-tensors (0.20.1 was used)
  ct-int4-g-idx                    compressed-tensors 0.12.2 (later ones write no weight_g_idx) and transformers 4.57.6
  gptq-int4 gptq-int4-desc-act gptq-int4-asym gptq-int4-v2 gptq-int8 gptq-int3     gptqmodel (7.7.0)
  awq-int4                         autoawq (0.2.9; its sources on PYTHONPATH will do)
  bnb-nf4 bnb-fp4                  bitsandbytes (0.50.2) and accelerate
"""
import importlib.machinery
import json
import pathlib
import shutil
import sys
import tempfile
import types

import torch
from make_checkpoints import fnv1a, is_product
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

GROUP = 32


def load(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16, **options).eval()


def products(model):
    return [(name[:-len(".weight")], model.get_submodule(name[:-len(".weight")]))
            for name, _ in model.named_parameters() if is_product(name)]


def grouped(weight):
    return weight.unflatten(-1, (-1, GROUP))


def compressed(plain, made, bits, symmetric=True, g_idx=False):
    from compressed_tensors.compressors import BaseCompressor, ModelCompressor
    from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme,
                                                 QuantizationStatus, apply_quantization_config)
    from compressed_tensors.quantization.utils import calculate_qparams
    model = load(plain)
    args = QuantizationArgs(num_bits=bits, type="int", strategy="group", group_size=GROUP, symmetric=symmetric,
                            **({"actorder": "group"} if g_idx else {}))
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"], format="pack-quantized",
                                quantization_status=QuantizationStatus.FROZEN)
    apply_quantization_config(model, config)
    torch.manual_seed(5)
    for _, module in products(model):
        weight = module.weight.data
        if g_idx:
            order = torch.randperm(weight.shape[1])
            module.weight_g_idx.data[order] = (torch.arange(weight.shape[1]) // GROUP).int()
            weight = weight[:, order]
        scale, zero = calculate_qparams(grouped(weight).amin(-1), grouped(weight).amax(-1), args)
        module.weight_scale.data.copy_(scale)
        if not symmetric:
            module.weight_zero_point.data.copy_(zero)
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format="pack-quantized")
    compressor.compress_model(model)
    model.save_pretrained(made)
    compressor.update_config(made)
    decoded = {}
    for name, parts in stored(made, "weight_packed").items():
        parts["weight_scale"] = parts["weight_scale"].float()
        if g_idx:
            packer = BaseCompressor.load_from_registry("pack-quantized", config=config)
            decoded[name] = packer.decompress_weight(parts, args)
        else:
            packer = BaseCompressor.get_value_from_registry("pack-quantized")
            decoded[name] = packer.decompress(parts, scheme)["weight"]
    return decoded


def gptq(plain, made, zero_points_of_0=False, **settings):
    """By GPTQ itself, on random tokens."""
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear, PackableQuantLinear
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    model = load(plain)
    if zero_points_of_0:
        for name, module in products(model):
            rows = module.weight.data[[3, 8, 15, 16, 17, 31], GROUP:2 * GROUP]
            module.weight.data[[3, 8, 15, 16, 17, 31], GROUP:2 * GROUP] = rows.abs() + 0.001
    source = made.parent / "source"
    model.save_pretrained(source)
    # It loads and saves no model without a tokenizer.
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", unk_token="w0",
                                        pad_token="w2")
    tokenizer.save_pretrained(source)
    quantized = GPTQModel.load(str(source), QuantizeConfig(**{
        "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False, "offload_to_disk": False,
        "act_group_aware": False, **settings}), device="cpu", dtype=torch.float16)
    torch.manual_seed(3)
    mask = torch.ones(1, 64, dtype=torch.long)
    quantized.quantize([{"input_ids": torch.randint(0, 64, (1, 64)), "attention_mask": mask} for _ in range(8)],
                       batch_size=1)
    quantized.save(str(made))
    tokenizer.save_pretrained(made)
    decoded = {}
    for name, module in GPTQModel.load(str(made), device="cpu", backend=BACKEND.GPTQ_TORCH,
                                       dtype=torch.float16).model.named_modules():
        if isinstance(module, BaseQuantLinear):
            module.scales = module.scales.float()
            decoded[name] = PackableQuantLinear.dequantize_weight(module).T
    if zero_points_of_0:
        assert any((parts["qzeros"] >> 4 * field & 15 == 15).any() for parts in stored(made, "qzeros").values()
                   for field in range(8))
    return decoded


def awq(plain, made):
    """By AutoAWQ's modules: the package itself does not import beside a newer transformers."""
    sys.modules["datasets"] = types.ModuleType("datasets")
    sys.modules["datasets"].load_dataset = None
    root = importlib.machinery.PathFinder.find_spec("awq").submodule_search_locations[0]
    for name, folder in (("awq", root), ("awq.models", f"{root}/models")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [folder]
    from awq.models._config import AwqConfig
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.quantize.quantizer import AwqQuantizer
    from awq.utils.packing_utils import dequantize_gemm
    model = load(plain)
    quantizer = AwqQuantizer.__new__(AwqQuantizer)
    quantizer.group_size, quantizer.w_bit, quantizer.zero_point = GROUP, 4, True
    for name, module in products(model):
        module.weight.data, scale, zero = quantizer.pseudo_quantize_tensor(module.weight.data)
        model.set_submodule(name, WQLinear_GEMM.from_linear(module, 4, GROUP, False, scale.t().contiguous(),
                                                            zero.t().contiguous()))
    model.config.quantization_config = AwqConfig(zero_point=True, q_group_size=GROUP, w_bit=4,
                                                 version="gemm").to_transformers_dict()
    model.config.save_pretrained(made)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, made / "model.safetensors",
              metadata={"format": "pt"})
    return {name: dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].float(), 4, GROUP).t()
            for name, parts in stored(made, "qweight").items()}


def bitsandbytes(plain, made, kind, double):
    from bitsandbytes.functional import QuantState, dequantize_4bit
    from transformers import BitsAndBytesConfig
    load(plain, device_map="cpu", quantization_config=BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double,
        bnb_4bit_compute_dtype=torch.float16)).save_pretrained(made)
    decoded = {}
    for name, parts in stored(made, "weight.absmax").items():
        codes = parts.pop("weight")
        state = QuantState.from_dict({part.removeprefix("weight."): tensor for part, tensor in parts.items()},
                                     torch.device("cpu"))
        state.dtype = torch.float32
        # Blocks run on from row to row, but its code for CPUs takes each row to start a block: it is given one row.
        shape, state.shape = state.shape, torch.Size((1, state.shape.numel()))
        decoded[name] = dequantize_4bit(codes, state).reshape(shape)
    return decoded


def stored(folder, mark):
    """The tensors of each module that has one of this name."""
    tensors = load_file(folder / "model.safetensors")
    modules = [name[:-len(mark) - 1] for name in tensors if name.endswith(f".{mark}")]
    return {module: {name.removeprefix(f"{module}."): tensor for name, tensor in tensors.items()
                     if name.startswith(f"{module}.")} for module in modules}


KINDS = {
    "ct-int4": (compressed, {"bits": 4}),
    "ct-int4-asym": (compressed, {"bits": 4, "symmetric": False}),
    "ct-int4-g-idx": (compressed, {"bits": 4, "g_idx": True}),
    "ct-int3": (compressed, {"bits": 3}),
    "gptq-int4": (gptq, {}),
    "gptq-int4-desc-act": (gptq, {"desc_act": True}),
    "gptq-int4-asym": (gptq, {"sym": False, "zero_points_of_0": True}),
    "gptq-int4-v2": (gptq, {"format": "gptq_v2"}),
    "gptq-int8": (gptq, {"bits": 8}),
    "gptq-int3": (gptq, {"bits": 3}),
    "awq-int4": (awq, {}),
    "bnb-nf4": (bitsandbytes, {"kind": "nf4", "double": True}),
    "bnb-fp4": (bitsandbytes, {"kind": "fp4", "double": False}),
}


def main():
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:]:
        write, settings = KINDS[name]
        with tempfile.TemporaryDirectory() as temporary:
            made = pathlib.Path(temporary) / "made"
            made.mkdir()
            decoded = write(out / "plain", made, **settings)
            assert len(decoded) == 7
            config = json.loads((made / "config.json").read_text())
            meta = config["quantization_config"].pop("meta", None)
            if meta is not None:
                config["quantization_config"]["meta"] = {"quantizer": meta["quantizer"]}
            folder = out / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            # Not as it is: some of its writers let no other user read it.
            (folder / "model.safetensors").write_bytes((made / "model.safetensors").read_bytes())
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        expected = {"decoded": {module: {"rows": value.shape[0], "columns": value.shape[1], "fnv1a": fnv1a(value)}
                                for module, value in sorted(decoded.items())}}
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        print(name, (folder / "model.safetensors").stat().st_size)


if __name__ == "__main__":
    main()
