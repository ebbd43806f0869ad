#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/open_target.h"
#include "core/dump/diff_dumps.h"
#include "instrument/diagnosis/diff.h"
#include "scenarios/report/dump_diff_report.h"
#include "scenarios/report/run_json.h"
#include "scenarios/report/why_report.h"

namespace nanscope::cli {

namespace {

struct DiffCommandOptions {
  std::string a;
  std::string b;
  std::size_t limit = 1;
  std::string format = "text";
  bool follow_links = false;
};

/// Checks that neither target changed while it was read.
Status check(const scenarios::OpenRun& a, const scenarios::OpenRun& b) {
  if (Status same = a.check(); !same) return same;
  return b.check();
}

int compare_dumps(scenarios::OpenRun& run_a, scenarios::OpenRun& run_b, const DiffCommandOptions& options,
                  const Interrupt& interrupt) {
  OpenDump& a = *run_a.dump();
  OpenDump& b = *run_b.dump();
  DumpDiffOptions diff_options;
  diff_options.limit = options.limit;
  const auto found = diff_dumps(a.dump(), a, b.dump(), b, diff_options);
  if (const Status same = check(run_a, run_b); !same) return failed(same.error(), interrupt);
  if (!found) return failed(found.error(), interrupt);
  print(options.format == "json" ? report::dump_json(to_json(*found))
                                 : report::dump_diff_text(*found, options.a, options.b, output_terminal()));
  return found->same() ? kClean : kFound;
}

int compare_runs(scenarios::OpenRun& a, scenarios::OpenRun& b, const DiffCommandOptions& options,
                 const Interrupt& interrupt) {
  DiffOptions diff_options;
  diff_options.limit = options.limit;
  const auto found = diff(a.view(), b.view(), diff_options);
  if (const Status same = check(a, b); !same) return failed(same.error(), interrupt);
  if (!found) return failed(found.error(), interrupt);
  print(options.format == "json" ? report::dump_json(to_json(*found))
                                 : report::diff_text(*found, options.a, options.b, output_terminal()));
  return found->same() ? kClean : kFound;
}

int compare_targets(const DiffCommandOptions& options, const Interrupt& interrupt) {
  const auto a = open_target(options.a, interrupt, {.follow_links = options.follow_links});
  if (!a) return failed(a.error(), interrupt);
  const auto b = open_target(options.b, interrupt, {.follow_links = options.follow_links});
  if (!b) return failed(b.error(), interrupt);
  const bool dumps = (*a)->dump() != nullptr && (*b)->dump() != nullptr;
  return dumps ? compare_dumps(**a, **b, options, interrupt) : compare_runs(**a, **b, options, interrupt);
}

}  // namespace

void add_diff_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DiffCommandOptions>();
  CLI::App* command = app.add_subcommand("diff", "Find the first tensor in which two runs differ, and how");
  command->add_option("A", options->a, "A recording, or a dump")->required();
  command->add_option("B", options->b, "Another recording or dump")->required();
  command->add_option("-n,--limit", options->limit, "Number of differences to describe")
      ->type_name("N")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_follow_links(*command, options->follow_links);
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "nanscope aligns two dumps by their tensors' names and compares them as numbers: values are equal if they differ "
      "by no more than the rounding of the coarser format. It aligns two recordings, or a recording and a dump, by "
      "place (request/step/layer/op.role) and compares them bit for bit.\n"
      "\n"
      "Examples:\n"
      "  nanscope diff before.nanscope after.nanscope\n"
      "  nanscope diff a.nanscope b.nanscope -n 5 --format json\n"
      "  nanscope diff good/ bad/\n"
      "  nanscope diff run.nanscope dump/        nanscope's engine against a server\n"
      "\n"
      "Exit codes: 0 the same, 1 different, 2 bad usage or bad input, 130 interrupted.");
  command->callback([options, &action] {
    action = [options](Interrupt& interrupt) { return compare_targets(*options, interrupt); };
  });
}

}  // namespace nanscope::cli
