#include <fmt/format.h>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "instrument/inspect/check.h"

/// Whether config.json and the tensors say the same of which modules are quantized.
namespace nanscope {
namespace {

bool holds_codes(const Inspected& one) {
  if (one.matrix && one.matrix->quantized()) return true;
  const CheckpointFiles::Tensor weight = one.module->weight();
  if (weight.entry == nullptr || weight.entry->shape.size() < 2) return false;
  const std::string& dtype = weight.entry->dtype;
  return dtype == "U8" || dtype == "I8" || dtype.starts_with("F8_E4") || dtype.starts_with("F8_E5");
}

void check_config(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  const QuantizationConfig& config = subject.config;
  if (!subject.loader.knows(config)) {
    InspectFinding unknown{.id = "method-unknown",
                           .severity = Severity::error,
                           .text = fmt::format("{} knows no quant_method '{}': {}", subject.loader.name,
                                               one_line(config.name), subject.loader.unknown_method),
                           .known_as = {},
                           .modules = {},
                           .unfits = true};
    for (const Inspected& one : subject.modules) {
      if (holds_codes(one)) unknown.modules.push_back(one.module->path);
    }
    findings.push_back(std::move(unknown));
  }
  if (config.method == QuantMethod::fp8 && subject.loader.needs_activation_scheme && !config.states_inputs) {
    findings.push_back({.id = "activation-scheme-missing",
                        .severity = Severity::error,
                        .text = fmt::format("quantization_config has no activation_scheme, without which {} refuses it",
                                            subject.loader.name),
                        .known_as = {},
                        .modules = {}});
  }
}

void check_fused_lists(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding partly{
      .id = "fused-partly-listed", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  if (subject.loader.fused_fp8 == FusedScales::apart) return;
  for (const Inspected& one : subject.modules) {
    const auto parts = subject.fused_with(one);
    std::size_t listed = 0;
    for (const Inspected* part : parts) listed += part->listed ? 1 : 0;
    if (listed > 0 && listed < parts.size()) partly.modules.push_back(one.module->path);
  }
  if (partly.modules.empty()) return;
  partly.text = fmt::format(
      "{} runs q, k and v as one weight, and gate and up; of {} the config's list leaves some parts as they are and "
      "not "
      "others, which is refused",
      subject.loader.name, some_of(partly.modules));
  findings.push_back(std::move(partly));
}

}  // namespace

void check_classification(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  check_config(subject, findings);
  InspectFinding bare{.id = "config-missing", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  InspectFinding listed{
      .id = "listed-but-quantized", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  InspectFinding plain{
      .id = "plain-but-not-listed", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  InspectFinding orphans{
      .id = "scale-without-weight", .severity = Severity::warning, .text = {}, .known_as = {}, .modules = {}};
  const bool none = subject.config.method == QuantMethod::none;
  for (const Inspected& one : subject.modules) {
    const bool coded = holds_codes(one);
    if (coded && none) bare.modules.push_back(one.module->path);
    if (coded && !none && one.listed) listed.modules.push_back(one.module->path);
    if (!coded && !none && one.candidate && !one.listed && one.matrix) plain.modules.push_back(one.module->path);
    if (one.module->weight().entry != nullptr) continue;
    for (const char* part : {"weight_scale", "weight_scale_inv", "weight_global_scale", "weight_scale_2", "scales"}) {
      if (!one.module->has(part)) continue;
      orphans.modules.push_back(one.module->path);
      break;
    }
  }
  if (!bare.modules.empty()) {
    bare.text = fmt::format(
        "{} codes ({}), and config.json has no quantization_config: they are loaded as if they "
        "were the weights",
        bare.modules.size() == 1 ? "1 module holds" : fmt::format("{} modules hold", bare.modules.size()),
        some_of(bare.modules));
    findings.push_back(std::move(bare));
  }
  if (!listed.modules.empty()) {
    listed.text = fmt::format(
        "{} ({}) that the config's list leaves as they are hold codes: {} takes the codes for "
        "the weights",
        counted(listed.modules.size(), "module"), some_of(listed.modules), subject.loader.name);
    findings.push_back(std::move(listed));
  }
  if (!plain.modules.empty()) {
    plain.text = fmt::format(
        "{} ({}) hold floats where {} expects codes and a scale: the config's list does not leave "
        "them as they are",
        counted(plain.modules.size(), "module"), some_of(plain.modules), subject.loader.name);
    findings.push_back(std::move(plain));
  }
  if (!orphans.modules.empty()) {
    orphans.text = fmt::format("{} ({}) have a scale and no weight: the scale is dropped",
                               counted(orphans.modules.size(), "module"), some_of(orphans.modules));
    findings.push_back(std::move(orphans));
  }
  check_fused_lists(subject, findings);
}

}  // namespace nanscope
