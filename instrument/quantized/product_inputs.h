#pragma once
#include "core/run/op_attributes.h"
#include "instrument/quantized/quantization_config.h"
#include "instrument/quantized/stored_module.h"

namespace nanscope {

/// What a quantized checkpoint says of the product with a module's weight: what servers cast its input to, and by which
/// scales. Nothing where the input stays as it is; "unknown" where the config says a cast that is not known here.
GemmAttributes product_of(const StoredModule& module, const QuantizationConfig& config);

/// Whether a tensor of a quantized module is of the product's input, and no part of the weight.
bool is_of_input(std::string_view part);

}  // namespace nanscope
