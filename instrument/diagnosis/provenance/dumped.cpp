#include <fmt/format.h>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// What its module computes is not known, what went into it is: the bad input of the same row, else of any row; with
/// healthy inputs alone, this is where it was born.
Explanation explain_dumped(const Subject& subject) {
  // Not an input: what was dumped before a tensor of which no name says what it was made of.
  const std::optional<Operand> before = operand(subject, {"before"});
  if (before) {
    Explanation found = follow_row(subject, *before, "nothing says what it was made of; before it came");
    found.danger = found.danger || found.origin;
    return found;
  }
  Explanation found = explain_by_inputs(subject);
  if (found.text.empty()) {
    found.origin = subject.bad;
    found.text = "nothing says how it was made";
  }
  return found;
}

/// A module of modules: what its parts put out was not dumped.
Explanation explain_block(const Subject& subject) {
  Explanation found = explain_by_inputs(subject);
  if (!found.text.empty()) found.text += "; the inside of this module was not dumped";
  return found;
}

}  // namespace nanscope
