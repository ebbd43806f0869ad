#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "core/run/fact.h"
#include "instrument/quantized/packed_weight.h"
#include "instrument/quantized/quantization_config.h"
#include "instrument/quantized/stored_module.h"

namespace nanscope {

/// Where the second scale of a weight of blocks stands.
enum class GlobalScale : std::uint8_t {
  none,
  divisor,     ///< compressed-tensors: 448 * 6 / amax
  multiplier,  ///< ModelOpt: amax / (448 * 6)
};

/// A weight as it is stored: codes, and scales that blocks of them share. Views into the checkpoint, unless its codes
/// are of a packed layout.
struct StoredMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Format element = Format::f32;
  bool packed = false;  ///< two 4-bit codes in a byte, the lower half first
  std::span<const std::byte> codes;
  std::optional<Format> scale;  ///< none: the codes are the values
  std::span<const std::byte> scales;
  std::int64_t block_rows = 0;  ///< rows that share a scale
  std::int64_t block_columns = 0;
  std::int64_t scale_columns = 0;  ///< scales in a row of the grid
  GlobalScale global = GlobalScale::none;
  float global_scale = 1;
  std::optional<Format> scales_as = {};        ///< what row() rounds scales to first, as a server that loads them so
  std::shared_ptr<const PackedWeight> layout;  ///< codes, scales and zero points, instead of the views; else null

  bool quantized() const { return scale.has_value(); }
  std::int64_t scale_rows() const { return (rows + block_rows - 1) / block_rows; }
  /// Codes of a row, less their zero points.
  void codes_of_row(std::int64_t row, std::span<float> values) const;
  /// The block scales of a row, one a block, without the global one.
  void scales_of_row(std::int64_t row, std::span<float> values) const;
  /// What a row stands for: code x scale, by a global scale that is applied to the block's scale first, each rounded to
  /// f32. `values` has `columns` elements.
  void row(std::int64_t row, std::span<float> values) const;
  /// In a few words: "e4m3, f32 scales of 128 x 128".
  std::string text() const;
};

/// What makes a matrix of a module's tensors. Absent: it has no weight. Not understood: a packed layout that is not
/// decoded. Unreadable, with the tensor that does not fit and shapes: a scale of another shape than the weight's
/// blocks, a packed weight without a scale, a dtype that is no code.
Fact<StoredMatrix> stored_matrix(const StoredModule& module, const QuantizationConfig& config);

/// Values of a small tensor that holds scales: floats, or U8 as powers of two (E8M0, OCP MX 1.0 section 5.4.1).
Result<std::vector<float>> scale_values(const CheckpointFiles::Tensor& tensor);

}  // namespace nanscope
