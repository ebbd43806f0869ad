#!/usr/bin/env python3
"""Diagnoses healthy dumps of the architectures of transformers, and says which are accused.

    tests/real/architectures.py FOLDER [--nanscope COMMAND] [--only NAME,...] [--dtypes bf16,f32]
                                [--plain-hooks|--recorder|--outputs-only] [--table] [--plant] [--tokens 24] [--sequences 1]

Needs torch and transformers (tried with 2.15 and 5.24), so that no other test runs it. Each architecture is made small
with random weights of unit gain, run on a CPU (a prompt of 24 tokens and two decode steps; encoders: three padded
sequences of up to 100 tokens), captured by nanscope_capture or by plain forward hooks, and diagnosed without and with
its checkpoint. With --outputs-only, modules' inputs are not dumped. With --recorder the flight recorder writes the
dumps, and they are diagnosed without a checkpoint, which nanscope refuses for them. A healthy model must not be
accused. With --plant, one fault is planted in a module of each, and the diagnosis with the checkpoint must name that
module. Prints a line a dump with its verdict and the share of outputs that could be judged. Exit code 1: a healthy one
was accused or fewer than 60 could be made; a planted fault was called something that it is not, or fewer than 28 of 30
were found."""
import argparse
import contextlib
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "instrument" / "python"))
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import nanscope_capture  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

FEWEST = 60
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 320, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MIXTURE = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
          "num_key_value_heads": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
         "shared_expert_intermediate_size": 32}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_chunk_size": 8}
PAIR = {"d_model": 64, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "decoder_start_token_id": 2}
HEAD = {"head_dim": 16}
WINDOW = {"sliding_window": 8}

# By the class without its ending: what differs from SMALL.
CAUSAL = {
    "Llama": {}, "Qwen2": {}, "Qwen3": HEAD, "Mistral": WINDOW, "Ministral": HEAD | WINDOW, "Gemma": HEAD,
    "Gemma2": HEAD | WINDOW, "Gemma3": HEAD | WINDOW, "Phi": {}, "Phi3": {}, "Phimoe": MIXTURE, "Mixtral": MIXTURE,
    "Qwen2Moe": MIXTURE | {"shared_expert_intermediate_size": 64}, "Qwen3Moe": HEAD | MIXTURE, "GptOss": HEAD | MIXTURE | WINDOW,
    "DeepseekV2": MIXTURE | LATENT | {"topk_method": "group_limited_greedy"}, "DeepseekV3": MIXTURE | LATENT,
    "Qwen3Next": HEAD | MIXTURE | DELTA, "Qwen3_5": HEAD | DELTA, "Mamba": {"state_size": 8},
    "Mamba2": {"state_size": 16, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 8},
    "Bamba": MAMBA | {"attn_layer_indices": [1, 3]}, "FalconH1": MAMBA | HEAD | {"mamba_d_ssm": 128},
    "GraniteMoeHybrid": MAMBA | MIXTURE | {"shared_intermediate_size": 64, "layer_types": ["mamba", "attention"] * 2},
    "Lfm2": {"block_ff_dim": 128, "full_attn_idxs": [1, 3]}, "RecurrentGemma": HEAD | {"lru_width": 64, "attention_window_size": 8},
    "Rwkv": {"attention_hidden_size": 64}, "MiniMax": MIXTURE | HEAD, "Falcon": {}, "GPT2": {"n_embd": 64, "n_layer": 4, "n_head": 4},
    "GPTJ": {"n_embd": 64, "n_layer": 4, "n_head": 4, "rotary_dim": 8, "n_positions": 256}, "GPTNeoX": {},
    "GPTBigCode": {"n_embd": 64, "n_layer": 4, "n_head": 4}, "CodeGen": {"n_embd": 64, "n_layer": 4, "n_head": 4, "rotary_dim": 8},
    "Bloom": {"n_layer": 4, "n_head": 4}, "Mpt": {"d_model": 64, "n_heads": 4, "n_layers": 4, "max_seq_len": 256},
    "OPT": {"ffn_dim": 128, "word_embed_proj_dim": 64}, "Cohere": {}, "Cohere2": HEAD | WINDOW, "Olmo": {}, "Olmo2": {},
    "Olmo3": WINDOW, "Olmoe": MIXTURE, "Nemotron": {}, "StableLm": {}, "Starcoder2": {}, "Granite": {"residual_multiplier": 0.22},
    "GraniteMoe": MIXTURE, "SmolLM3": {"no_rope_layers": [1, 1, 1, 0]}, "Exaone4": WINDOW | {"sliding_window_pattern": 4},
    "Ernie4_5": HEAD, "HunYuanDenseV1": HEAD, "SeedOss": HEAD, "Apertus": {}, "Glm": HEAD, "Glm4": HEAD,
    "Glm4Moe": HEAD | MIXTURE | {"n_shared_experts": 1, "n_group": 1, "topk_group": 1}, "Helium": HEAD, "Arcee": {}, "Dots1": MIXTURE
    | {"n_shared_experts": 1}, "XGLM": {"d_model": 64, "ffn_dim": 128, "num_layers": 4, "attention_heads": 4}, "Persimmon": {},
    "Llama4": HEAD | MIXTURE | {"intermediate_size_mlp": 128}, "VaultGemma": HEAD | WINDOW, "MiniMaxM2": MIXTURE | HEAD,
}
ENCODERS = {
    "Bert": {}, "Roberta": {"pad_token_id": 1}, "XLMRoberta": {"pad_token_id": 1}, "Electra": {"embedding_size": 32},
    "DistilBert": {"dim": 64, "n_layers": 4, "n_heads": 4, "hidden_dim": 128}, "Albert": {"embedding_size": 32}, "MPNet": {},
    "ModernBert": {"local_attention": 8, "global_attn_every_n_layers": 2}, "Esm": {"position_embedding_type": "rotary", "mask_token_id": 3},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16},
}
PAIRS = {
    "T5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4, "decoder_start_token_id": 0},
    "MT5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4, "decoder_start_token_id": 0},
    "Bart": PAIR, "MBart": PAIR, "M2M100": PAIR, "Pegasus": PAIR, "Marian": PAIR,
}
KEPT = ("A_log", "D", "dt_bias", "A", "time_decay", "time_first", "recurrent_param", "rg_lru_forget_param")


def class_of(name):
    for ending in ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "MTModel"):
        if (found := getattr(transformers, name + ending, None)) is not None:
            return found
    return None


def draw(model, name):
    """Weights of unit gain, so that each op changes its input: the library's own are near zero."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    with torch.no_grad():
        for path, weight in model.named_parameters():
            last = path.rsplit(".", 1)[-1]
            if not weight.is_floating_point() or last in KEPT or "time_mix" in last:
                continue
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() <= 1:
                weight.add_((noise * 0.1).to(weight.dtype))
            else:
                weight.copy_(noise * max(1, math.prod(weight.shape[1:])) ** -0.5)


def make(name, extra, dtype, folder):
    kind = class_of(name)
    given = {key: value for key, value in (SMALL | extra).items()}
    if name in ENCODERS or name in PAIRS or any(key in extra for key in ("n_embd", "state_size", "d_model", "n_layer")):
        given.pop("num_key_value_heads")
    torch.manual_seed(0)
    model = kind(kind.config_class(**given))
    draw(model, name)
    model.to(dtype).eval()
    model.save_pretrained(folder)
    try:
        return kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    except ValueError:  # it has one implementation of attention
        return kind.from_pretrained(folder, dtype=dtype).eval()


def run(model, name, tokens, sequences):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        if name in ENCODERS:
            ids = torch.randint(5, 290, (3, 100), generator=generator)
            mask = torch.ones_like(ids)
            mask[1, 83:] = mask[2, 49:] = 0
            ids[mask == 0] = model.config.pad_token_id
            model(input_ids=ids, attention_mask=mask)
            return
        ids = torch.randint(5, 290, (sequences, tokens), generator=generator)
        mask = torch.ones_like(ids)
        for i in range(1, sequences):  # shorter ones, padded on the left
            mask[i, : i * tokens // (sequences + 1)] = 0
        ids[mask == 0] = model.config.pad_token_id or 0
        settings = model.generation_config
        settings.eos_token_id = settings.forced_eos_token_id = settings.forced_bos_token_id = None
        settings.pad_token_id = 0
        model.generate(ids, attention_mask=mask, max_new_tokens=3, min_new_tokens=3, do_sample=False, num_beams=1)


class Hooks:
    """Outputs of all modules by plain forward hooks, a file a call of the model."""

    def __init__(self, model, folder):
        from safetensors.torch import save_file
        self.folder, self.save, self.seen, self.step = Path(folder), save_file, {}, 0
        self.handles = [module.register_forward_hook(self.keep(path)) for path, module in model.named_modules() if path]
        self.handles.append(model.register_forward_hook(lambda *_: self.write()))

    def keep(self, path):
        def hook(module, given, made):
            for at, one in enumerate(made if isinstance(made, tuple) else (made,)):
                if isinstance(one, torch.Tensor):
                    self.seen[f"{path}.output" + (f".{at}" if at else "")] = one.detach().clone().contiguous()
        return hook

    def write(self):
        folder = self.folder / f"step_{self.step:05d}"
        folder.mkdir(parents=True)
        self.save(self.seen, folder / "tensors.safetensors")
        self.seen, self.step = {}, self.step + 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()


@contextlib.contextmanager
def recorded(model, folder):
    """The steps that the flight recorder keeps, written behind the last one."""
    with nanscope_capture.record(model, folder) as recorder:
        yield
        recorder.dump()


def poison_weight(module):
    module.weight.data[5 % module.weight.shape[0], ...] = float("nan")


def changing(change):
    def plant(module):
        def hook(_module, _given, made):
            first = made[0] if isinstance(made, tuple) else made
            first = change(first.clone())
            return (first, *made[1:]) if isinstance(made, tuple) else first
        module.register_forward_hook(hook)
    return plant


def in_row(value):
    def change(made):
        made[..., min(5, made.shape[-2] - 1), :] = value
        return made
    return changing(change)


def zero_tail(made):
    made[..., made.shape[-1] // 2:] = 0
    return made


def one_row_larger(made):
    made[..., min(5, made.shape[-2] - 1), :] *= 1.25
    return made


# Name, the modules that it is planted in, what plants it, and the classes that are right for it.
NORM, PRODUCT = r"(norm|ln|LayerNorm)[^.]*$", r"(proj|dense|fc\d?|wi|wo|c_fc|query_key_value|up|down|h_to_4h|in_layer|Wi|Wo|receptance)[^.]*$"
NOT_FINITE = {"invalid-op", "weight-corruption"}
FAULTS = [
    ("NaN in a weight", PRODUCT, poison_weight, NOT_FINITE),
    ("a row of NaN", PRODUCT, in_row(float("nan")), NOT_FINITE),
    ("a row of Inf in a norm", NORM, in_row(float("inf")), NOT_FINITE),
    ("a product times 3", PRODUCT, changing(lambda made: made * 3), {"wrong-result"}),
    ("a product negated", PRODUCT, changing(lambda made: -made), {"wrong-result"}),
    ("zeros in the upper half of the channels", PRODUCT, changing(zero_tail), {"wrong-result"}),
    ("a row of a product larger by a quarter", PRODUCT, changing(one_row_larger), {"wrong-result"}),
    ("a norm larger by 5 %", NORM, changing(lambda made: made * 1.05), {"wrong-result"}),
    ("halves of the channels swapped", PRODUCT, changing(lambda made: torch.roll(made, made.shape[-1] // 2, -1)), {"wrong-result"}),
    ("a norm's row of zeros", NORM, in_row(0.0), {"wrong-result"}),
]


def plant(model, name):
    """One fault in one module of the second layer; the architecture's name chooses both."""
    drawn = zlib.crc32(("plant " + name).encode())
    title, wanted, change, classes = FAULTS[drawn % len(FAULTS)]
    at = [(path, module) for path, module in model.named_modules()
          if re.search(wanted, path, re.IGNORECASE) and re.search(r"\.1\.", path) and getattr(module, "weight", None) is not None]
    if not at:
        raise ValueError("no module for the fault")
    path, module = at[drawn // len(FAULTS) % len(at)]
    change(module)
    return title, path, classes


def is_at(path, found):
    """Whether the root cause is at the module: at a tensor of it, or at the output of a container that ends with it."""
    place = (found.get("root_cause") or {}).get("tensor", "")
    container = place.split("/", 1)[-1].removesuffix(".output")
    return path in place or path.startswith(container + ".")


def diagnose(command, dump, *more):
    done = subprocess.run([command, "diagnose", str(dump), *map(str, more), "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        return {"verdict": "error", "faults": [], "coverage": {"outputs": 0, "judged": 0}, "text": done.stderr.strip()}
    return json.loads(done.stdout)


def planted(arguments, name, dtype, place, change):
    """Prints what was found of the fault, and returns whether it was found and whether it was called what it is not."""
    title, path, classes = change
    found = diagnose(arguments.nanscope, place / "dump", "--model", place / "checkpoint")
    root = found.get("root_cause") or {}
    right, wrong = is_at(path, found), bool(root) and root["class"] not in classes
    print(f"{name} {dtype}: {title} in {path}: {'found' if right else 'MISSED'}{', CALLED ' if wrong else ', '}{root.get('class', found['verdict'])}"
          + ("" if right else f" at {root.get('tensor', '-')}"), flush=True)
    return right, wrong


def healthy(arguments, name, dtype, place):
    """Prints the verdicts without and with the checkpoint, and returns whether one of them accuses the model."""
    accused = False
    with_checkpoint = (", with its checkpoint", ("--model", place / "checkpoint"))
    for title, more in (("", ()), *(() if arguments.recorder else (with_checkpoint,))):
        found = diagnose(arguments.nanscope, place / "dump", *more)
        coverage = found["coverage"]
        share = 100 * coverage["judged"] / max(1, coverage["outputs"])
        bad = found["verdict"] in ("fault", "damaged", "error")
        accused = accused or bad
        cause = found["faults"][0]["summary"][:160] if found["faults"] else found.get("text", "")
        line = (f"| {name} | {dtype}{title} | {found['verdict']} | {share:.0f} % of {coverage['outputs']} |" if arguments.table else
                f"{name} {dtype}{title}: {found['verdict']}, {share:.0f} % of {coverage['outputs']} outputs judged")
        print(line + (f" {cause}" if bad else ""), flush=True)
    return accused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nanscope", default=str(ROOT / "build" / "nanscope"))
    parser.add_argument("--only")
    parser.add_argument("--dtypes", default="bf16,f32")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--plain-hooks", action="store_true", help="capture by plain forward hooks")
    ways.add_argument("--outputs-only", action="store_true", help="dump modules' outputs without their inputs")
    ways.add_argument("--recorder", action="store_true", help="capture by the flight recorder")
    parser.add_argument("--table", action="store_true", help="print lines of a table in Markdown")
    parser.add_argument("--plant", action="store_true", help="plant a fault in each of the first 30")
    parser.add_argument("--tokens", type=int, default=24, help="tokens of a decoder's prompt (24)")
    parser.add_argument("--sequences", type=int, default=1, help="sequences of a decoder's batch (1), others shorter")
    parser.add_argument("--keep", action="store_true", help="keep the dumps and checkpoints")
    arguments = parser.parse_args()
    if arguments.plant and arguments.recorder:
        parser.error("a fault is looked for with the checkpoint, and a recorder's dump is refused with one")
    torch.set_num_threads(1)
    every = CAUSAL | ENCODERS | PAIRS
    names = arguments.only.split(",") if arguments.only else list(every)[:: len(every) // 30][:30] if arguments.plant else list(every)
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}
    made, bad, missed, left_out, dumps = set(), [], [], [], 0
    for name in names:
        for dtype in arguments.dtypes.split(","):
            place = arguments.folder / name / dtype
            shutil.rmtree(place, ignore_errors=True)
            try:
                model = make(name, every[name], dtypes[dtype], place / "checkpoint")
                change = plant(model, name) if arguments.plant else None
                way = (Hooks if arguments.plain_hooks else recorded if arguments.recorder
                       else functools.partial(nanscope_capture.attach, inputs=not arguments.outputs_only))
                with way(model, str(place / "dump")):
                    run(model, name, arguments.tokens, arguments.sequences)
            except Exception as error:  # this version of the library has it otherwise
                left_out.append(name)
                print(f"{name} {dtype}: not made ({type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''})", flush=True)
                continue
            made.add(name)
            dumps += 1
            if change:
                right, wrong = planted(arguments, name, dtype, place, change)
                missed += [] if right else [f"{name} {dtype}"]
                bad += [f"{name} {dtype}"] if wrong else []
            elif healthy(arguments, name, dtype, place):
                bad.append(f"{name} {dtype}")
            if not arguments.keep:
                shutil.rmtree(place)
    print(f"{len(made)} architectures made, {len(set(left_out))} not; "
          + (f"{dumps - len(missed)} of {dumps} planted faults found, missed: {', '.join(missed) or 'none'}; {len(bad)} called what they are not: "
             if arguments.plant else f"{len(bad)} accused: ") + (", ".join(bad) or "none"))
    few = not arguments.only and not arguments.plant and len(made) < FEWEST
    return 1 if bad or few or len(missed) * 30 > 2 * dumps else 0


if __name__ == "__main__":
    sys.exit(main())
