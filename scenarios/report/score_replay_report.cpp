#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/counted.h"
#include "scenarios/report/run_json.h"
#include "scenarios/report/scales_report.h"

namespace nanscope::report {
namespace {

std::string place_of(const scenarios::ScorePoint& point, RunView& run) {
  const Step* step = run.step(point.step);
  if (step == nullptr) return fmt::format("layer {}", point.layer);
  return fmt::format("{}/{}/{}", step->request(), step->index(), point.layer);
}

bool overflows_there(const scenarios::ScoreTrial& trial, std::size_t point, double largest) {
  return trial.problem.empty() && scenarios::overflows(trial.points[point].scaled, largest);
}

/// The points at which some policy overflows: the largest scaled score of each, those that overflow marked.
std::string overflow_table(const ScoreReplayWords& words, RunView& run, const Terminal& terminal) {
  constexpr std::size_t kMostRows = 24;
  std::vector<Align> columns{Align::left, Align::right};
  std::vector<std::string> titles{"at", "score"};
  for (const scenarios::ScoreTrial& trial : words.trials) {
    if (!trial.problem.empty()) continue;
    columns.push_back(Align::right);
    titles.push_back(trial.policy);
  }
  Table table(columns);
  table.row(titles);
  std::size_t rows = 0;
  for (std::size_t i = 0; i < words.points.size(); ++i) {
    const bool any = std::any_of(words.trials.begin(), words.trials.end(), [&](const scenarios::ScoreTrial& trial) {
      return overflows_there(trial, i, words.settings.largest);
    });
    if (!any || ++rows > kMostRows) continue;
    std::vector<std::string> cells{place_of(words.points[i], run), fmt::format("{:.4g}", words.points[i].absmax)};
    for (const scenarios::ScoreTrial& trial : words.trials) {
      if (!trial.problem.empty()) continue;
      cells.push_back(fmt::format("{:.4g}{}", trial.points[i].scaled,
                                  overflows_there(trial, i, words.settings.largest) ? " !" : "  "));
    }
    table.row(cells);
  }
  if (rows == 0) return {};
  std::string text =
      '\n' +
      paragraph("Where     ", "a policy overflows (!): the largest score, and what its scale makes of it", terminal);
  text += '\n' + table.text("  ", terminal.width);
  if (rows > kMostRows) text += fmt::format("  and {} more, which --format csv lists\n", rows - kMostRows);
  return text;
}

std::string slack_table(const ScoreReplayWords& words, const Terminal& terminal) {
  if (words.slacks.empty()) return {};
  const ScorePolicySettings& settings = words.settings;
  std::string text =
      '\n' + paragraph("Slack     ",
                       fmt::format("largest score over the worst case of the weights, in the first {} at most; "
                                   "auto_alpha takes the {}, times {:g}",
                                   counted(settings.burn_in, "step"),
                                   settings.quantile == 1 ? "largest" : fmt::format("{:g} quantile", settings.quantile),
                                   settings.kappa),
                       terminal);
  Table table({Align::right, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right});
  table.row({"layer", "steps", "smallest", "mean", "quantile", "largest", "alpha"});
  for (const scenarios::ScoreSlack& one : words.slacks) {
    table.row({std::to_string(one.layer), std::to_string(one.steps), fmt::format("{:.4g}", one.smallest),
               fmt::format("{:.4g}", one.mean), fmt::format("{:.4g}", one.quantile), fmt::format("{:.4g}", one.largest),
               one.steps < settings.burn_in ? "burn-in not over" : fmt::format("{:.4g}", one.alpha)});
  }
  return text + '\n' + table.text("  ", terminal.width);
}

}  // namespace

std::string score_replay_text(const ScoreReplayWords& words, RunView& run, const Terminal& terminal) {
  std::string text = heading(fmt::format("nanscope scales {}", printable(words.target, terminal)), terminal);
  std::set<std::int64_t> layers;
  std::set<StepId> steps;
  std::size_t bad = 0;
  double largest = 0;
  for (const scenarios::ScorePoint& point : words.points) {
    layers.insert(point.layer);
    steps.insert(point.step);
    bad += point.finite ? 0 : 1;
    largest = std::max(largest, point.absmax);
  }
  text += paragraph("Scores    ",
                    fmt::format("{} of {}, {:.4g} at most, before any mask{}", counted(steps.size(), "step"),
                                counted(layers.size(), "layer"), largest,
                                bad > 0 ? fmt::format("; {} with NaN or Inf left out", bad) : std::string()),
                    terminal);
  text +=
      paragraph("Overflow  ", fmt::format("a score over its scale is beyond {:g}", words.settings.largest), terminal);
  Table table({Align::left, Align::right, Align::right, Align::left, Align::right, Align::left});
  table.row({"policy", "overflows", "largest", "where", "used", ""});
  for (const scenarios::ScoreTrial& trial : words.trials) {
    if (!trial.problem.empty()) {
      table.row({trial.policy, "-", "-", "-", "-", trial.problem});
      continue;
    }
    table.row({trial.policy, std::to_string(trial.overflows), fmt::format("{:.4g}", trial.largest),
               trial.points.empty() ? "-" : place_of(words.points[trial.worst], run),
               fmt::format("{:.1f} %", 100 * trial.utilization), ""});
  }
  return text + '\n' + table.text("  ", terminal.width) + overflow_table(words, run, terminal) +
         slack_table(words, terminal);
}

std::string score_replay_json(const ScoreReplayWords& words) {
  using Json = nlohmann::ordered_json;
  Json out;
  out["schema"] = "nanscope.score-policies/1";
  out["target"] = words.target;
  out["largest"] = words.settings.largest;
  out["points"] = Json::array();
  for (const scenarios::ScorePoint& point : words.points) {
    out["points"].push_back(
        {{"step", point.step}, {"layer", point.layer}, {"absmax", point.absmax}, {"finite", point.finite}});
  }
  out["policies"] = Json::array();
  for (const scenarios::ScoreTrial& trial : words.trials) {
    Json one{{"name", trial.policy}, {"problem", trial.problem.empty() ? Json() : Json(trial.problem)}};
    if (trial.problem.empty()) {
      one["overflows"] = trial.overflows;
      one["largest"] = trial.largest;
      one["utilization"] = trial.utilization;
      one["scales"] = Json::array();
      one["scaled"] = Json::array();
      for (const scenarios::ScoreTrialPoint& point : trial.points) {
        one["scales"].push_back(point.scale);
        one["scaled"].push_back(point.scaled);
      }
      one["layers"] = Json::array();
      for (const scenarios::ScoreLayerTrial& layer : scenarios::by_layer(trial, words.points, words.settings.largest)) {
        one["layers"].push_back({{"layer", layer.layer},
                                 {"overflows", layer.overflows},
                                 {"largest", layer.largest},
                                 {"utilization", layer.utilization}});
      }
    }
    out["policies"].push_back(std::move(one));
  }
  out["slack"] = {{"burn_in", words.settings.burn_in},
                  {"quantile", words.settings.quantile},
                  {"kappa", words.settings.kappa},
                  {"layers", Json::array()}};
  for (const scenarios::ScoreSlack& one : words.slacks) {
    out["slack"]["layers"].push_back({{"layer", one.layer},
                                      {"steps", one.steps},
                                      {"smallest", one.smallest},
                                      {"mean", one.mean},
                                      {"quantile", one.quantile},
                                      {"largest", one.largest},
                                      {"alpha", one.steps < words.settings.burn_in ? Json() : Json(one.alpha)}});
  }
  return dump_json(out);
}

std::string score_replay_csv(const ScoreReplayWords& words) {
  std::string text = "step,layer,absmax";
  for (const scenarios::ScoreTrial& trial : words.trials) {
    if (trial.problem.empty()) text += fmt::format(",{0}_scale,{0}_scaled", trial.policy);
  }
  text += '\n';
  for (std::size_t i = 0; i < words.points.size(); ++i) {
    const scenarios::ScorePoint& point = words.points[i];
    text += fmt::format("{},{},{}", point.step, point.layer, point.absmax);
    for (const scenarios::ScoreTrial& trial : words.trials) {
      if (!trial.problem.empty()) continue;
      text += point.finite ? fmt::format(",{},{}", trial.points[i].scale, trial.points[i].scaled) : ",,";
    }
    text += '\n';
  }
  return text;
}

}  // namespace nanscope::report
