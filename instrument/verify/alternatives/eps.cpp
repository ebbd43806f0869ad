/// Another eps in a norm: the default of a framework instead of the model's.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_eps(const TriedOp& subject);

std::vector<OpForm> propose_eps(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::layer_norm) return {};
  for (const double eps : {1e-5, 1e-6, 1e-8, 1e-12, 0.0, 1e-7, 1e-4, 1e-3, 1e-2})
    made.add(fmt::format("an eps of {} instead of {}", eps, subject.form.number),
             [&](OpForm& form) { form.number = eps; });
  return made.take();
}

}  // namespace nanscope
