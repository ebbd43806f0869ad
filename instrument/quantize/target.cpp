#include "instrument/quantize/target.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/blocks/presets.h"

namespace nanscope {
namespace {

using Json = nlohmann::ordered_json;

/// FineGrainedFP8Config of transformers 5.24 and Fp8Config of vLLM 0.33 read the same keys.
Json fp8_config(const QuantizeTarget& target, const std::vector<std::string>& ignored, bool) {
  Json config{{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"fmt", "e4m3"}};
  if (target.whole) {
    config["weight_block_size"] = nullptr;
  } else {
    config["weight_block_size"] = {target.format.block.rows, target.format.block.columns};
  }
  config["modules_to_not_convert"] = ignored;
  return config;
}

Json scheme(int bits, std::string_view strategy, const Json& dynamic) {
  return Json{{"num_bits", bits},   {"type", "float"},       {"strategy", strategy}, {"symmetric", true},
              {"dynamic", dynamic}, {"group_size", nullptr}, {"observer", nullptr},  {"scale_dtype", nullptr}};
}

/// quantization/quant_config.py and quant_scheme.py of compressed-tensors 0.20.
Json compressed_tensors_config(std::string_view format, Json weights, Json inputs,
                               const std::vector<std::string>& ignored) {
  const Json group{{"targets", {"Linear"}},
                   {"weights", std::move(weights)},
                   {"input_activations", std::move(inputs)},
                   {"output_activations", nullptr},
                   {"format", format}};
  return Json{{"quant_method", "compressed-tensors"}, {"format", format},
              {"quantization_status", "compressed"},  {"global_compression_ratio", nullptr},
              {"kv_cache_scheme", nullptr},           {"ignore", ignored},
              {"config_groups", {{"group_0", group}}}};
}

Json ct_fp8_block(const QuantizeTarget& target, const std::vector<std::string>& ignored, bool) {
  Json weights = scheme(8, "block", false);
  weights["block_structure"] = {target.format.block.rows, target.format.block.columns};
  Json inputs = scheme(8, "group", true);
  inputs["group_size"] = target.format.block.columns;
  return compressed_tensors_config("float-quantized", weights, inputs, ignored);
}

Json ct_fp8(const QuantizeTarget&, const std::vector<std::string>& ignored, bool) {
  return compressed_tensors_config("float-quantized", scheme(8, "tensor", false), scheme(8, "token", true), ignored);
}

Json grouped(int bits, std::string_view strategy, int group, const Json& dtype, const Json& dynamic) {
  Json one = scheme(bits, strategy, dynamic);
  one["group_size"] = group;
  one["scale_dtype"] = dtype;
  return one;
}

Json ct_mxfp8(const QuantizeTarget&, const std::vector<std::string>& ignored, bool) {
  return compressed_tensors_config("mxfp8-quantized", grouped(8, "group", 32, "torch.uint8", false),
                                   grouped(8, "group", 32, "torch.uint8", true), ignored);
}

Json ct_mxfp4(const QuantizeTarget&, const std::vector<std::string>& ignored, bool) {
  return compressed_tensors_config("mxfp4-pack-quantized", grouped(4, "group", 32, "torch.uint8", false), nullptr,
                                   ignored);
}

Json ct_nvfp4(const QuantizeTarget&, const std::vector<std::string>& ignored, bool inputs) {
  Json read;  // what products do
  if (inputs) {
    read = grouped(4, "tensor_group", 16, "torch.float8_e4m3fn", "local");
    read["observer"] = "static_minmax";
  }
  return compressed_tensors_config("nvfp4-pack-quantized", grouped(4, "tensor_group", 16, "torch.float8_e4m3fn", false),
                                   read, ignored);
}

/// export/convert_hf_config.py of ModelOpt 0.47: quant_algo as vLLM reads it.
Json modelopt_config(std::string_view algo, const std::vector<std::string>& ignored) {
  return Json{{"quant_method", "modelopt"},
              {"quant_algo", algo},
              {"producer", {{"name", "nanscope"}}},
              {"kv_cache_scheme", nullptr},
              {"ignore", ignored}};
}

Json modelopt_nvfp4(const QuantizeTarget&, const std::vector<std::string>& ignored, bool inputs) {
  Json config = modelopt_config(inputs ? "NVFP4" : "W4A16_NVFP4", ignored);
  const Json blocks{{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  config["group_size"] = 16;
  Json group{{"weights", blocks}, {"targets", {"Linear"}}};
  if (inputs) group["input_activations"] = blocks;
  config["config_groups"] = {{"group_0", group}};
  return config;
}

Json modelopt_fp8(const QuantizeTarget&, const std::vector<std::string>& ignored, bool) {
  Json config = modelopt_config("FP8", ignored);
  const Json whole{{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  config["config_groups"] = {{"group_0", {{"weights", whole}, {"input_activations", whole}, {"targets", {"Linear"}}}}};
  return config;
}

Json modelopt_mxfp8(const QuantizeTarget&, const std::vector<std::string>& ignored, bool) {
  Json config = modelopt_config("MXFP8", ignored);
  config["group_size"] = 32;
  return config;
}

Json modelopt_fp8_block(const QuantizeTarget&, const std::vector<std::string>& ignored, bool) {
  return modelopt_config("FP8_PB_WO", ignored);
}

constexpr float kNvfp4Range = 448 * 6;  ///< of e4m3 scales times e2m1 codes

BlockFormat preset(std::string_view name) { return find_block_preset(name)->format; }

QuantizeTarget of(std::string_view to, std::string_view layout, std::string_view format, std::string_view scale,
                  std::string_view scale_dtype, decltype(QuantizeTarget::config) config) {
  QuantizeTarget target{};
  target.to = to;
  target.layout = layout;
  target.format = preset(format);
  target.codes = target.codes_a_byte() == 2 ? "weight_packed" : "weight";
  target.codes_dtype = target.codes_a_byte() == 2 ? "U8" : "F8_E4M3";
  target.scale = scale;
  target.scale_dtype = scale_dtype;
  target.config = config;
  return target;
}

QuantizeTarget whole(QuantizeTarget target, bool shared) {
  target.whole = true;
  target.shared = shared;
  return target;
}

std::vector<QuantizeTarget> all_targets() {
  std::vector<QuantizeTarget> all;
  // A block of zeros has the scale 1 there, where DeepSeek's own kernel divides 0 by 0.
  for (const char* layout : {"transformers", "vllm"}) {
    all.push_back(of("fp8-block", layout, "fp8-block-transformers", "weight_scale_inv", "F32", fp8_config));
  }
  all.push_back(of("fp8-block", "compressed-tensors", "fp8-block-transformers", "weight_scale", "F32", ct_fp8_block));
  all.push_back(whole(of("fp8", "compressed-tensors", "fp8-block", "weight_scale", "F32", ct_fp8), true));
  all.push_back(whole(of("fp8", "transformers", "fp8-block", "weight_scale_inv", "F32", fp8_config), false));
  all.push_back(whole(of("fp8", "vllm", "fp8-block", "weight_scale", "F32", fp8_config), true));
  all.push_back(of("mxfp8", "compressed-tensors", "mxfp8-ct", "weight_scale", "U8", ct_mxfp8));
  all.push_back(of("mxfp4", "compressed-tensors", "mxfp4-ct", "weight_scale", "U8", ct_mxfp4));
  QuantizeTarget nvfp4 = of("nvfp4", "compressed-tensors", "nvfp4-ct", "weight_scale", "F8_E4M3", ct_nvfp4);
  nvfp4.second = "weight_global_scale";
  nvfp4.shared = true;
  nvfp4.input = "input_global_scale";
  nvfp4.input_range = kNvfp4Range;
  all.push_back(nvfp4);
  QuantizeTarget modelopt =
      of("fp8-block", "modelopt", "fp8-block-transformers", "weight_scale", "F32", modelopt_fp8_block);
  modelopt.grid_of_four = true;
  all.push_back(modelopt);
  all.push_back(of("mxfp8", "modelopt", "mxfp8-modelopt", "weight_scale", "U8", modelopt_mxfp8));
  modelopt = of("nvfp4", "modelopt", "nvfp4-modelopt", "weight_scale", "F8_E4M3", modelopt_nvfp4);
  modelopt.codes = "weight";
  modelopt.second = "weight_scale_2";
  modelopt.shared = true;
  modelopt.input = "input_scale";
  modelopt.input_range = kNvfp4Range;
  all.push_back(modelopt);
  modelopt = whole(of("fp8", "modelopt", "fp8-block", "weight_scale", "F32", modelopt_fp8), true);
  modelopt.input = "input_scale";
  modelopt.input_range = 448;
  modelopt.needs_inputs = true;
  all.push_back(modelopt);
  return all;
}

}  // namespace

float QuantizeTarget::input_scale(float amax) const {
  if (!(amax > 0)) return 1;
  // compressed_tensors/quantization/utils/helpers.py, generate_gparam: a divisor, 1 where it is not finite.
  const float scale = format.second == SecondScale::divisor ? input_range / amax : amax / input_range;
  return std::isfinite(scale) && scale > 0 ? scale : 1;
}

std::span<const QuantizeTarget> quantize_targets() {
  static const std::vector<QuantizeTarget> all = all_targets();
  return all;
}

const QuantizeTarget* find_quantize_target(std::string_view to, std::string_view layout) {
  const auto all = quantize_targets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const QuantizeTarget& one) {
    return one.to == to && (layout.empty() || one.layout == layout);
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace nanscope
