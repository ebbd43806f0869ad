#pragma once
#include <string>
#include <vector>

#include "cli/command_spec.h"

/// Completion of command lines. At each Tab, the shells' scripts (cli/completions/) run `nanscope complete`, so the
/// candidates always match the installed program.
namespace nanscope::cli {

struct Candidate {
  std::string word;  ///< replaces the typed word
  std::string description;
};

/// Candidates that the shell adds itself.
enum class Offer { nothing, files, commands };

struct Completion {
  Offer offer = Offer::nothing;
  std::vector<Candidate> candidates;
};

/// Returns the candidates for a kind of value that the parser does not check: for "VIEW" the views. `typed`: the value
/// so far.
using KnownValues = std::vector<Candidate> (*)(const std::string& kind, const std::string& typed);

/// `words`: the words of the line after the program's name, up to the cursor. The last one is the typed word and may be
/// empty.
Completion complete(const CommandSpec& program, const std::vector<std::string>& words, KnownValues known);

/// The output for the shells: a line with the Offer ("files", "commands", "nothing"), then one line per candidate, with
/// two spaces before its description.
std::string completion_text(const Completion& completion);

}  // namespace nanscope::cli
