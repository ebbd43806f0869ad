#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// out = patches * weight' + bias: the walk ends at the image.
Explanation explain_patch_embedding(const Subject& subject) {
  Explanation found;
  if (const std::optional<Operand> patches = operand(subject, {"patches", "x"})) {
    return follow_row(subject, *patches, "one sum over the patch");
  }
  found.origin = subject.bad;
  found.text = "the projection of an image patch";
  return found;
}

}  // namespace nanscope
