#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

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
  return dtype == "U8" || dtype == "I8" || dtype == "I32" || dtype.starts_with("F8_E4") || dtype.starts_with("F8_E5");
}

/// Methods that servers load and nanscope does not decode.
bool loaded_elsewhere(const QuantizationConfig& config) {
  constexpr std::string_view kMethods[] = {"hqq", "aqlm", "auto-round", "quark", "eetq"};
  return std::find(std::begin(kMethods), std::end(kMethods), config.name) != std::end(kMethods);
}

/// Methods whose loaders quantize the modules that the files hold codes for, whatever the config lists.
bool decided_by_files(const QuantizationConfig& config) {
  return config.method == QuantMethod::gptq || config.method == QuantMethod::awq ||
         config.method == QuantMethod::bitsandbytes;
}

/// Where groups are of columns in the order of their activations, the name of the tensor that says which; else empty.
std::string_view group_index(const InspectSubject& subject, const Inspected& one) {
  const auto& groups = subject.config.groups;
  const bool ordered = std::any_of(groups.begin(), groups.end(), [](const QuantGroup& group) {
    return group.act_order && (group.group_size > 0 || group.strategy != "group");
  });
  if (!ordered) return {};
  if (one.module->has("qweight") && subject.config.method == QuantMethod::gptq) return "g_idx";
  return one.module->has("weight_packed") ? "weight_g_idx" : std::string_view();
}

void check_integers(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding unread{.id = "not-decoded", .severity = Severity::note, .text = {}, .known_as = {}, .modules = {}};
  InspectFinding order{.id = "g-idx-missing", .severity = Severity::error, .text = {}, .known_as = {}, .modules = {}};
  std::string first;
  std::string_view missing;
  for (const Inspected& one : subject.modules) {
    if (one.unknown.why == Unknown::not_understood) {
      if (unread.modules.empty()) first = one.unknown.text;
      unread.modules.push_back(one.module->path);
    }
    const std::string_view index = group_index(subject, one);
    if (index.empty() || one.module->has(index)) continue;
    order.modules.push_back(one.module->path);
    missing = index;
  }
  if (!order.modules.empty()) {
    order.text = fmt::format(
        "the config says that columns are grouped in the order of their activations, and {} ({}) have no {}: which "
        "columns share a scale is not known",
        counted(order.modules.size(), "module"), some_of(order.modules), missing);
    findings.push_back(std::move(order));
  }
  if (!unread.modules.empty()) {
    unread.text = fmt::format("weights of {} ({}) were not looked at: {}", counted(unread.modules.size(), "module"),
                              some_of(unread.modules), first);
    findings.push_back(std::move(unread));
  }
}

void check_config(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  const QuantizationConfig& config = subject.config;
  if (loaded_elsewhere(config)) {
    findings.push_back({.id = "method-not-inspected",
                        .severity = Severity::note,
                        .text = fmt::format("nanscope does not decode weights of quant_method '{}': not looked at",
                                            one_line(config.name)),
                        .known_as = {},
                        .modules = {}});
  } else if (!subject.loader.knows(config)) {
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
  const std::string refused = subject.loader.refuses != nullptr ? subject.loader.refuses(config) : std::string();
  if (!refused.empty()) {
    findings.push_back({.id = "method-refused",
                        .severity = Severity::error,
                        .text = fmt::format("{} {} loads {}", subject.loader.name, subject.loader.version, refused),
                        .known_as = {},
                        .modules = {}});
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
    if (!coded && !none && !decided_by_files(subject.config) && one.candidate && !one.listed && one.matrix)
      plain.modules.push_back(one.module->path);
    if (one.module->weight().entry != nullptr || loaded_elsewhere(subject.config)) continue;
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
  check_integers(subject, findings);
}

}  // namespace nanscope
