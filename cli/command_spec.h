#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// The parser's command definitions as data. Manual pages and completions are generated from it, so they always match
/// the parser.
namespace nanscope::cli {

struct OptionSpec {
  std::vector<std::string> names;   ///< "-o", "--output"; for an argument one name: "SCENARIO"
  std::string value;                ///< kind of value: "FILE", "INT"; empty for a flag
  std::string range;                ///< of the value: "[0 - 1024]"; empty: no range
  std::vector<std::string> values;  ///< the allowed values, if they are a fixed set
  std::string default_value;
  std::string description;
  std::vector<std::string> needs;     ///< options that must be present, too
  std::vector<std::string> excludes;  ///< options that must be absent
  bool required = false;
  bool repeats = false;      ///< takes any number of values
  bool with_commas = false;  ///< one word can hold several values, separated by commas
};

struct CommandSpec {
  std::string name;
  std::string description;
  std::string footer;
  bool hidden = false;  ///< the help does not list it
  std::vector<OptionSpec> arguments;
  std::vector<OptionSpec> options;
  std::vector<CommandSpec> commands;

  /// Null: no command has this name.
  const CommandSpec* find(const std::string& command) const;
};

CommandSpec command_spec(const CLI::App& app);

}  // namespace nanscope::cli
