#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/command.h"
#include "scenarios/library.h"
#include "scenarios/report/run_json.h"
#include "scenarios/scenario.h"

namespace nanscope::cli {

namespace {

struct ListOptions {
  std::string target;
  std::string format = "text";
};

std::string list_text(const std::vector<scenarios::Scenario>& all, const report::Terminal& terminal) {
  report::Table table({report::Align::left, report::Align::left, report::Align::left});
  for (const scenarios::Scenario& scenario : all) {
    const bool fault = scenario.expect.verdict == Verdict::fault;
    table.row({report::printable(scenario.name, terminal),
               !fault                                ? "clean"
               : scenario.expect.fault_class.empty() ? "fault"
                                                     : report::printable(scenario.expect.fault_class, terminal),
               report::printable(scenario.title, terminal)});
  }
  return table.text("", terminal.width) +
         "\nDescribe a scenario: nanscope scenarios NAME. Run it: nanscope run NAME.\n";
}

std::string trimmed(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \n");
  return text.substr(0, end == std::string::npos ? 0 : end + 1);
}

std::string one_text(const scenarios::Scenario& scenario, const report::Terminal& terminal) {
  std::string text = report::heading(report::printable(scenario.name, terminal), terminal);
  const auto add = [&](std::string_view lead, const std::string& line) {
    text += report::paragraph(lead, report::printable(line, terminal), terminal);
  };
  add("", scenario.title);
  text += '\n' + report::paragraph("", report::safe_lines(trimmed(scenario.text), terminal), terminal) + '\n';
  if (!scenario.threads.empty()) add("Threads   ", fmt::format("{}", fmt::join(scenario.threads, ", ")));
  std::vector<std::string> knobs;
  for (const scenarios::KnobSetting& knob : scenario.knobs)
    knobs.push_back(fmt::format("{}={}", knob.name, knob.value));
  if (!knobs.empty()) add("Settings  ", fmt::format("{}", fmt::join(knobs, " ")));
  return text + fmt::format("Expected  {} {}\nRun it    nanscope run {}\n", name(scenario.expect.verdict),
                            report::printable(scenario.expect.fault_class, terminal),
                            report::printable(scenario.name, terminal));
}

nlohmann::ordered_json scenario_json(const scenarios::Scenario& scenario) {
  return {{"name", scenario.name},
          {"title", scenario.title},
          {"text", scenario.text},
          {"threads", scenario.threads},
          {"file", scenario.path.string()},
          {"verdict", name(scenario.expect.verdict)},
          {"class", scenario.expect.fault_class}};
}

int list(const ListOptions& options) {
  const auto path = options.target.empty() ? Result<std::filesystem::path>(scenarios::library_folder())
                                           : scenarios::find_scenario(options.target);
  if (!path) return complain(path.error().message);
  std::vector<std::filesystem::path> files = {*path};
  const bool folder = std::filesystem::is_directory(*path);
  if (folder) {
    auto found = scenarios::scenario_files(*path);
    if (!found) return complain(found.error().message);
    files = std::move(*found);
  }
  std::vector<scenarios::Scenario> all;
  for (const std::filesystem::path& file : files) {
    auto scenario = scenarios::load_scenario(file);
    if (!scenario) return complain(scenario.error().message);
    all.push_back(std::move(*scenario));
  }
  if (options.format == "json") {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const scenarios::Scenario& scenario : all) json.push_back(scenario_json(scenario));
    print(report::dump_json(json));
  } else {
    const report::Terminal terminal = output_terminal();
    print(folder ? list_text(all, terminal) : one_text(all.front(), terminal));
  }
  return kClean;
}

}  // namespace

void add_scenarios_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand("scenarios", "List the scenarios of the library, or describe one");
  command->add_option("SCENARIO", options->target, "A scenario to describe, or another folder to list");
  add_format(*command, options->format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  nanscope scenarios\n"
      "  nanscope scenarios kv-scale-lock\n"
      "\n"
      "Exit codes: 0 listed or described; 2 bad usage, an unknown scenario, or an unreadable file.");
  command->callback([options, &action] { action = [options](Interrupt&) { return list(*options); }; });
}

}  // namespace nanscope::cli
