#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/replay_limits.h"
#include "core/run/find_place.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/diagnosis/why.h"
#include "instrument/diagnosis/why_brief.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "scenarios/report/answer.h"
#include "scenarios/report/run_json.h"
#include "scenarios/report/why_report.h"

namespace nanscope::cli {

namespace {

struct WhyOptions {
  std::string target;
  std::string place;
  bool brief = false;
  bool all = false;
  bool follow_links = false;
  std::string model;
  std::string format = "text";
  RunLimits limits = kReplayLimits;
};

/// The element at `place`; for a whole tensor its first bad element, without a place that of the run. Empty: no element
/// is bad.
Result<std::optional<Element>> element_named(RunView& run, const std::string& place) {
  Facts facts(run);
  if (place.empty()) {
    const std::optional<Element> first = first_bad(facts);
    if (Status status = run.status(); !status) return tl::unexpected(status.error());
    return first;
  }
  const Result<FoundPlace> found = find_place(run, place);
  if (!found) return tl::unexpected(found.error());
  const std::int64_t row = found->row.value_or(0);
  if (found->channel) return Element{found->tensor->id, row, *found->channel};
  return first_bad_element(facts, *found->tensor, row);
}

void print_nothing_bad(const WhyOptions& options) {
  if (options.format == "json") {
    nlohmann::ordered_json json = to_json(WhyPath{});
    json["conclusion"] = "no token of a request holds a NaN or Inf";
    print(report::dump_json(json));
    return;
  }
  print("No token of a request holds a NaN or Inf: name a PLACE to trace a finite element back.\n");
}

/// The diagnosis, for the fix. It does not recompute ops: the user asks about an element, not for a verdict.
std::optional<Diagnosis> faults_of(RunView& run, const Interrupt& interrupt) {
  KernelArithmetic arithmetic;
  DiagnoseOptions options;
  options.recompute = false;
  options.stop = interrupt.token();
  auto diagnosis = diagnose(run, arithmetic, options);
  return diagnosis ? std::optional(std::move(*diagnosis)) : std::nullopt;
}

void print_path(RunView& run, const WhyPath& path, const WhyOptions& options, const Interrupt& interrupt) {
  const report::Terminal terminal = output_terminal();
  const bool bad = !path.hops.empty() && path.hops.front().bad;
  const std::optional<Diagnosis> diagnosis = bad ? faults_of(run, interrupt) : std::nullopt;
  const Fault* fault = diagnosis ? report::fault_behind(path, *diagnosis) : nullptr;
  print(report::answer(path, fault, terminal).text);
  if (options.brief) return;
  std::string title = "nanscope why " + report::printable(options.target, terminal);
  if (!options.place.empty()) title += ' ' + report::printable(options.place, terminal);
  print('\n' + report::heading(title, terminal));
  print(report::why_text(path, terminal, options.all ? report::Hops::all : report::Hops::that_matter));
}

/// Whether TARGET and PLACE are swapped.
bool are_swapped(const WhyOptions& options) {
  std::error_code error;
  return !options.place.empty() && !std::filesystem::exists(options.target, error) &&
         std::filesystem::exists(options.place, error);
}

int explain(const WhyOptions& options, const Interrupt& interrupt) {
  if (are_swapped(options)) {
    return complain(fmt::format("{}: no such file or folder; did you mean 'nanscope why {} {}'?", options.target,
                                options.place, options.target));
  }
  const auto target =
      open_target(options.target, interrupt,
                  {.limits = options.limits, .follow_links = options.follow_links, .model = options.model});
  if (!target) return failed(target.error(), interrupt);
  RunView& run = (*target)->view();
  const auto element = element_named(run, options.place);
  if (!element) return failed({options.target + ": " + element.error().message}, interrupt);
  if (!*element) {
    print_nothing_bad(options);
    return kClean;
  }
  const auto path = why(run, **element);
  if (Status same = (*target)->check(); !same) return failed(same.error(), interrupt);
  if (!path) return failed({options.target + ": " + path.error().message}, interrupt);
  if (options.format == "json") {
    print(report::dump_json(options.brief ? to_brief_json(*path) : to_json(*path)));
  } else {
    print_path(run, *path, options, interrupt);
  }
  if (const auto unread = run.unread(); !unread.empty()) {
    return complain(
        fmt::format("{}: tensor {} could not be read: {}", options.target, unread.front().tensor, unread.front().text));
  }
  return kClean;
}

}  // namespace

void add_why_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<WhyOptions>();
  CLI::App* command = app.add_subcommand("why", "Trace an element back to the origin of its value");
  command->add_option("TARGET", options->target, "A recording or a dump")->required();
  command->add_option(
      "PLACE", options->place,
      "request/step/layer/op.role[token,channel], of which parts may be omitted; or a tensor's name in the dump, or "
      "the end of this name, with or without [token,channel] (default: the run's first bad element)");
  CLI::Option* brief = command->add_flag("--brief", options->brief,
                                         "Print only the element, its origin, the cause and the fix, without hops; "
                                         "with --format json, with the hops that matter");
  command
      ->add_flag("--all", options->all,
                 "Print every hop. By default, why prints the hops that matter: both ends, the origin, KV slots, "
                 "scales, weights, and each hop where a value turns NaN or Inf or is cast")
      ->excludes(brief);
  add_replay_limits(*command, options->limits);
  add_follow_links(*command, options->follow_links);
  add_dump_model(*command, options->model);
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope why run.nanscope --brief\n"
      "  nanscope why run.nanscope '4/0/0/logits[0,0]'\n"
      "  nanscope why run.nanscope 2/0/1/inner_norm.out\n"
      "  nanscope why dump/ model.layers.3.mlp.output\n"
      "\n"
      "Exit codes: 0 traced, or no element is bad; 2 bad usage, an unknown place or bad input; 130 interrupted.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return explain(*options, interrupt); }; });
}

}  // namespace nanscope::cli
