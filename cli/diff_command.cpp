#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/diagnosis/diff.h"
#include "core/diagnosis/run_data.h"
#include "core/recording/reader.h"
#include "scenarios/replay.h"
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

int compare_files(const DiffCommandOptions& options) {
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
  command->add_option("A", options->a, "A recording")->required();
  command->add_option("B", options->b, "Another")->required();
  command->add_option("-n,--limit", options->limit, "Differences to describe")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope diff before.nanscope after.nanscope\n"
      "  nanscope diff a.nanscope b.nanscope -n 5 --format json");
  command->callback([options, &action] { action = [options] { return compare_files(*options); }; });
}

}  // namespace nanscope::cli
