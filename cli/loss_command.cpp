#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_scenario.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "instrument/files/file.h"
#include "scenarios/library.h"
#include "scenarios/report/loss_report.h"
#include "scenarios/serve/measure_loss.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

constexpr std::uint64_t kMostOfHeldOut = std::uint64_t{1} << 30;

struct LossArguments {
  std::string target;
  std::string text;
  std::vector<std::string> settings;
  serve::LossOptions loss;
  std::string device;
  int threads = -1;
  std::string format = "text";
  bool progress = false;
  RunLimits limits = kReplayLimits;  ///< of a scenario
};

Result<scenarios::RunSpec> spec_of(const LossArguments& arguments) {
  Result<scenarios::Scenario> scenario = fail("");
  if (scenarios::is_checkpoint(arguments.target)) {
    scenario = scenario_of_model(
        {.model = arguments.target, .settings = {}, .prompts = {}, .prompt_tokens = {}, .asked_later = true});
  } else {
    const auto path = scenarios::find_scenario(arguments.target);
    if (!path) return tl::unexpected(path.error());
    scenario = scenarios::load_scenario(*path);
  }
  if (!scenario) return tl::unexpected(scenario.error());
  auto spec = scenarios::resolve(*scenario);
  if (!spec) return spec;
  if (Status set = scenarios::apply_settings(spec->config, arguments.settings); !set)
    return tl::unexpected(set.error());
  if (!arguments.device.empty()) spec->config.device = arguments.device;
  if (arguments.threads >= 0) spec->config.threads = arguments.threads;
  return spec;
}

int show_loss(LossArguments& arguments, const Interrupt& interrupt) {
  const auto bytes = read_file(arguments.text, kMostOfHeldOut);
  if (!bytes) return complain(bytes.error().message);
  const auto spec = spec_of(arguments);
  if (!spec) return complain(spec.error().message);
  ProgressLine line("sequences", arguments.progress);
  arguments.loss.stop = interrupt.token();
  arguments.loss.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, "measured"); };
  // A scenario may be a file of others; a checkpoint's size is known to the user.
  const bool checkpoint = scenarios::is_checkpoint(arguments.target);
  if (!checkpoint) arguments.loss.limits = arguments.limits;
  arguments.loss.grow_cache = checkpoint;
  const auto loss = serve::measure_loss(*spec, as_text(*bytes), arguments.loss);
  line.clear();
  if (!loss) return failed({fmt::format("{}: {}", arguments.text, loss.error().message)}, interrupt);
  print(arguments.format == "json"  ? report::loss_json(*loss, arguments.text)
        : arguments.format == "csv" ? report::loss_csv(*loss)
                                    : report::loss_text(*loss, arguments.text, output_terminal()));
  bool finite = std::isfinite(mean_of(*loss, scenarios::LossKind::parallel).mean);
  if (arguments.loss.autoregressive) finite = finite && std::isfinite(mean_of(*loss, scenarios::LossKind::gap).mean);
  return finite ? kClean : kFound;
}

void add_measured(CLI::App& command, LossArguments& arguments) {
  command.add_flag("--autoregressive", arguments.loss.autoregressive,
                   "Also compute it token by token, each after the cache of those before it, and the gap");
  command.add_option("--length", arguments.loss.length, "Tokens of a sequence; the first is no target")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20))
      ->capture_default_str();
  command.add_option("--sequences", arguments.loss.most_sequences, "Most sequences, from the beginning of the text")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--begin-token", arguments.loss.begin_token,
                  "A token id that stands before each sequence, for models that were trained with one (nanscope tokens "
                  "shows it)")
      ->type_name("ID")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

void add_loss_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<LossArguments>();
  CLI::App* command = app.add_subcommand("loss", "Measure a text's loss, all positions at once and token by token");
  command
      ->add_option("MODEL", arguments->target,
                   "A checkpoint's folder, a GGUF file, or a scenario, whose deployment runs without its requests")
      ->required();
  command->add_option("TEXT", arguments->text, "A text file that the model has not seen")->required();
  add_measured(*command, *arguments);
  command->add_option("--set", arguments->settings, "Change a setting; repeatable")
      ->type_name("SETTING=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--device", arguments->device, "cpu, cpu:avx2, cuda, ...")->type_name("DEVICE");
  command->add_option("--threads", arguments->threads, "Threads of the CPU device; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  add_run_limits(*command, arguments->limits, "a sequence of a scenario");
  add_format(*command, arguments->format, {"text", "json", "csv"});
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  command->footer(
      "Examples:\n"
      "  nanscope loss model/ held-out.txt\n"
      "  nanscope loss model/ held-out.txt --set kv.format=e4m3 --autoregressive\n"
      "  nanscope loss trained/ held-out.txt --autoregressive --format json\n"
      "\n"
      "Exit codes: 0 measured, 1 the loss is NaN or Inf, 2 bad usage or bad input, 130 interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return show_loss(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
