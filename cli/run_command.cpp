#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_scenario.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "scenarios/library.h"
#include "scenarios/report/answer.h"
#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"
#include "scenarios/runner.h"

namespace nanscope::cli {

namespace fs = std::filesystem;

namespace {

struct RunOptions {
  std::vector<std::string> targets;
  std::string model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_tokens;
  std::vector<std::string> settings;
  int tokens = 64;
  std::string output;
  std::string capture = "ring:1";
  bool trace = false;
  std::string device;
  int threads = -1;
  int jobs = 1;
  bool force = false;
  bool brief = false;
  std::string format = "text";
  RunLimits limits = kReplayLimits;  ///< of a scenario
};

scenarios::RunnerOptions runner_options(const RunOptions& options, const Interrupt& interrupt) {
  scenarios::RunnerOptions runner;
  runner.output = options.output;
  runner.force = options.force;
  runner.capture = options.capture;
  runner.trace = options.trace;
  runner.device = options.device;
  if (options.threads >= 0) runner.threads = options.threads;
  // A scenario may be a file of others; a checkpoint's size is known to the user.
  if (options.model.empty()) runner.limits = options.limits;
  runner.control.stop = interrupt.token();
  return runner;
}

std::string one_junit(const scenarios::ScenarioRun& run) {
  report::JUnitCase test{.name = run.scenario.name,
                         .class_name = "nanscope.scenarios",
                         .seconds = run.seconds,
                         .failures = {},
                         .error = {},
                         .output = {}};
  for (const scenarios::Missed& missed : run.missed) test.failures.push_back(to_string(missed));
  if (!run.missed.empty()) test.output = fmt::format("nanscope diagnose {}", run.recording.string());
  return report::junit_xml("nanscope", std::vector{test});
}

int run_one(const scenarios::Scenario& scenario, const RunOptions& options, const Interrupt& interrupt) {
  const bool judged = options.model.empty();
  scenarios::RunnerOptions runner = runner_options(options, interrupt);
  Result<scenarios::ScenarioRun> run = fail("");
  {
    ProgressLine progress("ops");
    runner.control.progress = [&](const Progress& now) {
      progress.show(now.ops, now.expected_ops, fmt::format("request {}", now.request));
    };
    run = scenarios::run_scenario(scenario, runner);
  }
  if (!run) {
    complain(run.error().message);
    return interrupt.requested() ? interrupt.code() : kBadInput;
  }
  report::RunContext context{.command = "run",
                             .title = scenario.title,
                             .recording = run->recording.string(),
                             .judged = judged,
                             .missed = judged ? run->missed : std::vector<scenarios::Missed>()};
  if (options.format == "json") {
    print(report::dump_json(report::run_json(run->analysis, context)));
  } else if (options.format == "junit") {
    print(one_junit(*run));
  } else if (options.format == "markdown") {
    print(report::run_markdown(run->analysis, context));
  } else if (options.brief) {
    print(report::answer(run->analysis, context, output_terminal()).text);
  } else {
    print(report::run_text(run->analysis, context, output_terminal()));
  }
  complain_unread(run->analysis.target, run->analysis.diagnosis);
  if (!judged) return code_of(run->analysis.diagnosis);
  return run->missed.empty() ? kClean : kFound;
}

int run_many(const std::vector<fs::path>& paths, const RunOptions& options, const Interrupt& interrupt) {
  scenarios::SuiteOptions suite;
  suite.output = options.output;
  suite.jobs = options.jobs;
  suite.runner = runner_options(options, interrupt);
  Result<std::vector<scenarios::SuiteEntry>> entries = fail("");
  {
    ProgressLine progress("scenarios");
    suite.progress = [&](std::size_t done, std::size_t total, const std::string& name) {
      progress.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), name);
    };
    entries = scenarios::run_suite(paths, suite);
  }
  if (!entries) {
    complain(entries.error().message);
    return interrupt.requested() ? interrupt.code() : kBadInput;
  }
  if (options.format == "json") {
    print(report::dump_json(report::suite_json(*entries)));
  } else if (options.format == "junit") {
    print(report::suite_junit(*entries));
  } else if (options.format == "markdown") {
    print(report::suite_markdown(*entries));
  } else {
    print(report::suite_text(*entries, output_terminal()));
  }
  int code = kClean;
  for (const scenarios::SuiteEntry& entry : *entries) {
    if (!entry.run) return kBadInput;
    if (!entry.passed()) code = kFound;
  }
  return code;
}

int run_model(const RunOptions& options, const Interrupt& interrupt) {
  if (!options.targets.empty()) return complain("give either --model or a SCENARIO, not both");
  if (options.format == "junit")
    return complain("--format junit needs a scenario: a run of --model has no expectations");
  const auto scenario =
      scenario_of_model({options.model, options.settings, options.prompts, options.prompt_tokens, options.tokens});
  return scenario ? run_one(*scenario, options, interrupt) : complain(scenario.error().message);
}

int run_targets(const RunOptions& options, const Interrupt& interrupt) {
  if (options.brief && options.format != "text") return complain("--brief is for --format text");
  if (!options.model.empty()) return run_model(options, interrupt);
  if (options.targets.empty()) return complain("run needs a SCENARIO, or --model DIR");
  if (!options.prompts.empty() || !options.prompt_tokens.empty() || !options.settings.empty()) {
    return complain("-p, --prompt-tokens and --set are for --model; a scenario defines its own requests and settings");
  }
  std::vector<fs::path> paths;
  bool many = options.targets.size() > 1;
  for (const std::string& target : options.targets) {
    const auto path = scenarios::find_scenario(target);
    if (!path) return complain(path.error().message);
    if (!fs::is_directory(*path)) {
      paths.push_back(*path);
      continue;
    }
    many = true;
    const auto files = scenarios::scenario_files(*path);
    if (!files) return complain(files.error().message);
    paths.insert(paths.end(), files->begin(), files->end());
  }
  if (many) return run_many(paths, options, interrupt);
  const auto scenario = scenarios::load_scenario(paths.front());
  return scenario ? run_one(*scenario, options, interrupt) : complain(scenario.error().message);
}

}  // namespace

void add_run_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      app.add_subcommand("run", "Run a scenario or a checkpoint, record it, explain it, check its expectations");
  command->add_option("SCENARIO", options->targets,
                      "Scenario files, folders of scenario files, or names from the library");
  command
      ->add_option("--model", options->model,
                   "Run a checkpoint instead: a folder with config.json and *.safetensors, or a GGUF file")
      ->type_name("DIR");
  command->add_option("-p,--prompt", options->prompts, "Text of a request; repeatable, once per request")
      ->type_name("PROMPT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   "Token ids of a request, separated by commas; repeatable, once per request")
      ->type_name("IDS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--tokens", options->tokens, "Maximum number of tokens that a request of --model generates")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--set", options->settings, "Change a setting of --model; repeatable")
      ->type_name("SETTING=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("-o,--output", options->output,
                   "The recording (default: SCENARIO.nanscope here); for several scenarios, a folder")
      ->type_name("FILE");
  command->add_flag("--force", options->force, "Replace the file even if it is not a recording of this scenario");
  command->add_flag("--brief", options->brief,
                    "Print only verdict, place, cause and fix; several scenarios print one line each in any case");
  command
      ->add_option("--capture", options->capture,
                   "Tensors to store: none, all, ring:N (N steps around the first NaN or Inf), named:ROLE,...")
      ->type_name("CAPTURE")
      ->capture_default_str();
  command->add_flag("--trace", options->trace,
                    "Record the times of each op: launches on the CPU, kernels and copies on a GPU (CUPTI)");
  command
      ->add_option("--device", options->device,
                   "cpu, cpu:avx2, cuda, ... (results are bit-identical, except with engine.kernel_form=tensor_core)")
      ->type_name("DEVICE");
  command->add_option("--threads", options->threads, "Threads of the CPU device; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  command->add_option("-j,--jobs", options->jobs, "Number of scenarios to run at a time")
      ->type_name("N")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  add_format(*command, options->format, {"text", "json", "junit", "markdown"});
  add_run_limits(*command, options->limits, "a scenario's run");
  command->footer(
      "Examples:\n"
      "  nanscope run kv-scale-lock\n"
      "  nanscope run my-scenario.toml -o run.nanscope\n"
      "  nanscope run scenarios/ --format junit > report.xml\n"
      "  nanscope run --model ~/Llama-3.2-1B -p \"The capital of France is\" --tokens 8 --set kv.format=e4m3\n"
      "\n"
      "For several scenarios without -o, nanscope-failures/ keeps the recordings of scenarios that missed an "
      "expectation.\n"
      "\n"
      "Exit codes: 0 as expected (--model: clean), 1 a missed expectation (--model: a fault), 2 bad usage or a "
      "scenario "
      "that cannot run, 130 interrupted.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return run_targets(*options, interrupt); }; });
}

}  // namespace nanscope::cli
