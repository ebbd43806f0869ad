#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_scenario.h"
#include "cli/open_target.h"
#include "cli/progress.h"
#include "cli/replay_limits.h"
#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "instrument/image/image.h"
#include "scenarios/causality.h"
#include "scenarios/dump_causality.h"
#include "scenarios/library.h"
#include "scenarios/replay.h"
#include "scenarios/report/causality_report.h"
#include "scenarios/report/influence_picture.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {
namespace {

using scenarios::TokenChange;

struct CausalityArguments {
  std::string target;
  std::string other;
  std::vector<std::string> settings;
  std::vector<std::string> prompts;
  std::string tokens;
  std::string change = "all";
  std::size_t request = 0;
  std::string device;
  std::string map;  ///< path of a .csv or .png file; empty: no map
  bool force = false;
  std::string format = "text";
  bool progress = false;
  RunLimits limits = kReplayLimits;
};

constexpr std::array kChanges = {TokenChange::value, TokenChange::sign, TokenChange::size, TokenChange::nan};

Result<scenarios::RunSpec> spec_of(const CausalityArguments& arguments, const Interrupt& interrupt) {
  if (scenarios::is_checkpoint(arguments.target)) {
    const auto scenario = scenario_of_model({arguments.target, arguments.settings, arguments.prompts, {}, 1});
    return scenario ? scenarios::resolve(*scenario) : tl::unexpected(scenario.error());
  }
  if (!arguments.prompts.empty()) return fail("-p is for a checkpoint's folder; this target has its own prompts");
  Result<scenarios::RunSpec> spec = fail("");
  switch (scenarios::kind_of(arguments.target)) {
    case scenarios::TargetKind::recording: {
      const auto recording = Recording::open_checked(arguments.target, interrupt.token());
      if (!recording) return tl::unexpected(recording.error());
      spec = scenarios::run_spec_of(*recording);
      break;
    }
    default: {
      const auto path = scenarios::find_scenario(arguments.target);
      if (!path) return tl::unexpected(path.error());
      const auto scenario = scenarios::load_scenario(*path);
      if (!scenario) return tl::unexpected(scenario.error());
      spec = scenarios::resolve(*scenario);
    }
  }
  if (!spec) return spec;
  if (Status set = scenarios::apply_settings(spec->config, arguments.settings); !set)
    return tl::unexpected(set.error());
  return spec;
}

Result<std::vector<std::int64_t>> positions(const std::string& list) {
  std::vector<std::int64_t> tokens;
  for (std::string_view left = list; !left.empty();) {
    const std::string_view item = left.substr(0, left.find(','));
    std::int64_t token = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), token);
    if (error != std::errc() || end != item.data() + item.size() || token < 0) {
      return fail(fmt::format("--tokens: '{}' is not a position; expected a list such as 3,31,63, or all", item));
    }
    tokens.push_back(token);
    left.remove_prefix(std::min(left.size(), item.size() + 1));
  }
  return tokens;
}

/// Checks that the map can be written, before anything runs.
Status check_map(const CausalityArguments& arguments, const OutputOptions& writing) {
  if (arguments.map.empty()) return {};
  const std::string extension = std::filesystem::path(arguments.map).extension().string();
  if (extension != ".csv" && extension != ".png") {
    return fail(fmt::format("--map {}: expected a file name that ends in .csv or .png", arguments.map));
  }
  return check_output(arguments.map, writing);
}

Status write_map(const CausalityArguments& arguments, const scenarios::CausalityReport& report,
                 const OutputOptions& writing) {
  const scenarios::InfluenceMap map = scenarios::influence_map(report);
  if (std::filesystem::path(arguments.map).extension() == ".csv") {
    return write_output(arguments.map, report::influence_csv(map), writing);
  }
  std::string title = fmt::format("nanscope causality {}", one_line(arguments.target));
  for (const std::string& setting : arguments.settings) title += " --set " + one_line(setting);
  const auto png = encode_png(report::influence_picture(map, title));
  return png ? write_output(arguments.map, *png, writing) : tl::unexpected(png.error());
}

std::string in_format(const std::string& format, const std::string& text, const std::string& json,
                      const std::string& csv) {
  return format == "json" ? json : format == "csv" ? csv : text;
}

/// Compares two recordings or dumps.
int compare_recorded(const CausalityArguments& arguments, const Interrupt& interrupt) {
  const auto a = open_target(arguments.target, interrupt, {.progress = arguments.progress});
  if (!a) return failed(a.error(), interrupt);
  const auto b = open_target(arguments.other, interrupt, {.progress = arguments.progress});
  if (!b) return failed(b.error(), interrupt);
  const auto twins = scenarios::compare_twins((*a)->view(), (*b)->view(), static_cast<std::int64_t>(arguments.request));
  if (!twins) {
    return failed({fmt::format("{} and {}: {}", arguments.target, arguments.other, twins.error().message)}, interrupt);
  }
  print(in_format(arguments.format, report::twins_text(*twins, arguments.target, arguments.other, output_terminal()),
                  report::twins_json(*twins, arguments.target, arguments.other), report::twins_csv(*twins)));
  return twins->leaks() == 0 ? kClean : kFound;
}

/// Checks one dump, which nanscope cannot rerun.
int look_at_dump(const CausalityArguments& arguments, const Interrupt& interrupt) {
  const auto target = open_target(arguments.target, interrupt, {.progress = arguments.progress});
  if (!target) return failed(target.error(), interrupt);
  const auto analysis = analyse_target(**target, interrupt, true, arguments.progress);
  if (!analysis) return failed(analysis.error(), interrupt);
  const auto seen = scenarios::seen_causality(*analysis);
  if (!seen) return failed({fmt::format("{}: {}", arguments.target, seen.error().message)}, interrupt);
  print(in_format(arguments.format, report::seen_text(*seen, arguments.target, output_terminal()),
                  report::seen_json(*seen, arguments.target), report::seen_csv(*seen)));
  return seen->leaks.empty() ? kClean : kFound;
}

bool is_dump(const std::string& target) {
  if (scenarios::is_checkpoint(target)) return false;
  const scenarios::TargetKind kind = scenarios::kind_of(target);
  return kind == scenarios::TargetKind::dump || kind == scenarios::TargetKind::recorded_dump;
}

/// A recording's model has to be the one that it was made with. Errors: as of Workbench::load_recorded().
Status check_model(scenarios::Workbench& bench, const std::string& target, const Interrupt& interrupt) {
  if (scenarios::is_checkpoint(target) || scenarios::kind_of(target) != scenarios::TargetKind::recording) return {};
  const auto recording = Recording::open_checked(target, interrupt.token());
  if (!recording) return tl::unexpected(recording.error());
  const auto spec = scenarios::run_spec_of(*recording);
  if (!spec) return tl::unexpected(spec.error());
  return bench.load_recorded(spec->config, *recording, interrupt.token());
}

/// The first option in use that needs a run; empty: none.
std::string not_run_with(const CausalityArguments& arguments) {
  if (!arguments.settings.empty()) return "--set";
  if (!arguments.prompts.empty()) return "-p";
  if (!arguments.tokens.empty()) return "--tokens";
  if (arguments.change != "all") return "--change";
  if (!arguments.map.empty()) return "--map";
  return arguments.device.empty() ? "" : "--device";
}

int causality(const CausalityArguments& arguments, const Interrupt& interrupt) {
  const bool dump = is_dump(arguments.target);
  if (!arguments.other.empty() || dump) {
    if (const std::string option = not_run_with(arguments); !option.empty()) {
      return complain(fmt::format(
          "{} needs a target that nanscope can run: a scenario, a recording, or a checkpoint's folder", option));
    }
    return arguments.other.empty() ? look_at_dump(arguments, interrupt) : compare_recorded(arguments, interrupt);
  }
  const OutputOptions writing{.replace = arguments.force, .inputs = {arguments.target}};
  if (Status allowed = check_map(arguments, writing); !allowed) return complain(allowed.error().message);
  const auto spec = spec_of(arguments, interrupt);
  if (!spec) return failed(spec.error(), interrupt);
  scenarios::CausalityOptions options;
  options.request = arguments.request;
  options.every = arguments.tokens == "all";
  if (!options.every) {
    const auto tokens = positions(arguments.tokens);
    if (!tokens) return complain(tokens.error().message);
    options.tokens = *tokens;
  }
  if (arguments.change != "all") {
    options.changes.clear();
    for (const TokenChange change : kChanges) {
      if (name(change) == arguments.change) options.changes.push_back(change);
    }
  }
  options.map = !arguments.map.empty();
  if (options.map && arguments.tokens.empty()) options.every = true;
  options.stop = interrupt.token();
  const std::string& device = arguments.device.empty() ? spec->config.device : arguments.device;
  // A recording and a scenario may be files of others; a checkpoint's size is known to the user.
  const bool checkpoint = scenarios::is_checkpoint(arguments.target);
  const auto bench =
      scenarios::Workbench::open(device, spec->config.threads, checkpoint ? RunLimits{} : arguments.limits);
  if (!bench) return failed(bench.error(), interrupt);
  if (Status same = check_model(**bench, arguments.target, interrupt); !same) return failed(same.error(), interrupt);
  ProgressLine line("runs", arguments.progress);
  options.progress = [&line](std::int64_t done, std::int64_t total) { line.show(done, total, "compared"); };
  const auto report = scenarios::check_causality(**bench, *spec, options);
  line.clear();
  if (!report) return failed(report.error(), interrupt);
  if (options.map) {
    if (Status written = write_map(arguments, *report, writing); !written) return complain(written.error().message);
  }
  print(arguments.format == "json"  ? report::causality_json(*report, arguments.target)
        : arguments.format == "csv" ? report::causality_csv(*report)
                                    : report::causality_text(*report, arguments.target, output_terminal()));
  return report->found() ? kFound : kClean;
}

}  // namespace

void add_causality_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CausalityArguments>();
  CLI::App* command = app.add_subcommand(
      "causality", "Check whether a token depends on later tokens: change one at a time, compare the bits");
  command->add_option("TARGET", arguments->target, "A scenario, a recording, a checkpoint's folder, or a dump")
      ->required();
  command->add_option(
      "OTHER", arguments->other,
      "A second dump or recording to compare with TARGET; both prompts must begin with the same tokens");
  command->add_option("-p,--prompt", arguments->prompts, "For a checkpoint: the prompt")
      ->type_name("PROMPT")
      ->take_all();
  command->add_option("--set", arguments->settings, "Change a setting; repeatable")
      ->type_name("SETTING=VALUE")
      ->take_all();
  command
      ->add_option(
          "--tokens", arguments->tokens,
          "Token positions to change, such as 3,31,63, or all (default: the last of each tile of 32 and of the prompt)")
      ->type_name("LIST");
  command
      ->add_option(
          "--change", arguments->change,
          "How to change the token's embedding: another token's (value), negated (sign), times 8 (size), NaN (nan)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"value", "sign", "size", "nan", "all"}))
      ->capture_default_str();
  command
      ->add_option("--request", arguments->request,
                   "Index of the request whose prompt to check, from 0; earlier requests run first")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--device", arguments->device, "cpu, cpu:avx2, cuda, ... (results are bit-identical)")
      ->type_name("DEVICE");
  command
      ->add_option("--map", arguments->map,
                   "Write which tokens' logits each changed token affects, as a table (.csv) or a picture (.png); "
                   "without --tokens, change every token")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "Replace an existing map");
  add_replay_limits(*command, arguments->limits);
  add_format(*command, arguments->format, {"text", "json", "csv"});
  command->add_flag("--progress", arguments->progress, "Show progress even if standard error is not a terminal");
  command->footer(
      "nanscope runs the prompt's prefill once unchanged, and once for each token and change. All results of earlier "
      "tokens must stay bit-identical. Then nanscope runs the prompt one token per step, where no later token exists. "
      "These logits must equal those of the prefill. The report names the op where a difference first appears, and the "
      "operand whose blocks caused it. nanscope cannot rerun a dump: it checks the dump's probabilities, scores and "
      "quantized keys and values, or compares the dump with OTHER.\n"
      "\n"
      "Examples:\n"
      "  nanscope causality leaky-mxfp4-values\n"
      "  nanscope causality leaky-mxfp4-values --set attention.diagonal=exact --tokens all\n"
      "  nanscope causality leaky-mxfp4-values --change value --map leak.png\n"
      "  nanscope causality ~/models/Qwen2-0.5B -p \"Every evening\" --set attention.blocks_v=mxfp4\n"
      "  nanscope causality dump/\n"
      "  nanscope causality lamp-dump/ light-dump/\n"
      "\n"
      "Exit codes: 0 no token depends on a later one, 1 a token does, 2 bad usage or bad input, 130 interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return causality(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
