#include "scenarios/report/counterfactual_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace nanscope::report {

namespace {

using scenarios::Counterfactuals;
using scenarios::Effect;
using scenarios::Outcome;

constexpr std::size_t kMinimalShown = 12;

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

/// The cells of one outcome: change, event, requests, bytes, errors, agreement.
std::vector<std::string> cells(const Outcome& outcome, const Outcome& baseline) {
  const std::string ratio = baseline.kv_bytes_per_token > 0
                                ? fmt::format("{:.2f}x", outcome.kv_bytes_per_token / baseline.kv_bytes_per_token)
                                : "-";
  std::vector<std::string> row = {outcome.change.settings.empty() ? "(as recorded)" : outcome.change.text(),
                                  breaks_text(outcome), requests_text(outcome),
                                  fmt::format("{:.0f} ({})", outcome.kv_bytes_per_token, ratio)};
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

/// The lines of one outcome: its first setting with the cells, further settings below it.
void add_rows(Table& table, const Outcome& outcome, const Outcome& baseline) {
  auto row = cells(outcome, baseline);
  const std::vector<std::string>& settings = outcome.change.settings;
  if (!settings.empty()) row.front() = "  " + settings.front();
  table.row(std::move(row));
  for (std::size_t i = 1; i < settings.size(); ++i) table.row({"  + " + settings[i]});
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
  json["accuracy"] = nullptr;
  if (outcome.accuracy) {
    json["accuracy"] = {{"requests", outcome.accuracy->requests},
                        {"tokens", outcome.accuracy->tokens},
                        {"max_error", outcome.accuracy->max_error},
                        {"rms_error", outcome.accuracy->rms_error},
                        {"top1_agreement", outcome.accuracy->top1_agreement}};
  }
  return json;
}

}  // namespace

std::string counterfactuals_text(const Counterfactuals& counterfactuals, const Terminal& terminal) {
  Table table({Align::left, Align::left, Align::left, Align::right, Align::right, Align::right, Align::right});
  table.row(painted(kTitles, terminal, Ink::bold));
  table.row(cells(counterfactuals.baseline, counterfactuals.baseline));
  std::vector<const Outcome*> failed;
  std::vector<std::string> without_effect;
  std::optional<Effect> group;
  for (const Outcome* outcome : all(counterfactuals)) {
    if (!outcome->error.empty()) {
      failed.push_back(outcome);
      continue;
    }
    if (outcome->effect == Effect::no_effect) {
      without_effect.push_back(outcome->change.text());
      continue;
    }
    if (group != outcome->effect) {
      group = outcome->effect;
      table.row({});
      table.row({paint(terminal, ink_of(*group), to_string(*group))});
    }
    add_rows(table, *outcome, counterfactuals.baseline);
  }
  std::string text = table.text("  ");
  if (!without_effect.empty()) {
    text += '\n' + paragraph("  no effect  ", fmt::format("{}", fmt::join(without_effect, ", ")), terminal);
  }
  for (const Outcome* outcome : failed) {
    text += paragraph(
        "  ", printable(fmt::format("not run: {} ({})", outcome->change.text(), outcome->error), terminal), terminal);
  }
  text += '\n' + paint(terminal, Ink::bold, "Smallest changes that prevent the fault") + '\n';
  if (counterfactuals.minimal.empty()) text += "  none of one or two knobs\n";
  for (std::size_t i = 0; i < counterfactuals.minimal.size() && i < kMinimalShown; ++i) {
    text += fmt::format("  {}\n", counterfactuals.minimal[i].text());
  }
  if (counterfactuals.minimal.size() > kMinimalShown) {
    text += fmt::format("  and {} more\n", counterfactuals.minimal.size() - kMinimalShown);
  }
  text +=
      paint(terminal, Ink::dim,
            "  \"breaks at\" is the first event of the chain that is gone. Errors are in logits of the last prompt\n"
            "  token, top-1 over prompt tokens, both against a cache in f32 and over healthy requests.\n");
  return text + fmt::format("  {} runs in {:.1f} s\n", counterfactuals.runs, counterfactuals.seconds);
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
  return text;
}

nlohmann::ordered_json to_json(const Counterfactuals& counterfactuals) {
  nlohmann::ordered_json json;
  json["baseline"] = outcome_json(counterfactuals.baseline);
  json["changes"] = nlohmann::ordered_json::array();
  for (const Outcome* outcome : all(counterfactuals)) json["changes"].push_back(outcome_json(*outcome));
  json["minimal"] = nlohmann::ordered_json::array();
  for (const scenarios::Change& change : counterfactuals.minimal) json["minimal"].push_back(change.settings);
  json["runs"] = counterfactuals.runs;
  return json;
}

}  // namespace nanscope::report
