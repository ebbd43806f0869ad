#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "instrument/engine/weight_source.h"
#include "instrument/spectral/model_scales.h"
#include "scenarios/open_run.h"
#include "scenarios/replay.h"
#include "scenarios/report/scales_report.h"
#include "scenarios/score_replay.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 30;

struct ScalesArguments {
  std::string checkpoint;
  std::string shapes;
  std::string model;
  ScaleSettings settings;
  double alpha = 0;
  std::vector<std::int64_t> layers;
  std::string format = "text";
  bool per_head = false;
  bool progress = false;
};

std::vector<std::string> shape_names() {
  std::vector<std::string> names{"all"};
  for (const PublishedShape& model : published_shapes()) names.emplace_back(model.name);
  return names;
}

/// Bounds of the layers that have points, from the weights of the checkpoint `model`, or of the recorded configuration.
Result<std::vector<scenarios::ScoreBounds>> bounds_of(const ScalesArguments& arguments, const scenarios::OpenRun& run,
                                                      std::span<const scenarios::ScorePoint> points,
                                                      const Interrupt& interrupt) {
  std::vector<scenarios::ScoreBounds> bounds;
  ModelScalesOptions options;
  options.settings = arguments.settings;
  if (arguments.alpha > 0) options.settings.alpha = arguments.alpha;
  options.stop = interrupt.token();
  std::set<std::int64_t> layers;
  for (const scenarios::ScorePoint& point : points) layers.insert(point.layer);
  const auto add = [&bounds](const LayerScales& layer) {
    const HeadBounds all = layer.whole();
    if (layer.bound != ScoreBound::none) bounds.push_back({layer.layer, all.interaction, all.calibrated});
  };
  if (!arguments.model.empty()) {
    options.layers.assign(layers.begin(), layers.end());
    const auto made = model_scales(arguments.model, options);
    if (!made) return tl::unexpected(made.error());
    std::for_each(made->layers.begin(), made->layers.end(), add);
    return bounds;
  }
  if (run.recording() == nullptr) return bounds;
  const auto spec = scenarios::run_spec_of(*run.recording());
  if (!spec) return bounds;  // an attached dump has no weights
  const auto source = make_weight_source(spec->config.model);
  if (!source) return tl::unexpected(source.error());
  const NamedWeights weights = [&source](std::string_view name, std::int64_t rows, std::int64_t columns) {
    return (*source)->tensor(name, rows, columns);
  };
  for (const std::int64_t layer : layers) {
    const auto made =
        layer_scales(spec->config.model, spec->config.rope, layer, weights, options.settings, interrupt.token());
    if (!made) return tl::unexpected(made.error());
    add(*made);
  }
  return bounds;
}

/// A run in place of a checkpoint: its scores under each policy.
int try_on_run(const ScalesArguments& arguments, const Interrupt& interrupt) {
  if (Status taken = scenarios::check_target(arguments.checkpoint, scenarios::Takes::runs); !taken) {
    return complain(taken.error().message);
  }
  scenarios::OpenRunOptions opening;
  opening.stop = interrupt.token();
  const auto run = scenarios::OpenRun::open(arguments.checkpoint, opening);
  if (!run) return failed(run.error(), interrupt);
  const std::vector<scenarios::ScorePoint> points = scenarios::scores_of((*run)->view());
  if (Status read = (*run)->view().status(); !read) return failed(read.error(), interrupt);
  if (points.empty()) {
    return complain(fmt::format("{}: no attention scores were recorded or dumped", arguments.checkpoint));
  }
  const auto bounds = bounds_of(arguments, **run, points, interrupt);
  if (!bounds) return failed(bounds.error(), interrupt);
  ScorePolicySettings settings;
  settings.largest = arguments.settings.largest;
  settings.utilization = arguments.settings.utilization;
  const auto trials = scenarios::try_score_policies(points, *bounds, settings);
  const report::ScoreReplayWords words{arguments.checkpoint, points, trials, settings};
  print(arguments.format == "json"  ? report::score_replay_json(words)
        : arguments.format == "csv" ? report::score_replay_csv(words)
                                    : report::score_replay_text(words, (*run)->view(), output_terminal()));
  return kClean;
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(path) / "config.json", ignored);
}

int scales(const ScalesArguments& arguments, const Interrupt& interrupt) {
  if (!arguments.shapes.empty()) {
    print(report::published_shapes_text(arguments.shapes == "all" ? "" : arguments.shapes, arguments.settings.delta,
                                        output_terminal()));
    return kClean;
  }
  if (arguments.checkpoint.empty()) return complain("scales: give a checkpoint's folder, a run, or --shapes");
  if (!is_checkpoint(arguments.checkpoint) &&
      scenarios::kind_of(arguments.checkpoint) != scenarios::TargetKind::missing) {
    return try_on_run(arguments, interrupt);
  }
  ProgressLine line("layers", arguments.progress);
  ModelScalesOptions options;
  options.settings = arguments.settings;
  if (arguments.alpha > 0) options.settings.alpha = arguments.alpha;
  options.layers = arguments.layers;
  options.stop = interrupt.token();
  options.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, "measured"); };
  const auto made = model_scales(arguments.checkpoint, options);
  line.clear();
  if (!made) return failed(made.error(), interrupt);
  if (arguments.format == "json") {
    print(report::scales_json(*made, arguments.checkpoint));
  } else if (arguments.format == "csv") {
    print(report::scales_csv(*made));
  } else {
    print(report::scales_text(*made, arguments.checkpoint, arguments.per_head, output_terminal()));
  }
  return made->any_warning() ? kFound : kClean;
}

}  // namespace

void add_scales_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ScalesArguments>();
  ScaleSettings& settings = arguments->settings;
  CLI::App* command = app.add_subcommand("scales", "Scales of attention's scores from a checkpoint's weights alone");
  CLI::Option* checkpoint = command->add_option(
      "TARGET", arguments->checkpoint,
      "A folder with config.json and *.safetensors; or a recording or dump, whose scores are tried");
  command
      ->add_option("--shapes", arguments->shapes,
                   "No checkpoint: gamma and alpha of a published model's shapes beside what the paper prints")
      ->type_name("MODEL")
      ->check(CLI::IsMember(shape_names()))
      ->excludes(checkpoint);
  command
      ->add_option("--model", arguments->model,
                   "Of a dump, the folder of the checkpoint that was served: for its weights")
      ->type_name("DIR");
  command->add_option("--delta", settings.delta, "Chance of a score beyond the calibrated bound, over the whole model")
      ->type_name("CHANCE")
      ->check(CLI::Range(1e-30, 0.5))
      ->capture_default_str();
  command->add_option("--length", settings.length, "Tokens of a sequence")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, kLongest))
      ->capture_default_str();
  command
      ->add_option("--alpha", arguments->alpha,
                   "Part of the worst case that the calibrated bound is (default: the smallest that --delta allows)")
      ->type_name("PART")
      ->check(CLI::Range(1e-6, 1.0));
  command->add_option("--utilization", settings.utilization, "Part of the format that the calibrated bound may take")
      ->type_name("PART")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  command->add_option("--iterations", settings.iterations, "Of the power iteration whose cold start is tried")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--layers", arguments->layers, "These layers alone")->type_name("N")->delimiter(',');
  command->add_flag("--per-head", arguments->per_head, "A line for each head, not for each layer");
  add_format(*command, arguments->format, {"text", "json", "csv"});
  command->add_option("--threads", settings.threads, "Threads, 0: one a core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--progress", arguments->progress, "Say how far it is, also where standard error is no terminal");
  command->footer(
      "How large can scores become, and by what are they to be divided so that fp8 holds them? The norm before "
      "attention "
      "bounds its tokens; the norm of each head's query-key interaction bounds what they make of each other. No text "
      "is "
      "run. Warns where the theory is thin, with the figure that shows it. Of a run: scales of its scores that follow "
      "from the "
      "steps before, from the step, and from the weights, beside each other.\n"
      "\n"
      "Examples:\n"
      "  nanscope scales ~/models/Qwen2-7B\n"
      "  nanscope scales ~/models/Llama-3.2-1B --per-head --format csv > scales.csv\n"
      "  nanscope scales run.nanscope\n"
      "  nanscope scales dump/ --model ~/models/Qwen2-7B\n"
      "  nanscope scales --shapes all\n"
      "\n"
      "Exit codes: 0 no warning, 1 a warning, 2 bad usage, or a checkpoint or run that cannot be read, 130 "
      "interrupted.");
  command->callback(
      [arguments, &action] { action = [arguments](Interrupt& interrupt) { return scales(*arguments, interrupt); }; });
}

}  // namespace nanscope::cli
