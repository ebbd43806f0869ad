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

Json finite_or_inf(double value) { return std::isfinite(value) ? Json(value) : Json("inf"); }

Json place_json(const std::optional<LeakPlace>& place) {
  if (!place) return {};
  return {{"layer", place->layer < 0 ? Json() : Json(place->layer)},
          {"op", place->op},
          {"role", place->role},
          {"tokens", {place->first, place->last}},
          {"largest", finite_or_inf(place->largest)}};
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
    const std::int64_t block = leaking_block(report, one);
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
    for (const ChangedRow& row : one.rows)
      rows.push_back({{"token", row.token}, {"largest", finite_or_inf(row.largest)}});
    const std::int64_t block = leaking_block(report, one);
    out["influences"].push_back({{"token", one.token},
                                 {"change", name(one.change)},
                                 {"leaks", one.leaks()},
                                 {"rows", std::move(rows)},
                                 {"born", place_json(one.born)},
                                 {"operand", place_json(one.operand)},
                                 {"block", block >= 0 ? Json(block) : Json()}});
  }
  Json gaps = Json::array();
  for (const double gap : report.gap.rows) gaps.push_back(finite_or_inf(gap));
  out["parallel"] = {{"problem", report.gap.problem.empty() ? Json() : Json(report.gap.problem)},
                     {"largest", finite_or_inf(report.gap.largest)},
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

std::string twins_text(const scenarios::TwinCausality& twins, const std::string& target, const std::string& other,
                       const Terminal& terminal) {
  constexpr std::size_t kMost = 20;
  std::string text = heading(
      fmt::format("nanscope causality {} {}", printable(target, terminal), printable(other, terminal)), terminal);
  text += paragraph("Prompts   ",
                    fmt::format("{} of request {}, which differ from token {} on", counted(twins.tokens, "token"),
                                twins.request, twins.changed),
                    terminal);
  text += paragraph(
      "Compared  ",
      fmt::format("{} that both hold: {} at tokens before it", counted(twins.compared, "output"),
                  twins.leaks() == 0 ? "no token's differs" : fmt::format("{} of tokens differ", twins.leaks())),
      terminal);
  if (twins.leaks() == 0) return text;
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.row({"output, in the order of execution", "tokens", "by up to", "dumped as"});
  for (std::size_t i = 0; i < std::min(twins.outputs.size(), kMost); ++i) {
    const scenarios::EarlyDifference& one = twins.outputs[i];
    table.row({one.operand ? one.place + " (is read)" : one.place,
               one.rows == 1 ? fmt::format("{}", one.first) : fmt::format("{}..{}", one.first, one.last),
               fmt::format("{:.4g}", one.largest), printable(one.name, terminal)});
  }
  text += '\n' + table.text("  ", terminal.width);
  if (twins.outputs.size() > kMost) text += fmt::format("  and {} more\n", twins.outputs.size() - kMost);
  return text;
}

std::string twins_json(const scenarios::TwinCausality& twins, const std::string& target, const std::string& other) {
  Json out;
  out["schema"] = "nanscope.causality/1";
  out["from"] = "two runs";
  out["target"] = target;
  out["other"] = other;
  out["request"] = twins.request;
  out["tokens"] = twins.tokens;
  out["changed"] = twins.changed;
  out["compared"] = twins.compared;
  out["verdict"] = twins.leaks() == 0 ? "causal" : "leaks";
  out["outputs"] = Json::array();
  for (const scenarios::EarlyDifference& one : twins.outputs) {
    out["outputs"].push_back({{"place", one.place},
                              {"operand", one.operand},
                              {"name", one.name.empty() ? Json() : Json(one.name)},
                              {"rows", one.rows},
                              {"tokens", {one.first, one.last}},
                              {"largest", finite_or_inf(one.largest)}});
  }
  return dump_json(out);
}

std::string twins_csv(const scenarios::TwinCausality& twins) {
  std::string text = "place,operand,rows,first,last,largest,changed\n";
  for (const scenarios::EarlyDifference& one : twins.outputs) {
    text += fmt::format("\"{}\",{},{},{},{},{},{}\n", one.place, one.operand, one.rows, one.first, one.last,
                        one.largest, twins.changed);
  }
  return text;
}

std::string seen_text(const scenarios::SeenCausality& seen, const std::string& target, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope causality {}", printable(target, terminal)), terminal);
  text += paragraph("Numbers   ",
                    seen.leaks.empty() ? printable(seen.looked_at, terminal)
                                       : counted(seen.leaks.size(), "place") + " where a token knows of later ones",
                    terminal);
  for (const Fault& leak : seen.leaks) {
    text += paragraph("Leak      ", printable(fmt::format("{}: {}", leak.tensor, leak.summary), terminal), terminal);
  }
  return text;
}

std::string seen_json(const scenarios::SeenCausality& seen, const std::string& target) {
  Json out;
  out["schema"] = "nanscope.causality/1";
  out["from"] = "one run";
  out["target"] = target;
  out["verdict"] = seen.leaks.empty() ? "causal" : "leaks";
  out["looked_at"] = seen.looked_at;
  out["leaks"] = Json::array();
  for (const Fault& leak : seen.leaks) {
    out["leaks"].push_back({{"tensor", leak.tensor},
                            {"layer", leak.where.layer ? Json(*leak.where.layer) : Json()},
                            {"summary", leak.summary}});
  }
  return dump_json(out);
}

std::string seen_csv(const scenarios::SeenCausality& seen) {
  std::string text = "layer,op,role,first,last\n";
  for (const Fault& leak : seen.leaks) {
    const Where& at = leak.where;
    text += fmt::format("{},{},{},{},{}\n", at.layer ? fmt::format("{}", *at.layer) : "", at.op, at.role,
                        at.tokens ? fmt::format("{}", at.tokens->first) : "",
                        at.tokens ? fmt::format("{}", at.tokens->last) : "");
  }
  return text;
}

}  // namespace nanscope::report
