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
  std::string map;  ///< a file
  bool force = false;
  std::string format = "text";
  bool progress = false;
};

constexpr std::array kChanges = {TokenChange::value, TokenChange::sign, TokenChange::size, TokenChange::nan};

Result<scenarios::RunSpec> spec_of(const CausalityArguments& arguments, const Interrupt& interrupt) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(arguments.target) / "config.json", ignored)) {
    const auto scenario = scenario_of_model({arguments.target, arguments.settings, arguments.prompts, {}, 1});
    return scenario ? scenarios::resolve(*scenario) : tl::unexpected(scenario.error());
  }
  if (!arguments.prompts.empty()) return fail("-p is for the folder of a checkpoint; this has prompts of its own");
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
      return fail(fmt::format("--tokens: '{}' is no position; give 3,31,63, or all", item));
    }
    tokens.push_back(token);
    left.remove_prefix(std::min(left.size(), item.size() + 1));
  }
  return tokens;
}

/// Whether the map can be written, before anything runs.
Status check_map(const CausalityArguments& arguments, const OutputOptions& writing) {
  if (arguments.map.empty()) return {};
  const std::string extension = std::filesystem::path(arguments.map).extension().string();
  if (extension != ".csv" && extension != ".png") {
    return fail(fmt::format("--map {}: a name that ends in .csv or .png says what is written", arguments.map));
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

/// Of two runs, as they were recorded or dumped.
int compare_recorded(const CausalityArguments& arguments, const Interrupt& interrupt) {
  const auto a = open_target(arguments.target, interrupt, arguments.progress);
  if (!a) return failed(a.error(), interrupt);
  const auto b = open_target(arguments.other, interrupt, arguments.progress);
  if (!b) return failed(b.error(), interrupt);
  const auto twins = scenarios::compare_twins((*a)->view(), (*b)->view(), static_cast<std::int64_t>(arguments.request));
  if (!twins) {
    return failed({fmt::format("{} and {}: {}", arguments.target, arguments.other, twins.error().message)}, interrupt);
  }
  print(in_format(arguments.format, report::twins_text(*twins, arguments.target, arguments.other, output_terminal()),
                  report::twins_json(*twins, arguments.target, arguments.other), report::twins_csv(*twins)));
  return twins->leaks() == 0 ? kClean : kFound;
}

/// Of one dump, which cannot be run again.
int look_at_dump(const CausalityArguments& arguments, const Interrupt& interrupt) {
  const auto target = open_target(arguments.target, interrupt, arguments.progress);
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
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(target) / "config.json", ignored)) return false;
  const scenarios::TargetKind kind = scenarios::kind_of(target);
  return kind == scenarios::TargetKind::dump || kind == scenarios::TargetKind::recorded_dump;
}

/// What is of no use where nothing runs; empty: nothing.
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
          "{} is for what can be run again: a scenario, a recording, or the folder of a checkpoint", option));
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
  const auto bench = scenarios::Workbench::open(device, spec->config.threads);
  if (!bench) return failed(bench.error(), interrupt);
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
  CLI::App* command =
      app.add_subcommand("causality", "Does a token depend on later ones? Change one at a time and compare the bits");
  command->add_option("TARGET", arguments->target, "A scenario, a recording, the folder of a checkpoint, or a dump")
      ->required();
  command->add_option("OTHER", arguments->other,
                      "With it: two dumps or recordings whose prompts differ from a later token on are compared");
  command->add_option("-p,--prompt", arguments->prompts, "Of a checkpoint: the prompt")
      ->type_name("PROMPT")
      ->take_all();
  command->add_option("--set", arguments->settings, "Change a knob: KNOB=VALUE, repeatable")
      ->type_name("KNOB=VALUE")
      ->take_all();
  command
      ->add_option("--tokens", arguments->tokens,
                   "Positions to change, as 3,31,63, or all (default: the last of each tile of 32 and of the prompt)")
      ->type_name("LIST");
  command
      ->add_option("--change", arguments->change,
                   "What becomes of the token's embedding: another token's, negated, times 8, NaN")
      ->type_name("NAME")
      ->check(CLI::IsMember({"value", "sign", "size", "nan", "all"}))
      ->capture_default_str();
  command->add_option("--request", arguments->request, "Which request's prompt, from 0 on; those before it run first")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--device", arguments->device, "cpu, cpu:avx2, cuda, ... (the bits are the same)")
      ->type_name("DEVICE");
  command
      ->add_option("--map", arguments->map,
                   "Also change every token, and write whose logits each moves: a table (.csv) or a picture (.png)")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "Replace the map when it exists");
  add_format(*command, arguments->format, {"text", "json", "csv"});
  command->add_flag("--progress", arguments->progress, "Say how far it is, also where standard error is no terminal");
  command->footer(
      "The prompt's prefill runs once as it is and once for each token and change; whatever a token before the changed "
      "one gave has to be the same bits. Then the prompt runs one token a step, where nothing later is there: its "
      "logits "
      "have to be those of the prefill. Says in which op a difference is first seen, and from which operand's blocks. "
      "A "
      "dump cannot be run again: its probabilities, scores and quantized keys and values are looked at, or it is "
      "compared with another of a prompt that differs from a later token on.\n"
      "\n"
      "Examples:\n"
      "  nanscope causality leaky-mxfp4-values\n"
      "  nanscope causality leaky-mxfp4-values --set attention.diagonal=exact --tokens all\n"
      "  nanscope causality leaky-mxfp4-values --change value --map leak.png\n"
      "  nanscope causality ~/models/Qwen2-0.5B -p \"Every evening\" --set attention.blocks_v=mxfp4\n"
      "  nanscope causality dump/\n"
      "  nanscope causality lamp-dump/ light-dump/\n"
      "\n"
      "Exit codes: 0 no token depends on a later one, 1 one does, 2 bad usage or bad input, 130 interrupted.");
  command->callback([arguments, &action] {
    action = [arguments](Interrupt& interrupt) { return causality(*arguments, interrupt); };
  });
}

}  // namespace nanscope::cli
