#pragma once
#include <span>
#include <string>
#include <vector>

#include "scenarios/analysis.h"
#include "scenarios/judge.h"
#include "scenarios/report/text.h"

/// A run as a person reads it in a terminal: the answer, then from the outside in what the run answered, where it went
/// wrong, by which events and on what the verdict rests. The same for recordings and dumps.
namespace nanscope::report {

/// What is known about a run besides its numbers.
struct RunContext {
  std::string command;    ///< "run", "diagnose": the first word of the heading
  std::string title;      ///< the scenario's, may be empty
  std::string recording;  ///< its path as commands take it, may be empty
  bool judged = false;    ///< there was an expectation
  std::vector<scenarios::Missed> missed;
  std::vector<std::size_t> accepted = {};  ///< indices of faults, see Diagnosed
};

/// The answer first (answer.h), then what it rests on.
std::string run_text(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal);

// Its parts, each a block of lines that ends with a newline, or empty when there is nothing to say.
/// ", products by tensor cores" where the run's bits are those of the device that recorded it; else empty.
std::string kernel_form_text(const RunInfo& info);
std::string header_text(const scenarios::Analysis& analysis, const RunContext& context, const Terminal& terminal);
std::string requests_text(std::span<const scenarios::RequestOutcome> requests, const Terminal& terminal);
/// The token x layer map, one character a cell. When the tokens do not fit the width, a character
/// stands for several tokens and shows the worst of them.
std::string front_text(const Front& front, const Terminal& terminal);
std::string judgement_text(std::span<const scenarios::Missed> missed, const Terminal& terminal);
/// The commands that lead on from here.
std::vector<std::string> next_commands(const scenarios::Analysis& analysis, const std::string& recording,
                                       const std::string& program);

}  // namespace nanscope::report
