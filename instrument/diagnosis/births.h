#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instrument/diagnosis/facts.h"

namespace nanscope {

/// NaN or Inf in an output though what made those rows was healthy.
struct Birth {
  OpId op = 0;
  StepId step = 0;
  TensorId tensor = 0;             ///< the output that shows it
  std::vector<std::int64_t> rows;  ///< of it: bad, and of healthy inputs; empty where which rows is not known
  /// It reaches a row that is somebody's. What is born in padding and stays there harms nobody.
  bool matters = false;
  /// What it was made of was dumped; else something that was not dumped may have been bad before.
  bool inputs_known = true;
  std::vector<std::string> bad_parameters;  ///< roles of inputs (weight, scale, mask ...) that hold NaN or Inf
  TensorId read = 0;                        ///< keys or values from which it came, when it entered from a KV cache
  std::vector<KeyRow> keys;                 ///< those rows of `read` that are bad, and whose they are
};

struct Births {
  std::vector<Birth> all;
  std::vector<StepId> steps;  ///< that were looked at
  bool cut = false;           ///< there were more steps with NaN or Inf, behind many in which one is born that matters
};

/// Of all steps that hold NaN or Inf, in order of execution. Of each request the steps up to the first whose logits are
/// bad: what follows in a request that answers NaN are consequences.
Births births_of(Facts& facts);

/// Whether a row of scores is bad for keys alone that it does not see: whether that does harm shows behind the mask.
bool bad_unseen(Facts& facts, const Tensor& scores, std::int64_t row);

}  // namespace nanscope
