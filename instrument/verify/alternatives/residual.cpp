/// A term of a sum left out, or added twice; without the model's factor; of a mixture's, a term times the model's
/// factor or divided by it.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_residual(const TriedOp& subject);

std::vector<OpForm> propose_residual(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::residual_add && subject.op.kind != OpKind::gated_add) return {};
  for (const OpForm& fault : recipe_of(subject.op.kind)->faults(subject.values, subject.op, subject.out))
    made.add(fault.text, [&](OpForm& form) { form.variant = fault.variant; });
  if (subject.op.name != "shared_add" && subject.form.number != 0) {
    made.add(fmt::format("the factor of {:.6g} on the branch left out", subject.form.number),
             [](OpForm& form) { form.number = 0; });
  }
  const double factor = double{subject.model.spec().moe.scale};
  if (subject.op.name != "shared_add" || factor == 1) return made.take();
  for (const int term : {kFirstTimes, kSecondTimes}) {
    const std::string_view part = term == kFirstTimes ? "routed experts" : "shared expert";
    for (const bool divided : {false, true}) {
      made.add(fmt::format("the {} {} the model's factor of {:.6g}", part, divided ? "divided by" : "times", factor),
               [&](OpForm& form) {
                 form.variant = term;
                 form.number = divided ? 1 / factor : factor;
               });
    }
  }
  return made.take();
}

}  // namespace nanscope
