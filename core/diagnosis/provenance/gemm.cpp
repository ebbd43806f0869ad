#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// out[t, n] = sum over k of x[t, k] * weight[n, k] + bias[n]: one bad x makes the whole row bad, one bad weight
/// row makes a column bad.
Explanation explain_gemm(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x"});
  Explanation found;
  if (!x) {
    found.text = "a product whose input was not recorded";
    return found;
  }
  found = follow_row(subject, *x, "one sum over the row");
  if (!found.origin) return found;
  if (text_attribute(subject.op, "partial_sums").value_or("") == "f16") {
    found.text += "; each sum over 32 of its elements is rounded to f16, whose largest is 65504";
  }
  blame_bad_weight(subject, "the row of x is healthy", found);
  return found;
}

}  // namespace nanscope
