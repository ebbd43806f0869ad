#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "instrument/verify/alternative.h"

namespace nanscope {

/// Angles that a server may have instead of the model's.
struct RopeVariant {
  std::string text;
  std::shared_ptr<const RopeAngles> angles;
};

/// Other bases, scalings left out, of other layers, of other lengths, of more or less of a head.
std::vector<RopeVariant> rope_variants(const ModelForms& model, bool local, std::int64_t context);

/// Tokens of the longest sequence of a step, those before it included.
std::int64_t longest_context(const TriedOp& subject);

}  // namespace nanscope
