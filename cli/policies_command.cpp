#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "instrument/files/near_names.h"
#include "instrument/policies/evaluate.h"
#include "scenarios/policy_answers.h"
#include "scenarios/policy_source.h"
#include "scenarios/report/policies_report.h"

namespace nanscope::cli {
namespace {

struct PolicyArguments {
  std::string target;
  std::string model;
  std::vector<std::string> policies;
  std::string k;
  std::string v;
  std::vector<std::int64_t> layers;
  std::int64_t queries = 64;
  std::int64_t heads = 0;
  std::string format = "text";
  bool no_claims = false;
  bool no_answers = false;
  bool progress = false;
  bool follow_links = false;
  RunLimits limits = kReplayLimits;
};

/// The policies of --policy and the custom policy of --k and --v. Errors: an unknown policy or scheme.
Result<std::vector<PolicyCandidate>> candidates_of(const PolicyArguments& arguments) {
  std::vector<PolicyCandidate> wanted;
  std::vector<std::string> names;
  const std::vector<PolicyCandidate> all = named_candidates();
  names.reserve(all.size());
  for (const PolicyCandidate& one : all) names.push_back(one.name);
  for (const std::string& name : arguments.policies) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string* near = nearest(name, names);
      return fail(fmt::format("--policy: unknown policy '{}'{}", name,
                              near != nullptr ? fmt::format("; did you mean '{}'?", *near)
                                              : fmt::format("; known: {}", fmt::join(names, ", "))));
    }
    wanted.push_back(all[static_cast<std::size_t>(found - names.begin())]);
  }
  if (arguments.k.empty() && arguments.v.empty()) return wanted;
  PolicyCandidate own;
  own.name = "own";
  for (const auto& [option, text, scheme] :
       {std::tuple("--k", &arguments.k, &own.k), std::tuple("--v", &arguments.v, &own.v)}) {
    if (text->empty()) continue;
    auto parsed = parse_kv_scheme(*text);
    if (!parsed) return fail(fmt::format("{}: {}", option, parsed.error().message));
    *scheme = std::move(*parsed);
  }
  if (wanted.empty()) wanted = all;
  wanted.push_back(std::move(own));
  return wanted;
}

/// Error: interrupted. The report names a run that cannot be rerun; this is not an error.
Status add_answers(const scenarios::PolicySource& source, const PolicyArguments& arguments, const Interrupt& interrupt,
                   PolicyReport& made) {
  ProgressLine line("runs", arguments.progress);
  scenarios::PolicyAnswerOptions options;
  options.stop = interrupt.token();
  options.limits = arguments.limits;
  options.recording = source.recording();
  options.progress = [&line](std::int64_t done, std::int64_t total, const std::string& name) {
    line.show(done, total, name);
  };
  Status run = scenarios::run_policies(*source.spec(), made, options);
  if (!run && !interrupt.requested()) {
    made.left_out.push_back("answers: " + run.error().message);
    return {};
  }
  return run;
}

int try_policies(const PolicyArguments& arguments, const Interrupt& interrupt) {
  auto candidates = candidates_of(arguments);
  if (!candidates) return complain(candidates.error().message);
  scenarios::PolicySourceOptions opening;
  opening.target = arguments.target;
  opening.model = arguments.model;
  opening.heads = arguments.heads;
  opening.follow_links = arguments.follow_links;
  opening.limits = arguments.limits;
  opening.stop = interrupt.token();
  auto source = [&] {
    ProgressLine line("steps", arguments.progress);
    opening.progress = [&line](std::int64_t done, std::int64_t total, const std::string& unit) {
      line.show(done, total, unit);
    };
    return scenarios::PolicySource::open(opening);
  }();
  if (!source) return failed(source.error(), interrupt);
  for (const RunNote& one : (*source)->unread()) complain("not read: " + one.text);
  PolicyOptions options;
  options.candidates = std::move(*candidates);
  options.layers = {arguments.layers.begin(), arguments.layers.end()};
  options.most_queries = arguments.queries;
  options.claims = !arguments.no_claims;
  options.known = [&source](std::int64_t layer) { return (*source)->known(layer); };
  options.again = (*source)->again();
  options.stop = interrupt.token();
  ProgressLine line("policies of layers", arguments.progress);
  options.progress = [&line](std::size_t done, std::size_t total) {
    line.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), "");
  };
  auto made = evaluate_policies((*source)->view(), options);
  line.clear();
  if (!made && interrupt.requested()) return failed(made.error(), interrupt);
  if (!made) return complain(fmt::format("{}: {}", arguments.target, made.error().message));
  if (Status whole = (*source)->check(); !whole) return failed(whole.error(), interrupt);
  if (Status read = (*source)->view().status(); !read) return failed(read.error(), interrupt);
  if (const scenarios::RunSpec* spec = (*source)->spec(); spec != nullptr && !arguments.no_answers) {
    if (Status run = add_answers(**source, arguments, interrupt, *made); !run) return failed(run.error(), interrupt);
  }
  print(arguments.format == "json"  ? report::policies_json(*made, arguments.target)
        : arguments.format == "csv" ? report::policies_csv(*made)
                                    : report::policies_text(*made, arguments.target, output_terminal()));
  return kClean;
}

}  // namespace

void add_policies_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PolicyArguments>();
  CLI::App* command = app.add_subcommand("policies", "Measure what each KV cache policy would do to a run");
  command->add_option("TARGET", arguments->target, "A scenario (it runs first), a recording, or a dump")->required();
  command
      ->add_option("--model", arguments->model,
                   "For a dump: the folder of the served model's config.json, for heads, windows, factors and caps")
      ->type_name("DIR");
  command->add_option("--policy", arguments->policies, "Measure only this policy; repeatable")
      ->type_name("POLICY")
      ->allow_extra_args(false);
  command
      ->add_option("--k", arguments->k, "A custom scheme for K, such as int8,axis=token_head; without --v, V is bf16")
      ->type_name("SCHEME");
  command->add_option("--v", arguments->v, "A custom scheme for V; without --k, K is bf16")->type_name("SCHEME");
  command->add_option("--layers", arguments->layers, "Measure only these layers, separated by commas")
      ->type_name("N")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--queries", arguments->queries, "Queries per layer, evenly spread over its tokens; 0: all")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--heads", arguments->heads, "Number of query heads, if the dump does not show it")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));
  command->add_flag("--no-claims", arguments->no_claims,
                    "Print only the table, without the claims and the policies that they compare");
  command->add_flag("--no-answers", arguments->no_answers,
                    "Do not rerun a scenario or a recording under each policy to compare the answers");
  add_format(*command, arguments->format, {"text", "json", "csv"});
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  add_follow_links(*command, arguments->follow_links);
  add_replay_limits(*command, arguments->limits);
  command->footer(
      "nanscope takes the run's queries, keys and values from before any cache, step by step. Each policy stores them "
      "and reads them back. Attention in double precision over both versions measures the error.\n"
      "\n"
      "Examples:\n"
      "  nanscope policies kv-scale-lock\n"
      "  nanscope policies run.nanscope --policy bf16 --policy kivi-4 --layers 0,1\n"
      "  nanscope policies dump/ --model ~/models/gemma --format json\n"
      "  nanscope policies dump/ --policy bf16 --k int8,axis=channel,group=32 --v e4m3,axis=token\n"
      "\n"
      "Exit codes: 0 measured; 2 bad usage, or a target without readable queries, keys and values; 130 interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return try_policies(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
