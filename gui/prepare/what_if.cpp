#include "gui/prepare/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/counted.h"
#include "gui/prepare/story.h"
#include "instrument/engine/knobs.h"
#include "scenarios/replay.h"
#include "scenarios/report/text.h"

namespace nanscope::gui {
namespace {

using scenarios::Effect;
using scenarios::Outcome;

std::string_view meaning(Effect effect) {
  switch (effect) {
    case Effect::removes_cause:
      return "no request answers from NaN, and the root cause is gone";
    case Effect::removes_nan:
      return "no request answers from NaN, but the root cause is still there";
    case Effect::limits_spread:
      return "fewer requests or tokens hold NaN";
    case Effect::changes_symptom:
      return "the same requests are faulty and answer something else";
    case Effect::worse:
      return "more requests are faulty";
    case Effect::no_effect:
      break;
  }
  return "the same requests are faulty and answer the same";
}

WhatIfRow row_of(const Outcome& outcome, const Outcome& recorded) {
  WhatIfRow row;
  row.settings = outcome.change.settings;
  for (const std::string& kind : recorded.chain) {
    row.links.push_back(std::find(outcome.chain.begin(), outcome.chain.end(), kind) != outcome.chain.end());
  }
  const auto lost = std::find(recorded.chain.begin(), recorded.chain.end(), outcome.breaks_at);
  if (lost != recorded.chain.end()) row.breaks_at = static_cast<int>(lost - recorded.chain.begin()) + 1;
  for (std::size_t i = 0; i < outcome.outputs.size(); ++i) {
    const auto& faulty = outcome.faulty_requests;
    const bool bad = std::find(faulty.begin(), faulty.end(), static_cast<std::int64_t>(i)) != faulty.end();
    row.answers.push_back({bad, outcome.outputs[i]});
    row.faulty += bad ? 1 : 0;
  }
  row.kv_bytes = outcome.kv_bytes_per_token;
  if (recorded.kv_bytes_per_token > 0) row.kv_ratio = outcome.kv_bytes_per_token / recorded.kv_bytes_per_token;
  if (outcome.accuracy) {
    row.top1 = fmt::format("{:.0f} %", 100 * outcome.accuracy->top1_agreement);
    row.error = report::number_text(outcome.accuracy->max_error);
  }
  row.faults = fmt::format("{}", fmt::join(outcome.faults, ", "));
  return row;
}

void add_to_group(WhatIfTable& table, const Outcome& outcome, const Outcome& recorded) {
  auto group = std::find_if(table.groups.begin(), table.groups.end(),
                            [&](const WhatIfGroup& other) { return other.effect == outcome.effect; });
  if (group == table.groups.end()) {
    // Without a fault there is no symptom either: other answers are just other answers.
    const bool stays = recorded.faults.empty() && outcome.effect == Effect::changes_symptom;
    table.groups.push_back({outcome.effect,
                            stays ? "stays healthy, answers otherwise" : std::string(to_string(outcome.effect)),
                            stays ? "no request answers from NaN, as before" : std::string(meaning(outcome.effect)),
                            {}});
    group = std::prev(table.groups.end());
  }
  group->rows.push_back(row_of(outcome, recorded));
}

std::string concluded(const scenarios::Counterfactuals& counterfactuals) {
  const std::size_t tried = counterfactuals.singles.size() + counterfactuals.pairs.size();
  if (counterfactuals.baseline.faults.empty()) return "The recorded run is healthy: no change can mend it";
  if (counterfactuals.minimal.empty()) return fmt::format("None of {} prevents the fault", counted(tried, "change"));
  return fmt::format("{} of {} prevent the fault", counterfactuals.minimal.size(), counted(tried, "change"));
}

}  // namespace

WhatIfPlan plan_what_if(const Recording* recording) {
  WhatIfPlan plan;
  if (recording == nullptr) {
    plan.notice = "a dump says nothing of the settings that it was made under";
    return plan;
  }
  plan.recording = recording->path();
  const Result<scenarios::RunSpec> spec = scenarios::run_spec_of(*recording);
  if (!spec) {
    plan.notice = spec.error().message;
    return plan;
  }
  for (const scenarios::Change& change : candidate_changes(*spec, *recording)) {
    ++plan.changes;
    for (const std::string& setting : change.settings) {
      const std::size_t equals = setting.find('=');
      const std::string name = setting.substr(0, equals);
      const std::string value = equals == std::string::npos ? "" : setting.substr(equals + 1);
      auto knob = std::find_if(plan.knobs.begin(), plan.knobs.end(),
                               [&](const WhatIfKnob& other) { return other.name == name; });
      if (knob == plan.knobs.end()) {
        const Knob* known = find_knob(name);
        plan.knobs.push_back({name, known ? known->doc : "", get_knob(spec->config, name), {}});
        knob = std::prev(plan.knobs.end());
      }
      knob->tried.push_back(value);
    }
  }
  if (plan.knobs.empty()) plan.notice = "this deployment has no setting to try another value of";
  return plan;
}

WhatIfTable tabulate(const scenarios::Counterfactuals& counterfactuals) {
  WhatIfTable table;
  const Outcome& recorded = counterfactuals.baseline;
  for (const std::string& kind : recorded.chain) table.chain.push_back(words(kind));
  table.recorded = row_of(recorded, recorded);
  table.runs = counterfactuals.runs;
  table.conclusion = concluded(counterfactuals);
  for (const auto* outcomes : {&counterfactuals.singles, &counterfactuals.pairs}) {
    for (const Outcome& outcome : *outcomes) {
      if (!outcome.error.empty()) {
        table.not_run.push_back(fmt::format("{}: {}", outcome.change.text(), outcome.error));
      } else if (outcome.effect == Effect::no_effect) {
        table.without_effect.push_back(outcome.change.text());
      } else {
        add_to_group(table, outcome, recorded);
      }
    }
  }
  std::stable_sort(table.groups.begin(), table.groups.end(),
                   [](const WhatIfGroup& a, const WhatIfGroup& b) { return a.effect < b.effect; });
  return table;
}

}  // namespace nanscope::gui
