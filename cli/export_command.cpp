#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "core/counted.h"
#include "core/recording/reader.h"
#include "scenarios/export_dump.h"
#include "scenarios/replay.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

struct ExportArguments {
  std::string recording;
  std::string folder;
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

}  // namespace

void add_export_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "Write a recording's tensors as a dump, as PyTorch hooks would");
  command->add_option("FILE", options->recording, "A recording")->required();
  command->add_option("-o,--output", options->folder, "A folder, which is made")->type_name("FOLDER")->required();
  command->add_flag("--force", options->force, "Write into a folder that is not empty");
  add_replay_limits(*command, options->limits);
  command->footer(
      "Examples:\n"
      "  nanscope export run.nanscope -o dump\n"
      "  nanscope diagnose dump");
  command->callback([options, &action] {
    action = [options](Interrupt& interrupt) { return export_recording(*options, interrupt); };
  });
}

}  // namespace nanscope::cli
