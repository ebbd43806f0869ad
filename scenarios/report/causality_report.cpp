#include "scenarios/report/causality_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using scenarios::CausalityReport;
using scenarios::ChangedRow;
using scenarios::Influence;
using scenarios::LeakPlace;
using Json = nlohmann::ordered_json;

double largest_of(const Influence& one) {
  double largest = 0;
  for (const ChangedRow& row : one.rows) largest = std::max(largest, row.largest);
  return largest;
}

std::string place_text(const LeakPlace& place) {
  const std::string tensor = fmt::format("{}.{}", place.op, place.role);
  const std::string rows =
      place.first == place.last ? fmt::format("{}", place.first) : fmt::format("{}..{}", place.first, place.last);
  return place.layer < 0 ? fmt::format("{}[{}]", tensor, rows)
                         : fmt::format("layer {} {}[{}]", place.layer, tensor, rows);
}

/// The block of the changed token, where its scale is what leaks.
std::int64_t block_of(const CausalityReport& report, const Influence& one) {
  return one.operand && report.tile > 0 ? one.token / report.tile : -1;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json("inf"); }

Json place_json(const std::optional<LeakPlace>& place) {
  if (!place) return {};
  return {{"layer", place->layer < 0 ? Json() : Json(place->layer)},
          {"op", place->op},
          {"role", place->role},
          {"tokens", {place->first, place->last}},
          {"largest", number(place->largest)}};
}

std::string gap_text(const CausalityReport& report) {
  const scenarios::ParallelGap& gap = report.gap;
  if (!gap.problem.empty()) return fmt::format("not compared with one token a step: {}", gap.problem);
  if (gap.differ.empty())
    return fmt::format("one token a step gives the same bits of logits for all {} tokens", report.prompt);
  const auto worst = std::max_element(gap.rows.begin(), gap.rows.end());
  return fmt::format("one token a step gives other logits for {} of {}: {:.4g} at most, at token {}", gap.differ.size(),
                     counted(report.prompt, "token"), gap.largest, worst - gap.rows.begin());
}

}  // namespace

std::string causality_text(const CausalityReport& report, const std::string& target, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope causality {}", printable(target, terminal)), terminal);
  text +=
      paragraph("Prompt    ",
                fmt::format("{} of request {}{}", counted(report.prompt, "token"), printable(report.request, terminal),
                            report.tile > 0 ? fmt::format(", attention in tiles of {}", report.tile) : ""),
                terminal);
  text += paragraph("Changed   ",
                    fmt::format("one token at a time, {}: {} reached a token before it",
                                counted(report.influences.size(), "time"), report.leaks()),
                    terminal);
  text += paragraph("Parallel  ", gap_text(report), terminal);
  if (report.leaks() == 0) return text;
  Table table({Align::right, Align::left, Align::right, Align::right, Align::left, Align::left});
  table.row({"token", "change", "earlier tokens", "logits by", "first seen in", "read from"});
  for (const Influence& one : report.influences) {
    if (!one.leaks()) continue;
    const std::int64_t block = block_of(report, one);
    std::string from = one.operand ? place_text(*one.operand) : "no keys or values: the mask";
    if (block >= 0) from += fmt::format(", block {}", block);
    table.row({fmt::format("{}", one.token), std::string(name(one.change)), fmt::format("{}", one.rows.size()),
               fmt::format("{:.4g}", largest_of(one)), place_text(*one.born), from});
  }
  return text + '\n' + table.text("  ", terminal.width);
}

std::string causality_json(const CausalityReport& report, const std::string& target) {
  Json out;
  out["schema"] = "nanscope.causality/1";
  out["target"] = target;
  out["request"] = report.request;
  out["tokens"] = report.prompt;
  out["tile"] = report.tile > 0 ? Json(report.tile) : Json();
  out["runs"] = report.runs;
  out["verdict"] = report.found() ? "leaks" : "causal";
  out["influences"] = Json::array();
  for (const Influence& one : report.influences) {
    Json rows = Json::array();
    for (const ChangedRow& row : one.rows) rows.push_back({{"token", row.token}, {"largest", number(row.largest)}});
    const std::int64_t block = block_of(report, one);
    out["influences"].push_back({{"token", one.token},
                                 {"change", name(one.change)},
                                 {"leaks", one.leaks()},
                                 {"rows", std::move(rows)},
                                 {"born", place_json(one.born)},
                                 {"operand", place_json(one.operand)},
                                 {"block", block >= 0 ? Json(block) : Json()}});
  }
  Json gaps = Json::array();
  for (const double gap : report.gap.rows) gaps.push_back(number(gap));
  out["parallel"] = {{"problem", report.gap.problem.empty() ? Json() : Json(report.gap.problem)},
                     {"largest", number(report.gap.largest)},
                     {"differ", report.gap.differ},
                     {"gaps", std::move(gaps)}};
  return dump_json(out);
}

std::string causality_csv(const CausalityReport& report) {
  std::string text = "token,change,earlier_token,largest,first_op,operand,parallel_gap\n";
  for (const Influence& one : report.influences) {
    const auto gap = static_cast<std::size_t>(one.token);
    const std::string parallel = gap < report.gap.rows.size() ? fmt::format("{}", report.gap.rows[gap]) : "";
    const std::string born = one.born ? one.born->op : "";
    const std::string operand = one.operand ? one.operand->op : "";
    const auto line = [&](const std::string& earlier, const std::string& largest) {
      text +=
          fmt::format("{},{},{},{},{},{},{}\n", one.token, name(one.change), earlier, largest, born, operand, parallel);
    };
    for (const ChangedRow& row : one.rows) line(fmt::format("{}", row.token), fmt::format("{}", row.largest));
    if (one.rows.empty()) line("", "");
  }
  return text;
}

}  // namespace nanscope::report
