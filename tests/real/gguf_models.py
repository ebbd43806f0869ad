#!/usr/bin/env python3
"""Compares nanscope's reading of GGUF files with that of transformers.

    gguf_models.py NANSCOPE FOLDER [--checkpoints DIR] [--types F32 Q8_0 ...] [--only NAME ...] [--file FILE.gguf ...]

Writes the small checkpoints of tests/unit/instrument/model/checkpoints as GGUF files into FOLDER, with the package gguf:
its names of tensors and of keys, and what llama.cpp's converter does to weights. transformers (5.x, on a CPU) loads each
file. Then `nanscope diff` compares all weights, `nanscope run` computes the logits, and `nanscope diff` compares the run
with that of the weights that transformers has. --file adds files of your own. Exit code 1: something differs.
"""
import argparse
import json
import os
import subprocess
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")
import gguf  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from gguf import quants  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
HERE = os.path.dirname(os.path.abspath(__file__))
IDS = [1, 17, 42, 5, 63, 9, 30]
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe",
                 "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "phi3": "phi3", "gemma2": "gemma2",
                 "gemma3_text": "gemma3", "gpt2": "gpt2", "olmo2": "olmo2"}
# What transformers does not load: its tables of GGUF lack the architecture, or a part of it, as GPT-2's positions. Their
# logits are compared with those of the checkpoint that the file was made from.
UNKNOWN_TO_TRANSFORMERS = {"olmo2", "mixtral", "gpt2"}


def permuted(weight, heads):
    """convert_hf_to_gguf.py, LlamaModel.permute."""
    return np.ascontiguousarray(weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
                                .swapaxes(1, 2).reshape(weight.shape))


def add_config(writer, config, tensors):
    kind = config["model_type"]
    heads = config.get("num_attention_heads", config.get("n_head"))
    width = config.get("hidden_size", config.get("n_embd"))
    writer.add_context_length(config.get("max_position_embeddings", config.get("n_positions")))
    writer.add_embedding_length(width)
    writer.add_block_count(config.get("num_hidden_layers", config.get("n_layer")))
    writer.add_feed_forward_length(config.get("intermediate_size") or config.get("n_inner") or 4 * width)
    writer.add_head_count(heads)
    vocabulary = config["vocab_size"]
    writer.add_token_list([f"t{i}" for i in range(vocabulary)])
    if config.get("scale_attn_by_inverse_layer_idx"):
        raise KeyError("no key of GGUF scales scores by the layer")
    if kind == "gpt2":
        return writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    head_dim = config.get("head_dim") or width // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    ropes = config["rope_parameters"]
    rope = ropes.get("full_attention", ropes)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if "original_max_position_embeddings" in rope and rope["rope_type"] != "llama3":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        for which in ("long", "short"):
            tensors[f"rope_factors_{which}.weight"] = np.array(rope[f"{which}_factor"], np.float32)
        trained = rope["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / trained
        writer.add_rope_scaling_attn_factors(1.0 if scale <= 1 else float(np.sqrt(1 + np.log(scale) / np.log(trained))))
    if rope["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = llama3_factors(rope, head_dim)
    if config.get("sliding_window") and kind in ("gemma2", "gemma3_text", "phi3"):
        writer.add_sliding_window(config["sliding_window"])
    if kind == "gemma3_text":
        writer.add_sliding_window_pattern(config["layer_types"].index("full_attention") + 1)
    for key, add in (("attn_logit_softcapping", writer.add_attn_logit_softcapping),
                     ("final_logit_softcapping", writer.add_final_logit_softcapping)):
        if config.get(key):
            add(config[key])
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if "moe_intermediate_size" in config:
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        if "shared_expert_intermediate_size" in config:
            writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def llama3_factors(rope, head_dim):
    """convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors."""
    frequencies = 1.0 / (rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim))
    trained, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for frequency in frequencies:
        wave = 2 * np.pi / frequency
        if wave < trained / high:
            factors.append(1.0)
        elif wave > trained / low:
            factors.append(rope["factor"])
        else:
            smooth = (trained / wave - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def converted(config, weights):
    """Tensors by the package's names."""
    kind, architecture = config["model_type"], ARCHITECTURES[config["model_type"]]
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture), layers)
    experts, tensors = {}, {}
    for name, weight in weights.items():
        if ".experts." in name:
            before, after = name.split(".experts.")
            number, part = after.split(".", 1)
            experts.setdefault(f"{before}.experts.{part}", {})[int(number)] = weight
            continue
        if kind in ("llama", "mistral", "mixtral") and (".q_proj." in name or ".k_proj." in name):
            weight = permuted(weight, config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"])
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            weight = weight + np.float32(1)
        if kind == "gpt2" and weight.ndim == 2 and any(part in name for part in (".c_attn.", ".c_proj.", ".c_fc.")):
            weight = np.ascontiguousarray(weight.T)
        if name.endswith("shared_expert_gate.weight"):
            weight = weight.reshape(-1)
        tensors[named(names, name)] = weight
    for name, parts in experts.items():
        tensors[named(names, name)] = np.stack([parts[i] for i in range(len(parts))])
    return tensors


def named(names, name):
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        raise KeyError(f"gguf has no name for {name}")
    return found


def without_dense_layers(checkpoint, folder):
    """The same kind of model with experts in each layer, as GGUF has them, and random weights."""
    with open(os.path.join(checkpoint, "config.json")) as file:
        config = json.load(file)
    if not config.get("mlp_only_layers") and config.get("decoder_sparse_step", 1) == 1:
        return checkpoint
    made = transformers.AutoConfig.from_pretrained(checkpoint, mlp_only_layers=[], decoder_sparse_step=1)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.3)
    model.save_pretrained(os.path.join(folder, "sparse"))
    return os.path.join(folder, "sparse")


def write(checkpoint, path, kind):
    with open(os.path.join(checkpoint, "config.json")) as file:
        config = json.load(file)
    tensors = converted(config, load_file(os.path.join(checkpoint, "model.safetensors")))
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config["model_type"]])
    writer.add_name("small")
    writer.add_pad_token_id(0)
    add_config(writer, config, tensors)
    for name, weight in tensors.items():
        fits = weight.ndim > 1 and weight.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 and "norm" not in name
        if kind == gguf.GGMLQuantizationType.F32 or not fits or "rope" in name:
            writer.add_tensor(name, weight.astype(np.float32))
        elif kind == gguf.GGMLQuantizationType.F16:
            writer.add_tensor(name, weight.astype(np.float16))
        else:
            writer.add_tensor(name, quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config["model_type"]


def save(config, weights, tied, out):
    config = {key: value for key, value in config.items() if key not in ("quantization_config", "_model_name_or_path")}
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(config | {"dtype": "float32"}, file, default=str)
    save_file({name: weight.contiguous().clone() for name, weight in weights.items()
               if not (tied and name == "lm_head.weight")}, os.path.join(out, "model.safetensors"))


def by_transformers(path, out, checkpoint):
    """Saves the weights that transformers decodes, and returns the logits. Its tables of GGUF know less of the config than
    the files say (scaled angles, softcaps, biases): with a checkpoint, its config and what a file lacks are taken."""
    kwargs = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = None
    if checkpoint is not None:
        model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, **kwargs).eval()
    if model is None or model.config.model_type not in UNKNOWN_TO_TRANSFORMERS:
        given = {}
        if checkpoint is not None and model.config.model_type != "mistral":  # whose files say that they are Llamas
            given["config"] = transformers.AutoConfig.from_pretrained(checkpoint)
        decoded = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.dirname(path), gguf_file=os.path.basename(path), **given, **kwargs).eval()
        weights = decoded.state_dict()
        if model is None:
            model = decoded
        else:
            model.load_state_dict(weights, strict=False)
    config = model.config
    if config.model_type.startswith("gemma"):  # no key has the scale of scores: llama.cpp knows it by the size
        for layer in model.model.layers:
            layer.self_attn.scaling = config.head_dim ** -0.5
    if config.model_type == "mistral":  # nor the window
        config.sliding_window = None
    if checkpoint is None:
        save(config.to_dict(), weights, config.tie_word_embeddings, out)
    else:
        model.save_pretrained(out)
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


def run_nanscope(tool, *arguments):
    done = subprocess.run([tool, *arguments], capture_output=True, text=True)
    if done.returncode > 1:
        print(done.stderr.strip())
    return done


def logits_of(tool, model, folder):
    recording, dump = os.path.join(folder, "run.nanscope"), os.path.join(folder, "dump")
    if run_nanscope(tool, "run", "--model", model, "--prompt-tokens", ",".join(map(str, IDS)), "--tokens", "1", "-o",
                    recording, "--force").returncode > 1:
        return None
    run_nanscope(tool, "export", recording, "-o", dump, "--force")
    tensors = load_file(os.path.join(dump, "request_0", "step_0", "tensors.safetensors"))
    return tensors["logits_softcap.logits"] if "logits_softcap.logits" in tensors else tensors["lm_head.output"]


def compare(tool, path, folder, checkpoint):
    """A line; whether all is the same."""
    theirs = os.path.join(folder, "transformers")
    wanted = by_transformers(path, theirs, checkpoint)
    found = logits_of(tool, path, folder)
    if found is None:
        return "does not run", False
    off = float(np.abs(found - wanted).max() / np.sqrt((wanted ** 2).mean()))
    report = json.loads(run_nanscope(tool, "diff", path, theirs, "--format", "json").stdout)
    return (f"{report['equal']} of {report['compared']} weights equal, {report['unmatched']} alone, "
            f"logits off by {off:.1e} of their size"), off < 1e-5 and report["equal"] == report["compared"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nanscope")
    parser.add_argument("folder")
    parser.add_argument("--checkpoints", default=os.path.join(HERE, "../unit/instrument/model/checkpoints"))
    parser.add_argument("--types", nargs="+", default=["F32", "F16", "Q8_0", "Q4_0"])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--file", nargs="+", default=[])
    arguments = parser.parse_args()
    good = True
    for name in arguments.only if arguments.only is not None else sorted(os.listdir(arguments.checkpoints)):
        checkpoint = os.path.join(arguments.checkpoints, name)
        for kind in arguments.types:
            folder = os.path.join(arguments.folder, f"{name}-{kind}")
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"{name}-{kind}.gguf")
            checkpoint = without_dense_layers(checkpoint, folder)
            try:
                model_type = write(checkpoint, path, gguf.GGMLQuantizationType[kind])
            except KeyError as error:
                print(f"{name:14} {kind:5} not written: {error}")
                break
            if model_type in UNKNOWN_TO_TRANSFORMERS and kind != "F32":
                continue
            line, same = compare(arguments.nanscope, path, folder, checkpoint)
            print(f"{name:14} {kind:5} {line}", flush=True)
            good &= same
    for path in arguments.file:
        folder = os.path.join(arguments.folder, os.path.basename(path))
        os.makedirs(folder, exist_ok=True)
        line, same = compare(arguments.nanscope, os.path.abspath(path), folder, None)
        print(f"{os.path.basename(path)} {line}", flush=True)
        good &= same
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
