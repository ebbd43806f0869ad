#include "cli/complete.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace nanscope::cli {

namespace {

/// Kinds of values without candidates: neither files nor a known set.
constexpr std::array<std::string_view, 9> kFree = {"INT",   "N",     "UINT", "FLOAT", "NUMBER",
                                                   "PLACE", "REGEX", "WxH",  "VALUE"};

const OptionSpec* find_option(const CommandSpec& command, const std::string& name) {
  for (const OptionSpec& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
  }
  return nullptr;
}

void keep_matching(std::vector<Candidate>& candidates, const std::string& typed) {
  std::erase_if(candidates, [&](const Candidate& one) { return !one.word.starts_with(typed); });
}

/// Completes the value `typed`, or its part after the last comma. `before`: the part of the word before the value.
Completion complete_value(const OptionSpec& option, std::string before, std::string typed, KnownValues known) {
  if (option.with_commas) {
    if (const std::size_t comma = typed.rfind(','); comma != std::string::npos) {
      before += typed.substr(0, comma + 1);
      typed.erase(0, comma + 1);
    }
  }
  const bool argument = !option.names.front().starts_with('-');
  const std::string& kind = argument ? option.names.front() : option.value;
  Completion result;
  for (const std::string& value : option.values) result.candidates.push_back({value, {}});
  if (option.values.empty()) result.candidates = known(kind, typed);
  const bool fixed = !result.candidates.empty() && kind != "SCENARIO";
  const bool free = std::find(kFree.begin(), kFree.end(), kind) != kFree.end();
  if (!fixed && !free) result.offer = Offer::files;
  keep_matching(result.candidates, typed);
  for (Candidate& candidate : result.candidates) candidate.word.insert(0, before);
  return result;
}

Completion complete_command(const CommandSpec& program, const std::string& typed) {
  Completion result;
  for (const CommandSpec& command : program.commands) {
    if (!command.hidden) result.candidates.push_back({command.name, command.description});
  }
  keep_matching(result.candidates, typed);
  return result;
}

Completion complete_option(const CommandSpec& command, const std::string& typed) {
  Completion result;
  for (const OptionSpec& option : command.options) {
    for (const std::string& name : option.names) result.candidates.push_back({name, option.description});
  }
  keep_matching(result.candidates, typed);
  return result;
}

/// The state of the line before the word that the user types.
struct Before {
  const OptionSpec* option = nullptr;  ///< the word is the value of this option
  std::size_t arguments = 0;           ///< number of arguments before the word
  bool rest = false;                   ///< the word follows --
};

Before read(const CommandSpec& command, std::span<const std::string> words) {
  Before before;
  for (const std::string& word : words) {
    const bool value = std::exchange(before.option, nullptr) != nullptr;
    if (value && !before.rest) continue;
    if (word == "--" && !before.rest) {
      before.rest = true;
    } else if (before.rest || !word.starts_with('-') || word == "-") {
      ++before.arguments;
    } else if (const OptionSpec* option = find_option(command, word); option != nullptr && !option->value.empty()) {
      before.option = option;
    }
  }
  return before;
}

Completion complete_argument(const CommandSpec& program, const CommandSpec& command, const Before& before,
                             const std::string& typed, KnownValues known) {
  if (command.arguments.empty()) return {};
  const std::size_t last = command.arguments.size() - 1;
  if (before.rest && command.arguments[last].value == "COMMAND") {
    return {before.arguments == 0 ? Offer::commands : Offer::files, {}};
  }
  if (before.arguments > last && !command.arguments[last].repeats) return {};
  const OptionSpec& argument = command.arguments[std::min(before.arguments, last)];
  if (argument.names.front() == "COMMAND") return complete_command(program, typed);
  return complete_value(argument, {}, typed, known);
}

}  // namespace

Completion complete(const CommandSpec& program, const std::vector<std::string>& words, KnownValues known) {
  if (words.empty()) return {};
  const std::string& typed = words.back();
  if (words.size() == 1) {
    return typed.starts_with('-') ? complete_option(program, typed) : complete_command(program, typed);
  }
  const CommandSpec* command = program.find(words.front());
  if (command == nullptr) return {};
  const Before before = read(*command, std::span(words).subspan(1, words.size() - 2));
  if (before.option != nullptr) return complete_value(*before.option, {}, typed, known);
  if (before.rest || !typed.starts_with('-')) return complete_argument(program, *command, before, typed, known);
  const std::size_t equals = typed.find('=');
  if (equals == std::string::npos) return complete_option(*command, typed);
  const OptionSpec* option = find_option(*command, typed.substr(0, equals));
  if (option == nullptr || option->value.empty()) return {};
  return complete_value(*option, typed.substr(0, equals + 1), typed.substr(equals + 1), known);
}

std::string completion_text(const Completion& completion) {
  constexpr std::array<const char*, 3> kOffers = {"nothing", "files", "commands"};
  std::string text = fmt::format("{}\n", kOffers.at(static_cast<std::size_t>(completion.offer)));
  for (const Candidate& candidate : completion.candidates) {
    text += candidate.description.empty() ? candidate.word + "\n"
                                          : fmt::format("{}  {}\n", candidate.word, candidate.description);
  }
  return text;
}

}  // namespace nanscope::cli
