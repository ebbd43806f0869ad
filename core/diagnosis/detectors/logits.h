#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {

/// The first token that a request chose from a row of logits, or of probabilities made of them, that is all NaN.
struct NanChoice {
  StepRow step;
  TensorRow logits;           ///< what the argmax read
  OpRow argmax;               ///< the op that chose; the logits' op when none was recorded
  std::int64_t row = 0;       ///< of the logits: the step's last
  std::int64_t rows = 0;      ///< rows of the logits that are all NaN
  std::int64_t token = 0;     ///< what was chosen; -1: it refused
  std::string text;           ///< of that token
  std::int64_t repeated = 0;  ///< how many tokens of the request's output are that one
};

/// One a request, in logical order.
std::vector<NanChoice> nan_choices(Facts& facts);

}  // namespace nanscope
