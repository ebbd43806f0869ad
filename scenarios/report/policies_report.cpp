#include "scenarios/report/policies_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/counted.h"
#include "core/text/safe_text.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

std::string percent_text(double part) {
  if (part == 0) return "0";
  return part < 0.0001 ? "<.01" : fmt::format("{:.3g}", 100 * part);
}

/// "1.9e-3".
std::string small_text(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  std::string text = fmt::format("{:.1e}", value);
  if (const std::size_t zero = text.find("e-0"); zero != std::string::npos) text.erase(zero + 2, 1);
  if (const std::size_t zero = text.find("e+0"); zero != std::string::npos) text.erase(zero + 1, 2);
  return text;
}

bool was_measured(const PolicyResult& one) { return one.problem.empty() && !one.layers.empty(); }

bool has_scales(const PolicyResult& one) {
  return std::any_of(one.layers.begin(), one.layers.end(),
                     [](const LayerScore& score) { return score.k.elements + score.v.elements > 0; });
}

Ink ink_of(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::confirmed ? Ink::green : verdict == ClaimVerdict::refuted ? Ink::red : Ink::dim;
}

std::string policy_table(const PolicyReport& made, const Terminal& terminal) {
  std::vector<Align> columns(policy_titles().size(), Align::right);
  columns.front() = Align::left;
  Table table(columns);
  table.row(policy_titles());
  for (const PolicyResult& one : made.policies) {
    if (!was_measured(one)) continue;
    std::vector<std::string> line{(one.on_front ? "* " : "  ") + printable(one.candidate.name, terminal)};
    for (std::string& cell : policy_cells(one)) line.push_back(std::move(cell));
    if (one.not_finite > 0) line.back() = paint(terminal, Ink::red, line.back());
    table.row(std::move(line));
  }
  return table.text("", terminal.width);
}

/// Policies whose windows hold all of the run.
std::string never_coded(const PolicyReport& made, const Terminal& terminal) {
  std::string names;
  for (const PolicyResult& one : made.policies) {
    const bool codes = quantizes(one.candidate.k) || quantizes(one.candidate.v);
    if (!was_measured(one) || has_scales(one) || !codes) continue;
    names += (names.empty() ? "" : ", ") + printable(one.candidate.name, terminal);
  }
  return names.empty() ? names : names + ": nothing became codes, the run is shorter than what they keep as it is";
}

/// What was answered under each policy, where that was run.
std::string answer_table(const PolicyReport& made, const Terminal& terminal) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right});
  table.row({"run again", "same answers", "same tokens", "prompt top-1 %", "logits off by"});
  std::string problems;
  bool any = false;
  for (const PolicyResult& one : made.policies) {
    if (!one.answer) continue;
    const PolicyAnswer& answer = *one.answer;
    any = any || answer.problem.empty();
    if (!answer.problem.empty()) {
      problems += paragraph(
          "  ",
          fmt::format("{} not run: {}", printable(one.candidate.name, terminal), printable(answer.problem, terminal)),
          terminal);
      continue;
    }
    table.row({"  " + printable(one.candidate.name, terminal),
               fmt::format("{} of {}", answer.same_answers, answer.answers),
               fmt::format("{} of {}", answer.same_tokens, answer.tokens),
               answer.logits_compared ? fmt::format("{:.1f}", 100 * answer.top1) : "-",
               answer.logits_compared ? small_text(answer.logit_error) : "-"});
  }
  if (!any) return problems;
  return '\n' + table.text("", terminal.width) + problems;
}

std::string joined_facts(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& one : items) text += (text.empty() ? "" : "; ") + one;
  return text;
}

/// "4 layers, 64 of 120 queries of each, up to 120 keys".
std::string looked_at(const PolicyReport& made) {
  std::int64_t least = made.layers.front().queries;
  std::int64_t most = 0;
  std::int64_t all = 0;
  std::int64_t keys = 0;
  double deviation = 0;
  for (const LayerFacts& layer : made.layers) {
    least = std::min(least, layer.queries);
    most = std::max(most, layer.queries);
    all = std::max(all, layer.queries_in_all);
    keys = std::max(keys, layer.keys);
    deviation += layer.logit_deviation / static_cast<double>(made.layers.size());
  }
  return fmt::format("{}, {} of {} of each, up to {}; a query's scores have a standard deviation of {:.3g}",
                     counted(made.layers.size(), "layer"),
                     least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most),
                     all == 1 ? "1 query" : fmt::format("{} queries", all), counted(keys, "key"), deviation);
}

std::string own_text(const PolicyReport& made) {
  double error = 0;
  double worst = 0;
  std::int64_t layer = 0;
  std::size_t count = 0;
  for (const LayerFacts& one : made.layers) {
    if (!one.recorded_error) continue;
    error += *one.recorded_error;
    ++count;
    if (*one.recorded_error >= worst) worst = *one.recorded_error, layer = one.layer;
  }
  if (count == 0) return {};
  return fmt::format("what it put out itself is {} off, {} at most, in layer {}",
                     small_text(error / static_cast<double>(count)), small_text(worst), layer);
}

Json counts_json(const KvCounts& counts) {
  return {{"elements", counts.elements},
          {"clipped", counts.clipped},
          {"flushed", counts.flushed},
          {"not_finite", counts.non_finite},
          {"utilization", json_number(counts.utilization)}};
}

Json json_of(const PolicyAnswer& one) {
  if (!one.problem.empty()) return {{"problem", one.problem}};
  return {{"problem", Json()},
          {"answers", one.answers},
          {"same_answers", one.same_answers},
          {"tokens", one.tokens},
          {"same_tokens", one.same_tokens},
          {"top1", one.logits_compared ? json_number(one.top1) : Json()},
          {"logit_error", one.logits_compared ? json_number(one.logit_error) : Json()}};
}

Json json_of(const PolicyResult& one) {
  Json out;
  out["name"] = one.candidate.name;
  out["ships_in"] = one.candidate.ships_in;
  const bool noise = one.candidate.k_noise > 0 || one.candidate.v_noise > 0;
  out["k"] = noise ? Json() : Json(to_text(one.candidate.k));
  out["v"] = noise ? Json() : Json(to_text(one.candidate.v));
  out["problem"] = one.problem.empty() ? Json() : Json(one.problem);
  if (!was_measured(one)) return out;
  out["bytes_a_token"] = json_number(one.bytes);
  out["error"] = json_number(one.error);
  out["divergence"] = json_number(one.divergence);
  out["agreement"] = json_number(one.agreement);
  out["quantized"] = json_number(one.quantized);
  out["clipped"] = json_number(one.clipped);
  out["flushed"] = json_number(one.flushed);
  out["utilization"] = json_number(one.utilization);
  out["worst_layer"] = one.layers[one.worst].layer;
  out["worst_error"] = json_number(one.layers[one.worst].error);
  out["not_finite"] = one.not_finite;
  out["on_front"] = one.on_front;
  if (one.answer) out["answer"] = json_of(*one.answer);
  out["layers"] = Json::array();
  for (const LayerScore& score : one.layers) {
    out["layers"].push_back({{"layer", score.layer},
                             {"error", json_number(score.error)},
                             {"divergence", json_number(score.divergence)},
                             {"worst_divergence", json_number(score.worst_divergence)},
                             {"agreement", json_number(score.agreement)},
                             {"queries", score.queries},
                             {"not_finite", score.not_finite},
                             {"k_error", json_number(score.k_error)},
                             {"v_error", json_number(score.v_error)},
                             {"k", counts_json(score.k)},
                             {"v", counts_json(score.v)}});
  }
  return out;
}

Json json_of(const LayerFacts& one) {
  return {{"layer", one.layer},
          {"heads", one.shape.heads},
          {"kv_heads", one.shape.kv_heads},
          {"head_dim", one.shape.key_width},
          {"factor", one.shape.factor},
          {"softcap", one.shape.softcap},
          {"keys", one.keys},
          {"queries", one.queries},
          {"queries_in_all", one.queries_in_all},
          {"queries_left_out", one.queries_left_out},
          {"rows_not_finite", one.rows_not_finite},
          {"logit_deviation", json_number(one.logit_deviation)},
          {"spikes", json_number(one.spikes)},
          {"channel_spread", json_number(one.channel_spread)},
          {"recorded_error", one.recorded_error ? json_number(*one.recorded_error) : Json()}};
}

}  // namespace

const std::vector<std::string>& policy_titles() {
  static const std::vector<std::string> titles = {"policy", "bytes",   "error", "KL",          "top-1 %",
                                                  "clip %", "flush %", "util",  "worst layer", "NaN"};
  return titles;
}

std::vector<std::string> policy_cells(const PolicyResult& one) {
  if (!was_measured(one)) return {};
  const LayerScore& worst = one.layers[one.worst];
  const bool scales = has_scales(one);
  return {fmt::format("{:.0f}", one.bytes),
          small_text(one.error),
          small_text(one.divergence),
          fmt::format("{:.1f}", 100 * one.agreement),
          scales ? percent_text(one.clipped) : "-",
          scales ? percent_text(one.flushed) : "-",
          scales ? fmt::format("{:.2f}", one.utilization) : "-",
          fmt::format("{}: {}", worst.layer, small_text(worst.error)),
          one.not_finite == 0 ? "0" : fmt::format("{}", one.not_finite)};
}

std::string policies_text(const PolicyReport& made, const std::string& target, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope policies {}", printable(target, terminal)), terminal);
  text += paragraph("Looked at ", looked_at(made), terminal);
  text += paragraph("Taken     ", printable(joined_facts(made.facts), terminal), terminal);
  if (const std::string own = own_text(made); !own.empty()) text += paragraph("This run  ", own, terminal);
  for (const std::string& one : made.left_out) text += paragraph("Left out  ", printable(one, terminal), terminal);
  text += paragraph("Bytes     ",
                    fmt::format("{:.0f} a token of these layers in 16 bits; * is on the front of bytes against error",
                                made.kept_bytes),
                    terminal);
  text += '\n' + policy_table(made, terminal);
  if (const std::string idle = never_coded(made, terminal); !idle.empty()) text += paragraph("  ", idle, terminal);
  for (const PolicyResult& one : made.policies) {
    if (!one.problem.empty())
      text += paragraph(
          "  ",
          fmt::format("{} not tried: {}", printable(one.candidate.name, terminal), printable(one.problem, terminal)),
          terminal);
  }
  text += answer_table(made, terminal);
  if (!made.claims.empty()) text += '\n';
  for (const PolicyClaim& claim : made.claims) {
    text += paragraph(
        "", fmt::format("{}: {}", paint(terminal, ink_of(claim.verdict), to_string(claim.verdict)), claim.statement),
        terminal);
    text += paragraph("  ", claim.figures, terminal);
  }
  return text;
}

std::string policies_json(const PolicyReport& made, const std::string& target) {
  Json out;
  out["schema"] = "nanscope.policies/1";
  out["target"] = target;
  out["facts"] = made.facts;
  out["left_out"] = made.left_out;
  out["kept_bytes_a_token"] = made.kept_bytes;
  out["layers"] = Json::array();
  for (const LayerFacts& one : made.layers) out["layers"].push_back(json_of(one));
  for (const auto& [key, results] : {std::pair("policies", &made.policies), std::pair("compared", &made.tried)}) {
    out[key] = Json::array();
    for (const PolicyResult& one : *results) out[key].push_back(json_of(one));
  }
  out["claims"] = Json::array();
  for (const PolicyClaim& one : made.claims) {
    out["claims"].push_back({{"name", one.name},
                             {"statement", one.statement},
                             {"verdict", to_string(one.verdict)},
                             {"figures", one.figures}});
  }
  return dump_json(out);
}

std::string policies_csv(const PolicyReport& made) {
  std::string text =
      "policy,layer,bytes_a_token,error,divergence,agreement,quantized,clipped,flushed,utilization,not_finite,on_front,"
      "problem\n";
  const auto rate = [](std::int64_t part, std::int64_t of) {
    return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0.0;
  };
  for (const PolicyResult& one : made.policies) {
    const std::string name = csv_cell(one.candidate.name);
    if (!was_measured(one)) {
      text += fmt::format("{},all,,,,,,,,,,,{}\n", name, csv_cell(one.problem));
      continue;
    }
    text += fmt::format("{},all,{},{},{},{},{},{},{},{},{},{},\n", name, one.bytes, one.error, one.divergence,
                        one.agreement, one.quantized, one.clipped, one.flushed, one.utilization, one.not_finite,
                        one.on_front ? "yes" : "no");
    for (const LayerScore& score : one.layers) {
      const std::int64_t elements = score.k.elements + score.v.elements;
      const int parts = (score.k.elements > 0 ? 1 : 0) + (score.v.elements > 0 ? 1 : 0);
      text += fmt::format("{},{},,{},{},{},,{},{},{},{},,\n", name, score.layer, score.error, score.divergence,
                          score.agreement, rate(score.k.clipped + score.v.clipped, elements),
                          rate(score.k.flushed + score.v.flushed, elements),
                          parts > 0 ? (score.k.utilization + score.v.utilization) / parts : 0.0, score.not_finite);
    }
  }
  return text;
}

}  // namespace nanscope::report
