#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cli/command.h"
#include "core/counted.h"
#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "scenarios/export_trace.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

struct TraceArguments {
  std::string recording;
  std::string output;
  bool force = false;
};

int trace_recording(const TraceArguments& options, const Interrupt& interrupt) {
  const std::filesystem::path output = options.output.empty()
                                           ? std::filesystem::path(options.recording).stem().string() + ".trace.json"
                                           : options.output;
  const OutputOptions writing{.replace = options.force, .inputs = {options.recording}};
  if (Status allowed = check_output(output, writing); !allowed) return complain(allowed.error().message);
  if (Status taken = scenarios::check_target(options.recording, scenarios::Takes::recordings); !taken)
    return complain(taken.error().message);
  const auto recording = Recording::open_checked(options.recording, interrupt.token());
  if (!recording) return complain(recording.error().message);
  const auto counts = scenarios::export_trace(*recording, output, writing);
  if (!counts) return complain(counts.error().message);
  std::string text = fmt::format("{} of {} in {}", counted(counts->kernels, "kernel"), counted(counts->ops, "op"),
                                 one_line(output.string()));
  if (counts->dropped > 0) {
    text += fmt::format("; the recorder dropped {}: the trace has gaps", counted(counts->dropped, "record"));
  }
  if (counts->senseless > 0) {
    text += fmt::format("; {} skipped: their times are invalid", counted(counts->senseless, "row"));
  }
  if (is_stream(output)) return kClean;  // the trace may have gone to standard output
  print(fmt::format("{}\nopen it in https://ui.perfetto.dev or chrome://tracing\n", text));
  return kClean;
}

}  // namespace

void add_trace_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TraceArguments>();
  CLI::App* command =
      app.add_subcommand("trace", "Write the times of each op and kernel, for Perfetto and chrome://tracing");
  command->add_option("FILE", options->recording, "A recording with kernel activity, from run --trace or attach --run")
      ->required();
  command->add_option("-o,--output", options->output, "The trace (default: FILE.trace.json here)")->type_name("FILE");
  command->add_flag("--force", options->force, "Replace an existing trace");
  command->footer(
      "Examples:\n"
      "  nanscope run kv-scale-lock --trace\n"
      "  nanscope trace kv-scale-lock.nanscope -o trace.json\n"
      "\n"
      "Exit codes: 0 written, 2 bad usage or bad input, 130 interrupted.");
  command->callback([options, &action] {
    action = [options](Interrupt& interrupt) { return trace_recording(*options, interrupt); };
  });
}

}  // namespace nanscope::cli
