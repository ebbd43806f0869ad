#include "instrument/inspect/loader.h"

/// SGLang: sglang/srt/layers/quantization/{fp8,modelopt_quant,kv_cache}.py. A fused weight of one scale each for its
/// parts keeps them row by row where the CUTLASS products are there.
namespace nanscope {
namespace {

constexpr KvRules kSglangKv{
    .neither = "1.0 is used, without a word", .neither_in_ct = "1.0 is used, without a word", .zeros_are_one = true};

bool sglang_ignores(const QuantizationConfig& config, std::string_view module) {
  if (config.method == QuantMethod::compressed_tensors) return listed_by_expression(config, module);
  if (config.method == QuantMethod::modelopt) return listed_by_wildcard(config, module);
  return listed_by_name(config, module);
}

bool sglang_knows(const QuantizationConfig& config) { return config.method != QuantMethod::other; }

}  // namespace

const Loader& sglang_loader() {
  static constexpr Loader loader{.name = "sglang",
                                 .version = "0.5.23",
                                 .ignores = sglang_ignores,
                                 .knows = sglang_knows,
                                 .unknown_method = "it is not looked at here",
                                 .missing_scale = "-3.4e38, or unwritten memory, stands where it should be",
                                 .fp8_tensor_scale = "weight_scale",
                                 .needs_activation_scheme = true,
                                 .fused_fp8 = FusedScales::per_row,
                                 .fused_global = FusedScales::largest,
                                 .fused_input_largest = true,
                                 .fused_blocks_whole = true,
                                 .requantizes_to_powers_of_two = true,
                                 .fused_scalar_fills_one = true,
                                 .kv = &kSglangKv};
  return loader;
}

}  // namespace nanscope
