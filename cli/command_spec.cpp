#include "cli/command_spec.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace nanscope::cli {

namespace {

/// The members of "{text,json}"; empty for any other constraint.
std::vector<std::string> members(const std::string& constraint) {
  std::vector<std::string> result;
  if (!constraint.starts_with('{') || !constraint.ends_with('}')) return result;
  std::stringstream list(constraint.substr(1, constraint.size() - 2));
  for (std::string one; std::getline(list, one, ',');) result.push_back(one);
  return result;
}

/// Parses a type name of CLI11: "TEXT:{text,json}", "INT:INT in [0 - 1024]" or "FILE".
void set_value(OptionSpec& spec, const std::string& type_name) {
  const std::size_t colon = type_name.find(':');
  spec.value = type_name.substr(0, colon);
  if (colon == std::string::npos) return;
  const std::string constraint = type_name.substr(colon + 1);
  spec.values = members(constraint);
  constexpr std::string_view kIn = " in ";
  if (const std::size_t in = constraint.find(kIn); in != std::string::npos) {
    spec.range = constraint.substr(in + kIn.size());
  }
}

std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return names;
}

OptionSpec option_spec(const CLI::Option& option) {
  OptionSpec spec;
  spec.description = option.get_description();
  spec.required = option.get_required();
  spec.repeats = option.get_items_expected_max() >= CLI::detail::expected_max_vector_size;
  spec.with_commas = option.get_delimiter() != '\0';
  spec.needs = names_of(option.get_needs());
  spec.excludes = names_of(option.get_excludes());
  spec.default_value = option.get_default_str();
  if (option.get_items_expected_max() > 0) set_value(spec, option.get_type_name());
  if (option.get_positional()) {
    spec.names = {option.get_name(true)};
    return spec;
  }
  for (const std::string& name : option.get_snames()) spec.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) spec.names.push_back("--" + name);
  return spec;
}

}  // namespace

const CommandSpec* CommandSpec::find(const std::string& command) const {
  const auto found =
      std::find_if(commands.begin(), commands.end(), [&](const CommandSpec& one) { return one.name == command; });
  return found == commands.end() ? nullptr : &*found;
}

CommandSpec command_spec(const CLI::App& app) {
  CommandSpec spec;
  spec.name = app.get_name();
  spec.description = app.get_description();
  spec.footer = app.get_footer();
  spec.hidden = app.get_group().empty();
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? spec.arguments : spec.options).push_back(option_spec(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    spec.commands.push_back(command_spec(*command));
  }
  return spec;
}

}  // namespace nanscope::cli
