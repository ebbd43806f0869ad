#pragma once
#include <CLI/CLI.hpp>
#include <string>

/// How help and what the parser refuses are worded.
namespace nanscope::cli {

/// Help at the width of the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;
};

/// One line on what the parser found wrong: the option or the command that was meant, or where help is.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

}  // namespace nanscope::cli
