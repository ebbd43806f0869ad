#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/run_attached.h"
#include "core/counted.h"
#include "core/files/output_file.h"
#include "instrument/dump/attach.h"
#include "scenarios/target_kind.h"
#include "scenarios/version.h"

namespace nanscope::cli {
namespace {

struct AttachArguments {
  std::string dump;
  std::vector<std::string> words;  ///< the dump; with --run, the command
  bool run = false;
  live::LiveOptions live;
  double budget_percent = 5;
  std::string output;
  bool force = false;
  bool no_elements = false;
  bool progress = false;
  bool follow_links = false;
};

std::filesystem::path recording_of(const AttachArguments& options) {
  if (!options.output.empty()) return options.output;
  std::filesystem::path name = std::filesystem::path(options.dump).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return name.stem().string() + ".nanscope";
}

int attach_dump(const AttachArguments& options, const Interrupt& interrupt) {
  const auto failed = [&](const Error& error) {
    complain(error.message);
    return interrupt.requested() ? interrupt.code() : kBadInput;
  };
  if (Status taken = scenarios::check_target(options.dump, scenarios::Takes::dumps); !taken)
    return failed(taken.error());
  AttachOptions attaching;
  attaching.output.replace = options.force;
  attaching.output.inputs = {options.dump};
  const std::filesystem::path recording = recording_of(options);
  if (Status allowed = check_output(recording, attaching.output); !allowed) return failed(allowed.error());
  OpenDumpOptions opening;
  opening.stop = interrupt.token();
  opening.follow_links = options.follow_links;
  Result<std::unique_ptr<OpenDump>> dump = OpenDump::open(options.dump, opening);
  if (!dump) return failed(dump.error());
  for (const RunNote& one : (*dump)->unread()) complain("not read: " + one.text);
  attaching.elements = !options.no_elements;
  attaching.version = scenarios::kVersion;
  attaching.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  attaching.stop = interrupt.token();
  Result<Attached> attached = [&] {
    ProgressLine line("tensors", options.progress);
    attaching.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, ""); };
    return attach(**dump, recording, attaching);
  }();
  if (!attached) return failed(attached.error());
  std::string text = fmt::format("{} in {}", counted(attached->tensors, "tensor"), one_line(recording.string()));
  if (attached->converted > 0) text += fmt::format(", {} of them converted to f32 or i32", attached->converted);
  if (attached->stated > 0) text += fmt::format(", {} of them as statistics only", attached->stated);
  if (attached->left_out > 0) text += fmt::format("; {} skipped: integers beyond 32 bits", attached->left_out);
  const std::string program = output_terminal().program;
  const std::string made = one_line(recording.string());
  print(fmt::format("{}\n{} gui {}\n{} diagnose {}\n", text, program, made, program, one_line(options.dump)));
  return kClean;
}

int run_command(AttachArguments options, Interrupt& interrupt) {
  if (options.words.empty()) return complain("attach --run needs a command: nanscope attach --run -- python serve.py");
  options.live.output = std::filesystem::absolute(options.output.empty() ? "live.nanscope" : options.output);
  options.live.budget = options.budget_percent / 100;
  return run_attached(options.words, options.live, options.force, interrupt);
}

int attach_to(AttachArguments options, Interrupt& interrupt) {
  if (options.run) return run_command(std::move(options), interrupt);
  if (options.words.size() != 1)
    return complain("attach needs one DUMP, or --run and a command (try nanscope attach --help)");
  options.dump = options.words.front();
  return attach_dump(options, interrupt);
}

void add_live_options(CLI::App& command, AttachArguments& options) {
  command.add_flag("--run", options.run, "Run a command and record its GPU work; the command needs no change");
  command.add_flag("--watch", options.live.watch, "With --run: find the first kernel that writes a NaN or +Inf");
  command
      .add_option("--kernels", options.live.kernels,
                  "With --watch: check the kernels whose names match this regular expression (default: all)")
      ->type_name("REGEX");
  command.add_option("--every", options.live.every, "With --watch: check every N-th launch of these kernels")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command
      .add_option("--budget", options.budget_percent,
                  "With --watch: percent of wall time that the checks may take; 100: no limit")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      .add_option("--ring", options.live.ring,
                  "With --watch: number of recent buffers to keep for the dump of a finding")
      ->type_name("N")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

}  // namespace

void add_attach_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<AttachArguments>();
  CLI::App* command = app.add_subcommand("attach", "Convert a dump into a recording, or record a command's GPU work");
  command
      ->add_option("DUMP", options->words,
                   "A file or folder of safetensors, .npy, .npz, .pt or raw tensors; with --run, -- and a command")
      ->type_name("COMMAND")
      ->option_text("...");
  add_live_options(*command, *options);
  command
      ->add_option("-o,--output", options->output,
                   "The recording (default: DUMP.nanscope here; with --run, live.nanscope)")
      ->type_name("FILE");
  command->add_flag("--force", options->force, "Replace an existing recording");
  command->add_flag("--no-elements", options->no_elements,
                    "Record only health statistics and hashes, for a small file");
  add_follow_links(*command, options->follow_links);
  command->add_flag("--progress", options->progress, "Show progress even if standard error is not a terminal");
  command->footer(
      "Examples:\n"
      "  nanscope attach dump/ -o incident.nanscope\n"
      "  nanscope gui incident.nanscope\n"
      "  nanscope attach --run -o live.nanscope -- python serve.py\n"
      "  nanscope attach --run --watch --kernels 'gemm|softmax' -- python serve.py\n"
      "\n"
      "Exit codes: 0 recorded, 2 bad usage or bad input, 130 interrupted. With --run: the command's exit code; 128 "
      "plus "
      "the signal's number if a signal ended it; 2 if nanscope cannot start it or cannot write the recording.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return attach_to(*options, interrupt); }; });
}

}  // namespace nanscope::cli
