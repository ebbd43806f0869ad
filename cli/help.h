#pragma once
#include <CLI/CLI.hpp>
#include <string>

/// The texts of the help and of usage errors.
namespace nanscope::cli {

/// Formats the help for the width of the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;
};

/// The error for a word that names no command, with the nearest command.
std::string unknown_command(const CLI::App& app, const std::string& word);

/// The parser's error in one line, with the option or command that the user may have meant, or the way to the help.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

}  // namespace nanscope::cli
