#include <fmt/format.h>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "instrument/inspect/check.h"

/// Scales whose shape is not that of the weight's blocks.
namespace nanscope {
namespace {

/// A 4-bit weight's scales that are half as many as its blocks, as when its packed bytes were taken for its elements.
bool is_half(const StoredModule& module) {
  const CheckpointFiles::Tensor weight = module.weight();
  const CheckpointFiles::Tensor scale = module.find("weight_scale");
  if (weight.entry == nullptr || scale.entry == nullptr || weight.entry->dtype != "U8") return false;
  if (weight.entry->shape.empty() || scale.entry->shape.empty()) return false;
  const std::int64_t group = scale.entry->dtype == "U8" ? 32 : 16;
  return scale.entry->shape.back() * group == weight.entry->shape.back();
}

}  // namespace

void check_scale_shape(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding shape{.id = "scale-shape", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  InspectFinding block{
      .id = "block-not-stated", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  std::string first;
  bool half = false;
  for (const Inspected& one : subject.modules) {
    const bool misfit = one.unknown.why == Unknown::unreadable;
    if (misfit && one.unknown.text.find("no scale beside it") == std::string::npos) {
      if (shape.modules.empty()) first = one.unknown.text;
      half = half || is_half(*one.module);
      shape.modules.push_back(one.module->path);
    }
    if (one.matrix && one.matrix->block_rows > 1 && one.matrix->block_rows < one.matrix->rows &&
        subject.config.method == QuantMethod::fp8 && !subject.config.block &&
        subject.loader.fp8_tensor_scale == "weight_scale") {
      block.modules.push_back(one.module->path);
    }
  }
  if (!shape.modules.empty()) {
    shape.text = fmt::format("{} ({}) cannot be decoded; the first: {}", counted(shape.modules.size(), "module"),
                             some_of(shape.modules), first);
    if (half) {
      shape.text += "; they are half as wide, as where the packed bytes are taken for the elements";
      shape.known_as = "NVIDIA/Model-Optimizer PR 2038";
    }
    findings.push_back(std::move(shape));
  }
  if (!block.modules.empty()) {
    block.text = fmt::format(
        "{} ({}) have a scale for each block and quantization_config has no weight_block_size: {} "
        "makes room for one scale",
        counted(block.modules.size(), "module"), some_of(block.modules), subject.loader.name);
    findings.push_back(std::move(block));
  }
}

}  // namespace nanscope
