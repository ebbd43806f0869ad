#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "core/counted.h"
#include "core/recording/reader.h"
#include "instrument/engine/reference_folder.h"
#include "scenarios/export_dump.h"
#include "scenarios/replay.h"
#include "scenarios/run_spec.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

struct ExportArguments {
  std::string recording;
  std::string folder;
  bool reference_model = false;
  std::vector<std::string> settings;
  bool force = false;
  RunLimits limits = kReplayLimits;
};

int export_recording(const ExportArguments& options, const Interrupt& interrupt) {
  if (Status taken = scenarios::check_target(options.recording, scenarios::Takes::recordings); !taken)
    return complain(taken.error().message);
  const auto recording = Recording::open_checked(options.recording, interrupt.token());
  if (!recording) return complain(recording.error().message);
  scenarios::RecordingTensors tensors(*recording, interrupt.token(), options.limits);
  const Result<std::int64_t> count = [&] {
    ProgressLine line("steps");
    scenarios::ExportOptions exporting;
    exporting.stop = interrupt.token();
    exporting.output.replace = options.force;
    exporting.output.inputs = {options.recording};
    exporting.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, ""); };
    return scenarios::export_dump(*recording, tensors, options.folder, exporting);
  }();
  if (!count) return complain(count.error().message);
  const std::string folder = one_line(options.folder);
  print(
      fmt::format("{} in {}\n{} diagnose {}\n", counted(*count, "tensor"), folder, output_terminal().program, folder));
  return kClean;
}

int export_reference_model(const ExportArguments& options, const Interrupt& interrupt) {
  if (!options.recording.empty()) return complain("export takes a recording or --reference-model, not both");
  EngineConfig config;
  if (Status done = scenarios::apply_settings(config, options.settings); !done) return complain(done.error().message);
  const OutputOptions output{.replace = options.force};
  if (Status done = write_reference_folder(config, options.folder, output, interrupt.token()); !done) {
    complain(done.error().message);
    return interrupt.requested() ? interrupt.code() : kBadInput;
  }
  const std::string folder = one_line(options.folder);
  print(fmt::format("The reference model is in {}\n{} run --model {} -p PROMPT\n", folder, output_terminal().program,
                    folder));
  return kClean;
}

int export_what(const ExportArguments& options, const Interrupt& interrupt) {
  if (options.reference_model) return export_reference_model(options, interrupt);
  if (options.recording.empty()) return complain("export needs a recording, or --reference-model");
  if (!options.settings.empty()) return complain("--set is for --reference-model");
  return export_recording(options, interrupt);
}

}  // namespace

void add_export_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExportArguments>();
  CLI::App* command =
      app.add_subcommand("export", "Write a recording's tensors as a dump, named as PyTorch hooks name them");
  command->add_option("FILE", options->recording, "A recording");
  command->add_option("-o,--output", options->folder, "The folder to write")->type_name("FOLDER")->required();
  command->add_flag("--reference-model", options->reference_model,
                    "Write the built-in model as a checkpoint's folder instead");
  command->add_option("--set", options->settings, "Change a setting of --reference-model; repeatable")
      ->type_name("SETTING=VALUE")
      ->take_all();
  command->add_flag("--force", options->force, "Write into a folder that is not empty");
  add_replay_limits(*command, options->limits);
  command->footer(
      "Examples:\n"
      "  nanscope export run.nanscope -o dump\n"
      "  nanscope diagnose dump\n"
      "  nanscope export --reference-model -o reference\n"
      "\n"
      "Exit codes: 0 written, 2 bad usage or bad input, 130 interrupted.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return export_what(*options, interrupt); }; });
}

}  // namespace nanscope::cli
