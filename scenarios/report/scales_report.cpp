#include "scenarios/report/scales_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

std::string figure(double value) { return fmt::format("{:.4g}", value); }

/// What table 6 of the paper prints of a model's layers.
struct NormSummary {
  double mean = 0;
  double largest = 0;
  double smallest = 0;
  std::int64_t largest_layer = -1;

  double ratio() const { return largest / smallest; }
};

template <class Norm>
NormSummary summary_of(const ModelScales& scales, const Norm& norm) {
  NormSummary out;
  for (const LayerScales& layer : scales.layers) {
    const double value = norm(layer);
    out.mean += value / static_cast<double>(scales.layers.size());
    if (out.largest_layer < 0 || value < out.smallest) out.smallest = value;
    if (out.largest_layer >= 0 && value <= out.largest) continue;
    out.largest = value;
    out.largest_layer = layer.layer;
  }
  return out;
}

/// Of a layer's largest head norm, which bounds follow from, and of the norm of all heads side by side, which is the
/// paper's.
std::array<std::pair<std::string_view, NormSummary>, 2> norm_summaries(const ModelScales& scales) {
  return {{{"norm of a head", summary_of(scales, [](const LayerScales& one) { return one.largest_head_norm(); })},
           {"side by side", summary_of(scales, [](const LayerScales& one) { return one.settled; })}}};
}

std::string norm_table(const ModelScales& scales, const Terminal& terminal) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  table.row({"over layers", "mean", "max", "min", "max layer", "max / min"});
  for (const auto& [name, norms] : norm_summaries(scales)) {
    table.row({std::string(name), figure(norms.mean), figure(norms.largest), figure(norms.smallest),
               std::to_string(norms.largest_layer), fmt::format("{:.3g}", norms.ratio())});
  }
  return table.text("  ", terminal.width);
}

std::string bound_text(const ModelScales& scales) {
  const LayerScales& first = scales.layers.front();
  if (first.bound == ScoreBound::qk_norm) {
    return "norms on queries and keys bound the scores whatever the projections are and wherever tokens stand: bound "
           "and scale follow from their gains alone";
  }
  if (first.bound == ScoreBound::none) {
    return "none: no norm stands before attention, nor on queries and keys; no scale follows from the weights";
  }
  std::string text = fmt::format("by the norm before attention, whose tokens have the norm sqrt({}); alpha {:.4g}",
                                 scales.shape.width, scales.alpha);
  if (scales.alpha < 1) {
    text += fmt::format(
        " (smallest {:.4g}, gamma {:.4g}): of {} random tokens, any score is beyond the calibrated bound with a chance "
        "of "
        "at most {:.2g}",
        scales.alpha_min, scales.gamma, scales.settings.length, scales.chance);
  } else {
    text += ": shapes so small promise nothing below the worst case";
  }
  if (first.rotary) {
    text += "; rotary positions: the worst case is that of tokens at one position, only the naive bound holds for all";
  }
  return text;
}

std::string policy_text(const ModelScales& scales) {
  if (scales.policy == "geometry") {
    return fmt::format(
        "a score divided by its scale takes {:.0f} % of {:g} at the calibrated bound; a layer has the largest of its "
        "heads",
        100 * scales.settings.utilization, scales.settings.largest);
  }
  double most = 0;
  std::int64_t layer = -1;
  for (const LayerScales& one : scales.layers) {
    for (const HeadBounds& head : one.heads) {
      if (!(head.calibrated / head.scale > most)) continue;
      most = head.calibrated / head.scale;
      layer = one.layer;
    }
  }
  if (layer < 0) return fmt::format("of {} before anything ran", scales.policy);
  return fmt::format(
      "of {} before anything ran; a score at the calibrated bound of layer {} would be {} over its scale, of {:g}",
      scales.policy, layer, figure(most), scales.settings.largest);
}

std::string layer_table(const ModelScales& scales, const Terminal& terminal) {
  Table table(
      {Align::right, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right});
  table.row({"layer", "norm of a head", "side by side", fmt::format("cold, {} of it", scales.settings.iterations),
             "naive bound", "worst case", "calibrated", "scale"});
  for (const LayerScales& layer : scales.layers) {
    const HeadBounds all = layer.whole();
    const bool bounded = layer.bound != ScoreBound::none;
    table.row({std::to_string(layer.layer), figure(layer.largest_head_norm()), figure(layer.settled),
               layer.settled > 0 ? fmt::format("{:.0f} %", 100 * layer.cold / layer.settled) : "-",
               bounded ? figure(all.naive) : "-", bounded ? figure(all.interaction) : "-",
               bounded ? figure(all.calibrated) : "-", bounded ? figure(all.scale) : "-"});
  }
  return table.text("  ", terminal.width);
}

std::string head_table(const ModelScales& scales, const Terminal& terminal) {
  Table table({Align::right, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
               Align::right, Align::right});
  table.row({"layer", "head", "norm", "of W_Q", "of W_K", "naive bound", "worst case", "calibrated", "scale"});
  for (const LayerScales& layer : scales.layers) {
    for (std::size_t head = 0; head < layer.norms.size(); ++head) {
      const HeadNorms& norms = layer.norms[head];
      const HeadBounds bounds = layer.heads.empty() ? HeadBounds{} : layer.heads[head];
      table.row({std::to_string(layer.layer), std::to_string(head), figure(norms.interaction), figure(norms.query),
                 figure(norms.key), figure(bounds.naive), figure(bounds.interaction), figure(bounds.calibrated),
                 figure(bounds.scale)});
    }
  }
  return table.text("  ", terminal.width);
}

/// The worst of each kind, and how many there are.
std::string warnings_text(const ModelScales& scales, const Terminal& terminal) {
  struct Kind {
    const ScaleWarning* worst = nullptr;
    std::int64_t layer = 0;
    std::size_t count = 0;
  };
  std::map<std::string_view, Kind> kinds;
  for (const LayerScales& layer : scales.layers) {
    for (const ScaleWarning& one : layer.warnings) {
      Kind& kind = kinds[one.kind];
      ++kind.count;
      if (kind.worst != nullptr && !(one.excess > kind.worst->excess)) continue;
      kind.worst = &one;
      kind.layer = layer.layer;
    }
  }
  std::string text;
  for (const auto& [name, kind] : kinds) {
    std::string place = fmt::format("layer {}", kind.layer);
    if (kind.worst->head >= 0) place += fmt::format(" head {}", kind.worst->head);
    text += paragraph("Warning   ", fmt::format("{}, {}: {}", name, place, kind.worst->figure), terminal);
    if (kind.count > 1)
      text += paragraph("          ", fmt::format("the worst of {}: --format json", kind.count), terminal);
  }
  return text;
}

Json head_json(const LayerScales& layer, std::size_t head) {
  const HeadNorms& norms = layer.norms[head];
  Json one{{"norm", norms.interaction}, {"query_norm", norms.query}, {"key_norm", norms.key}, {"trace", norms.trace}};
  if (norms.rotated > 0) one["rotated_norm"] = norms.rotated;
  if (layer.heads.empty()) return one;
  const HeadBounds& bounds = layer.heads[head];
  one["naive"] = bounds.naive;
  one["worst_case"] = bounds.interaction;
  one["calibrated"] = bounds.calibrated;
  one["scale"] = bounds.scale;
  return one;
}

}  // namespace

std::string scales_text(const ModelScales& scales, const std::string& checkpoint, bool per_head,
                        const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope scales {}", printable(checkpoint, terminal)), terminal);
  if (scales.layers.empty()) return text + "No layer has attention.\n";
  text += paragraph("Bounds    ", bound_text(scales), terminal);
  text += paragraph("Scales    ", policy_text(scales), terminal);
  text += warnings_text(scales, terminal);
  text += '\n' + norm_table(scales, terminal);
  return text + '\n' + (per_head ? head_table(scales, terminal) : layer_table(scales, terminal));
}

std::string scales_json(const ModelScales& scales, const std::string& checkpoint) {
  Json out;
  out["schema"] = "nanscope.scales/1";
  out["checkpoint"] = checkpoint;
  out["delta"] = scales.settings.delta;
  out["length"] = scales.settings.length;
  out["utilization"] = scales.settings.utilization;
  out["policy"] = scales.policy;
  out["gamma"] = scales.gamma;
  out["alpha_min"] = scales.alpha_min;
  out["alpha"] = scales.alpha;
  out["chance"] = scales.chance;
  if (!scales.layers.empty()) {
    for (const auto& [name, norms] : norm_summaries(scales)) {
      out["norms"][name == "side by side" ? "side_by_side" : "head"] = {
          {"mean", norms.mean}, {"max", norms.largest}, {"min", norms.smallest}, {"max_layer", norms.largest_layer}};
    }
  }
  out["layers"] = Json::array();
  for (const LayerScales& layer : scales.layers) {
    Json one{{"layer", layer.layer},
             {"bounded_by", name(layer.bound)},
             {"rotary", layer.rotary},
             {"factor", layer.factor},
             {"norm", layer.largest_head_norm()},
             {"side_by_side", layer.settled},
             {"cold", {{"once", layer.cold_once}, {"iterations", scales.settings.iterations}, {"norm", layer.cold}}},
             {"naive_norm", layer.naive_norm}};
    if (layer.softcap > 0) one["softcap"] = layer.softcap;
    if (layer.bound != ScoreBound::none) {
      const HeadBounds all = layer.whole();
      one["naive"] = all.naive;
      one["worst_case"] = all.interaction;
      one["calibrated"] = all.calibrated;
      one["scale"] = all.scale;
    }
    one["heads"] = Json::array();
    for (std::size_t head = 0; head < layer.norms.size(); ++head) one["heads"].push_back(head_json(layer, head));
    for (const auto& [name, elements] : {std::pair("queries", &layer.queries), {"keys", &layer.keys}}) {
      if (elements->empty()) continue;
      one[name] = Json::array();
      for (const ElementBounds& bound : *elements) {
        one[name].push_back(
            {{"worst_case", bound.worst_case}, {"calibrated", bound.calibrated}, {"scale", bound.scale}});
      }
    }
    one["warnings"] = Json::array();
    for (const ScaleWarning& warning : layer.warnings) {
      Json told{{"kind", warning.kind}, {"figure", warning.figure}};
      if (warning.head >= 0) told["head"] = warning.head;
      one["warnings"].push_back(std::move(told));
    }
    out["layers"].push_back(std::move(one));
  }
  return dump_json(out);
}

std::string scales_csv(const ModelScales& scales) {
  std::string text =
      "layer,head,bounded_by,norm,query_norm,key_norm,rotated_norm,trace,naive,worst_case,calibrated,scale,layer_norm,"
      "layer_naive_norm\n";
  for (const LayerScales& layer : scales.layers) {
    for (std::size_t head = 0; head < layer.norms.size(); ++head) {
      const HeadNorms& norms = layer.norms[head];
      text +=
          fmt::format("{},{},{},{},{},{},{},{}", layer.layer, head, name(layer.bound), norms.interaction, norms.query,
                      norms.key, norms.rotated > 0 ? fmt::format("{}", norms.rotated) : "", norms.trace);
      if (layer.heads.empty()) {
        text += ",,,,";
      } else {
        const HeadBounds& bounds = layer.heads[head];
        text += fmt::format(",{},{},{},{}", bounds.naive, bounds.interaction, bounds.calibrated, bounds.scale);
      }
      text += fmt::format(",{},{}\n", layer.settled, layer.naive_norm);
    }
  }
  return text;
}

std::string published_shapes_text(std::string_view name, double delta, const Terminal& terminal) {
  std::string text = heading("nanscope scales --shapes", terminal);
  text += paragraph("",
                    fmt::format("gamma (12), the rank's gain d / (gamma d_h), and alpha_min (13), for 1024 tokens and "
                                "delta {:g}; what the paper prints, and how far ours is from it",
                                delta),
                    terminal);
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
               Align::right, Align::right, Align::right});
  table.row({"model", "heads", "gamma", "printed", "off by", "gain", "alpha_min", "printed", "off by", "alpha used"});
  for (const PublishedShape& model : published_shapes()) {
    if (!name.empty() && name != model.name) continue;
    const double gamma = typicality(model.shape, delta);
    const double alpha = smallest_alpha(model.shape, delta);
    const auto off = [](double ours, double printed) { return fmt::format("{:+.2f} %", 100 * (ours / printed - 1)); };
    table.row({std::string(model.name), fmt::format("{} x {}", model.layers, model.heads), fmt::format("{:.4f}", gamma),
               figure(model.gamma), off(gamma, model.gamma),
               fmt::format("{:.2f}", static_cast<double>(model.shape.width) /
                                         (gamma * static_cast<double>(model.shape.head_dim))),
               fmt::format("{:.5f}", alpha), figure(model.alpha_min), off(alpha, model.alpha_min),
               fmt::format("{:g}, {:.2f} x", model.alpha_used, model.alpha_used / alpha)});
  }
  return text + '\n' + table.text("  ", terminal.width);
}

}  // namespace nanscope::report
