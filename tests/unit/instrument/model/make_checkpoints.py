"""Makes the tiny checkpoints of this folder, one a family, with the logits that transformers computes of them.

usage: make_checkpoints.py OUT [--only NAME] [--seed N] [--bf16-only]    needs torch and transformers (CPU)

Each folder holds what save_pretrained() writes (config.json, model.safetensors), random weights, and expected.safetensors:
`tokens`, the prompt and the 16 tokens that greedy decoding adds; `logits`, a row for each of the prompt's tokens and each
decoded one but the last; all in f32 by eager attention. Its metadata names the versions. With --seed, sizes and options
are drawn at random instead: tests/unit/instrument/model/check_families.py compares many of these.

expected_bf16.safetensors has the same of the model in bf16, its weights rounded to bf16: `tokens` and `logits`; `exact`, the
logits in f32 of the rounded weights over the same tokens; and `bound`, how far rounding to bf16 can move each of them
(rounding_bound.py), inf from the first token on whose choice of experts it can change. Prompts without such a token are
looked for, and not with --seed. --bf16-only leaves the other files of a folder as they are.
"""

import argparse
import json
import os
import random
import sys

import torch
import transformers
from safetensors.torch import save_file

import rounding_bound

PROMPT = 11
DECODED = 16
PROMPTS = 400  # that are tried


def rope(**settings):
    return {"rope_theta": 10000.0, **settings}


# Family: configuration class, model class, keyword arguments. Windows are shorter than the run.
def families(pick):
    shape = dict(vocab_size=pick(96, 64, 130), hidden_size=pick(32, 48, 64), intermediate_size=pick(48, 40, 72),
                 num_hidden_layers=pick(2, 1, 3), num_attention_heads=4, num_key_value_heads=pick(2, 1, 4),
                 max_position_embeddings=128, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    head_dim = pick(8, 16, 12)
    square = {**shape, "hidden_size": pick(32, 64)}
    moe = {**square, "num_hidden_layers": 2}
    llama3 = rope(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=pick(16, 32))
    yarn = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    linear = rope(rope_type="linear", factor=pick(2.5, 4.0))
    pairs = {32: 4, 64: 8}[square["hidden_size"]]
    partial = pick(0.5, 1.0)
    longrope = rope(rope_type="longrope", short_factor=[1.0 + 0.1 * i for i in range(int(pairs * partial))],
                    long_factor=[2.0 + 0.7 * i for i in range(int(pairs * partial))],
                    original_max_position_embeddings=20, partial_rotary_factor=partial)
    # Halved and not at whole channels, as gpt-oss has it.
    oss_yarn = rope(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                    original_max_position_embeddings=32)
    # Widths of a head that are all different, and groups of two, whose choice no third expert can change.
    latent = {**moe, "num_key_value_heads": 4, "kv_lora_rank": pick(12, 20), "qk_nope_head_dim": pick(8, 6),
              "qk_rope_head_dim": 4, "v_head_dim": pick(10, 6), "n_routed_experts": 8, "num_experts_per_tok": 2,
              "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_shared_experts": pick(1, 2)}
    mscale_yarn = rope(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=0.707,
                       original_max_position_embeddings=32)
    gemma3_layers = ["sliding_attention", "sliding_attention", "full_attention"]
    gpt2 = dict(vocab_size=96, n_embd=pick(32, 48), n_layer=2, n_head=4, n_positions=64, n_inner=pick(None, 80),
                bos_token_id=None, eos_token_id=None)
    return {
        "gpt2": ("GPT2Config", "GPT2LMHeadModel", gpt2),
        "gpt2-scaled": ("GPT2Config", "GPT2LMHeadModel", {**gpt2, "scale_attn_by_inverse_layer_idx": True}),
        "llama2": ("LlamaConfig", "LlamaForCausalLM", {**square, "tie_word_embeddings": pick(False, True)}),
        "llama3": ("LlamaConfig", "LlamaForCausalLM",
                   {**shape, "head_dim": head_dim, "rope_parameters": llama3, "attention_bias": pick(True, False),
                    "mlp_bias": pick(True, False)}),
        "llama-linear": ("LlamaConfig", "LlamaForCausalLM", {**square, "rope_parameters": linear}),
        "mistral": ("MistralConfig", "MistralForCausalLM", {**shape, "head_dim": head_dim, "sliding_window": pick(6, 3)}),
        "qwen2": ("Qwen2Config", "Qwen2ForCausalLM",
                  {**square, "use_sliding_window": pick(False, True), "sliding_window": 5, "max_window_layers": 1}),
        "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**shape, "head_dim": head_dim, "rope_parameters": yarn}),
        "phi3": ("Phi3Config", "Phi3ForCausalLM",
                 {**square, "rope_parameters": longrope, "original_max_position_embeddings": 20,
                  "sliding_window": pick(None, 7)}),
        "gemma2": ("Gemma2Config", "Gemma2ForCausalLM",
                   {**shape, "head_dim": head_dim, "query_pre_attn_scalar": pick(24, 8), "sliding_window": 6,
                    "attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0}),
        "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM",
                   {**shape, "num_hidden_layers": 3, "head_dim": head_dim, "query_pre_attn_scalar": 12,
                    "sliding_window": 6, "layer_types": gemma3_layers}),
        "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", square),
        "gemma1": ("GemmaConfig", "GemmaForCausalLM", {**shape, "head_dim": head_dim}),
        "olmo3": ("Olmo3Config", "Olmo3ForCausalLM",
                  {**square, "num_hidden_layers": 4, "sliding_window": 6,
                   "rope_parameters": {"full_attention": yarn, "sliding_attention": rope(rope_type="default")}}),
        "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM",
                    {**square, "num_hidden_layers": 3, "no_rope_layer_interval": 2, "no_rope_layers": [1, 0, 1],
                     "use_sliding_window": pick(False, True), "sliding_window": pick(None, 6)}),
        "exaone4": ("Exaone4Config", "Exaone4ForCausalLM",
                    {**square, "num_hidden_layers": 3, "sliding_window": 6, "head_dim": head_dim,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
        "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", {**square, "sliding_window": pick(6, None)}),
        "stablelm": ("StableLmConfig", "StableLmForCausalLM",
                     {**square, "use_qkv_bias": pick(True, False),
                      "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.25)}),
        "seed-oss": ("SeedOssConfig", "SeedOssForCausalLM",
                     {**shape, "head_dim": head_dim, "attention_out_bias": pick(True, False), "attention_dropout": 0.0,
                      "residual_dropout": 0.0}),
        "olmoe": ("OlmoeConfig", "OlmoeForCausalLM",
                  {**moe, "num_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 16,
                   "norm_topk_prob": pick(False, True)}),
        "glm4-moe": ("Glm4MoeConfig", "Glm4MoeForCausalLM",
                     {**moe, "use_qk_norm": pick(True, False), "attention_bias": pick(True, False), "n_routed_experts": 5,
                      "num_experts_per_tok": 2, "moe_intermediate_size": 16, "routed_scaling_factor": 1.5,
                      "first_k_dense_replace": 1, "n_shared_experts": pick(2, 1)}),
        "dots1": ("Dots1Config", "Dots1ForCausalLM",
                  {**moe, "head_dim": head_dim, "n_routed_experts": 5, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 16, "routed_scaling_factor": 2.0, "first_k_dense_replace": 1,
                   "n_shared_experts": 1, "norm_topk_prob": pick(False, True), "sliding_window": 6,
                   "max_window_layers": 1}),
        "deepseek-v2": ("DeepseekV2Config", "DeepseekV2ForCausalLM",
                        {**latent, "q_lora_rank": pick(None, 14), "n_group": 4, "topk_group": 1,
                         "topk_method": pick("group_limited_greedy", "greedy"), "routed_scaling_factor": 1.5,
                         "rope_parameters": pick(mscale_yarn, rope(rope_type="default"))}),
        "deepseek-v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM",
                        {**latent, "q_lora_rank": pick(14, None), "n_group": 4, "topk_group": 2,
                         "attention_bias": pick(True, False), "rope_interleave": pick(True, False),
                         "norm_topk_prob": pick(True, False), "rope_parameters": mscale_yarn}),
        "glm4-moe-lite": ("Glm4MoeLiteConfig", "Glm4MoeLiteForCausalLM",
                          {**latent, "num_hidden_layers": 3, "q_lora_rank": 14, "n_group": 1, "topk_group": 1,
                           "first_k_dense_replace": 2, "mlp_layer_types": ["dense", "sparse", "dense"]}),
        "granite": ("GraniteConfig", "GraniteForCausalLM",
                    {**square, "embedding_multiplier": 6.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22,
                     "logits_scaling": pick(6.0, 8.0), "attention_bias": pick(False, True)}),
        "granitemoe": ("GraniteMoeConfig", "GraniteMoeForCausalLM",
                       {**moe, "embedding_multiplier": 6.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22,
                        "logits_scaling": 4.0, "num_local_experts": 4, "num_experts_per_tok": 2,
                        "intermediate_size": 16}),
        "arcee": ("ArceeConfig", "ArceeForCausalLM", {**shape, "head_dim": head_dim, "mlp_bias": pick(True, False)}),
        "helium": ("HeliumConfig", "HeliumForCausalLM",
                   {**square, "head_dim": square["hidden_size"] // 4, "attention_bias": pick(True, False)}),
        "nemotron": ("NemotronConfig", "NemotronForCausalLM",
                     {**square, "head_dim": 8 if square["hidden_size"] == 32 else 16, "attention_bias": pick(True, False),
                      "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.5)}),
        "cohere": ("CohereConfig", "CohereForCausalLM",
                   {**square, "logit_scale": 0.25, "attention_bias": pick(True, False)}),
        "cohere2": ("Cohere2Config", "Cohere2ForCausalLM",
                    {**square, "num_hidden_layers": 3, "sliding_window": 6, "logit_scale": 0.25,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
        "phi": ("PhiConfig", "PhiForCausalLM",
                {**square, "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.5)}),
        "gptj": ("GPTJConfig", "GPTJForCausalLM",
                 {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": pick(4, 6),
                  "n_inner": pick(48, None), "bos_token_id": None, "eos_token_id": None}),
        "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM",
                     {**{k: v for k, v in square.items() if k != "num_key_value_heads"},
                      "use_parallel_residual": pick(True, False),
                      "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.5)}),
        "falcon": ("FalconConfig", "FalconForCausalLM",
                   {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "ffn_hidden_size": 48, "multi_query": pick(True, False), "bias": pick(False, True),
                    "bos_token_id": None, "eos_token_id": None}),
        "falcon-new": ("FalconConfig", "FalconForCausalLM",
                       {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                        "num_kv_heads": 2, "ffn_hidden_size": 48, "new_decoder_architecture": True,
                        "num_ln_in_parallel_attn": pick(2, 1), "bos_token_id": None, "eos_token_id": None}),
        "qwen3-next": ("Qwen3NextConfig", "Qwen3NextForCausalLM",
                       {**moe, "num_hidden_layers": 3, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "mlp_only_layers": [1],
                        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                        "linear_num_key_heads": 2, "linear_num_value_heads": pick(4, 2), "linear_key_head_dim": 6,
                        "linear_value_head_dim": 10, "linear_conv_kernel_dim": pick(4, 3),
                        "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.25)}),
        "qwen3-5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM",
                    {**square, "num_hidden_layers": 3, "head_dim": 16,
                     "layer_types": ["linear_attention", "linear_attention", "full_attention"],
                     "linear_num_key_heads": 2, "linear_num_value_heads": pick(2, 4), "linear_key_head_dim": 6,
                     "linear_value_head_dim": 10, "linear_conv_kernel_dim": pick(3, 4),
                     "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.25,
                                             mrope_section=[1, 1, 0])}),
        "qwen3-5-moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM",
                        {**moe, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                         "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12,
                         "layer_types": ["linear_attention", "full_attention"],
                         "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
                         "linear_value_head_dim": 10,
                         "rope_parameters": rope(rope_type="default", partial_rotary_factor=0.25,
                                                 mrope_section=[1, 1, 0])}),
        "minimax-m2": ("MiniMaxM2Config", "MiniMaxM2ForCausalLM",
                       {**moe, "head_dim": 16, "rotary_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2,
                        "intermediate_size": 16}),
        "mixtral": ("MixtralConfig", "MixtralForCausalLM",
                    {**moe, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 24}),
        "qwen2-moe": ("Qwen2MoeConfig", "Qwen2MoeForCausalLM",
                      {**moe, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                       "shared_expert_intermediate_size": 24, "norm_topk_prob": pick(False, True),
                       "mlp_only_layers": pick([0], [])}),
        "gpt-oss": ("GptOssConfig", "GptOssForCausalLM",
                    {**moe, "head_dim": head_dim, "num_local_experts": 5, "num_experts_per_tok": 2,
                     "intermediate_size": pick(24, 16), "sliding_window": 6, "rope_parameters": oss_yarn,
                     "swiglu_limit": pick(1.5, 7.0)}),
        "qwen3-moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM",
                      {**moe, "head_dim": head_dim, "num_experts": 5, "num_experts_per_tok": 2,
                       "moe_intermediate_size": 16, "norm_topk_prob": pick(True, False), "decoder_sparse_step": 1}),
    }


def randomise(model, generator):
    """Weights that make logits differ: a healthy spread in every product, gains and biases that are not all alike."""
    with torch.no_grad():
        biases = [one for one in model.named_buffers() if one[0].endswith("e_score_correction_bias")]
        for name, weight in [*model.named_parameters(), *biases]:
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 1:
                gain = "norm" in name or ".ln_" in name
                plus_one = type(model).__name__.startswith(("Gemma", "Nemotron", "Qwen3Next", "Qwen3_5"))
                centre = 1.0 if gain and name.endswith("weight") and not plus_one else 0.0
                # Experts that some tokens prefer and rounding does not change.
                chooses = name.endswith(("router.bias", "e_score_correction_bias"))
                weight.copy_(centre + (3.0 if chooses else 0.2) * noise)
            else:
                fan_in = 1 if "embed" in name or "wte" in name or "wpe" in name else weight.shape[-1]
                weight.copy_(noise * 1.3 / fan_in ** 0.5)


def run(model, vocabulary, generator):
    """The tokens of a greedy run, and the logits of all but the last."""
    tokens = torch.randint(0, vocabulary, (1, PROMPT), generator=generator)
    past = None
    rows = []
    ids = tokens
    with torch.no_grad():
        for _ in range(DECODED):
            out = model(input_ids=ids, past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0])
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, ids], dim=1)
    return tokens[0].to(torch.int32), torch.cat(rows).float()


def make(name, folder, config, model_class, settings, seed):
    generator = torch.Generator().manual_seed(seed)
    config = getattr(transformers, config)(**settings)
    config._attn_implementation = "eager"
    model = getattr(transformers, model_class)(config).eval()
    randomise(model, generator)
    tokens, logits = run(model, settings["vocab_size"], generator)
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    save_file({"tokens": tokens, "logits": logits}, os.path.join(folder, "expected.safetensors"), metadata=versions(name, seed))


def versions(name, seed):
    return {"transformers": transformers.__version__, "torch": torch.__version__, "family": name, "seed": str(seed)}


def add_bf16(name, folder, seed, prompts):
    def load(dtype):
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()

    in_bf16, in_f32 = load(torch.bfloat16), load(torch.float32)
    with torch.no_grad():
        for weight in in_f32.parameters():
            weight.copy_(weight.bfloat16())
    generator = torch.Generator().manual_seed(seed)
    for _ in range(prompts):
        tokens, logits = run(in_bf16, in_bf16.config.vocab_size, generator)
        fed = tokens[:-1].long()
        with torch.no_grad():
            exact = rounding_bound.run(in_f32, fed)
        perturbed = rounding_bound.Perturbed(in_bf16, in_f32, fed)
        if prompts > 1 and not perturbed.may_all_be_certain():
            continue
        if perturbed.certain_tokens() == len(fed):
            break
    certain = perturbed.certain_tokens()
    bound = perturbed.bound(perturbed.logits).float()
    worst = ((logits - exact).abs() / bound)[:certain].max() if certain > 0 else 0
    bound[certain:] = float("inf")
    save_file({"tokens": tokens, "logits": logits.bfloat16(), "exact": exact, "bound": bound},
              os.path.join(folder, "expected_bf16.safetensors"), metadata=versions(name, seed))
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    print(f"{name}: {size // 1024} KiB, logits up to {exact.abs().max():.3f}, in bf16 off by up to {worst:.2f} of their bound, "
          f"{certain} of {len(fed)} tokens bounded", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, help="draw sizes and options at random")
    parser.add_argument("--bf16-only", action="store_true", help="of checkpoints that are there")
    arguments = parser.parse_args()
    drawn = random.Random(arguments.seed)
    pick = (lambda *choices: drawn.choice(choices)) if arguments.seed is not None else (lambda first, *rest: first)
    for name, (config, model, settings) in families(pick).items():
        if arguments.only in (None, name):
            folder = os.path.join(arguments.out, name)
            if not arguments.bf16_only:
                make(name, folder, config, model, settings, arguments.seed or 1)
            add_bf16(name, folder, arguments.seed or 1, PROMPTS if arguments.seed is None else 1)


if __name__ == "__main__":
    sys.exit(main())
