#include "gui/export/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "gui/cell.h"
#include "scenarios/report/text.h"
#include "scenarios/report/verify_words.h"

namespace nanscope::gui {
namespace {

/// More are no table for people; a spreadsheet ends at 16384 columns.
constexpr std::int64_t kMostTableElements = std::int64_t{1} << 20;
constexpr std::int64_t kMostColumns = 16'000;

/// Gives a float back.
std::string exact(double value) { return fmt::format("{:.9g}", value); }
std::string yes(bool value) { return value ? "yes" : "no"; }

std::string pairs(const std::vector<std::pair<std::string, std::string>>& numbers) {
  std::string text;
  for (const auto& [name, value] : numbers) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", name, value);
  }
  return text;
}

std::string_view state_name(SlotState state) {
  switch (state) {
    case SlotState::never_written:
      return "never written";
    case SlotState::live:
      return "live";
    case SlotState::shared:
      return "shared";
    case SlotState::stale:
      return "left behind";
    case SlotState::scrubbed:
      return "scrubbed";
  }
  return "";
}

std::vector<std::string> what_if_row(const WhatIfRow& row, std::string_view effect) {
  std::size_t found = 0;
  for (const bool link : row.links) found += link ? 1 : 0;
  return {row.settings.empty() ? "as recorded" : fmt::format("{}", fmt::join(row.settings, " ")),
          std::string(effect),
          std::to_string(found),
          row.breaks_at > 0 ? std::to_string(row.breaks_at) : "",
          std::to_string(row.faulty),
          std::to_string(row.answers.size()),
          exact(row.kv_bytes),
          exact(row.kv_ratio),
          row.top1,
          row.error,
          row.faults};
}

std::string text_at(const MapRequest& request, std::int64_t token) {
  const auto said = request.token_text.find(token);
  return said == request.token_text.end() ? "" : report::printable(said->second, report::Terminal{});
}

/// Of several sequences also whose token it is.
std::string row_text(const TensorSheet& sheet, std::int64_t row) {
  const RowName name = sheet.subject.row_name(row);
  if (name.nobodys) return "padding";
  return sheet.subject.row_names.empty() ? std::to_string(name.token) : fmt::format("{}:{}", name.request, name.token);
}

Table elements_of(const TensorSheet& sheet) {
  const TensorData& elements = *sheet.elements;
  Table table;
  table.header.emplace_back("token");
  for (std::int64_t c = 0; c < sheet.columns; ++c) {
    table.header.push_back(
        fmt::format("{} {}", sheet.query_by_key ? "key" : "channel", sheet.query_by_key ? c : sheet.channel(c)));
  }
  for (std::int64_t r = 0; r < sheet.rows; ++r) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(row_text(sheet, r));
    for (std::int64_t c = 0; c < sheet.columns; ++c) {
      row.push_back(exact(static_cast<double>(elements.value(r, sheet.channel(c)))));
    }
  }
  return table;
}

Table health_of_rows(const TensorSheet& sheet) {
  Table table{{"token", "NaN share", "Inf share", "clipped share", "low headroom share"}, {}};
  for (std::size_t r = 0; r < sheet.row_health.size(); ++r) {
    const LineHealth& row = sheet.row_health[r];
    const auto share = [](float part) { return exact(static_cast<double>(part)); };
    table.rows.push_back({row_text(sheet, static_cast<std::int64_t>(r)), share(row.nan), share(row.inf),
                          share(row.clipped), share(row.low_headroom)});
  }
  return table;
}

}  // namespace

Table table_of(const RunMap& map, const RunDifference* difference, bool differing) {
  Table table{{"request", "step", "layer", "op", "token", "text", "health"}, {}};
  if (difference != nullptr) {
    table.header.emplace_back("health beside");
    table.header.emplace_back("difference");
  }
  for (const MapStep& step : map.steps) {
    const MapRequest* request = map.request(step.row.request);
    for (std::size_t row = 0; row < map.rows.size(); ++row) {
      for (std::int64_t column = step.first_column; column < step.first_column + step.tokens; ++column) {
        const Cell cell = map.row(row)[static_cast<std::size_t>(column)];
        const Cell other = difference != nullptr ? difference->cell(column, row) : kCellEqual;
        const bool wanted = differing ? other != kCellEqual && other != kCellNowhere : cell >= kLowHeadroom;
        if (!wanted) continue;
        const Place place = map.place_at(column, row);
        std::vector<std::string>& line = table.rows.emplace_back();
        line = {std::to_string(*place.request),
                std::to_string(*place.step),
                map.rows[row].layer < 0 ? "" : std::to_string(map.rows[row].layer),
                place.op,
                std::to_string(*place.token),
                request != nullptr ? text_at(*request, *place.token) : "",
                std::string(cell_name(cell))};
        if (difference != nullptr) {
          line.emplace_back(cell_name(difference->cell_there(column, row)));
          line.emplace_back(difference_name(other));
        }
        if (std::ssize(table.rows) >= kMostTableElements) return table;
      }
    }
  }
  return table;
}

Table table_of(const ErrorMap& errors) {
  Table table{
      {"tensor", "op", "output", "layer", "step", "elements", "within the bound", "furthest, in units of the bound",
       "root mean square, in units of the bound", "off", "certainty", "explanation", "not checked"},
      {}};
  for (const auto& one : errors.findings->checked) {
    const std::string text = one->explanations.empty() ? "" : one->explanations.front().text;
    table.rows.push_back({one->name, one->op, one->role, one->layer ? std::to_string(*one->layer) : "",
                          std::to_string(one->step), std::to_string(one->elements), std::to_string(one->explained),
                          exact(worst_distance(*one)), exact(one->distance), yes(one->off),
                          one->off ? std::string(report::certainty_word(certainty(*one))) : "", text, ""});
  }
  for (const auto& one : errors.findings->not_checked) {
    std::vector<std::string> row(table.header.size());
    row[0] = one->name;
    row[1] = one->op;
    row[2] = one->role;
    row.back() = one->reason;
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table table_of(const Ledger& ledger) {
  Table table{{"request", "step", "layer", "target", "policy", "format", "scale", "absmax", "headroom", "limit",
               "elements", "clipped", "NaN", "locked", "set by"},
              {}};
  for (const LedgerEntry& entry : ledger.entries) {
    const Place& place = entry.target.place;
    const ScaleRow& row = entry.row;
    const auto text = [](const std::optional<std::int64_t>& number) { return number ? std::to_string(*number) : ""; };
    table.rows.push_back({text(place.request), text(place.step), row.layer < 0 ? "" : std::to_string(row.layer),
                          row.target, row.policy, std::string(info(row.format).name), exact(row.scale),
                          exact(row.absmax), exact(row.headroom), exact(entry.limit), std::to_string(entry.elements),
                          std::to_string(entry.clipped), std::to_string(entry.nan), yes(row.locked), set_by(entry)});
  }
  return table;
}

Table table_of(const WhatIfTable& what_if) {
  Table table{{"change", "effect", "links found", "breaks at link", "requests still NaN", "requests",
               "KV bytes a token", "KV bytes to recorded", "top-1 agreement", "largest error in logits", "faults left"},
              {}};
  table.rows.push_back(what_if_row(what_if.recorded, ""));
  for (const WhatIfGroup& group : what_if.groups) {
    for (const WhatIfRow& row : group.rows) table.rows.push_back(what_if_row(row, group.title));
  }
  for (const std::string& change : what_if.without_effect) {
    std::vector<std::string>& row = table.rows.emplace_back(table.header.size());
    row[0] = change;
    row[1] = "no effect";
  }
  return table;
}

Table table_of(const CausalityMaps& maps) {
  Table table{{"token", "changed token", "later", "largest difference of a logit", "first seen in", "through", "block",
               maps.healthy ? "difference with " + maps.healthy->title : "difference beside"},
              {}};
  const scenarios::InfluenceMap& here = maps.here.map;
  const auto add = [&](std::int64_t row, std::int64_t column) {
    const double moved = double{here.at(row, column)};
    const double beside = maps.healthy ? double{maps.healthy->map.at(row, column)} : 0;
    if ((!(moved > 0) && !(beside > 0)) || std::ssize(table.rows) >= kMostTableElements) return;
    const scenarios::Influence* one = column > row && moved > 0 ? maps.here.influence(row, column) : nullptr;
    const std::int64_t block = one != nullptr ? scenarios::leaking_block(maps.here.report, *one) : -1;
    table.rows.push_back({std::to_string(row), std::to_string(column), yes(column > row), exact(moved),
                          one != nullptr && one->born ? one->born->op : "",
                          one != nullptr && one->operand ? one->operand->op : "",
                          block >= 0 ? std::to_string(block) : "", maps.healthy ? exact(beside) : ""});
  };
  for (std::int64_t row = 0; row < here.tokens; ++row) {
    for (std::int64_t column = row + 1; column < here.tokens; ++column) add(row, column);
  }
  for (std::int64_t row = 0; row < here.tokens; ++row) {
    for (std::int64_t column = 0; column <= row; ++column) add(row, column);
  }
  return table;
}

Table table_of(const PolicyReport& policies) {
  Table table{{"policy", "bytes a token", "error of the output", "KL in nats", "top-1 agreement", "clipped", "flushed",
               "utilization", "worst layer", "error there", "queries made NaN", "on the front", "not tried because"},
              {}};
  for (const PolicyResult& one : policies.policies) {
    std::vector<std::string>& row = table.rows.emplace_back(table.header.size());
    row.front() = one.candidate.name;
    row.back() = one.problem;
    if (one.layers.empty()) continue;
    const LayerScore& worst = one.layers[one.worst];
    row = {one.candidate.name,
           exact(one.bytes),
           exact(one.error),
           exact(one.divergence),
           exact(one.agreement),
           exact(one.clipped),
           exact(one.flushed),
           exact(one.utilization),
           std::to_string(worst.layer),
           exact(worst.error),
           std::to_string(one.not_finite),
           yes(one.on_front),
           one.problem};
  }
  return table;
}

Table table_of(const ScoreCurves& curves) {
  Table table{{"step", "layer", "largest score"}, {}};
  for (const scenarios::ScoreTrial& trial : curves.trials) {
    table.header.push_back(trial.policy + " scale");
    table.header.push_back(trial.policy + " largest score over scale");
  }
  for (std::size_t i = 0; i < curves.points.size(); ++i) {
    const scenarios::ScorePoint& point = curves.points[i];
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {std::to_string(point.step), std::to_string(point.layer), exact(point.absmax)};
    for (const scenarios::ScoreTrial& trial : curves.trials) {
      row.push_back(exact(trial.points[i].scale));
      row.push_back(exact(trial.points[i].scaled));
    }
  }
  return table;
}

Table table_of(const RequestsSheet& requests) {
  Table table{{"block", "slot", "held by requests", "state", "read by the step", "health", "written by request",
               "token", "history"},
              {}};
  for (const KvBlock& block : requests.kv.blocks) {
    for (std::size_t i = 0; i < block.slots.size(); ++i) {
      const KvSlot& slot = block.slots[i];
      const bool written = slot.state != SlotState::never_written;
      table.rows.push_back({std::to_string(block.id), std::to_string(i),
                            fmt::format("{}", fmt::join(block.holders, " ")), std::string(state_name(slot.state)),
                            yes(slot.read), std::string(cell_name(slot.health)),
                            written ? std::to_string(slot.request) : "", written ? std::to_string(slot.token) : "",
                            fmt::format("{}", fmt::join(slot.words, "; "))});
    }
  }
  return table;
}

Table table_of(const History& history) {
  Table table{{"place", "request", "step", "value", "largest |x|", "scale", "bad", "clipped", "at"}, {}};
  for (const auto& pin : history.pins) {
    for (const HistoryPoint& point : pin->points) {
      const HistoryStep& step = history.steps[point.step];
      table.rows.push_back({to_string(pin->place), std::to_string(step.request), std::to_string(step.index),
                            point.value ? exact(*point.value) : "", exact(point.absmax),
                            point.scale ? exact(*point.scale) : "", std::to_string(point.bad),
                            std::to_string(point.clipped), to_string(point.target.place)});
    }
  }
  return table;
}

Table table_of(const TrainingCurves& curves) {
  Table table{{"step", "loss", "gradient norm", "learning rate", "loss scale", "skipped"}, {}};
  for (std::size_t step = 0; step < curves.points.size(); ++step) {
    const TrainingPoint& point = curves.points[step];
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(std::to_string(step));
    for (std::size_t i = 0; i < kTrainingCurves; ++i) row.push_back(point.told[i] ? exact(point.values[i]) : "");
    row.push_back(yes(point.skipped));
  }
  return table;
}

Table table_of(const Timeline& timeline) {
  Table table{{"kind", "ops", "ops with NaN or Inf", "kernels", "busy ns"}, {}};
  for (const TimelineLane& lane : timeline.lanes) {
    table.rows.push_back({lane.kind, std::to_string(lane.ops), std::to_string(lane.bad_ops),
                          std::to_string(lane.kernels), std::to_string(lane.busy_ns)});
  }
  return table;
}

Table table_of(const Story& story) {
  Table table{{"link", "because of", "title", "place", "summary", "evidence"}, {}};
  for (const StoryLink& link : story.links) {
    table.rows.push_back({std::to_string(link.number), link.because > 0 ? std::to_string(link.because) : "", link.title,
                          link.place, link.summary, pairs(link.evidence)});
  }
  const auto add = [&](std::string_view state, const std::vector<StoryCheck>& checks) {
    for (const StoryCheck& check : checks) {
      table.rows.push_back({std::string(state), "", check.fault_class, "", check.text, ""});
    }
  };
  for (const StoryWarning& warning : story.warnings) {
    table.rows.push_back({"warning", "", warning.kind, warning.place, warning.summary, ""});
  }
  add("not looked at", story.not_looked_at);
  add("not in the run", story.not_in_dump);
  add("excluded", story.excluded);
  return table;
}

Table table_of(const WhyStory& why) {
  Table table{{"hop", "place", "value", "bits", "bad", "born here", "text", "numbers"}, {}};
  for (std::size_t i = 0; i < why.hops.size(); ++i) {
    const WhyHop& hop = why.hops[i];
    table.rows.push_back({std::to_string(i + 1), hop.place, hop.value, hop.bits, yes(hop.bad), yes(hop.birth), hop.text,
                          pairs(hop.numbers)});
  }
  return table;
}

Table table_of(const BitsSheet& bits) {
  Table table{{bits.histogram.by_exponent ? "exponent" : "code", "values", "elements", "of the element"}, {}};
  for (std::size_t i = 0; i < bits.histogram.bins.size(); ++i) {
    const CodeBin& bin = bits.histogram.bins[i];
    table.rows.push_back({bin.name, bin.values, std::to_string(bin.count), yes(bits.histogram.chosen == i)});
  }
  return table;
}

Table table_of(const TensorSheet& sheet) {
  const bool small = sheet.columns <= kMostColumns && sheet.rows * sheet.columns <= kMostTableElements;
  return sheet.elements && small ? elements_of(sheet) : health_of_rows(sheet);
}

Table table_of(const StepTimeline& timeline) {
  Table table{{"request", "step", "layer", "module", "absmax", "NaN", "Inf", "clipped", "health", "tensor"}, {}};
  for (std::size_t column = 0; column < timeline.columns.size(); ++column) {
    const auto& [request, index] = timeline.columns[column].spans.front();
    for (const ModuleLane& lane : timeline.modules) {
      const ModuleStep& step = lane.steps[column];
      if (step.health == kAbsent) continue;
      if (std::ssize(table.rows) >= kMostTableElements) return table;
      table.rows.push_back({std::to_string(request), std::to_string(index),
                            timeline.layer ? std::to_string(*timeline.layer) : "all", lane.module,
                            exact(static_cast<double>(step.absmax)), std::to_string(step.nan), std::to_string(step.inf),
                            std::to_string(step.clipped), std::string(cell_name(step.health)),
                            to_string(timeline.index->place(step.tensor))});
    }
  }
  return table;
}

Table table_of(const HeadroomSheet& sheet) {
  const TensorIndex& index = *sheet.index;
  Table table{{"request", "step", "layer", "tensor", "dtype", "absmax", "limit", "headroom", "health",
               "largest absmax of the layer", "of tensor"},
              {}};
  for (std::int64_t column = 0; column < sheet.columns(); ++column) {
    for (std::int64_t row = 0; row < sheet.rows(); ++row) {
      const auto closest = sheet.tensor(StripBy::headroom, column, row);
      const auto largest = sheet.tensor(StripBy::absmax, column, row);
      if (!closest || !largest) continue;
      if (std::ssize(table.rows) >= kMostTableElements) return table;
      const HeadroomStep& step = sheet.steps[static_cast<std::size_t>(column)];
      const auto number = [](double value) { return value > 0 ? exact(value) : ""; };
      table.rows.push_back({step.request ? std::to_string(*step.request) : "", std::to_string(step.index),
                            sheet.groups[static_cast<std::size_t>(row)], to_string(index.place(*closest)),
                            std::string(info(index.format[*closest]).name),
                            exact(static_cast<double>(index.magnitude[*closest])), number(limit_of(index, *closest)),
                            number(index.headroom[*closest]), std::string(cell_name(index.cell[*closest])),
                            exact(static_cast<double>(index.magnitude[*largest])), to_string(index.place(*largest))});
    }
  }
  return table;
}

Table table_of(const TensorList& list) {
  const TensorIndex& index = *list.index;
  Table table{{"place", "name", "layer", "role", "dtype", "tokens", "channels", "NaN", "Inf", "clipped", "clipped rows",
               "at the largest finite value", "absmax", "headroom", "health"},
              {}};
  for (const std::uint32_t i : list.shown) {
    if (std::ssize(table.rows) >= kMostTableElements) break;
    const TensorCounts& counts = index.counts_of(i);
    const TensorExtent extent = index.extent(i);
    table.rows.push_back(
        {to_string(index.place(i)), index.name(i), index.op(i).layer < 0 ? "" : std::to_string(index.op(i).layer),
         index.role_of(i), std::string(info(index.format[i]).name), std::to_string(extent.tokens),
         std::to_string(extent.channels), std::to_string(counts.nan), std::to_string(counts.inf),
         std::to_string(counts.clipped), std::to_string(counts.clipped_rows), std::to_string(counts.largest),
         exact(static_cast<double>(index.absmax[i])), index.headroom[i] > 0 ? exact(index.headroom[i]) : "",
         std::string(cell_name(index.cell[i]))});
  }
  return table;
}

}  // namespace nanscope::gui
