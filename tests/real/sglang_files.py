"""Dumps that SGLang's own two dumpers write, of a tiny Llama on a CPU, and what nanscope reads in them.

usage: sglang_files.py FOLDER SGLANG [--nanscope PATH]

SGLANG is an unpacked wheel or a checkout (0.5.23 was used: pip download --no-deps sglang, then unzip). Its files
srt/debug_utils/tensor_dump_forward_hook.py and dumper.py run here as they are; what they import of the server is replaced by
empty stand-ins, since its kernels need a GPU. So the files are SGLang's, the model is transformers', and no server ran. Each
dumper writes a healthy dump and one with an infinite weight; nanscope has to name the producer, to find no fault in the first
and to name the module in the second. Needs torch and transformers. Exit 1 where that is missed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

import torch


class StandIn(types.ModuleType):
    """A module of the server that has every name, and nothing behind it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})  # no tensor is an instance of it


def load(sglang, name):
    """A file of SGLang's debug_utils, by its path."""
    path = next(sglang.glob(f"**/srt/debug_utils/{name}.py"), None)
    if path is None:
        sys.exit(f"sglang_files.py: {sglang}: holds no srt/debug_utils/{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_model(faulty):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                                         num_key_value_heads=2)).eval()
    if faulty:
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight[5, 7] = float("inf")
    return model


def run(model, behind=lambda: None):
    """A prompt and two steps."""
    ids, cache = torch.arange(3, 15)[None], None
    with torch.inference_mode():
        for _ in range(3):
            out = model(ids, past_key_values=cache, use_cache=True)
            behind()
            ids, cache = torch.tensor([[7]]), out.past_key_values


def by_hooks(sglang, folder, model):
    hooks = load(sglang, "tensor_dump_forward_hook")
    dumper = hooks.register_forward_hook_for_model(model, str(folder), None, 1, 0, 0)
    run(model)
    dumper.dump_current_tensors()


def by_dumper(sglang, folder, model):
    os.environ.update({"DUMPER_ENABLE": "1", "DUMPER_DIR": str(folder), "DUMPER_NON_INTRUSIVE_MODE": "all",
                       "DUMPER_ENABLE_OUTPUT_CONSOLE": "0"})
    dumper = load(sglang, "dumper").dumper
    dumper.register_non_intrusive_dumper(model)
    run(model, dumper.step)


def judge(nanscope, folder, faulty):
    done = subprocess.run([nanscope, "diagnose", str(folder), "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode == 2:
        sys.exit(f"sglang_files.py: {folder}: {done.stderr}")
    found = json.loads(done.stdout)
    first = found["faults"][0]["tensor"] if found["faults"] else "no fault"
    tensors = found["coverage"]["outputs"] if "outputs" in found["coverage"] else found["coverage"]
    fits = "layers.1.mlp" in first or "layers.1.output" in first if faulty else first == "no fault"
    print(f"{folder.name:14} exit {done.returncode}, {first}, coverage {tensors}{'' if fits else '  MISSED'}", flush=True)
    return fits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("sglang", type=pathlib.Path)
    parser.add_argument("--nanscope", default="nanscope")
    options = parser.parse_args()
    for name in ("zmq", "sglang", "sglang.srt", "sglang.srt.managers", "sglang.srt.managers.io_struct", "sglang.srt.runtime_context",
                 "sglang.srt.utils", "sglang.srt.layers", "sglang.srt.layers.logits_processor", "sglang.srt.model_executor",
                 "sglang.srt.model_executor.forward_batch_info", "sglang.srt.layers.layer_boundary", "sglang.srt.layers.layer_boundary.output",
                 "sglang.srt.layers.layer_boundary.residual", "sglang.srt.layers.layer_boundary.residual.stream"):
        sys.modules[name] = StandIn(name)
    good = True
    for name, write in (("hooks", by_hooks), ("dumper", by_dumper)):
        for faulty in (False, True):
            folder = options.folder / f"{name}-{'faulty' if faulty else 'healthy'}"
            shutil.rmtree(folder, ignore_errors=True)
            write(options.sglang, folder, make_model(faulty))
            good = judge(options.nanscope, folder, faulty) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
