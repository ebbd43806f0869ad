#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "instrument/quantize/quantize.h"
#include "instrument/weights/checkpoint_files.h"

namespace nanscope {

/// What becomes of the tensors of a checkpoint.
struct QuantizePlan {
  struct Weight {
    CheckpointFiles::Tensor tensor;
    std::string module;
    std::vector<std::string>
        shared;  ///< tensors whose largest magnitude sets the scale of the whole, its own among them
  };
  std::map<std::string, Weight, std::less<>> weights;  ///< by the name of the tensor
  std::vector<std::string> kept;                       ///< modules whose matrices stay floats
};

/// Errors: a weight that does not fit to the target's blocks, or that a loader of its layout would refuse or read
/// wrongly; all of them are counted, the first is named.
Result<QuantizePlan> plan_quantization(const CheckpointFiles& files, const QuantizeOptions& options);

/// The tensors that a weight is stored as.
std::vector<SafetensorsSpec> stored_as(const QuantizeOptions& options, const QuantizePlan::Weight& weight);

/// Whether a scale of inputs is written beside each weight.
bool writes_inputs(const QuantizeOptions& options);

/// Blocks of a weight.
BlockFormat format_of(const QuantizeTarget& target, std::int64_t rows, std::int64_t columns);

}  // namespace nanscope
