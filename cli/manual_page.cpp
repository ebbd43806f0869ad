#include "cli/manual_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace nanscope::cli {

namespace {

/// Escapes a line of text: no character acts as a roff command.
std::string roff(std::string_view text) {
  std::string result;
  if (text.starts_with('.') || text.starts_with('\'')) result = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string section(std::string_view title) { return fmt::format(".SH {}\n", title); }

/// "SCENARIO...", "[PLACE]".
std::string argument_usage(const OptionSpec& argument) {
  const std::string name = italic(argument.names.front()) + (argument.repeats ? " ..." : "");
  return argument.required ? name : "[" + name + "]";
}

/// The description without the command's name at its start and without the final period.
std::string purpose(const CommandSpec& command) {
  std::string text = command.description;
  if (text.starts_with(command.name + " ")) text.erase(0, command.name.size() + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string synopsis(const CommandSpec& program, const CommandSpec& command) {
  std::string line = bold(program.name);
  if (&command != &program) line += " " + bold(command.name);
  if (!command.options.empty()) line += " [" + italic("OPTION") + "]...";
  for (const OptionSpec& argument : command.arguments) line += " " + argument_usage(argument);
  if (!command.commands.empty()) line += " " + italic("COMMAND") + " ...";
  return section("SYNOPSIS") + line + "\n";
}

/// "-o, --output FILE", "--format {text|json}".
std::string option_heading(const OptionSpec& option) {
  std::string heading;
  for (const std::string& name : option.names) heading += (heading.empty() ? "" : ", ") + bold(name);
  if (!option.values.empty()) {
    heading += " {" + bold(fmt::format("{}", fmt::join(option.values, "|"))) + "}";
  } else if (!option.value.empty()) {
    heading += " " + italic(option.value);
  }
  return heading;
}

std::string sentences(const OptionSpec& option) {
  std::string text = roff(option.description);
  const auto add = [&](const std::string& sentence) {
    if (!text.empty() && !text.ends_with('.')) text += '.';
    text += (text.empty() ? "" : " ") + sentence;
  };
  if (!option.range.empty()) add("Range: " + roff(option.range) + ".");
  if (!option.default_value.empty()) add("Default: " + bold(option.default_value) + ".");
  if (option.required && option.names.front().starts_with('-')) add("Required.");
  if (!option.needs.empty()) add("Only with " + roff(fmt::format("{}", fmt::join(option.needs, ", "))) + ".");
  if (!option.excludes.empty()) add("Not with " + roff(fmt::format("{}", fmt::join(option.excludes, ", "))) + ".");
  return text + (text.ends_with('.') ? "\n" : ".\n");
}

std::string entries(std::string_view title, const std::vector<OptionSpec>& options, bool arguments) {
  if (options.empty()) return {};
  std::string text = section(title);
  for (const OptionSpec& option : options) {
    text += fmt::format(".TP\n{}\n{}", arguments ? italic(option.names.front()) : option_heading(option),
                        sentences(option));
  }
  return text;
}

std::string commands(const CommandSpec& program) {
  std::string text;
  for (const CommandSpec& command : program.commands) {
    if (command.hidden) continue;
    text += fmt::format(".TP\n{}(1)\n{}\n", bold(manual_name(program, command)), roff(command.description));
  }
  return text.empty() ? text : section("COMMANDS") + text;
}

std::vector<std::vector<std::string>> paragraphs(const std::string& text) {
  std::vector<std::vector<std::string>> result(1);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end == begin) {
      result.emplace_back();
    } else {
      result.back().push_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  std::erase_if(result, [](const auto& lines) { return lines.empty(); });
  return result;
}

/// The footer of the help. A paragraph that begins with "Title:" becomes a section with this title; any other paragraph
/// belongs to the description. Indented lines keep their line breaks.
struct Footer {
  std::string description;
  std::string sections;
};

std::string section_title(const std::string& title) {
  if (title == "Start here") return "EXAMPLES";
  return title == "Exit codes" ? "EXIT STATUS" : upper(title);
}

std::string body(const std::vector<std::string>& lines) {
  std::string text;
  bool literal = false;
  for (const std::string& line : lines) {
    if (const bool indented = line.starts_with("  "); indented != literal) {
      if (indented && !text.empty()) text += ".PP\n";
      text += indented ? ".nf\n" : ".fi\n.PP\n";
      literal = indented;
    }
    text += roff(literal ? line.substr(2) : line) + "\n";
  }
  return text + (literal ? ".fi\n" : "");
}

Footer footer(const std::string& help) {
  Footer footer;
  for (std::vector<std::string>& lines : paragraphs(help)) {
    std::string& first = lines.front();
    const std::size_t colon = first.find(':');
    const bool titled = colon != std::string::npos && colon < 20 && std::isupper(static_cast<unsigned char>(first[0]));
    if (!titled) {
      footer.description += ".PP\n" + body(lines);
      continue;
    }
    footer.sections += section(section_title(first.substr(0, colon)));
    const std::size_t rest = first.find_first_not_of(' ', colon + 1);
    if (rest == std::string::npos) {
      lines.erase(lines.begin());
    } else {
      first.erase(0, rest);
      first.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(first.front())));
    }
    footer.sections += body(lines);
  }
  return footer;
}

std::string see_also(const CommandSpec& program, const CommandSpec& command) {
  std::string text;
  const auto add = [&](const CommandSpec& other) {
    if (&other == &command || other.hidden) return;
    text += fmt::format("{}{}(1)", text.empty() ? "" : ",\n", bold(manual_name(program, other)));
  };
  add(program);
  for (const CommandSpec& other : program.commands) add(other);
  return section("SEE ALSO") + text + "\n";
}

}  // namespace

std::string manual_name(const CommandSpec& program, const CommandSpec& command) {
  return &command == &program ? program.name : program.name + "-" + command.name;
}

std::string manual_page(const CommandSpec& program, const CommandSpec& command, const std::string& version) {
  const std::string name = manual_name(program, command);
  const Footer foot = footer(command.footer);
  std::string page = fmt::format(".TH {} 1 \"\" \"nanscope {}\" \"User Commands\"\n", roff(upper(name)), version);
  page += section("NAME") + roff(name) + " \\- " + roff(purpose(command)) + "\n";
  page += synopsis(program, command);
  page += section("DESCRIPTION") + roff(command.description) + (command.description.ends_with('.') ? "\n" : ".\n");
  page += foot.description;
  if (&command == &program) page += commands(program);
  page += entries("ARGUMENTS", command.arguments, true) + entries("OPTIONS", command.options, false);
  return page + foot.sections + see_also(program, command);
}

}  // namespace nanscope::cli
