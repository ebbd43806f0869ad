#include <algorithm>

#include "instrument/inspect/loader.h"

/// vLLM: vllm/model_executor/layers/quantization/{fp8,modelopt,kv_cache,auto_gptq}.py and compressed_tensors/ of 0.33.
namespace nanscope {
namespace {

constexpr KvRules kVllmKv{.neither = "1.0 is used, with a warning",
                          .neither_in_ct = "1.0 is used, without a word",
                          .one_number = true,
                          .makes_scales_of_heads = true,
                          .q_missing = "k_scale is announced for it, and 1.0 is used"};

bool vllm_ignores(const QuantizationConfig& config, std::string_view module) {
  if (config.method == QuantMethod::compressed_tensors) return listed_by_expression(config, module);
  if (config.method == QuantMethod::modelopt) return listed_by_wildcard(config, module);
  return listed_by_name(config, module);
}

/// auto_gptq.py, gptq_utils.py, auto_awq.py and compressed_tensors.py. bitsandbytes.py is not there any more.
bool vllm_knows(const QuantizationConfig& config) {
  return config.method != QuantMethod::other && config.method != QuantMethod::bitsandbytes;
}

std::string vllm_refuses(const QuantizationConfig& config) {
  const auto any = [&](auto&& test) { return std::any_of(config.groups.begin(), config.groups.end(), test); };
  if (config.method == QuantMethod::gptq) {
    if (any([](const QuantGroup& one) { return one.bits != 4 && one.bits != 8; })) return "GPTQ of 4 or 8 bits alone";
    if (any([](const QuantGroup& one) { return !one.symmetric; })) return "GPTQ with sym = true alone";
    if (any([](const QuantGroup& one) { return one.act_order && one.group_size > 0; }))
      return "GPTQ with desc_act = false, or with one group a row, alone";
  }
  if (config.method == QuantMethod::awq && config.format != "gemm") return "AWQ of version gemm alone";
  if (config.method == QuantMethod::compressed_tensors && any([](const QuantGroup& one) { return one.act_order; }))
    return "compressed-tensors without actorder group alone";
  return {};
}

}  // namespace

const Loader& vllm_loader() {
  static constexpr Loader loader{.name = "vllm",
                                 .version = "0.33",
                                 .ignores = vllm_ignores,
                                 .knows = vllm_knows,
                                 .refuses = vllm_refuses,
                                 .unknown_method = "it is not looked at here",
                                 .missing_scale = "-3.4e38, or unwritten memory, stands where it should be",
                                 .fp8_tensor_scale = "weight_scale",
                                 .needs_activation_scheme = true,
                                 .fused_fp8 = FusedScales::requantized,
                                 .fused_global = FusedScales::largest,
                                 .fused_input_largest = true,
                                 .fused_blocks_whole = true,
                                 .fused_last_may_be_ragged = true,
                                 .requantizes_to_powers_of_two = true,
                                 .reads_gptq_zero_points = false,
                                 .kv = &kVllmKv};
  return loader;
}

}  // namespace nanscope
