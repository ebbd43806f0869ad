#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "instrument/spectral/model_scales.h"
#include "scenarios/report/scales_report.h"

namespace nanscope::cli {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 30;

struct ScalesArguments {
  std::string checkpoint;
  std::string shapes;
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

int scales(const ScalesArguments& arguments, const Interrupt& interrupt) {
  if (!arguments.shapes.empty()) {
    print(report::published_shapes_text(arguments.shapes == "all" ? "" : arguments.shapes, arguments.settings.delta,
                                        output_terminal()));
    return kClean;
  }
  if (arguments.checkpoint.empty()) return complain("scales: give a CHECKPOINT folder, or --shapes");
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
  CLI::Option* checkpoint =
      command->add_option("CHECKPOINT", arguments->checkpoint, "A folder with config.json and *.safetensors");
  command
      ->add_option("--shapes", arguments->shapes,
                   "No checkpoint: gamma and alpha of a published model's shapes beside what the paper prints")
      ->type_name("MODEL")
      ->check(CLI::IsMember(shape_names()))
      ->excludes(checkpoint);
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
      "run. Warns where the theory is thin, with the figure that shows it.\n"
      "\n"
      "Examples:\n"
      "  nanscope scales ~/models/Qwen2-7B\n"
      "  nanscope scales ~/models/Llama-3.2-1B --per-head --format csv > scales.csv\n"
      "  nanscope scales --shapes all\n"
      "\n"
      "Exit codes: 0 no warning, 1 a warning, 2 bad usage, or a checkpoint that cannot be read, 130 interrupted.");
  command->callback(
      [arguments, &action] { action = [arguments](Interrupt& interrupt) { return scales(*arguments, interrupt); }; });
}

}  // namespace nanscope::cli
