#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/diagnose_dump.h"
#include "cli/interrupt.h"
#include "instrument/diagnosis/diff.h"
#include "core/run/run_data.h"
#include "core/dump/diff_dumps.h"
#include "core/recording/reader.h"
#include "instrument/dump/open_dump.h"
#include "scenarios/replay.h"
#include "scenarios/report/dump_report.h"
#include "scenarios/report/run_json.h"
#include "scenarios/report/why_report.h"

namespace nanscope::cli {

namespace {

struct DiffCommandOptions {
  std::string a;
  std::string b;
  std::size_t limit = 1;
  std::string format = "text";
};

int compare_dumps(const DiffCommandOptions& options) {
  const Interrupt interrupt;
  OpenDumpOptions opening;
  opening.stop = interrupt.token();
  const auto a = OpenDump::open(options.a, opening);
  if (!a) return complain(a.error().message);
  const auto b = OpenDump::open(options.b, opening);
  if (!b) return complain(b.error().message);
  for (const auto* dump : {a->get(), b->get()}) {
    for (const RunNote& one : dump->unread()) complain("not read: " + one.text);
  }
  DumpDiffOptions diff_options;
  diff_options.limit = options.limit;
  const auto found = diff_dumps((*a)->dump(), **a, (*b)->dump(), **b, diff_options);
  if (!found) return complain(found.error().message);
  print(options.format == "json" ? report::dump_json(to_json(*found))
                                 : report::dump_diff_text(*found, options.a, options.b, output_terminal()));
  return found->same() ? kClean : kFound;
}

int compare_files(const DiffCommandOptions& options) {
  const bool a_is_recording = looks_like_recording(options.a);
  if (a_is_recording != looks_like_recording(options.b)) {
    return complain(fmt::format("{} is a recording and {} a dump: attach the dump first (nanscope attach --help)",
                                a_is_recording ? options.a : options.b, a_is_recording ? options.b : options.a));
  }
  if (!a_is_recording) return compare_dumps(options);
  const auto a = Recording::open(options.a);
  if (!a) return complain(a.error().message);
  const auto b = Recording::open(options.b);
  if (!b) return complain(b.error().message);
  RecordingRun run_a(*a);
  RecordingRun run_b(*b);
  scenarios::RecordingTensors tensors_a(*a);
  scenarios::RecordingTensors tensors_b(*b);
  DiffOptions diff_options;
  diff_options.limit = options.limit;
  const auto found = diff(run_a, tensors_a, run_b, tensors_b, diff_options);
  if (!found) return complain(found.error().message);
  print(options.format == "json" ? report::dump_json(to_json(*found))
                                 : report::diff_text(*found, options.a, options.b, output_terminal()));
  return found->same() ? kClean : kFound;
}

}  // namespace

void add_diff_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DiffCommandOptions>();
  CLI::App* command = app.add_subcommand("diff", "Where two runs part: the first tensor that differs, and how");
  command->add_option("A", options->a, "A recording, or a dump")->required();
  command->add_option("B", options->b, "Another")->required();
  command->add_option("-n,--limit", options->limit, "Differences to describe")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope diff before.nanscope after.nanscope\n"
      "  nanscope diff a.nanscope b.nanscope -n 5 --format json\n"
      "  nanscope diff good/ bad/                two dumps: the first tensor that is further off than rounding");
  command->callback([options, &action] { action = [options] { return compare_files(*options); }; });
}

}  // namespace nanscope::cli
