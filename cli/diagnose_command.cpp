#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.h"
#include "cli/diagnose_dump.h"
#include "cli/interrupt.h"
#include "cli/investigate.h"
#include "core/recording/reader.h"
#include "scenarios/analysis.h"
#include "scenarios/counterfactuals.h"
#include "scenarios/replay.h"
#include "scenarios/report/counterfactual_report.h"
#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"

namespace nanscope::cli {

namespace {

struct DiagnoseOptions {
  std::vector<std::string> targets;
  bool counterfactuals = false;
  bool progress = false;
  std::string format = "text";
};

std::string junit(const scenarios::Analysis& analysis) {
  report::JUnitCase test{
      .name = analysis.target, .class_name = "nanscope.diagnose", .failures = {}, .error = {}, .output = {}};
  for (const Fault& fault : analysis.diagnosis.faults) {
    test.failures.push_back(fmt::format("{} at {}: {}", fault.fault_class, place_text(fault.where), fault.summary));
  }
  return report::junit_xml("nanscope", std::vector{test});
}

void print_text(const scenarios::Analysis& analysis, const scenarios::Counterfactuals* changes) {
  const report::Terminal terminal = output_terminal();
  report::RunContext context{.command = "diagnose", .title = {}, .recording = analysis.target, .missed = {}};
  print(report::run_text(analysis, context, terminal));
  if (!changes) return;
  print(fmt::format("\n{}\n", report::paint(terminal, report::Ink::bold, "But for which setting?")));
  print(report::counterfactuals_text(*changes, terminal));
}

void print_json(const scenarios::Analysis& analysis, const scenarios::Counterfactuals* changes) {
  nlohmann::ordered_json json = to_json(analysis.diagnosis);
  json["cascade"] = to_json(analysis.cascade);
  json["hypotheses"] = to_json(analysis.diagnosis.hypotheses);
  if (changes) json["counterfactuals"] = report::to_json(*changes);
  print(report::dump_json(json));
}

void print_markdown(const scenarios::Analysis& analysis, const scenarios::Counterfactuals* changes) {
  report::RunContext context{.command = "diagnose", .title = {}, .recording = analysis.target, .missed = {}};
  print(report::run_markdown(analysis, context));
  if (changes) print('\n' + report::counterfactuals_markdown(*changes));
}

int diagnose_one(const std::string& target, const DiagnoseOptions& options, const Interrupt& interrupt) {
  if (!looks_like_recording(target)) {
    if (options.counterfactuals) return complain(target + ": is a dump, which cannot be run again");
    return diagnose_dump_target(target, options.format, options.progress, interrupt);
  }
  const auto recording = Recording::open(target);
  if (!recording) return complain(recording.error().message);
  scenarios::RecordingTensors tensors(*recording);
  const auto analysis = scenarios::analyse(*recording, tensors, target);
  if (!analysis) return complain(analysis.error().message);
  std::unique_ptr<scenarios::Counterfactuals> changes;
  if (options.counterfactuals) {
    auto found = investigate(*recording, interrupt);
    if (!found) {
      complain(found.error().message);
      return interrupt.requested() ? kInterrupted : kBadInput;
    }
    changes = std::make_unique<scenarios::Counterfactuals>(std::move(*found));
  }
  if (options.format == "json") {
    print_json(*analysis, changes.get());
  } else if (options.format == "junit") {
    print(junit(*analysis));
  } else if (options.format == "markdown") {
    print_markdown(*analysis, changes.get());
  } else {
    print_text(*analysis, changes.get());
  }
  return analysis->diagnosis.clean() ? kClean : kFound;
}

int diagnose_targets(const DiagnoseOptions& options) {
  const Interrupt interrupt;
  int code = kClean;
  for (const std::string& target : options.targets) {
    code = std::max(code, diagnose_one(target, options, interrupt));
    if (code == kInterrupted) break;
  }
  return code;
}

}  // namespace

void add_diagnose_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DiagnoseOptions>();
  CLI::App* command = app.add_subcommand("diagnose", "The fault, its origin, its cause, its fix");
  command
      ->add_option("TARGET", options->targets, "Recordings, or dumps: files or folders of safetensors, .npy, .npz, .pt")
      ->required();
  command->add_flag("--counterfactuals", options->counterfactuals,
                    "Run it again with each knob changed: which settings cause it, and what does a change cost");
  command->add_flag("--progress", options->progress, "Say how far a scan is, also where standard error is no terminal");
  add_format(*command, options->format, {"text", "json", "junit", "markdown"});
  command->footer(
      "Examples:\n"
      "  nanscope diagnose run.nanscope\n"
      "  nanscope diagnose run.nanscope --counterfactuals\n"
      "  nanscope diagnose run.nanscope --format json | jq .root_cause\n"
      "  nanscope diagnose dump/                 tensors that a server left behind");
  command->callback([options, &action] { action = [options] { return diagnose_targets(*options); }; });
}

}  // namespace nanscope::cli
