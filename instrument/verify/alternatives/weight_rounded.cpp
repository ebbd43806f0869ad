/// A weight that was rounded to fewer bits than the checkpoint has.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_weight_rounded(const TriedOp& subject);

std::vector<OpForm> propose_weight_rounded(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::gemm) return {};
  for (const Format format : {Format::bf16, Format::f16, Format::e4m3, Format::e5m2, Format::int8}) {
    const std::string what = fmt::format("rounded to {}", name(format));
    made.add("its weight " + what, [&](OpForm& form) { form.weight_as = format; });
    made.add("its input and its weight " + what, [&](OpForm& form) { form.x_as = form.weight_as = format; });
  }
  return made.take();
}

}  // namespace nanscope
