#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/counted.h"
#include "core/numbers/decode_span.h"
#include "core/text/safe_text.h"
#include "instrument/inspect/check.h"
#include "instrument/inspect/extra_state.h"

/// What training in fp8 goes on from: TransformerEngine's `_extra_state`, against the weights beside it.
namespace nanscope {
namespace {

constexpr float kLargest = 448;  ///< of e4m3, in which every recipe has its forward products
/// The optimizer moves weights after the last amax of them was taken.
constexpr double kMoved = 1.05;
/// A recipe's margin is a few bits; beyond it weights lose theirs.
constexpr double kUnused = 64;

/// A weight by its name, and which of the forward products it is of.
constexpr std::array<std::pair<const char*, std::size_t>, 3> kWeights = {
    {{"weight", 0}, {"fc1_weight", 0}, {"fc2_weight", 1}}};
constexpr std::size_t kTensors = 3;  ///< of a product: input, weight, output
constexpr std::size_t kWeight = 1;

struct ScaledWeight {
  CheckpointFiles::Tensor tensor;
  std::size_t product = 0;
};

std::vector<ScaledWeight> weights_of(const StoredModule& module) {
  std::vector<ScaledWeight> found;
  for (const auto& [part, product] : kWeights) {
    const CheckpointFiles::Tensor tensor = module.find(part);
    const bool floats = tensor.entry != nullptr && tensor.entry->shape.size() == 2 && tensor.entry->format &&
                        info(*tensor.entry->format).bits >= 16;
    if (floats) found.push_back({tensor, product});
  }
  return found;
}

float largest_of(const CheckpointFiles::Tensor& tensor) {
  const std::size_t width = info(*tensor.entry->format).storage_bytes();
  const std::span<const std::byte> bytes = tensor.bytes();
  constexpr std::size_t kPiece = 1 << 16;
  std::vector<float> values;
  float most = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece * width) {
    values.resize(std::min(kPiece, (bytes.size() - at) / width));
    decode(*tensor.entry->format, bytes.subspan(at, values.size() * width), values);
    for (const float value : values) most = std::max(most, std::abs(value));
  }
  return most;
}

struct StatesFound {
  std::vector<std::string> good, lacking, missing, stale, invalid, refused;
  std::map<std::string, std::size_t> reasons;  ///< of those that lack scales
  std::string first_refusal, first_invalid, first_stale;
  std::string recipe;
  std::int64_t history = 0;
  double widest = 1;  ///< how far the largest weight is beyond the largest code
};

void look_at_scales(const Inspected& one, const ExtraState& state, StatesFound& found) {
  const auto bad = std::find_if(state.scale.begin(), state.scale.end(),
                                [](float scale) { return !std::isfinite(scale) || scale <= 0; });
  if (bad != state.scale.end()) {
    if (found.invalid.empty())
      found.first_invalid =
          fmt::format("scale {} of '{}' is {}", bad - state.scale.begin(), one_line(one.module->path), *bad);
    found.invalid.push_back(one.module->path);
    return;
  }
  bool stale = false;
  for (const ScaledWeight& weight : weights_of(*one.module)) {
    const std::size_t at = kTensors * weight.product + kWeight;
    if (at >= state.scale.size()) continue;
    const double reaches = double{largest_of(weight.tensor)} * state.scale[at] / kLargest;
    if (reaches <= kMoved && (reaches == 0 || reaches * kUnused >= 1)) continue;
    stale = true;
    const double off = reaches > 1 ? reaches : 1 / reaches;
    if (off < found.widest) continue;
    found.widest = off;
    found.first_stale = fmt::format(
        "the largest weight of '{}' is {:.3g} and its scale {:.3g}, made of an amax of {:.3g}: it is stored as {}",
        one_line(one.module->path), largest_of(weight.tensor), state.scale[at], kLargest / state.scale[at],
        reaches > 1 ? fmt::format("{:.3g}, where the largest code is {}", reaches * kLargest, kLargest)
                    : fmt::format("{:.3g} of {}", reaches * kLargest, kLargest));
  }
  (stale ? found.stale : found.good).push_back(one.module->path);
}

void look_at(const Inspected& one, StatesFound& found) {
  const CheckpointFiles::Tensor tensor = one.module->find("_extra_state");
  if (tensor.entry == nullptr || weights_of(*one.module).empty()) return;
  const auto state = read_extra_state(tensor.bytes(), one_line(tensor.entry->name));
  if (!state) {
    if (found.refused.empty()) found.first_refusal = state.error().message;
    found.refused.push_back(one.module->path);
    return;
  }
  if (!state->recipe.empty()) found.recipe = state->recipe;
  // Scales of blocks and of the present are made of what they scale: there is nothing to keep.
  if (state->scale.empty() && !state->recipe.empty() && state->recipe.find("Delayed") == std::string::npos) {
    found.good.push_back(one.module->path);
    return;
  }
  const std::string lacks = !state->lacks.empty() ? state->lacks : !state->used() ? "has a history of zeros" : "";
  if (lacks.empty()) {
    found.history = std::max(found.history, state->history);
    return look_at_scales(one, *state, found);
  }
  ++found.reasons[lacks];
  found.lacking.push_back(one.module->path);
}

std::string reasons_of(const StatesFound& found) {
  std::string text;
  for (const auto& [reason, count] : found.reasons)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, reason);
  if (!found.missing.empty())
    text += fmt::format("{}{} {} none", text.empty() ? "" : ", ", found.missing.size(),
                        found.missing.size() == 1 ? "has" : "have");
  return text;
}

void report_lacking(const StatesFound& found, std::vector<InspectFinding>& findings) {
  std::vector<std::string> all = found.lacking;
  all.insert(all.end(), found.missing.begin(), found.missing.end());
  if (all.empty()) return;
  const std::size_t kept = found.good.size() + found.stale.size();
  InspectFinding finding{.id = "fp8-state-missing",
                         .severity = kept > 0 ? Severity::warning : Severity::note,
                         .text = {},
                         .known_as = "NVIDIA/TransformerEngine #982, huggingface/finetrainers #246",
                         .modules = all};
  finding.text = fmt::format(
      "of {} ({}) there is no scaling state of TransformerEngine (_extra_state: {}){}: where training goes on in fp8 "
      "with delayed scaling, their scales begin at 1 without a history, and what is beyond 448 is clipped, or small "
      "values lost, until the history is full",
      counted(all.size(), "module"), some_of(all), reasons_of(found),
      kept > 0 ? fmt::format(", which {} others have", kept) : "");
  findings.push_back(std::move(finding));
}

}  // namespace

void check_extra_states(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  StatesFound found;
  for (const Inspected& one : subject.modules) look_at(one, found);
  const bool any = !found.good.empty() || !found.lacking.empty() || !found.stale.empty() || !found.invalid.empty();
  for (const Inspected& one : subject.modules) {
    if (any && one.candidate && !one.listed && !one.module->has("_extra_state"))
      found.missing.push_back(one.module->path);
  }
  if (!found.refused.empty()) {
    findings.push_back(
        {.id = "fp8-state-refused",
         .severity = Severity::error,
         .text = fmt::format("the _extra_state of {} ({}) is no scaling state of TransformerEngine, and "
                             "who loads it runs it; the first: {}",
                             counted(found.refused.size(), "module"), some_of(found.refused), found.first_refusal),
         .known_as = {},
         .modules = found.refused});
  }
  if (!found.invalid.empty()) {
    findings.push_back(
        {.id = "fp8-state-invalid",
         .severity = Severity::error,
         .text = fmt::format("scales in the _extra_state of {} ({}) are not finite or not above zero; "
                             "the first: {}",
                             counted(found.invalid.size(), "module"), some_of(found.invalid), found.first_invalid),
         .known_as = {},
         .modules = found.invalid});
  }
  if (!found.stale.empty()) {
    findings.push_back(
        {.id = "fp8-state-stale",
         .severity = Severity::warning,
         .text = fmt::format("the scales of {} ({}) in _extra_state are not of these weights, as where "
                             "they were made of the random ones before the checkpoint was loaded: {}",
                             counted(found.stale.size(), "module"), some_of(found.stale), found.first_stale),
         .known_as = "NVIDIA/TransformerEngine PR 567",
         .modules = found.stale});
  }
  report_lacking(found, findings);
  if (found.good.empty()) return;
  findings.push_back(
      {.id = "fp8-state",
       .severity = Severity::note,
       .text = fmt::format("{} ({}) have TransformerEngine's scaling state beside them{}{}: loaders that serve drop it",
                           counted(found.good.size(), "module"), some_of(found.good),
                           found.recipe.empty() ? "" : ", by " + found.recipe,
                           found.history > 0 ? fmt::format(", an amax of {}", counted(found.history, "step")) : ""),
       .known_as = {},
       .modules = found.good});
}

}  // namespace nanscope
