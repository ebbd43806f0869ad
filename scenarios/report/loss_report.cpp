#include "scenarios/report/loss_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;
using scenarios::LossKind;
using scenarios::MeanOfSequences;

Json mean_json(const MeanOfSequences& mean) {
  return {{"mean", json_number(mean.mean)},
          {"standard_error", std::isnan(mean.error) ? Json(nullptr) : Json(mean.error)}};
}

std::string error_text(double error) { return std::isnan(error) ? "-" : fmt::format("{:.6f}", error); }

std::vector<std::string> row_of(const char* title, const MeanOfSequences& mean) {
  return {title, fmt::format("{:.6f}", mean.mean), error_text(mean.error), fmt::format("{:.4f}", std::exp(mean.mean))};
}

bool all_equal(const scenarios::TextLoss& loss) {
  for (const scenarios::SequenceLoss& one : loss.sequences) {
    if (one.autoregressive != one.parallel) return false;
  }
  return true;
}

std::string gap_text(const scenarios::TextLoss& loss) {
  const MeanOfSequences gap = mean_of(loss, LossKind::gap);
  if (all_equal(loss)) return "Gap       0, equal in every sequence\n";
  std::string text = fmt::format("Gap       {:+.6f}", gap.mean);
  if (!std::isnan(gap.error)) text += fmt::format(" +- {:.6f}", gap.error);
  if (gap.error > 0) text += fmt::format(", {:.1f} standard errors", gap.mean / gap.error);
  return text + "; positive: token by token is worse\n";
}

}  // namespace

std::string loss_text(const scenarios::TextLoss& loss, const std::string& text, const Terminal& terminal) {
  const auto sequences = loss.sequences.size();
  std::string made = fmt::format("Text      {}, {}\n", printable(text, terminal), counted(loss.text_tokens, "token"));
  made += fmt::format("Measured  {} of {}, {} tokens each; nats a token\n\n", sequences,
                      counted(loss.text_sequences, "sequence"), loss.length);
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"computed", "loss", "standard error", "perplexity"});
  table.row(row_of("all positions at once", mean_of(loss, LossKind::parallel)));
  if (loss.autoregressive) table.row(row_of("token by token", mean_of(loss, LossKind::autoregressive)));
  made += table.text("  ", terminal.width);
  if (loss.autoregressive) made += "\n" + gap_text(loss);
  return made;
}

std::string loss_json(const scenarios::TextLoss& loss, const std::string& text) {
  Json json = {{"schema", "nanscope.loss/1"},     {"text", text},
               {"text_tokens", loss.text_tokens}, {"text_sequences", loss.text_sequences},
               {"length", loss.length},           {"parallel", mean_json(mean_of(loss, LossKind::parallel))},
               {"autoregressive", nullptr},       {"gap", nullptr},
               {"sequences", Json::array()}};
  if (loss.autoregressive) {
    json["autoregressive"] = mean_json(mean_of(loss, LossKind::autoregressive));
    json["gap"] = mean_json(mean_of(loss, LossKind::gap));
  }
  for (const scenarios::SequenceLoss& one : loss.sequences) {
    json["sequences"].push_back(
        {{"first_token", one.first_token},
         {"targets", one.targets},
         {"parallel", json_number(one.parallel)},
         {"autoregressive", loss.autoregressive ? json_number(one.autoregressive) : Json(nullptr)}});
  }
  return dump_json(json) + "\n";
}

std::string loss_csv(const scenarios::TextLoss& loss) {
  std::string csv = "first_token,targets,parallel,autoregressive\n";
  for (const scenarios::SequenceLoss& one : loss.sequences) {
    csv += fmt::format("{},{},{},{}\n", one.first_token, one.targets, one.parallel,
                       std::isnan(one.autoregressive) ? "" : fmt::format("{}", one.autoregressive));
  }
  return csv;
}

}  // namespace nanscope::report
