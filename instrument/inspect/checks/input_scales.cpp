#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "instrument/inspect/check.h"

/// Fixed scales of what products read.
namespace nanscope {
namespace {

constexpr std::array<const char*, 3> kInputParts = {"input_scale", "input_global_scale", "activation_scale"};

/// Which of them this checkpoint has; null: none.
const char* part_of(const InspectSubject& subject) {
  for (const char* part : kInputParts) {
    for (const Inspected& one : subject.modules) {
      if (one.module->has(part)) return part;
    }
  }
  return nullptr;
}

/// ModelOpt's algorithms whose inputs have a scale of their own in the file.
bool modelopt_fixes_inputs(std::string_view algo) {
  constexpr std::array<std::string_view, 4> kFixed = {"FP8", "NVFP4", "NVFP4_AWQ", "NVFP4_SVD"};
  return std::find(kFixed.begin(), kFixed.end(), algo) != kFixed.end();
}

bool fixed_inputs(const QuantizationConfig& config) {
  return (config.method == QuantMethod::modelopt && modelopt_fixes_inputs(config.format)) ||
         (config.method == QuantMethod::fp8 && config.inputs == InputScales::fixed) ||
         std::any_of(config.groups.begin(), config.groups.end(),
                     [](const QuantGroup& group) { return group.inputs == InputScales::fixed; });
}

void check_input_missing(const InspectSubject& subject, const char* part, std::vector<InspectFinding>& findings) {
  InspectFinding missing{.id = "input-scale-missing",
                         .severity = Severity::error,
                         .text = {},
                         .known_as = "vllm-project/vllm #45212",
                         .modules = {}};
  std::size_t experts = 0;
  std::size_t all = 0;
  for (const Inspected& one : subject.modules) {
    if (!one.matrix || !one.matrix->quantized() || !one.candidate) continue;
    ++all;
    if (one.module->has(part)) continue;
    missing.modules.push_back(one.module->path);
    experts += InspectSubject::is_expert(*one.module) ? 1 : 0;
  }
  if (missing.modules.empty()) return;
  missing.text = fmt::format(
      "{} of {} weights ({}) have no '{}'{}: {}", missing.modules.size(), all, some_of(missing.modules), part,
      experts > 0 ? fmt::format(", {} of them an expert's, which a calibration that did not route "
                                "there leaves out",
                                experts)
                  : std::string(),
      subject.loader.missing_scale);
  findings.push_back(std::move(missing));
}

void check_input_values(const InspectSubject& subject, const char* part, std::vector<InspectFinding>& findings) {
  InspectFinding bad{.id = "input-scale-invalid",
                     .severity = Severity::error,
                     .text = {},
                     .known_as = "vllm-project/vllm #45212",
                     .modules = {}};
  std::string first;
  for (const Inspected& one : subject.modules) {
    const CheckpointFiles::Tensor tensor = one.module->find(part);
    if (tensor.entry == nullptr) continue;
    const auto values = scale_values(tensor);
    if (!values) continue;
    const auto at =
        std::find_if(values->begin(), values->end(), [](float value) { return !std::isfinite(value) || value <= 0; });
    if (at == values->end()) continue;
    if (first.empty()) first = fmt::format("'{}' is {}", one_line(tensor.entry->name), *at);
    bad.modules.push_back(one.module->path);
  }
  if (bad.modules.empty()) return;
  bad.text = fmt::format(
      "the fixed input scales of {} ({}) are 0, not finite or below zero: {}; prompts that reach them "
      "give NaN",
      counted(bad.modules.size(), "weight"), some_of(bad.modules), first);
  findings.push_back(std::move(bad));
}

void check_input_parts(const InspectSubject& subject, const char* part, std::vector<InspectFinding>& findings) {
  if (!subject.loader.fused_input_largest) return;
  InspectFinding finding{
      .id = "input-scales-differ", .severity = Severity::note, .text = {}, .known_as = {}, .modules = {}};
  double widest = 1;
  for (const Inspected& one : subject.modules) {
    float least = 0;
    float most = 0;
    for (const Inspected* each : subject.fused_with(one)) {
      const CheckpointFiles::Tensor tensor = each->module->find(part);
      const auto values = tensor.entry != nullptr ? scale_values(tensor) : Result<std::vector<float>>();
      if (tensor.entry == nullptr || !values || values->size() != 1 || !(values->front() > 0)) continue;
      least = least == 0 ? values->front() : std::min(least, values->front());
      most = std::max(most, values->front());
    }
    if (!(most > least)) continue;
    finding.modules.push_back(one.module->path);
    widest = std::max(widest, double{most} / least);
  }
  if (finding.modules.empty()) return;
  finding.text = fmt::format(
      "input scales of parts that {} runs as one differ in {}, by up to {:.3g} times; the largest "
      "is taken for all",
      subject.loader.name, counted(finding.modules.size(), "weight"), widest);
  findings.push_back(std::move(finding));
}

/// Experts of 4-bit blocks whose inputs are not quantized: a scale of theirs that nobody sets.
void check_weight_only(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding finding{.id = "weight-only-experts",
                         .severity = Severity::warning,
                         .text = {},
                         .known_as = "vllm-project/vllm #54189",
                         .modules = {}};
  if (subject.loader.kv == nullptr) return;
  for (const Inspected& one : subject.modules) {
    if (one.matrix && one.matrix->global != GlobalScale::none && InspectSubject::is_expert(*one.module))
      finding.modules.push_back(one.module->path);
  }
  if (finding.modules.empty()) return;
  finding.text = fmt::format(
      "{} ({}) of experts are of 4-bit blocks and have no input scale: versions of {} before the "
      "mend multiply by one that was never set, and every expert gives 0",
      counted(finding.modules.size(), "weight"), some_of(finding.modules), subject.loader.name);
  findings.push_back(std::move(finding));
}

}  // namespace

void check_input_scales(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  if (!subject.loader.reads_input_scales) return;
  const char* part = part_of(subject);
  if (part == nullptr && fixed_inputs(subject.config)) {
    part = subject.config.format == "nvfp4-pack-quantized" ? "input_global_scale" : "input_scale";
  }
  if (part == nullptr) return check_weight_only(subject, findings);
  check_input_missing(subject, part, findings);
  check_input_values(subject, part, findings);
  check_input_parts(subject, part, findings);
}

}  // namespace nanscope
