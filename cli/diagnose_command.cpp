#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/divide_among_ranks.h"
#include "cli/facts_files.h"
#include "cli/investigate.h"
#include "cli/open_target.h"
#include "cli/replay_limits.h"
#include "instrument/diagnosis/baseline.h"
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/files/file.h"
#include "instrument/files/near_names.h"
#include "scenarios/counterfactuals.h"
#include "scenarios/replay.h"
#include "scenarios/report/answer.h"
#include "scenarios/report/counterfactual_report.h"
#include "scenarios/report/diagnoses.h"
#include "scenarios/report/diagnosis_lines.h"
#include "scenarios/report/run_json.h"

namespace nanscope::cli {

namespace {

constexpr std::size_t kMostBaselineBytes = std::size_t{256} << 20;

struct DiagnoseArguments {
  std::vector<std::string> targets;
  bool brief = false;
  bool counterfactuals = false;
  bool no_recompute = false;
  bool progress = false;
  bool follow_links = false;
  std::vector<std::string> fail_on;
  std::string baseline;
  std::string model;
  std::string facts;
  bool facts_only = false;
  double min_coverage = 0;
  std::string format = "text";
  RunLimits limits = kReplayLimits;

  bool document() const { return format != "text" && format != "markdown"; }
};

/// Errors: an unknown fault class.
Status check_classes(const std::vector<std::string>& wanted) {
  std::vector<std::string> known;
  for (const Detector& detector : detectors()) known.emplace_back(detector.fault_class);
  std::sort(known.begin(), known.end());
  for (const std::string& one : wanted) {
    if (std::binary_search(known.begin(), known.end(), one)) continue;
    return fail(fmt::format("--fail-on: unknown class '{}'{} (known: {})", one, did_you_mean(one, known),
                            fmt::join(known, ", ")));
  }
  return {};
}

Result<std::optional<Baseline>> read_baseline(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const auto bytes = read_file(path, kMostBaselineBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  auto baseline = Baseline::parse({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  if (!baseline) return fail(fmt::format("{}: {}", path, baseline.error().message));
  return std::move(*baseline);
}

class DiagnoseRun {
 public:
  DiagnoseRun(const DiagnoseArguments& arguments, std::optional<Baseline> baseline, std::optional<DumpFacts> facts,
              const Interrupt& interrupt)
      : arguments_(arguments), baseline_(std::move(baseline)), facts_(std::move(facts)), interrupt_(interrupt) {}

  int run() {
    for (const std::string& target : arguments_.targets) {
      all_.push_back(examine(target));
      if (!all_.back().diagnosis) complain(all_.back().error);
      if (interrupt_.requested()) break;
    }
    // After an interrupt in the counterfactuals, print the results so far. Before a diagnosis, there are none.
    if (!interrupt_.requested() || all_.back().diagnosis) print_documents();
    if (interrupt_.requested()) return interrupt_.code();
    print_gone();
    return exit_code();
  }

 private:
  report::Diagnosed examine(const std::string& target) {
    report::Diagnosed one;
    one.target = target;
    one.min_coverage = arguments_.min_coverage;
    const auto opened = open_target(target, interrupt_,
                                    {.progress = arguments_.progress,
                                     .limits = arguments_.limits,
                                     .follow_links = arguments_.follow_links,
                                     .model = arguments_.model,
                                     .facts = facts_ ? &*facts_ : nullptr,
                                     .facts_only = arguments_.facts_only});
    const auto analysis = opened ? analyse_target(**opened, interrupt_, !arguments_.no_recompute, arguments_.progress)
                                 : tl::unexpected(opened.error());
    if (!analysis) {
      one.error = analysis.error().message;
      return one;
    }
    one.diagnosis = analysis->diagnosis;
    complain_unread(target, *one.diagnosis);
    accept(one);
    if (!arguments_.document()) print_text(*analysis, one);
    if (arguments_.counterfactuals) change_settings(**opened, *analysis, one);
    return one;
  }

  /// Reruns the recording with each setting changed. The diagnosis is already printed above.
  void change_settings(const scenarios::OpenRun& opened, const scenarios::Analysis& analysis, report::Diagnosed& one) {
    const report::Terminal terminal = output_terminal();
    if (arguments_.format == "text")
      print_now(fmt::format("\n{}\n", report::paint(terminal, report::Ink::bold, "But for which setting?")));
    if (const std::string none = why_none(analysis); !none.empty()) {
      if (arguments_.document()) complain(analysis.target + ": " + none);
      if (arguments_.format == "text") print(report::paragraph("  ", none, terminal));
      if (arguments_.format == "markdown") print('\n' + none + '\n');
      return;
    }
    auto changes =
        investigate(*opened.recording(), interrupt_, arguments_.limits, reader(*opened.recording(), terminal));
    if (!changes) {
      complain(changes.error().message);
      unchanged_ = true;
      return;
    }
    if (arguments_.format == "text") print('\n' + report::counterfactuals_text(*changes, analysis.target, terminal));
    if (arguments_.format == "markdown") print('\n' + report::counterfactuals_markdown(*changes));
    unchanged_ |= complain_unrun(analysis.target, *changes);
    one.changes = std::make_shared<scenarios::Counterfactuals>(std::move(*changes));
  }

  /// For text output, prints a line for each change when its run ends.
  OutcomeReader reader(const Recording& recording, const report::Terminal& terminal) const {
    const auto spec = scenarios::run_spec_of(recording);
    if (arguments_.format != "text" || !spec) return {};
    auto lines =
        std::make_shared<report::CounterfactualLines>(scenarios::candidate_changes(*spec, recording), terminal);
    print_now(lines->titles());
    return [lines](const scenarios::Outcome& outcome) { return print_now(lines->line(outcome)); };
  }

  /// Accepts faults of the baseline, and faults of classes that --fail-on does not name.
  void accept(report::Diagnosed& one) const {
    const std::vector<std::string>& named = arguments_.fail_on;
    for (std::size_t i = 0; i < one.diagnosis->faults.size(); ++i) {
      const Fault& fault = one.diagnosis->faults[i];
      const bool fails = named.empty() || std::find(named.begin(), named.end(), fault.fault_class) != named.end();
      if (!fails || (baseline_ && baseline_->knows(fault))) one.accepted.push_back(i);
    }
  }

  void print_text(const scenarios::Analysis& analysis, const report::Diagnosed& one) const {
    const report::Terminal terminal = output_terminal();
    report::RunContext context{
        .command = "diagnose", .title = {}, .recording = analysis.target, .missed = {}, .accepted = one.accepted};
    if (arguments_.brief) {
      print(arguments_.targets.size() > 1 ? report::verdict_line(one, terminal)
                                          : report::answer(analysis, context, terminal).text);
      return;
    }
    if (arguments_.format == "markdown") {
      print_now(report::run_markdown(analysis, context) + report::accepted_markdown(one));
      return;
    }
    print_now(std::string(all_.empty() ? "" : "\n") + report::run_text(analysis, context, terminal) +
              report::accepted_text(one, terminal));
  }

  void print_documents() const {
    if (arguments_.format == "json") print(report::json_of(all_));
    if (arguments_.format == "junit") print(report::junit_of(all_));
    if (arguments_.format == "sarif") print(report::sarif_of(all_));
  }

  void print_gone() const {
    if (!baseline_ || arguments_.format != "text") return;
    std::vector<const Diagnosis*> diagnoses;
    for (const report::Diagnosed& one : all_) {
      if (!one.diagnosis) return;  // an unreadable target may still have the fault
      diagnoses.push_back(&*one.diagnosis);
    }
    print(report::gone_text(baseline_->gone(diagnoses), arguments_.baseline, output_terminal()));
  }

  int exit_code() const {
    const auto any = [&](report::TargetOutcome outcome) {
      return std::any_of(all_.begin(), all_.end(),
                         [&](const report::Diagnosed& one) { return report::outcome_of(one) == outcome; });
    };
    if (unchanged_ || any(report::TargetOutcome::unreadable)) return kBadInput;
    if (any(report::TargetOutcome::fault)) return kFound;
    return any(report::TargetOutcome::not_judged) ? kNotJudged : kClean;
  }

  const DiagnoseArguments& arguments_;
  std::optional<Baseline> baseline_;
  std::optional<DumpFacts> facts_;
  const Interrupt& interrupt_;
  std::vector<report::Diagnosed> all_;
  bool unchanged_ = false;  ///< counterfactuals failed, or some of them did for want of memory
};

/// Facts of the file that was named or, where mpirun or srun started several processes, of all of them. `ended`: the
/// exit code of a process that only helps.
Result<std::optional<DumpFacts>> facts_for(const DiagnoseArguments& arguments, const Interrupt& interrupt,
                                           std::optional<int>& ended) {
  if (!started_as_rank()) return read_facts(arguments.facts);
  if (arguments.targets.size() > 1) return fail("several ranks share one dump: name one target");
  return divide_among_ranks({.target = arguments.targets.front(),
                             .model = arguments.model,
                             .facts = arguments.facts,
                             .follow_links = arguments.follow_links,
                             .recompute = !arguments.no_recompute,
                             .progress = arguments.progress},
                            interrupt, ended);
}

int diagnose_targets(const DiagnoseArguments& arguments, const Interrupt& interrupt) {
  if (arguments.brief && arguments.format != "text") return complain("--brief is for --format text");
  if (arguments.brief && arguments.counterfactuals)
    return complain("--brief prints no counterfactuals: leave one of the two out");
  if (const Status known = check_classes(arguments.fail_on); !known) return complain(known.error().message);
  auto baseline = read_baseline(arguments.baseline);
  if (!baseline) return complain("--baseline: " + baseline.error().message);
  std::optional<int> ended;
  auto facts = facts_for(arguments, interrupt, ended);
  if (ended) return *ended;
  if (!facts) return complain("--facts: " + facts.error().message);
  if (*facts && arguments.targets.size() > 1) return complain("--facts: facts are of one dump: name one target");
  return DiagnoseRun(arguments, std::move(*baseline), std::move(*facts), interrupt).run();
}

}  // namespace

void add_diagnose_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DiagnoseArguments>();
  CLI::App* command = app.add_subcommand("diagnose", "Find the fault, its origin, its cause and its fix");
  command
      ->add_option("TARGET", arguments->targets,
                   "Recordings, or dumps: files or folders of safetensors, .npy, .npz, .pt")
      ->required();
  command->add_flag("--brief", arguments->brief,
                    "Print only verdict, place, cause and fix; for several targets, one line each");
  command
      ->add_option(
          "--fail-on", arguments->fail_on,
          "Only these fault classes, separated by commas, set exit code 1; other faults are reported as accepted")
      ->type_name("CLASS")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--baseline", arguments->baseline,
                   "Accept the faults of an earlier diagnosis, a file from --format json. Faults match by class and by "
                   "place in the model: layer, op, and the tensor's name without folders")
      ->type_name("FILE");
  command
      ->add_option(
          "--min-coverage", arguments->min_coverage,
          "The least share of outputs that has to be judged, 0 to 1 (default: 0); with less, the exit code is 3")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 1.0));
  add_dump_model(*command, arguments->model);
  CLI::Option* facts =
      command
          ->add_option("--facts", arguments->facts,
                       "Use what 'nanscope scan' computed of this dump, a file from 'nanscope merge' or one part; the "
                       "rest is read as without it")
          ->type_name("FILE");
  command
      ->add_flag("--facts-only", arguments->facts_only,
                 "With --facts: leave out tensors that the facts lack; the verdict is then never clean")
      ->needs(facts);
  command->add_flag("--no-recompute", arguments->no_recompute,
                    "Do not recompute ops from their inputs: faster, but wrong finite results stay undetected");
  command->add_flag("--counterfactuals", arguments->counterfactuals,
                    "Rerun a recording with each setting changed, to find the settings that cause the fault and the "
                    "cost of each change");
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  add_replay_limits(*command, arguments->limits);
  add_follow_links(*command, arguments->follow_links);
  add_format(*command, arguments->format, {"text", "markdown", "json", "junit", "sarif"});
  command->footer(
      "json, junit and sarif print one document for all targets, including unreadable ones.\n"
      "\n"
      "Examples:\n"
      "  nanscope diagnose run.nanscope\n"
      "  nanscope diagnose dump/                 tensors that a server dumped\n"
      "  nanscope diagnose dump/ --model ~/Llama-3.2-1B\n"
      "  nanscope diagnose run.nanscope --counterfactuals\n"
      "  nanscope diagnose dump/ --format json | jq .root_cause\n"
      "  nanscope diagnose good/ bad/ --brief\n"
      "  nanscope diagnose dump/ --fail-on f16-overflow,wrong-result --format sarif > nanscope.sarif\n"
      "  nanscope diagnose dump/ --format json > known.json; nanscope diagnose later/ --baseline known.json\n"
      "\n"
      "Exit codes: 0 clean, no fault found, or only accepted faults; 1 a fault; 2 bad usage, or a target that could "
      "not "
      "be read as a whole; 3 nothing to judge, an interrupted recording, or less than --min-coverage; 130 "
      "interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return diagnose_targets(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
