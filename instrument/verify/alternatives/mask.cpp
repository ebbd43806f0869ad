/// Later keys let in, a token's own hidden, no mask at all.
#include <fmt/format.h>

#include "instrument/recompute/keys.h"
#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_mask(const TriedOp& subject);

std::vector<OpForm> propose_mask(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::softmax && subject.op.kind != OpKind::attention) return {};
  made.add("no mask: later tokens are seen", [](OpForm& form) { form.variant = kNoMask, form.window = 0; });
  for (const int shift : {1, 2, -1})
    made.add(shift > 0 ? fmt::format("a mask that lets {} later {} in", shift, shift == 1 ? "key" : "keys")
                       : "a mask that hides a token's own key",
             [&](OpForm& form) { form.shift = shift; });
  for (const int variant : {kGivenMask, kGivenCausal})
    made.add("the mask that was dumped, which is not the model's",
             [&](OpForm& form) { form.variant = variant, form.window = 0; });
  return made.take();
}

}  // namespace nanscope
