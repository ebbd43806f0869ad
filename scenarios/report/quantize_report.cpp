#include "scenarios/report/quantize_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWorst = 8;

std::vector<QuantizedWeight> worst_first(const QuantizeReport& made) {
  std::vector<QuantizedWeight> all = made.weights;
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.error() > b.error(); });
  return all;
}

std::string share(std::int64_t part, std::int64_t of) {
  return part == 0 ? "0"
                   : fmt::format("{} ({:.2g} %)", part, 100.0 * static_cast<double>(part) / static_cast<double>(of));
}

std::string loss_table(const std::vector<QuantizedWeight>& weights, const Terminal& terminal) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  table.row({"weight", "shape", "SNR dB", "clipped", "flushed", "owned blocks"});
  for (const QuantizedWeight& one : weights) {
    table.row({printable(one.module, terminal), fmt::format("{} x {}", one.rows, one.columns),
               fmt::format("{:.1f}", one.snr()), share(one.clipped, one.rows * one.columns),
               share(one.flushed, one.rows * one.columns), share(one.owned, one.blocks)});
  }
  return table.text("  ", terminal.width);
}

std::string measured_text(const LogitsChange& change) {
  std::string text = fmt::format(
      "over {}: logits change by {:.3g} % (root mean square about their mean), KL {:.3g} nats on average and {:.3g} "
      "at most, the same token is chosen at {} of {}",
      counted(change.positions, "position"), 100 * change.error, change.divergence, change.worst_divergence,
      change.same_choice, change.positions);
  if (change.not_finite > 0) text += fmt::format("; {} not finite", counted(change.not_finite, "position"));
  return text;
}

}  // namespace

std::string quantize_text(const QuantizeReport& made, const QuantizeWords& words, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope quantize {}", printable(words.from, terminal)), terminal);
  QuantizedWeight all;
  for (const QuantizedWeight& one : made.weights) {
    all.signal += one.signal;
    all.noise += one.noise;
    all.clipped += one.clipped;
    all.flushed += one.flushed;
  }
  text +=
      paragraph("Written   ",
                fmt::format("{}: {} as {} for {}, {} kept as they are; {} instead of {}", printable(words.to, terminal),
                            counted(made.weights.size(), "weight"), words.target->to, words.target->layout,
                            made.kept.size(), bytes_text(static_cast<double>(made.bytes_after)),
                            bytes_text(static_cast<double>(made.bytes_before))),
                terminal);
  if (made.input_scales > 0) {
    text += paragraph("Inputs    ",
                      fmt::format("what {} read is quantized as well, by a scale that the text set",
                                  counted(made.input_scales, "product")),
                      terminal);
  }
  if (made.resumed > 0) {
    text += paragraph("Resumed   ", counted(made.resumed, "file") + " had been finished before", terminal);
  }
  text += paragraph("Lost      ",
                    fmt::format("SNR {:.1f} dB over all weights, {} clipped, {} flushed to 0", all.snr(),
                                counted(all.clipped, "element"), all.flushed),
                    terminal);
  text += paragraph(
      "Predicted ",
      fmt::format("the last layer's output changes by about {:.2g} % (branches that add alike, errors that are "
                  "independent{})",
                  100 * made.predicted_error(), made.input_scales > 0 ? "; of the weights alone" : ""),
      terminal);
  if (words.measured) text += paragraph("Measured  ", measured_text(*words.measured), terminal);
  if (!made.not_copied.empty()) {
    std::string names;
    for (const std::string& name : made.not_copied) names += (names.empty() ? "" : ", ") + printable(name, terminal);
    text += paragraph("Left out  ", names + ": folders, and weights in other kinds of files", terminal);
  }
  std::vector<QuantizedWeight> weights = worst_first(made);
  const std::size_t rest = words.all || weights.size() <= kWorst ? 0 : weights.size() - kWorst;
  weights.resize(weights.size() - rest);
  text += '\n' + loss_table(weights, terminal);
  if (rest > 0) text += fmt::format("  and {} with less loss: --all, --json\n", counted(rest, "weight"));
  return text;
}

std::string quantize_json(const QuantizeReport& made, const QuantizeWords& words) {
  Json out;
  out["schema"] = "nanscope.quantization/1";
  out["from"] = words.from;
  out["to"] = words.to;
  out["format"] = words.target->to;
  out["layout"] = words.target->layout;
  out["bytes_before"] = made.bytes_before;
  out["bytes_after"] = made.bytes_after;
  out["input_scales"] = made.input_scales;
  out["predicted_error"] = made.predicted_error();
  if (words.measured) {
    const LogitsChange& change = *words.measured;
    out["measured"] = {{"positions", change.positions},           {"error", change.error},
                       {"divergence", change.divergence},         {"worst_divergence", change.worst_divergence},
                       {"worst_position", change.worst_position}, {"same_choice", change.same_choice},
                       {"not_finite", change.not_finite}};
  }
  out["weights"] = Json::array();
  for (const QuantizedWeight& one : made.weights) {
    out["weights"].push_back({{"module", one.module},
                              {"rows", one.rows},
                              {"columns", one.columns},
                              {"error", one.error()},
                              {"clipped", one.clipped},
                              {"flushed", one.flushed},
                              {"blocks", one.blocks},
                              {"owned_blocks", one.owned}});
  }
  out["kept"] = made.kept;
  out["not_copied"] = made.not_copied;
  return dump_json(out);
}

}  // namespace nanscope::report
