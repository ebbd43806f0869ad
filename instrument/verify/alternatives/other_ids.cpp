/// Rows of other tokens, or of other positions.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_other_ids(const TriedOp& subject);

std::vector<OpForm> propose_other_ids(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::embedding) return {};
  const bool positions = subject.op.name != "embed";
  for (const int off : {1, -1, 2, -2})
    made.add(fmt::format("{} off by {}", positions ? "positions" : "token ids", off),
             [&](OpForm& form) { form.ids_off = off; });
  for (const int shift : {1, -1})
    made.add(fmt::format("rows of the {} {}", positions ? "position" : "token", shift > 0 ? "behind" : "before"),
             [&](OpForm& form) { form.shift = shift; });
  return made.take();
}

}  // namespace nanscope
