#include "instrument/diagnosis/server_settings.h"

#include <algorithm>
#include <array>

namespace nanscope {
namespace {

/// Names of the options: vllm/engine/arg_utils.py and vllm/config/cache.py of vLLM 0.32, SGLang's page "Server
/// arguments", KvCacheConfig and LlmArgs of TensorRT-LLM 1.4.
struct Row {
  std::string_view fault_class;
  bool cache_alone;  ///< only where the fault began in a KV cache
  std::string_view vllm, sglang, tensorrt_llm;
};

constexpr std::string_view kUnquantized = "--kv-cache-dtype auto";
constexpr std::string_view kUnquantizedTrt = "kv_cache_config.dtype: auto";

constexpr std::array kSettings = {
    Row{"kv-scale-locked", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"saturation", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"scale-misapplied", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"scale-invalid", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"outlier-squash", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"fp8-format-mismatch", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"fp8-nonsaturating-overflow", true, kUnquantized, kUnquantized, kUnquantizedTrt},
    Row{"prefix-cache-poison", false, "--no-enable-prefix-caching", "--disable-radix-cache",
        "kv_cache_config.enable_block_reuse: false"},
    Row{"f16-overflow", false, "--dtype bfloat16", "--dtype bfloat16", "dtype: bfloat16"},
};

}  // namespace

std::vector<ServerSetting> server_settings(std::string_view fault_class, OpKind kind) {
  const auto row =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Row& one) { return one.fault_class == fault_class; });
  const bool in_cache = kind == OpKind::kv_store || kind == OpKind::kv_read;
  if (row == kSettings.end() || (row->cache_alone && !in_cache)) return {};
  return {{"vLLM", std::string(row->vllm)},
          {"SGLang", std::string(row->sglang)},
          {"TensorRT-LLM", std::string(row->tensorrt_llm)}};
}

}  // namespace nanscope
