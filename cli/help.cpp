#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "instrument/files/near_names.h"

namespace nanscope::cli {

namespace {

/// Where descriptions begin.
constexpr int kNames = 28;

/// A name and what it stands for beside it, or below where the name is long.
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

/// Lines of prose are folded; those that begin with a space are commands to copy.
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

/// Of what the parser took for nothing that it knows, in the order in which it was typed.
std::string unexpected(const CLI::App& command, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.starts_with('-')) continue;
    const std::string option = word.substr(0, word.find('='));
    return fmt::format("{} has no option {}{}", command.get_name(), option,
                       did_you_mean(option, option_names(command)));
  }
  const std::string& first = words.front();
  if (first.find('=') != std::string::npos && command.get_option_no_throw("--set") != nullptr)
    return fmt::format("'{0}' was not expected; did you mean '--set {0}'?", first);
  return fmt::format("'{}' was not expected: {}", first, command.get_name() + " takes no more");
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return {};
  std::string text;
  // A positional's name says what it is.
  const std::string stands_for = option->get_type_name();
  if (option->nonpositional()) text += ' ' + stands_for.substr(0, stands_for.find(':'));
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

std::string usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto chosen = app.get_subcommands();
  const std::string what = error.what();
  if (chosen.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({})) {
      if (!command->get_group().empty()) names.push_back(command->get_name());  // others are not in the help
    }
    if (argc < 2) return "which command? (try nanscope --help)";
    const std::string first = argv[1];
    if (first == "help") return "help of all is nanscope --help, of one command nanscope COMMAND --help";
    if (first.starts_with('-')) return "there is no option " + first + did_you_mean(first, option_names(app));
    return fmt::format("unknown command '{}'{}", first, did_you_mean(first, names));
  }
  const CLI::App& command = *chosen.front();
  const std::string help = fmt::format(" (try nanscope {} --help)", command.get_name());
  const std::vector<std::string> extra = command.remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extra.empty())
    return unexpected(command, extra) + help;
  return what + help;
}

}  // namespace nanscope::cli
