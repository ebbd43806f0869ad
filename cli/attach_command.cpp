#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "core/counted.h"
#include "instrument/dump/attach.h"
#include "scenarios/version.h"

namespace nanscope::cli {
namespace {

struct Options {
  std::string dump;
  std::string output;
  bool force = false;
  bool no_elements = false;
  bool progress = false;
};

std::filesystem::path output_of(const Options& options) {
  if (!options.output.empty()) return options.output;
  std::filesystem::path name = std::filesystem::path(options.dump).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return name.stem().string() + ".nanscope";
}

int attach_dump(const Options& options) {
  const Interrupt interrupt;
  const auto failed = [&](const Error& error) {
    complain(error.message);
    return interrupt.requested() ? kInterrupted : kBadInput;
  };
  OpenDumpOptions opening;
  opening.stop = interrupt.token();
  Result<std::unique_ptr<OpenDump>> dump = OpenDump::open(options.dump, opening);
  if (!dump) return failed(dump.error());
  for (const DumpNote& one : (*dump)->unread()) complain("not read: " + one.text);
  AttachOptions attaching;
  attaching.overwrite = options.force;
  attaching.elements = !options.no_elements;
  attaching.version = scenarios::kVersion;
  attaching.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  attaching.stop = interrupt.token();
  const std::filesystem::path recording = output_of(options);
  Result<Attached> attached = [&] {
    ProgressLine line("tensors", options.progress);
    attaching.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, ""); };
    return attach(**dump, recording, attaching);
  }();
  if (!attached) return failed(attached.error());
  std::string text = fmt::format("{} in {}", counted(attached->tensors, "tensor"), recording.string());
  if (attached->converted > 0) text += fmt::format(", {} of them converted to f32 or i32", attached->converted);
  if (attached->stated > 0) text += fmt::format(", {} of them as statistics alone", attached->stated);
  if (attached->left_out > 0) text += fmt::format("; {} left out: integers beyond 32 bits", attached->left_out);
  const std::string program = output_terminal().program;
  print(fmt::format("{}\n{} gui {}\n{} diagnose {}\n", text, program, recording.string(), program, options.dump));
  return kClean;
}

}  // namespace

void add_attach_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("attach", "Turn a dump from production into a recording, for the window and why");
  command->add_option("DUMP", options->dump, "A file or folder of safetensors, .npy, .npz, .pt or raw tensors")
      ->required();
  command->add_option("-o,--output", options->output, "The recording (default: DUMP.nanscope here)");
  command->add_flag("--force", options->force, "Replace the recording when it exists");
  command->add_flag("--no-elements", options->no_elements, "Record health and hashes alone: a small file");
  command->add_flag("--progress", options->progress, "Say how far it is, also where standard error is no terminal");
  command->footer(
      "Examples:\n"
      "  nanscope attach dump/ -o incident.nanscope\n"
      "  nanscope gui incident.nanscope");
  command->callback([options, &action] { action = [options] { return attach_dump(*options); }; });
}

}  // namespace nanscope::cli
