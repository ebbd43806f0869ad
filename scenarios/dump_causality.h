#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "scenarios/analysis.h"

/// Whether tokens depend on later ones, of runs that cannot be run again: what two runs of prompts that differ from a
/// later token on gave before it, or which keys one run's probabilities see.
namespace nanscope::scenarios {

/// An output that differs before the first token in which the prompts do.
struct EarlyDifference {
  std::string place;  ///< as parse_place() takes it, of the second run
  std::string name;   ///< as its producer wrote it; empty where its place is its name
  std::int64_t rows = 0;
  std::int64_t first = 0;  ///< positions of the first and the last of them
  std::int64_t last = 0;
  double largest = 0;  ///< difference; infinite where one is NaN and the other not
  /// Keys or values, which are no output of a token: a leak only where one comes of it.
  bool operand = false;
};

struct TwinCausality {
  std::int64_t request = 0;
  std::int64_t tokens = 0;               ///< of the pass that was compared
  std::int64_t changed = 0;              ///< position of the first token that differs
  std::int64_t compared = 0;             ///< outputs that both have
  std::vector<EarlyDifference> outputs;  ///< in the order of execution
  /// Outputs of tokens.
  std::int64_t leaks() const;
};

/// Compares the prefill of a request of two runs, in all outputs that both hold under one name, layer and shape. A row
/// differs where it does so by more than another order of summing in its format does: 4 u of the largest of it
/// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1); codes and integers in any bit. Scores are
/// not looked at: what a mask hides has not been hidden yet. Errors: no such request, passes of other lengths, the same
/// prompts, or none with a token before the first that differs; what cannot be read.
Result<TwinCausality> compare_twins(RunView& a, RunView& b, std::int64_t request);

/// What a diagnosis of one run says of it.
struct SeenCausality {
  std::vector<Fault> leaks;
  std::string looked_at;  ///< what it was that does not leak, or what it was looked for in
};
/// Error: neither probabilities, scores, nor what quantizes keys or values was dumped, in a line.
Result<SeenCausality> seen_causality(const Analysis& analysis);

}  // namespace nanscope::scenarios
