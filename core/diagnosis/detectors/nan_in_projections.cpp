#include <fmt/format.h>

#include <array>
#include <set>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// Link 8: NaN rows pass through the Q, K and V projections.
Link detect_nan_in_projections(Facts& facts) {
  Link link;
  const SickOp* first = nullptr;
  std::set<std::int64_t> layers;
  std::set<std::string> names;
  for (const SickOp& sick : facts.sick_ops()) {
    const bool projection = sick.op.name == "q_proj" || sick.op.name == "k_proj" || sick.op.name == "v_proj";
    if (!projection || sick.bad_output().health.nan == 0) continue;
    if (first == nullptr) first = &sick;
    if (sick.step.id != first->step.id) continue;
    layers.insert(sick.op.layer);
    if (sick.op.layer == first->op.layer) names.insert(sick.op.name);
  }
  if (first == nullptr) {
    link.summary = fmt::format("0 projections hold NaN in {} steps", facts.run.steps().size());
    return link;
  }
  link.state = LinkState::found;
  const TensorRow& output = first->bad_output();
  const std::vector<std::int64_t> rows = facts.bad_rows(output);
  link.where = facts.where(output, rows);
  link.evidence = {{"NaN tokens", static_cast<std::int64_t>(rows.size())},
                   {"tokens", output.tokens},
                   {"NaN", static_cast<std::int64_t>(output.health.nan)},
                   {"projections", static_cast<std::int64_t>(names.size())},
                   {"layers", static_cast<std::int64_t>(layers.size())}};
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  link.summary = fmt::format("{} of {} tokens are NaN in {} of layer {}, and so in {} of the step", rows.size(),
                             output.tokens, list, first->op.layer, counted(layers.size(), "layer"));
  return link;
}

}  // namespace nanscope
