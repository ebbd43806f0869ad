#include "scenarios/report/loss_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;
using serve::LossKind;
using serve::MeanOfSequences;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json mean_json(const MeanOfSequences& mean) {
  return {{"mean", number(mean.mean)}, {"standard_error", number(mean.error)}};
}

std::string error_text(double error) { return std::isnan(error) ? "-" : fmt::format("{:.6f}", error); }

std::vector<std::string> row_of(const char* title, const MeanOfSequences& mean) {
  return {title, fmt::format("{:.6f}", mean.mean), error_text(mean.error), fmt::format("{:.4f}", std::exp(mean.mean))};
}

bool all_equal(const serve::TextLoss& loss) {
  for (const serve::SequenceLoss& one : loss.sequences) {
    if (one.autoregressive != one.parallel) return false;
  }
  return true;
}

std::string gap_text(const serve::TextLoss& loss) {
  const MeanOfSequences gap = mean_of(loss, LossKind::gap);
  if (all_equal(loss)) return "Gap       0, equal in every sequence\n";
  std::string text = fmt::format("Gap       {:+.6f}", gap.mean);
  if (!std::isnan(gap.error)) text += fmt::format(" +- {:.6f}", gap.error);
  if (gap.error > 0) text += fmt::format(", {:.1f} standard errors", gap.mean / gap.error);
  return text + "; positive: token by token is worse\n";
}

}  // namespace

std::string loss_text(const serve::TextLoss& loss, const serve::LossOptions& options, const std::string& text,
                      const Terminal& terminal) {
  const auto sequences = loss.sequences.size();
  std::string made = fmt::format("Text      {}, {}\n", printable(text, terminal), counted(loss.text_tokens, "token"));
  made += fmt::format("Measured  {} of {}, {} tokens each; nats a token\n\n", sequences,
                      counted(loss.text_sequences, "sequence"), options.length);
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"computed", "loss", "standard error", "perplexity"});
  table.row(row_of("all positions at once", mean_of(loss, LossKind::parallel)));
  if (options.autoregressive) table.row(row_of("token by token", mean_of(loss, LossKind::autoregressive)));
  made += table.text("  ", terminal.width);
  if (options.autoregressive) made += "\n" + gap_text(loss);
  return made;
}

std::string loss_json(const serve::TextLoss& loss, const serve::LossOptions& options, const std::string& text) {
  Json json = {{"schema", "nanscope.loss/1"},     {"text", text},
               {"text_tokens", loss.text_tokens}, {"text_sequences", loss.text_sequences},
               {"length", options.length},        {"parallel", mean_json(mean_of(loss, LossKind::parallel))},
               {"autoregressive", nullptr},       {"gap", nullptr},
               {"sequences", Json::array()}};
  if (options.autoregressive) {
    json["autoregressive"] = mean_json(mean_of(loss, LossKind::autoregressive));
    json["gap"] = mean_json(mean_of(loss, LossKind::gap));
  }
  for (const serve::SequenceLoss& one : loss.sequences) {
    json["sequences"].push_back({{"first_token", one.first_token},
                                 {"targets", one.targets},
                                 {"parallel", number(one.parallel)},
                                 {"autoregressive", number(one.autoregressive)}});
  }
  return dump_json(json) + "\n";
}

std::string loss_csv(const serve::TextLoss& loss) {
  std::string csv = "first_token,targets,parallel,autoregressive\n";
  for (const serve::SequenceLoss& one : loss.sequences) {
    csv += fmt::format("{},{},{},{}\n", one.first_token, one.targets, one.parallel,
                       std::isnan(one.autoregressive) ? "" : fmt::format("{}", one.autoregressive));
  }
  return csv;
}

}  // namespace nanscope::report
