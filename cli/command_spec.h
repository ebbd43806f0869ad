#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// The commands as they were defined to the parser, as data: manual pages and completions are made from it and so
/// cannot say anything else.
namespace nanscope::cli {

struct OptionSpec {
  std::vector<std::string> names;   ///< "-o", "--output"; of an argument its one name: "SCENARIO"
  std::string value;                ///< what it takes: "FILE", "INT"; empty for a flag and an argument
  std::string range;                ///< of the value: "[0 - 1024]"; empty where there is none
  std::vector<std::string> values;  ///< those that the parser takes, where they are a fixed set
  std::string default_value;
  std::string description;
  std::vector<std::string> needs;     ///< options without which it is refused
  std::vector<std::string> excludes;  ///< options beside which it is refused
  bool required = false;
  bool repeats = false;      ///< takes any number of values
  bool with_commas = false;  ///< several values are one word
};

struct CommandSpec {
  std::string name;
  std::string description;
  std::string footer;
  bool hidden = false;  ///< from help
  std::vector<OptionSpec> arguments;
  std::vector<OptionSpec> options;
  std::vector<CommandSpec> commands;

  /// Null when there is none of that name.
  const CommandSpec* find(const std::string& command) const;
};

CommandSpec command_spec(const CLI::App& app);

}  // namespace nanscope::cli
