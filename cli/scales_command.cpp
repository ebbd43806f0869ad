#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "core/files/output_file.h"
#include "instrument/spectral/model_scales.h"
#include "instrument/spectral/scale_file.h"
#include "scenarios/open_run.h"
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
  std::string output;
  std::string against;
  std::vector<std::string> policies;
  ScaleSettings settings;
  ScorePolicySettings policy;  ///< for a run
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

ScorePolicySettings policy_settings(const ScalesArguments& arguments) {
  ScorePolicySettings settings = arguments.policy;
  settings.largest = arguments.settings.largest;
  settings.utilization = arguments.settings.utilization;
  return settings;
}

/// The policies that --policy names, with - or _ in a name; without --policy, all.
std::vector<scenarios::PolicyCandidate> chosen_policies(const ScalesArguments& arguments) {
  std::vector<scenarios::PolicyCandidate> all = scenarios::policy_candidates(policy_settings(arguments));
  if (arguments.policies.empty()) return all;
  std::erase_if(all, [&](const scenarios::PolicyCandidate& one) {
    return std::none_of(arguments.policies.begin(), arguments.policies.end(), [&](std::string named) {
      std::replace(named.begin(), named.end(), '-', '_');
      return named == one.name;
    });
  });
  return all;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const scenarios::PolicyCandidate& one : scenarios::policy_candidates({})) {
    names.push_back(one.name);
    std::string hyphened = one.name;
    std::replace(hyphened.begin(), hyphened.end(), '_', '-');
    if (hyphened != one.name) names.push_back(hyphened);
  }
  return names;
}

/// The last component of a folder's path.
std::string checkpoint_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  return (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
}

/// Checks --policy and -o before anything is measured.
Status check_asked(const ScalesArguments& arguments, const std::vector<scenarios::PolicyCandidate>& policies) {
  if (arguments.policies.size() > 1 || policies.size() != 1) {
    return fail("scales: give one --policy; the scales of weights follow one policy");
  }
  if (arguments.output.empty()) return {};
  std::error_code ignored;
  if (std::filesystem::exists(arguments.output, ignored) && !is_stream(arguments.output)) {
    return fail(arguments.output + ": exists already: name another file");
  }
  return check_output(arguments.output, {.inputs = {arguments.checkpoint}});
}

Status write_scales(const ScalesArguments& arguments, const scenarios::PolicyCandidate& policy, ModelScales& scales) {
  if (scales.layers.empty()) return fail(fmt::format("{}: no weights to compute scales from", arguments.checkpoint));
  if (Status used = use_policy(scales, policy.name, *policy.entry, policy.settings); !used) return used;
  const std::string& of = arguments.model.empty() ? arguments.checkpoint : arguments.model;
  const auto bytes = encode_scale_file(scales, checkpoint_name(of), scales.policy);
  if (!bytes) return fail(fmt::format("{}: {}", arguments.checkpoint, bytes.error().message));
  return write_output(arguments.output, *bytes, {.inputs = {arguments.checkpoint}});
}

/// Tries each policy on the scores of a run.
int try_on_run(const ScalesArguments& arguments, const Interrupt& interrupt) {
  const std::vector<scenarios::PolicyCandidate> policies = chosen_policies(arguments);
  if (!arguments.output.empty()) {
    if (Status asked = check_asked(arguments, policies); !asked) return complain(asked.error().message);
  }
  if (Status taken = scenarios::check_target(arguments.checkpoint, scenarios::Takes::runs); !taken) {
    return complain(taken.error().message);
  }
  scenarios::OpenRunOptions opening;
  opening.stop = interrupt.token();
  const auto run = scenarios::OpenRun::open(arguments.checkpoint, opening);
  if (!run) return failed(run.error(), interrupt);
  scenarios::ScoreRunOptions options;
  options.settings = arguments.settings;
  if (arguments.alpha > 0) options.settings.alpha = arguments.alpha;
  options.checkpoint = arguments.model;
  options.stop = interrupt.token();
  auto scores = scenarios::score_run((*run)->view(), (*run)->recording(), options);
  if (!scores) return failed(scores.error(), interrupt);
  if (scores->points.empty()) {
    return complain(fmt::format("{}: holds no attention scores", arguments.checkpoint));
  }
  const auto trials = scenarios::try_score_policies(*scores, policies);
  const ScorePolicySettings settings = policy_settings(arguments);
  const bool slack =
      std::ranges::any_of(policies, [](const scenarios::PolicyCandidate& one) { return one.name == "auto_alpha"; });
  const report::ScoreReplayWords words{
      arguments.checkpoint, scores->points, trials, settings,
      slack ? scenarios::slack_by_layer(*scores, settings) : std::vector<scenarios::ScoreSlack>()};
  print(arguments.format == "json"  ? report::score_replay_json(words)
        : arguments.format == "csv" ? report::score_replay_csv(words)
                                    : report::score_replay_text(words, (*run)->view(), output_terminal()));
  if (arguments.output.empty()) return kClean;
  const Status written = write_scales(arguments, policies.front(), scores->weights);
  return written ? kClean : complain(written.error().message);
}

int of_checkpoint(ScalesArguments arguments, const Interrupt& interrupt) {
  if (arguments.policies.empty()) arguments.policies = {"geometry"};
  const std::vector<scenarios::PolicyCandidate> policies = chosen_policies(arguments);
  if (Status asked = check_asked(arguments, policies); !asked) return complain(asked.error().message);
  ProgressLine line("layers", arguments.progress);
  ModelScalesOptions options;
  options.settings = arguments.settings;
  if (arguments.alpha > 0) options.settings.alpha = arguments.alpha;
  options.layers = arguments.layers;
  options.stop = interrupt.token();
  options.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, "measured"); };
  auto made = model_scales(arguments.checkpoint, options);
  line.clear();
  if (!made) return failed(made.error(), interrupt);
  const scenarios::PolicyCandidate& policy = policies.front();
  if (Status used = use_policy(*made, policy.name, *policy.entry, policy.settings); !used) {
    return complain(used.error().message);
  }
  if (!arguments.against.empty()) {
    const auto file = read_scale_file(arguments.against, made->model);
    if (!file) return complain(file.error().message);
    warn_of_other_weights(*file, *made);
  }
  if (!arguments.output.empty()) {
    if (Status written = write_scales(arguments, policy, *made); !written) return complain(written.error().message);
  }
  if (arguments.format == "json") {
    print(report::scales_json(*made, arguments.checkpoint));
  } else if (arguments.format == "csv") {
    print(report::scales_csv(*made));
  } else {
    print(report::scales_text(*made, arguments.checkpoint, arguments.per_head, output_terminal()));
    if (!arguments.output.empty()) print(fmt::format("\nThe scales are in {}.\n", arguments.output));
  }
  return made->any_warning() ? kFound : kClean;
}

int scales(const ScalesArguments& arguments, const Interrupt& interrupt) {
  if (!arguments.shapes.empty()) {
    print(report::published_shapes_text(arguments.shapes == "all" ? "" : arguments.shapes, arguments.settings.delta,
                                        output_terminal()));
    return kClean;
  }
  if (arguments.checkpoint.empty()) return complain("scales: give a checkpoint's folder, a run, or --shapes");
  if (!scenarios::is_checkpoint(arguments.checkpoint) &&
      scenarios::kind_of(arguments.checkpoint) != scenarios::TargetKind::missing) {
    if (!arguments.against.empty()) return complain("scales: --against needs a checkpoint's folder");
    return try_on_run(arguments, interrupt);
  }
  return of_checkpoint(arguments, interrupt);
}

void add_auto_alpha(CLI::App& command, ScorePolicySettings& policy) {
  command.add_option("--burn-in", policy.burn_in, "For a run: steps that auto_alpha watches before it freezes alpha")
      ->type_name("STEPS")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  command
      .add_option("--quantile", policy.quantile,
                  "For a run: the quantile of the slack that auto_alpha takes; 1: the largest. The paper takes 0.9999")
      ->type_name("PART")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--kappa", policy.kappa, "For a run: what auto_alpha multiplies that quantile by")
      ->type_name("FACTOR")
      ->check(CLI::Range(1e-3, 1e3))
      ->capture_default_str();
}

}  // namespace

void add_scales_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ScalesArguments>();
  ScaleSettings& settings = arguments->settings;
  CLI::App* command = app.add_subcommand("scales", "Compute scales for attention scores from a checkpoint's weights");
  CLI::Option* checkpoint = command->add_option("TARGET", arguments->checkpoint,
                                                "A checkpoint's folder with config.json and *.safetensors; or a "
                                                "recording or dump, to try policies on its scores");
  command
      ->add_option(
          "--shapes", arguments->shapes,
          "Without a checkpoint: print gamma and alpha of a published model's shapes next to the paper's values")
      ->type_name("MODEL")
      ->check(CLI::IsMember(shape_names()))
      ->excludes(checkpoint);
  command->add_option("--model", arguments->model, "For a dump: the folder of the served checkpoint, for its weights")
      ->type_name("DIR");
  command
      ->add_option("-o,--output", arguments->output,
                   "Write the scales of each layer and head, for scores.scales=FILE. They follow from the weights of "
                   "the checkpoint or of the run")
      ->type_name("FILE.safetensors");
  command
      ->add_option("--against", arguments->against,
                   "For a checkpoint: check this file's scales against the checkpoint's weights")
      ->type_name("FILE.safetensors");
  command
      ->add_option("--policy", arguments->policies,
                   "The policy of the scales. For a checkpoint: one policy, with its scales before any run (default: "
                   "geometry). For a run: the policies to try, separated by commas (default: all)")
      ->type_name("POLICY")
      ->delimiter(',')
      ->check(CLI::IsMember(policy_names()));
  command
      ->add_option("--delta", settings.delta,
                   "Probability of a score beyond the calibrated bound, over the whole model")
      ->type_name("CHANCE")
      ->check(CLI::Range(1e-30, 0.5))
      ->capture_default_str();
  command->add_option("--length", settings.length, "Number of tokens of a sequence")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, kLongest))
      ->capture_default_str();
  command
      ->add_option("--alpha", arguments->alpha,
                   "The calibrated bound as a fraction of the worst case (default: the smallest that --delta allows)")
      ->type_name("PART")
      ->check(CLI::Range(1e-6, 1.0));
  command
      ->add_option("--utilization", settings.utilization,
                   "Fraction of the format's range that the calibrated bound may use")
      ->type_name("PART")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  add_auto_alpha(*command, arguments->policy);
  command
      ->add_option("--iterations", settings.iterations, "Iterations of the power iteration whose cold start is tested")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--layers", arguments->layers, "Measure only these layers, separated by commas")
      ->type_name("N")
      ->delimiter(',');
  command->add_flag("--per-head", arguments->per_head, "Print a line for each head, not for each layer");
  add_format(*command, arguments->format, {"text", "json", "csv"});
  command->add_option("--threads", settings.threads, "Number of threads; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  command->footer(
      "scales computes how large attention scores can become, and the scale that makes them fit into fp8. The norm "
      "before attention bounds each token; the norm of each head's query-key interaction bounds their scores. No text "
      "runs. scales warns where the theory is weak, with the figure that shows it. For a run, it compares scales that "
      "follow from earlier steps, from the same step, and from the weights.\n"
      "\n"
      "Examples:\n"
      "  nanscope scales ~/models/Qwen2-7B\n"
      "  nanscope scales ~/models/Llama-3.2-1B --per-head --format csv > scales.csv\n"
      "  nanscope scales ~/models/Qwen2-7B -o scales.safetensors\n"
      "  nanscope scales ~/models/Qwen2-7B-Instruct --against scales.safetensors\n"
      "  nanscope scales run.nanscope --policy delayed,geometry\n"
      "  nanscope scales dump/ --model ~/models/Qwen2-7B\n"
      "  nanscope scales --shapes all\n"
      "\n"
      "Exit codes: 0 no warning; 1 a warning; 2 bad usage, or an unreadable checkpoint or run; 130 interrupted.");
  command->callback(
      [arguments, &action] { action = [arguments](Interrupt& interrupt) { return scales(*arguments, interrupt); }; });
}

}  // namespace nanscope::cli
