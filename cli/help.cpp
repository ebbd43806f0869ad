#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "instrument/files/near_names.h"
#include "scenarios/library.h"
#include "scenarios/target_kind.h"

namespace nanscope::cli {

namespace {

/// The column where descriptions begin.
constexpr int kNames = 28;

/// A name and its description: on one line, or the description below a long name.
std::string entry(const std::string& name, const std::string& description) {
  const report::Terminal terminal = output_terminal();
  const std::string left = "  " + name;
  const auto too_long = [&](const std::string& word) { return report::display_width(word) > terminal.width - kNames; };
  const std::vector<std::string> words = report::wrap(description, 1);
  if (std::any_of(words.begin(), words.end(), too_long))
    return left + '\n' + report::paragraph("      ", description, terminal);
  const std::string lead(kNames, ' ');
  if (report::display_width(left) + 2 > kNames) return left + '\n' + report::paragraph(lead, description, terminal);
  return report::paragraph(report::pad(left, kNames), description, terminal);
}

/// Wraps lines of prose. Lines that begin with a space are commands to copy: they stay whole.
std::string folded_lines(const std::string& text) {
  const report::Terminal terminal = output_terminal();
  std::string block;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    block += line.starts_with(' ') || line.empty() ? std::string(line) + '\n' : report::paragraph("", line, terminal);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return block;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// The error for `words`, which the parser did not recognize, in the typed order.
std::string unexpected(const CLI::App& command, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.starts_with('-')) continue;
    const std::string option = word.substr(0, word.find('='));
    return fmt::format("{} has no option {}{}", command.get_name(), option,
                       did_you_mean(option, option_names(command)));
  }
  const std::string& first = words.front();
  if (first.find('=') != std::string::npos && command.get_option_no_throw("--set") != nullptr)
    return fmt::format("unexpected '{0}'; did you mean '--set {0}'?", first);
  return fmt::format("unexpected '{}': {} takes no more arguments", first, command.get_name());
}

std::vector<std::string> listed_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(command->get_name());  // the help hides the others
  }
  return names;
}

/// The command that takes the word as its target; empty: the word is no target.
std::string command_for_target(const std::string& word) {
  switch (scenarios::kind_of(word)) {
    case scenarios::TargetKind::missing:
      return scenarios::find_scenario(word) ? "run" : "";
    case scenarios::TargetKind::scenario:
    case scenarios::TargetKind::scenarios:
      return "run";
    default:
      return "diagnose";
  }
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return Formatter::make_option_name(option, true);
  std::string names;
  const auto add = [&names](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const std::string& name : option->get_snames()) add("-" + name);
  for (const std::string& name : option->get_lnames()) add("--" + name);
  return names;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return {};
  std::string text;
  // The name of a positional already says its kind.
  const std::string kind = option->get_type_name();
  if (option->nonpositional() && !kind.empty()) text += ' ' + kind.substr(0, kind.find(':'));
  if (!option->get_default_str().empty()) text += " = " + option->get_default_str();
  const bool several = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
  return several && !option->nonpositional() ? text + " ..." : text;
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_display_name(true), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return folded_lines(command->get_description());
}

std::string HelpFormatter::make_footer(const CLI::App* command) const { return folded_lines(command->get_footer()); }

std::string unknown_command(const CLI::App& app, const std::string& word) {
  const std::string meant = did_you_mean(word, listed_commands(app));
  return fmt::format("unknown command '{}'{}", word, meant.empty() ? " (try nanscope --help)" : meant);
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto chosen = app.get_subcommands();
  const std::string what = error.what();
  if (chosen.empty()) {
    if (argc < 2) return "give a command (try nanscope --help)";
    const std::string first = argv[1];
    if (first.starts_with('-')) return "nanscope has no option " + first + did_you_mean(first, option_names(app));
    if (const std::string command = command_for_target(first); !command.empty())
      return fmt::format("unknown command '{0}'; did you mean 'nanscope {1} {0}'?", first, command);
    return unknown_command(app, first);
  }
  const CLI::App& command = *chosen.front();
  const std::string help = fmt::format(" (try nanscope {} --help)", command.get_name());
  const std::vector<std::string> extra = command.remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extra.empty())
    return unexpected(command, extra) + help;
  return what + help;
}

}  // namespace nanscope::cli
