#!/usr/bin/env python3
"""Loads what `nanscope quantize` writes with transformers on a CPU, and compares its logits with the engine's.

  python3 check_loaders.py NANSCOPE

Needs torch, transformers, accelerate and compressed-tensors, which no test of the build needs. Prints a line for each
target: how far the logits are apart, over the largest. Exit code 1: one is not loaded, or further off than 1e-5.
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, CompressedTensorsConfig, LlamaConfig, LlamaForCausalLM

PROMPT = [3, 17, 42, 5, 29, 11, 60, 8]
TARGETS = [("fp8-block", "transformers"), ("fp8-block", "compressed-tensors"), ("fp8", "transformers"),
           ("fp8", "compressed-tensors"), ("mxfp8", "compressed-tensors"), ("mxfp4", "compressed-tensors"),
           ("nvfp4", "compressed-tensors")]
BOUND = 1e-5
# It decodes these by way of bf16, whatever the dtype: not equal weights, so a bound of bf16's.
BY_BF16 = {"nvfp4"}


def plain(folder):
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=128, hidden_size=256, intermediate_size=384, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=False, dtype="bfloat16")
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    for _, weight in model.named_parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    model.save_pretrained(folder)


def ours(nanscope, folder, work):
    """The logits of the prompt's last token, by the engine in f32."""
    recording = work / "run.nanscope"
    subprocess.run([nanscope, "run", "--model", folder, "--prompt-tokens", ",".join(map(str, PROMPT)), "--tokens", "1",
                    "--set", "activation.format=f32", "--set", "kv.format=f32", "--capture", "all", "--brief", "--force",
                    "-o", recording], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([nanscope, "export", recording, "-o", work / "dump", "--force"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for file in sorted((work / "dump").rglob("*")):
        if "lm_head" in file.name and "output" in file.name:
            return torch.load(file, weights_only=True) if file.suffix == ".pt" else read(file)
    for file in sorted((work / "dump").rglob("*.safetensors")):
        for name, tensor in load_file(file).items():
            if "lm_head" in name and name.endswith("output"):
                return tensor
    raise ValueError("no logits in the dump")


def read(file):
    import numpy
    return torch.from_numpy(numpy.load(file))


def theirs(folder):
    more = {}
    quantization = AutoConfig.from_pretrained(folder).quantization_config
    if quantization["quant_method"] == "compressed-tensors":
        more["quantization_config"] = CompressedTensorsConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()
    with torch.no_grad():
        return model(torch.tensor([PROMPT])).logits[0]


def main():
    nanscope = pathlib.Path(sys.argv[1]).resolve()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        plain(work / "plain")
        for to, layout in TARGETS:
            out = work / f"{to}-{layout}"
            subprocess.run([nanscope, "quantize", work / "plain", "-o", out, "--to", to, "--layout", layout], check=True,
                           stdout=subprocess.DEVNULL)
            try:
                expected = theirs(out)
            except Exception as error:  # pylint: disable=broad-except
                print(f"{to:10} {layout:20} not loaded: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
                failed = True
                continue
            found = ours(nanscope, out, work).reshape(-1, expected.shape[-1]).float()
            off = (found[-1] - expected[-1]).abs().max() / expected.abs().max()
            bound = 2 ** -7 if to in BY_BF16 else BOUND
            print(f"{to:10} {layout:20} {off:.2e} of the largest logit, bound {bound:.1e}")
            failed = failed or not off <= bound
    sys.exit(1 if failed else 0)


main()
