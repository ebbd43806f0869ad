#include <fmt/format.h>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// Element by element into another format.
Explanation explain_cast(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x"});
  if (!x) return {};
  return follow_element(subject, *x, subject.element.channel, fmt::format("cast to {}", name(subject.tensor.format)));
}

}  // namespace nanscope
