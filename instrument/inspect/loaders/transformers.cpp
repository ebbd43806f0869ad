#include "instrument/inspect/loader.h"

/// transformers on a CPU, where it decodes the weights when it loads them: quantizers/ and integrations/ of 5.23.
namespace nanscope {
namespace {

bool transformers_ignores(const QuantizationConfig& config, std::string_view module) {
  if (config.method == QuantMethod::compressed_tensors) return listed_by_expression(config, module);
  return listed_by_beginning(config, module);
}

bool transformers_knows(const QuantizationConfig& config) {
  return config.method != QuantMethod::other && config.method != QuantMethod::modelopt;
}

}  // namespace

const Loader& transformers_loader() {
  static constexpr Loader loader{
      .name = "transformers",
      .version = "5.23",
      .ignores = transformers_ignores,
      .knows = transformers_knows,
      .unknown_method = "it warns, and loads the codes as if they were the weights",
      .missing_scale = "the load report lists it, and the scale is what the module was made with",
      .fp8_tensor_scale = "weight_scale_inv",
      .decodes_by_bf16 = true,
      .reads_input_scales = false,
      .ragged_by_counts = true,
      .drops_expert_global = true};
  return loader;
}

}  // namespace nanscope
