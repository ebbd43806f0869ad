#include "gui/prepare/causality_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "scenarios/replay.h"

namespace nanscope::gui {
namespace {

using scenarios::Influence;
using scenarios::LeakPlace;

std::string span_words(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("token {}", first) : fmt::format("tokens {} to {}", first, last);
}

std::string tensor_words(const LeakPlace& place) {
  const std::string tensor = fmt::format("{}.{}", place.op, place.role);
  return place.layer < 0 ? tensor : fmt::format("layer {} {}", place.layer, tensor);
}

Result<CausalityMap> measure_one(scenarios::Workbench& bench, const scenarios::RunSpec& spec,
                                 const scenarios::CausalityOptions& options, std::string title) {
  auto report = scenarios::check_causality(bench, spec, options);
  if (!report) return tl::unexpected(std::move(report.error()));
  CausalityMap made;
  made.title = std::move(title);
  made.report = std::move(*report);
  made.map = scenarios::influence_map(made.report);
  made.leaks = made.map.leaks();
  return made;
}

double largest_of(const scenarios::InfluenceMap& map) {
  double largest = 0;
  for (const float moved : map.moved) {
    if (std::isfinite(moved)) largest = std::max(largest, double{moved});
  }
  return largest;
}

void color_influence(CausalityMap& map, double largest) {
  map.cells.clear();
  map.cells.reserve(map.map.moved.size());
  for (std::int64_t row = 0; row < map.map.tokens; ++row) {
    for (std::int64_t column = 0; column < map.map.tokens; ++column) {
      map.cells.push_back(influence_cell(double{map.map.at(row, column)}, column > row, largest));
    }
  }
}

}  // namespace

std::string form_words(const scenarios::CausalForm& form) {
  std::string words;
  bool without_blocks = false;
  for (const std::string& setting : form.settings) {
    if (setting.starts_with("attention.blocks_") && setting.ends_with("=")) {
      without_blocks = true;
    } else {
      words += (words.empty() ? "" : " ") + setting;
    }
  }
  if (without_blocks) words += words.empty() ? "without blocks" : " without blocks";
  return words;
}

CausalityPlan plan_causality(const Recording* recording, std::int64_t request) {
  CausalityPlan plan;
  if (recording == nullptr) {
    plan.notice = "a dump cannot be run again with a token changed; nanscope causality looks at what it holds";
    return plan;
  }
  plan.recording = recording->path();
  const Result<scenarios::RunSpec> spec = scenarios::run_spec_of(*recording);
  if (!spec) {
    plan.notice = spec.error().message;
    return plan;
  }
  if (request < 0 || static_cast<std::size_t>(request) >= spec->requests.size()) request = 0;
  if (spec->requests.empty()) {
    plan.notice = "the run has no requests";
    return plan;
  }
  plan.request = static_cast<std::size_t>(request);
  plan.request_name = spec->requests[plan.request].name;
  if (const auto rows = recording->requests()) {
    for (const RequestRow& row : *rows) {
      if (row.id == request) plan.tokens = static_cast<std::int64_t>(row.prompt_tokens.size());
    }
  }
  plan.forms = scenarios::causal_forms(spec->config);
  return plan;
}

Cell influence_cell(double moved, bool later, double largest) {
  if (std::isnan(moved)) return kAbsent;
  if (moved <= 0) return kZero;
  int step = kInfluenceSteps - 1;
  if (std::isfinite(moved) && largest > 0) {
    const double share = 1 + std::log10(moved / largest) / kInfluenceDecades;
    step = std::clamp(static_cast<int>(share * kInfluenceSteps), 0, kInfluenceSteps - 1);
  }
  return static_cast<Cell>((later ? kLeakFirst : kInfluenceFirst) + step);
}

const Influence* CausalityMap::influence(std::int64_t row, std::int64_t column) const {
  const Influence* most = nullptr;
  for (const Influence& one : report.influences) {
    const auto at = static_cast<std::size_t>(row);
    if (one.token != column || at >= one.moved.size()) continue;
    if (most == nullptr || one.moved[at] > most->moved[at]) most = &one;
  }
  return most;
}

Result<CausalityMaps> measure_causality(
    const CausalityQuestion& question, const std::stop_token& stop,
    const std::function<void(std::int64_t done, std::int64_t total, std::string_view what)>& progress) {
  const Result<Recording> recording = Recording::open_checked(question.recording, stop);
  if (!recording) return tl::unexpected(recording.error());
  Result<scenarios::RunSpec> spec = scenarios::run_spec_of(*recording);
  if (!spec) return tl::unexpected(spec.error());
  // The bits are the same in any instruction set.
  if (spec->config.device.starts_with("cpu:")) spec->config.device = "cpu";
  const auto bench = scenarios::Workbench::open(spec->config, kReplayLimits);
  if (!bench) return tl::unexpected(bench.error());
  if (Status same = (*bench)->load_recorded(spec->config, *recording, stop); !same) return tl::unexpected(same.error());
  scenarios::CausalityOptions options;
  options.request = question.request;
  options.every = true;
  options.map = true;
  options.changes = {question.change};
  options.stop = stop;
  const std::int64_t maps = question.form ? 2 : 1;
  std::int64_t before = 0;
  std::string title = "this run";
  options.progress = [&](std::int64_t done, std::int64_t total) { progress(before + done, maps * total, title); };
  CausalityMaps made;
  auto here = measure_one(**bench, *spec, options, title);
  if (!here) return tl::unexpected(std::move(here.error()));
  made.here = std::move(*here);
  if (question.form) {
    if (Status set = scenarios::apply_settings(spec->config, question.form->settings); !set)
      return tl::unexpected(set.error());
    before = made.here.report.runs;
    title = form_words(*question.form);
    auto healthy = measure_one(**bench, *spec, options, title);
    if (!healthy) return tl::unexpected(std::move(healthy.error()));
    made.healthy = std::move(*healthy);
  }
  made.largest = std::max(largest_of(made.here.map), made.healthy ? largest_of(made.healthy->map) : 0.0);
  color_influence(made.here, made.largest);
  if (made.healthy) color_influence(*made.healthy, made.largest);
  return made;
}

std::vector<std::string> influence_words(const CausalityMap& map, std::int64_t row, std::int64_t column) {
  const Influence* one = map.influence(row, column);
  if (one == nullptr) return {"not changed"};
  const double moved = double{one->moved[static_cast<std::size_t>(row)]};
  std::vector<std::string> lines;
  lines.push_back(moved > 0 ? fmt::format("logits move by up to {:.4g}", moved) : "the same bits of logits");
  if (column <= row) {
    lines.emplace_back(column == row ? "its own token" : "an earlier token, as it should be");
    return lines;
  }
  if (moved <= 0) {
    lines.emplace_back("a later token, which it must not know");
    return lines;
  }
  lines.push_back(fmt::format("a leak: token {} comes {} later", column, column - row));
  if (!one->born) return lines;
  const std::string rows = span_words(one->born->first, one->born->last);
  lines.push_back(fmt::format("first seen in {}, {}", tensor_words(*one->born), rows));
  if (!one->operand) {
    lines.emplace_back("through no keys or values: the mask");
    return lines;
  }
  std::string from = fmt::format("through {}", tensor_words(*one->operand));
  if (const std::int64_t block = scenarios::leaking_block(map.report, *one); block >= 0) {
    const std::int64_t first = block * map.report.tile;
    const std::int64_t last = std::min(first + map.report.tile, map.report.prompt) - 1;
    from += fmt::format(", block {}: {}", block, span_words(first, last));
  }
  lines.push_back(std::move(from));
  return lines;
}

std::optional<Place> leak_place(const CausalityMap& map, const RunMap& run, std::size_t request, std::int64_t row,
                                std::int64_t column) {
  const Influence* one = column > row ? map.influence(row, column) : nullptr;
  if (one == nullptr || !one->born || one->born->rows.empty()) return std::nullopt;
  const std::vector<scenarios::LeakRow>& rows = one->born->rows;
  auto at = std::find_if(rows.begin(), rows.end(), [row](const auto& other) { return other.token == row; });
  if (at == rows.end()) at = rows.begin();
  const MapRequest* mapped = run.request(static_cast<std::int64_t>(request));
  if (mapped == nullptr) return std::nullopt;
  for (const std::uint32_t index : mapped->steps) {
    const MapStep& step = run.steps[index];
    if (step.rank != 0 || at->token < step.row.first_token || at->token >= step.row.first_token + step.tokens) continue;
    Place place;
    place.request = static_cast<std::int64_t>(request);
    place.step = step.row.index;
    place.layer = one->born->layer;
    place.op = one->born->op;
    place.role = one->born->role;
    place.token = at->token;
    place.channel = at->column;
    if (!run.find_row(one->born->layer, place.op)) return std::nullopt;
    return place;
  }
  return std::nullopt;
}

}  // namespace nanscope::gui
