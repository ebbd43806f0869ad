#pragma once
#include <string>
#include <vector>

#include "cli/command_spec.h"

/// What a shell offers when Tab is pressed. The shells' own scripts (cli/completions/) ask the program at every press:
/// what they offer is what the program that is there takes.
namespace nanscope::cli {

struct Candidate {
  std::string word;  ///< in place of the word that is typed
  std::string description;
};

/// What the shell itself may add, which knows the names of files better.
enum class Offer { nothing, files, commands };

struct Completion {
  Offer offer = Offer::nothing;
  std::vector<Candidate> candidates;
};

/// Values that a kind of value has and the parser does not check: of "VIEW" the views. `typed` is what there is of it.
using KnownValues = std::vector<Candidate> (*)(const std::string& kind, const std::string& typed);

/// `words`: of the line, without the program, up to the cursor; the last is being typed and may be empty.
Completion complete(const CommandSpec& program, const std::vector<std::string>& words, KnownValues known);

/// For the shells: what they may add ("files", "commands", "nothing"), then a line a candidate, with two
/// spaces before its description.
std::string completion_text(const Completion& completion);

}  // namespace nanscope::cli
