#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/investigate.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "core/counted.h"
#include "core/files/output_file.h"
#include "scenarios/analysis.h"
#include "scenarios/policy_source.h"
#include "scenarios/report/html_report.h"
#include "scenarios/report/policies_page.h"
#include "scenarios/report/scores_page.h"

#ifdef NANSCOPE_GUI
#include "gui/app.h"
#endif

namespace nanscope::cli {

namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::string target;
  std::string output;
  bool force = false;
  bool follow_links = false;
  std::string model;
  bool counterfactuals = true;
  bool policies = false;
  bool scores = false;
  RunLimits limits = kReplayLimits;
};

#ifdef NANSCOPE_GUI

/// A picture of a view at a place.
struct Shot {
  std::string view;
  std::string title;
  std::string caption;
  std::string place;
};

/// Whether a fault concerns a scale, or codes that do not represent the stored values.
bool of_scales(const Fault& fault) {
  static const std::set<std::string> kClasses = {"kv-scale-locked",     "saturation",     "scale-invalid",
                                                 "delayed-scale-stale", "outlier-squash", "scale-misapplied"};
  return kClasses.contains(fault.fault_class);
}

std::vector<Shot> shots(const Diagnosis& diagnosis) {
  std::vector<Shot> wanted;
  if (diagnosis.faults.empty()) return wanted;
  const std::vector<Fault>& faults = diagnosis.faults;
  const Fault& root = faults.at(diagnosis.root_cause.value_or(0));
  const auto birth = std::find_if(faults.begin(), faults.end(), [](const Fault& fault) { return fault.breaks; });
  wanted.push_back({"front", "Front", "The worst value of each token (columns) after each op (rows), for all requests.",
                    place_text(birth == faults.end() ? root.where : birth->where)});
  if (const auto scale = std::find_if(faults.begin(), faults.end(), of_scales); scale != faults.end()) {
    const std::string place = place_text(scale->where);
    wanted.push_back(
        {"scales", "Scales", "The values that each layer stored, compared with the range of its scale.", place});
    wanted.push_back({"bits", "Bits", "The value: before it was stored, as stored, as read back.", place});
  }
  const auto scores = std::find_if(diagnosis.chain.begin(), diagnosis.chain.end(),
                                   [](const Event& event) { return event.kind == "nan-in-scores"; });
  if (scores != diagnosis.chain.end()) {
    wanted.push_back(
        {"tensor", "Scores", "One bad key fills a column of the attention scores.", place_text(scores->where)});
  }
  return wanted;
}

/// The size of a picture for a phone, in points: the smallest that a view needs.
constexpr int kPhoneWidth = 440;
constexpr int kPhoneHeight = 560;

/// The pictures of the page. Reports a view that cannot show its place on standard error, and omits it.
std::vector<report::Picture> pictures(const std::string& file, const scenarios::Analysis& analysis,
                                      const Interrupt& interrupt, bool follow_links) {
  const std::vector<std::string> views = gui::all_views();
  std::vector<report::Picture> taken;
  for (const Shot& shot : shots(analysis.diagnosis)) {
    if (std::find(views.begin(), views.end(), shot.view) == views.end()) continue;
    gui::AppOptions options;
    options.file = file;
    options.follow_links = follow_links;
    options.view = shot.view;
    options.place = shot.place;
    options.size = {1400, 860};
    options.theme = "light";  // like paper
    options.printed = true;
    options.stop = interrupt.token();
    auto png = gui::take_picture(options);
    options.size = {2 * kPhoneWidth, 2 * kPhoneHeight};
    options.scale = 2;
    auto narrow = png ? gui::take_picture(options) : png;
    if (interrupt.requested()) break;
    if (!png) {
      complain(fmt::format("no picture of the {} view: {}", shot.view, png.error().message));
      continue;
    }
    taken.push_back(
        {shot.title, shot.caption, std::move(*png), narrow ? std::move(*narrow) : std::vector<std::byte>()});
  }
  return taken;
}

#else

/// Without the window no view can be drawn: the page shows the front (bad tokens by op) as text.
std::vector<report::Picture> pictures(const std::string&, const scenarios::Analysis&, const Interrupt&, bool) {
  return {};
}

#endif

/// The page's path: -o, or "dump.html" for "tensors/dump/".
fs::path output_of(const ReportOptions& options) {
  if (!options.output.empty()) return options.output;
  fs::path name = fs::path(options.target).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return name.stem().string() + ".html";
}

/// Evaluates the KV policies on the same run, which it opens again.
Result<PolicyReport> policies_of(const ReportOptions& options, const Interrupt& interrupt) {
  scenarios::PolicySourceOptions opening;
  opening.target = options.target;
  opening.follow_links = options.follow_links;
  opening.limits = options.limits;
  opening.stop = interrupt.token();
  const auto source = scenarios::PolicySource::open(opening);
  if (!source) return tl::unexpected(source.error());
  ProgressLine line("policies of layers");
  PolicyOptions trying;
  trying.known = [&source](std::int64_t layer) { return (*source)->known(layer); };
  trying.again = (*source)->again();
  trying.stop = interrupt.token();
  trying.progress = [&line](std::size_t done, std::size_t total) {
    line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "");
  };
  auto made = evaluate_policies((*source)->view(), trying);
  if (!made) return fail(options.target + ": " + made.error().message);
  return made;
}

/// The section on policies for scales of scores; empty: no scores were recorded or dumped.
Result<std::string> scores_of(const ReportOptions& options, scenarios::OpenRun& run, const Interrupt& interrupt) {
  scenarios::ScoreRunOptions trying;
  trying.stop = interrupt.token();
  const auto scores = scenarios::score_run(run.view(), run.recording(), trying);
  if (!scores) return tl::unexpected(scores.error());
  if (scores->points.empty()) return std::string();
  const ScorePolicySettings settings;
  const auto trials = scenarios::try_score_policies(*scores, scenarios::policy_candidates(settings));
  return report::scores_section({options.target, scores->points, trials, settings});
}

/// Whether the run quantized its scores.
bool quantizes_scores(const scenarios::OpenRun& run) {
  const auto spec = run.recording() != nullptr ? scenarios::run_spec_of(*run.recording()) : fail("");
  return spec && spec->config.scores.format != Format::f32;
}

/// What the report is made from, which it never replaces.
std::vector<fs::path> inputs_of(const ReportOptions& options) {
  std::vector<fs::path> inputs{options.target};
  if (!options.model.empty()) inputs.emplace_back(options.model);
  return inputs;
}

int write_report(const ReportOptions& options, const Interrupt& interrupt) {
  const fs::path output = output_of(options);
  const OutputOptions writing{.replace = options.force, .inputs = inputs_of(options), .durable = true};
  if (Status allowed = check_output(output, writing); !allowed) return complain(allowed.error().message);
  const auto target =
      open_target(options.target, interrupt,
                  {.limits = options.limits, .follow_links = options.follow_links, .model = options.model});
  if (!target) return failed(target.error(), interrupt);
  const auto analysis = analyse_target(**target, interrupt);
  if (!analysis) return failed(analysis.error(), interrupt);
  const auto taken = pictures(options.target, *analysis, interrupt, options.follow_links);
  if (interrupt.requested()) return failed({"stopped"}, interrupt);
  const bool wanted = options.counterfactuals && !analysis->diagnosis.healthy();
  const std::string left_out = wanted ? why_none(*analysis) : std::string();
  std::optional<scenarios::Counterfactuals> changes;
  if (wanted && left_out.empty()) {
    auto found = investigate(*(*target)->recording(), interrupt, options.limits);
    if (!found) return failed(found.error(), interrupt);
    changes = std::move(*found);
  }
  std::string section;
  if (options.policies) {
    const auto made = policies_of(options, interrupt);
    if (!made) return failed(made.error(), interrupt);
    section = report::policies_section(*made);
  }
  if (options.scores || quantizes_scores(**target)) {
    const auto made = scores_of(options, **target, interrupt);
    if (!made) return failed(made.error(), interrupt);
    section += *made;
  }
  const std::string html = report::html_report(*analysis, changes ? &*changes : nullptr, taken, left_out, section);
  if (const Status written = write_output(output, html, writing); !written) return complain(written.error().message);
  if (!is_stream(output)) print(one_line(output.string()) + '\n');
  if (!interrupt.requested()) {
    complain_unread(options.target, analysis->diagnosis);
    const bool unrun = changes && complain_unrun(options.target, *changes);
    return unrun || analysis->diagnosis.verdict() == Verdict::damaged ? kBadInput : kClean;
  }
  complain(fmt::format("stopped after {} of {}: the page holds their results", changes->runs,
                       counted(changes->planned, "run")));
  return interrupt.code();
}

}  // namespace

void add_report_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand(
      "report", "Write one self-contained HTML page: diagnosis, causal chain, pictures, counterfactuals");
  command->add_option("TARGET", options->target, "A recording or a dump")->required();
  command->add_option("-o,--output", options->output, "The page (default: TARGET's name with .html, here)")
      ->type_name("FILE");
  command->add_flag("--force", options->force, "Replace an existing page");
  add_follow_links(*command, options->follow_links);
  add_dump_model(*command, options->model);
  command->add_flag("--counterfactuals,!--no-counterfactuals", options->counterfactuals,
                    "With or without counterfactuals: reruns of a recording with each setting changed (default: with; "
                    "takes seconds)");
  command->add_flag("--policies", options->policies,
                    "Add what each KV policy would do to the run, see 'nanscope policies'");
  command->add_flag("--scores", options->scores,
                    "Add what each policy for fp8 scales of attention scores would do, see 'nanscope scales'; always "
                    "on for a run that quantizes its scores");
  add_replay_limits(*command, options->limits);
  command->footer(
      "Examples:\n"
      "  nanscope report kv-scale-lock.nanscope -o incident.html\n"
      "  nanscope report kv-scale-lock.nanscope --no-counterfactuals\n"
      "  nanscope report dump/ -o incident.html --policies\n"
      "\n"
      "Exit codes: 0 the page is written, with or without a fault; 2 bad usage or bad input, also where the page is "
      "written and a part of the target could not be read; 130 interrupted: after the diagnosis, the page holds the "
      "counterfactuals so far.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return write_report(*options, interrupt); }; });
}

}  // namespace nanscope::cli
