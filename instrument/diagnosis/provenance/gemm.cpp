#include <fmt/format.h>

#include <cmath>

#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {

/// out[t, n] = sum over k of x[t, k] * weight[n, k] + bias[n]: one bad x makes the whole row bad, one bad weight
/// row makes a column bad. Of x and its codes, what is multiplied are the codes.
Explanation explain_gemm(const Subject& subject) {
  const std::optional<Operand> codes = operand(subject, {"codes"});
  const std::optional<Operand> x = codes ? codes : operand(subject, {"x"});
  Explanation found;
  if (!x) {
    found = explain_by_inputs(subject);
    if (found.text.empty()) found.text = "a product whose input was not recorded";
    return found;
  }
  found = follow_row(subject, *x, "one sum over the row");
  if (!found.origin) return found;
  if (attributes<GemmAttributes>(subject.op).partial_sums.value_or("") == "f16") {
    found.text += "; each sum over 32 of its elements is rounded to f16, whose largest is 65504";
  }
  if (of_dump(subject.tensor) && subject.value && std::isinf(*subject.value)) {
    const FormatInfo& format = info(subject.tensor.format);
    found.text += fmt::format("; the sum is beyond the largest finite {} {:g}", format.name, format.max_finite);
  }
  if (found.element) blame_scale(subject, {"x_scale"}, *found.element, found);
  blame_scale(subject, {"weight_scale", "weight_scale_2"}, subject.element, found);
  blame_bad_weight(subject, "the row of x is healthy", found);
  return found;
}

}  // namespace nanscope
