#include "instrument/quantized/stored_module.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nanscope {
namespace {

/// Parts whose name is joined to the module's by an underscore: "experts.gate_up_proj_blocks" (gpt-oss), and
/// "experts.gate_up_proj_scale_inv" (transformers' fused experts).
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kJoined = {{
    {"_blocks", "blocks"},
    {"_scales", "scales"},
    {"_scale_inv", "weight_scale_inv"},
}};

/// What others call a part.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kOther = {{
    {"scale", "weight_scale_inv"},          // DeepSeek-V4
    {"qscale_weight", "weight_scale_inv"},  // Mistral
    {"qscale_act", "activation_scale"},
    {"input_scale_2", "input_global_scale"},
    {"_weight_qdata", "weight"},  // torchao, prototype/safetensors/safetensors_support.py
    {"_weight_scale", "weight_scale"},
    {"_weight_per_tensor_scale", "weight_scale_2"},
}};

/// Parts of a weight of bitsandbytes, below "weight.".
constexpr std::array<std::string_view, 6> kOfWeight = {"absmax",
                                                       "quant_map",
                                                       "nested_absmax",
                                                       "nested_quant_map",
                                                       "quant_state.bitsandbytes__nf4",
                                                       "quant_state.bitsandbytes__fp4"};

std::pair<std::string, std::string> split(std::string_view name) {
  for (const std::string_view part : kOfWeight) {
    const std::size_t before = name.size() - std::min(name.size(), part.size() + std::string_view(".weight.").size());
    if (before > 0 && name.ends_with(part) && name.substr(before).starts_with(".weight."))
      return {std::string(name.substr(0, before)), std::string(name.substr(before + 1))};
  }
  for (const auto& [ending, part] : kJoined) {
    const std::string_view leaf = name.substr(name.rfind('.') + 1);
    if (name.ends_with(ending) && leaf != "weight_scale_inv" && leaf.size() > ending.size()) {
      return {std::string(name.substr(0, name.size() - ending.size())), std::string(part)};
    }
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {std::string(), std::string(name)};
  std::string_view part = name.substr(dot + 1);
  for (const auto& [theirs, ours] : kOther) {
    if (part == theirs) part = ours;
  }
  return {std::string(name.substr(0, dot)), std::string(part)};
}

}  // namespace

CheckpointFiles::Tensor StoredModule::find(std::string_view part) const {
  const auto found = tensors.find(part);
  return found == tensors.end() ? CheckpointFiles::Tensor{} : found->second;
}

CheckpointFiles::Tensor StoredModule::weight() const {
  for (const char* part : {"weight", "weight_packed", "qweight", "blocks"}) {
    if (has(part)) return find(part);
  }
  return {};
}

std::string_view StoredModule::leaf() const { return std::string_view(path).substr(path.rfind('.') + 1); }

std::string_view StoredModule::parent() const { return std::string_view(path).substr(0, path.rfind('.') + 1); }

std::vector<StoredModule> stored_modules(const CheckpointFiles& files) {
  std::map<std::string, StoredModule, std::less<>> by_path;
  for (const auto& [name, tensor] : files.tensors()) {
    auto [path, part] = split(name);
    StoredModule& module = by_path[path];
    module.path = path;
    module.tensors.emplace(std::move(part), tensor);
  }
  std::vector<StoredModule> all;
  all.reserve(by_path.size());
  for (auto& [path, module] : by_path) all.push_back(std::move(module));
  return all;
}

}  // namespace nanscope
