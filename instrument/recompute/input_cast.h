#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/run/fact.h"
#include "instrument/recompute/recipe.h"
#include "instrument/recompute/values.h"

/// Inputs of products that are cast to 8 bits when the product runs, and whose codes were not dumped.
namespace nanscope {

/// Which elements share a scale.
enum class CastScales : std::uint8_t {
  fixed,   ///< by a scale that was dumped, or is in the checkpoint
  tensor,  ///< the largest magnitude of all rows of the step
  row,
  row_or_tensor,  ///< as the GPU's kernels can: vLLM under quant_method fp8
  group,          ///< of some elements of a row
};

struct InputCast {
  Format format = Format::e4m3;
  CastScales scales = CastScales::fixed;
  std::int64_t group = 0;
};

/// What is known of the cast of a product's input: by its attributes, or a scale of its input that was dumped without
/// codes. Nothing: there is none. Not understood: there is one that cannot be computed.
Fact<InputCast> input_cast(RunView& run, const Op& op);

/// The forms of it: in f32, as kernels do, and each step rounded to the activations' format, as torch does.
void add_casts(Values& values, const Op& op, const InputCast& cast, std::vector<OpForm>& forms);

/// Casts what rows [first, first + x.rows) of the output read by a form of add_casts(). False, with the reason, where
/// it cannot.
bool cast_input(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first, Block& x,
                std::string& why);

}  // namespace nanscope
