#include "instrument/quantized/product_inputs.h"

#include <algorithm>
#include <array>

namespace nanscope {
namespace {

GemmAttributes cast_to(std::string format, std::string scales = {}, std::int64_t group = 0) {
  GemmAttributes made;
  made.input_format = std::move(format);
  if (!scales.empty()) made.input_scales = std::move(scales);
  if (group > 0) made.input_group = group;
  return made;
}

GemmAttributes unknown() { return cast_to("unknown"); }

bool alike(const QuantGroup& a, const QuantGroup& b) {
  return a.inputs == b.inputs && a.input_bits == b.input_bits && a.input_type == b.input_type &&
         a.input_strategy == b.input_strategy && a.input_group_size == b.input_group_size &&
         a.input_symmetric == b.input_symmetric && a.input_scale_format == b.input_scale_format;
}

/// compressed-tensors: quantization/quant_args.py of 0.20.
GemmAttributes by_groups(const QuantizationConfig& config) {
  if (config.groups.empty()) return unknown();
  const QuantGroup& one = config.groups.front();
  if (!std::all_of(config.groups.begin(), config.groups.end(), [&](const auto& other) { return alike(one, other); }))
    return unknown();
  if (one.inputs == InputScales::none) return {};
  if (one.input_bits != 8 || !one.input_scale_format.empty() || (one.input_type != "float" && one.input_type != "int"))
    return unknown();
  const std::string format = one.input_type == "float" ? "e4m3" : "int8";
  const bool whole = one.input_strategy == "tensor" || one.input_strategy.empty();
  if (one.inputs == InputScales::fixed) return whole ? cast_to(format, "fixed") : unknown();
  if (!one.input_symmetric) return unknown();
  if (whole) return cast_to(format, "tensor");
  if (one.input_strategy == "token") return cast_to(format, "row");
  if (one.input_strategy == "group" && one.input_group_size > 0) return cast_to(format, "group", one.input_group_size);
  return unknown();
}

}  // namespace

bool is_of_input(std::string_view part) {
  constexpr std::array<std::string_view, 3> kInputs = {"input_scale", "activation_scale", "input_zero_point"};
  return std::find(kInputs.begin(), kInputs.end(), part) != kInputs.end();
}

GemmAttributes product_of(const StoredModule& module, const QuantizationConfig& config) {
  switch (config.method) {
    case QuantMethod::none:
    case QuantMethod::gptq:
    case QuantMethod::awq:
    case QuantMethod::mxfp4:  // of weights alone, on most GPUs
      return {};
    case QuantMethod::bitsandbytes:  // LLM.int8 casts rows, but for columns with an outlier
      return module.has("SCB") ? unknown() : GemmAttributes{};
    case QuantMethod::fp8:
      if (config.inputs == InputScales::fixed) return cast_to("e4m3", "fixed");
      if (config.powers_of_two) return unknown();  // some kernels round the input's scales to them, too
      return config.block ? cast_to("e4m3", "group", (*config.block)[1]) : cast_to("e4m3", "row or tensor");
    case QuantMethod::fbgemm_fp8:
      return cast_to("e4m3", "row");
    case QuantMethod::compressed_tensors:
      return by_groups(config);
    case QuantMethod::modelopt:
      return config.format == "FP8" ? cast_to("e4m3", "fixed") : unknown();
    case QuantMethod::mxfp8:
    case QuantMethod::torchao:
    case QuantMethod::other:
      break;
  }
  return unknown();
}

}  // namespace nanscope
