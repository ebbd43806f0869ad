#include "scenarios/report/counterfactual_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "scenarios/recommendation.h"

namespace nanscope::report {

namespace {

using scenarios::Basis;
using scenarios::Counterfactuals;
using scenarios::Effect;
using scenarios::Outcome;
using scenarios::Recommendation;

constexpr std::string_view kAsRecorded = "(as recorded)";
/// More requests than fit the column are counted.
constexpr std::size_t kFewRequests = 5;

Ink ink_of(Effect effect) {
  switch (effect) {
    case Effect::removes_cause:
      return Ink::green;
    case Effect::removes_nan:
      return Ink::cyan;
    case Effect::limits_spread:
      return Ink::yellow;
    case Effect::worse:
      return Ink::red;
    default:
      return Ink::dim;
  }
}

std::string breaks_text(const Outcome& outcome) { return outcome.breaks_at.empty() ? "-" : outcome.breaks_at; }

std::string requests_text(const Outcome& outcome) {
  if (outcome.faulty_requests.empty()) return "none";
  return fmt::format("{}", fmt::join(outcome.faulty_requests, " "));
}

std::string few_requests(const Outcome& outcome) {
  const std::size_t count = outcome.faulty_requests.size();
  return count > kFewRequests ? counted(count, "request") : requests_text(outcome);
}

std::string ratio(const Outcome& outcome, double recorded_bytes) {
  return recorded_bytes > 0 ? fmt::format("{:.2f}x", outcome.kv_bytes_per_token / recorded_bytes) : "-";
}

/// The cells of one outcome: change, event, requests, bytes, errors, agreement.
std::vector<std::string> cells(const Outcome& outcome, const Outcome& baseline) {
  std::vector<std::string> row = {
      outcome.change.settings.empty() ? std::string(kAsRecorded) : outcome.change.text(), breaks_text(outcome),
      requests_text(outcome),
      fmt::format("{:.0f} ({})", outcome.kv_bytes_per_token, ratio(outcome, baseline.kv_bytes_per_token))};
  if (outcome.accuracy) {
    row.push_back(number_text(outcome.accuracy->max_error));
    row.push_back(number_text(outcome.accuracy->rms_error));
    row.push_back(fmt::format("{:.0f} %", 100 * outcome.accuracy->top1_agreement));
  } else {
    row.insert(row.end(), {"-", "-", "-"});
  }
  return row;
}

const std::vector<std::string> kTitles = {"change",  "breaks at", "still garbage", "KV B/token",
                                          "max err", "rms err",   "top-1"};

std::vector<const Outcome*> all(const Counterfactuals& counterfactuals) {
  std::vector<const Outcome*> outcomes;
  for (const Outcome& outcome : counterfactuals.singles) outcomes.push_back(&outcome);
  for (const Outcome& outcome : counterfactuals.pairs) outcomes.push_back(&outcome);
  return outcomes;
}

const std::vector<std::string> kLineTitles = {"change", "garbage", "KV", "rms err", "top-1", "what it does"};

/// The changes by what they do, their names alone.
std::string groups_text(const Counterfactuals& counterfactuals, const Terminal& terminal) {
  std::map<Effect, std::vector<std::string>> groups;
  std::size_t unrun = 0;
  for (const Outcome* outcome : all(counterfactuals)) {
    if (outcome->error.empty()) {
      groups[outcome->effect].push_back(fmt::format("{}", fmt::join(outcome->change.settings, " + ")));
    } else {
      ++unrun;
    }
  }
  std::string text;
  for (const auto& [effect, changes] : groups) {
    const std::string lead = pad(paint(terminal, ink_of(effect), to_string(effect)), 26);
    text += paragraph("  " + lead, fmt::format("{}", fmt::join(changes, ", ")), terminal);
  }
  if (unrun > 0) text += paragraph("  " + pad("could not be run", 26), counted(unrun, "change"), terminal);
  return text;
}

std::string reason(const Recommendation& best, const Counterfactuals& counterfactuals) {
  const Outcome& outcome = *best.outcome;
  if (best.basis == Basis::symptom_alone)
    return fmt::format(
        "no request answers from NaN; no change {}removes the cause, {}, and of those that do this none is cheaper",
        counterfactuals.stopped ? "that was run " : "", counterfactuals.root_class);
  std::string text = fmt::format("it removes the cause: {} is gone", counterfactuals.root_class);
  if (!outcome.breaks_at.empty()) text += fmt::format(", the chain breaks at {}", outcome.breaks_at);
  const bool alone = best.removing == 1;
  const std::string unmeasured =
      counterfactuals.reference_faulty
          ? "; how exact it is cannot be said, as the run with a cache in f32 has the fault too"
          : "; how exact it is cannot be said, as no request was healthy as recorded";
  const std::string others = counted(best.removing, "change");
  switch (best.basis) {
    case Basis::accurate:
      if (alone) return text + "; no other change does so, and the healthy requests stay as exact as recorded";
      if (best.accurate == 1)
        return text +
               fmt::format("; of {} that do so it alone leaves the healthy requests as exact as recorded", others);
      return text + fmt::format(
                        "; of {} that do so {} leave the healthy requests as exact as recorded, and it is the "
                        "cheapest of them",
                        others, best.accurate);
    case Basis::less_accurate:
      if (alone) return text + "; no other change does so, and it costs the healthy requests accuracy";
      return text +
             fmt::format("; all {} that do so cost the healthy requests accuracy, and it costs the least", others);
    default:
      return text +
             (alone ? std::string("; no other change does so") : "; it is the cheapest of " + others + " that do so") +
             unmeasured;
  }
}

std::string memory_words(const Outcome& outcome, const Outcome& baseline) {
  std::string text = fmt::format("{:.0f} B of KV a token, {} of {:.0f} B as recorded", outcome.kv_bytes_per_token,
                                 ratio(outcome, baseline.kv_bytes_per_token), baseline.kv_bytes_per_token);
  if (outcome.activation_bits != baseline.activation_bits)
    text += fmt::format("; activations of {} bits instead of {}", outcome.activation_bits, baseline.activation_bits);
  if (outcome.tokens > baseline.tokens)
    text += fmt::format("; {} tokens to process instead of {}", outcome.tokens, baseline.tokens);
  return text;
}

std::string accuracy_words(const Outcome& outcome, const Outcome& baseline) {
  if (!outcome.accuracy) return "not measured: no logits of a healthy request are finite in this run and with f32";
  std::string text;
  if (outcome.recorded_accuracy && baseline.recorded_accuracy) {
    text = fmt::format("rms error {} in logits, {} as recorded, over {} that {} healthy then; ",
                       number_text(outcome.recorded_accuracy->rms_error),
                       number_text(baseline.recorded_accuracy->rms_error),
                       counted(outcome.recorded_accuracy->requests, "request"),
                       outcome.recorded_accuracy->requests == 1 ? "was" : "were");
  }
  return text + fmt::format("rms error {}, top-1 {:.0f} %, over all {} that {} healthy now",
                            number_text(outcome.accuracy->rms_error), 100 * outcome.accuracy->top1_agreement,
                            counted(outcome.accuracy->requests, "request"),
                            outcome.accuracy->requests == 1 ? "is" : "are");
}

nlohmann::ordered_json accuracy_json(const std::optional<scenarios::Accuracy>& accuracy) {
  if (!accuracy) return nullptr;
  return {{"requests", accuracy->requests},
          {"tokens", accuracy->tokens},
          {"max_error", accuracy->max_error},
          {"rms_error", accuracy->rms_error},
          {"top1_agreement", accuracy->top1_agreement}};
}

std::string_view name(Basis basis) {
  switch (basis) {
    case Basis::accurate:
      return "accurate";
    case Basis::less_accurate:
      return "less-accurate";
    case Basis::symptom_alone:
      return "symptom-alone";
    default:
      return "unmeasured";
  }
}

std::vector<std::string> painted(std::vector<std::string> row, const Terminal& terminal, Ink ink) {
  row.front() = paint(terminal, ink, row.front());
  return row;
}

nlohmann::ordered_json outcome_json(const Outcome& outcome) {
  nlohmann::ordered_json json;
  json["settings"] = outcome.change.settings;
  if (!outcome.error.empty()) {
    json["error"] = outcome.error;
    return json;
  }
  json["effect"] = to_string(outcome.effect);
  json["breaks_at"] =
      outcome.breaks_at.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(outcome.breaks_at);
  json["chain"] = outcome.chain;
  json["faults"] = outcome.faults;
  json["faulty_requests"] = outcome.faulty_requests;
  json["bad_prompt_tokens"] = outcome.bad_prompt_tokens;
  json["outputs"] = outcome.outputs;
  json["kv_bytes_per_token"] = outcome.kv_bytes_per_token;
  json["accuracy"] = accuracy_json(outcome.accuracy);
  json["recorded_accuracy"] = accuracy_json(outcome.recorded_accuracy);
  return json;
}

}  // namespace

CounterfactualLines::CounterfactualLines(std::span<const scenarios::Change> changes, const Terminal& terminal)
    : terminal_(terminal) {
  for (const std::string& title : kLineTitles) widths_.push_back(display_width(title));
  widths_.front() = display_width(kAsRecorded);
  for (const scenarios::Change& change : changes) {
    for (const std::string& setting : change.settings)
      widths_.front() = std::max(widths_.front(), display_width(setting));
  }
  // As wide as most figures are: "4.023e-06", "none" or some requests.
  widths_[1] = std::max(widths_[1], 10);
  widths_[3] = std::max(widths_[3], 9);
  for (std::size_t i = 0; i <= static_cast<std::size_t>(Effect::worse); ++i)
    widths_.back() = std::max(widths_.back(), display_width(to_string(static_cast<Effect>(i))));
}

std::string CounterfactualLines::laid_out(const std::vector<std::string>& cells) const {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::left});
  table.reserve(widths_);
  table.row(cells);
  return table.text("  ", terminal_.width);
}

std::string CounterfactualLines::titles() const { return laid_out(painted(kLineTitles, terminal_, Ink::bold)); }

std::string CounterfactualLines::line(const Outcome& outcome) {
  if (!outcome.error.empty()) {
    const std::string text = fmt::format("{}  not run: {}", outcome.change.text(), outcome.error);
    return folded("  ", printable(text, terminal_), terminal_);
  }
  const bool recorded = !std::exchange(recorded_, true);
  if (recorded) recorded_bytes_ = outcome.kv_bytes_per_token;
  const std::vector<std::string>& settings = outcome.change.settings;
  std::vector<std::string> row = {settings.empty() ? std::string(kAsRecorded) : settings.front(), few_requests(outcome),
                                  ratio(outcome, recorded_bytes_)};
  if (outcome.recorded_accuracy) {
    row.push_back(number_text(outcome.recorded_accuracy->rms_error));
    row.push_back(fmt::format("{:.0f} %", 100 * outcome.recorded_accuracy->top1_agreement));
  } else {
    row.insert(row.end(), {"-", "-"});
  }
  row.push_back(recorded ? "" : paint(terminal_, ink_of(outcome.effect), to_string(outcome.effect)));
  std::string text = laid_out(row);
  for (std::size_t i = 1; i < settings.size(); ++i) text += fmt::format("  + {}\n", settings[i]);
  return text;
}

std::string counterfactuals_text(const Counterfactuals& counterfactuals, const std::string& recording,
                                 const Terminal& terminal) {
  std::string text;
  if (counterfactuals.stopped) {
    text += paragraph("",
                      fmt::format("{} after {} of {}.", paint(terminal, Ink::yellow, "Stopped"), counterfactuals.runs,
                                  counted(counterfactuals.planned, "run")),
                      terminal);
  }
  text += groups_text(counterfactuals, terminal);
  text += paragraph("  ",
                    paint(terminal, Ink::dim,
                          "rms err, in logits of the last prompt token, and top-1, over prompt tokens, are against a "
                          "cache in f32, over the requests that were healthy as recorded."),
                    terminal);
  text += fmt::format("  {} in {:.1f} s\n\n", counted(counterfactuals.runs, "run"), counterfactuals.seconds);
  text += paint(terminal, Ink::bold, "Recommended") + '\n';
  for (const RecommendedItem& item : recommended_items(counterfactuals))
    text += paragraph("  " + pad(item.term, 10), printable(item.text, terminal), terminal);
  if (const auto best = scenarios::recommend(counterfactuals); best && !recording.empty()) {
    std::string command = fmt::format("{} replay {}", terminal.program, recording);
    for (const std::string& setting : best->outcome->change.settings) command += " --set " + setting;
    text += "  " + pad("Try it", 10) + paint(terminal, Ink::cyan, one_line(command, terminal.charset())) + '\n';
  }
  return text;
}

std::vector<RecommendedItem> recommended_items(const Counterfactuals& counterfactuals) {
  const auto best = scenarios::recommend(counterfactuals);
  if (!best) {
    const std::string_view why = counterfactuals.baseline.faults.empty() ? "none: the run as recorded is healthy"
                                 : counterfactuals.stopped ? "none so far: no change that was run prevents the fault"
                                                           : "none: no change of one or two knobs prevents the fault";
    return {{"Change", std::string(why)}};
  }
  const Outcome& outcome = *best->outcome;
  return {
      {"Change", outcome.change.text()},
      {"Why", reason(*best, counterfactuals)},
      {"Memory", memory_words(outcome, counterfactuals.baseline)},
      {"Accuracy", counterfactuals.reference_faulty
                       ? "not measured: the run with a cache in f32, which others are compared with, has the fault too"
                       : accuracy_words(outcome, counterfactuals.baseline)}};
}

std::vector<std::string> counterfactual_titles() { return kTitles; }

std::vector<CounterfactualRow> counterfactual_rows(const Counterfactuals& counterfactuals) {
  std::vector<CounterfactualRow> rows;
  rows.push_back({Effect::no_effect, cells(counterfactuals.baseline, counterfactuals.baseline)});
  for (const Outcome* outcome : all(counterfactuals)) {
    if (outcome->error.empty()) rows.push_back({outcome->effect, cells(*outcome, counterfactuals.baseline)});
  }
  return rows;
}

std::string counterfactuals_markdown(const Counterfactuals& counterfactuals) {
  std::string text = fmt::format("| effect | {} |\n|---|---|--:|---|--:|--:|--:|--:|\n", fmt::join(kTitles, " | "));
  bool recorded = true;
  for (CounterfactualRow& row : counterfactual_rows(counterfactuals)) {
    for (std::string& cell : row.cells) {
      const bool setting = !recorded && &cell == &row.cells.front();
      cell = setting ? fmt::format("`{}`", markdown_code(printable(cell, {}))) : markdown_text(cell);
    }
    text += fmt::format("| {} | {} |\n", recorded ? std::string_view() : to_string(row.effect),
                        fmt::join(row.cells, " | "));
    recorded = false;
  }
  text += "\n**Recommended**\n\n";
  for (const RecommendedItem& item : recommended_items(counterfactuals))
    text += fmt::format("- {}: {}\n", item.term, markdown_text(printable(item.text, {})));
  return text;
}

nlohmann::ordered_json to_json(const Counterfactuals& counterfactuals) {
  nlohmann::ordered_json json;
  json["baseline"] = outcome_json(counterfactuals.baseline);
  json["changes"] = nlohmann::ordered_json::array();
  for (const Outcome* outcome : all(counterfactuals)) json["changes"].push_back(outcome_json(*outcome));
  json["minimal"] = nlohmann::ordered_json::array();
  for (const scenarios::Change& change : counterfactuals.minimal) json["minimal"].push_back(change.settings);
  json["recommended"] = nullptr;
  if (const auto best = scenarios::recommend(counterfactuals)) {
    json["recommended"] = {{"settings", best->outcome->change.settings},
                           {"basis", name(best->basis)},
                           {"removing", best->removing},
                           {"accurate", best->accurate}};
  }
  json["runs"] = counterfactuals.runs;
  if (counterfactuals.stopped) json["stopped"] = true;
  return json;
}

}  // namespace nanscope::report
