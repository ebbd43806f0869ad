/// What a product reads rounded to fewer bits than the model has.
#include <fmt/format.h>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_input_rounded(const TriedOp& subject);

std::vector<OpForm> propose_input_rounded(const TriedOp& subject) {
  Proposals made(subject);
  if (subject.op.kind != OpKind::gemm) return {};
  for (const Format format : {Format::bf16, Format::f16, Format::e4m3, Format::e5m2, Format::int8})
    made.add(fmt::format("its input rounded to {}", name(format)), [&](OpForm& form) { form.x_as = format; });
  return made.take();
}

}  // namespace nanscope
