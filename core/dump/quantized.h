#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/dump/facts.h"

/// Tensors of codes together with what they were made of and what was made of them.
namespace nanscope {

struct Quantized {
  TensorIndex codes = 0;
  std::optional<TensorIndex> source;    ///< the values before the cast
  std::optional<TensorIndex> scale;     ///< real = code value x scale
  std::optional<TensorIndex> readback;  ///< the values after reading them back
};

/// Of all tensors that hold codes of 8 bits or fewer, weights included, in order.
std::vector<Quantized> quantized_tensors(DumpFacts& facts);

/// The scale of each element: one for all, or one a row, channel, head or block. Scales in r x c blocks are
/// spread over rows and channels evenly, as block scaling does.
class ScaleGrid {
 public:
  /// Nothing when the scale's shape fits none of these, or it cannot be read.
  static std::optional<ScaleGrid> of(DumpFacts& facts, TensorIndex scale, TensorIndex scaled);
  float at(std::int64_t row, std::int64_t channel) const;
  bool single() const { return values_->size() == 1; }
  float first() const { return values_->front(); }

 private:
  std::shared_ptr<const std::vector<float>> values_;
  std::int64_t rows_ = 1;  ///< of the grid
  std::int64_t columns_ = 1;
  std::int64_t row_period_ = 0;  ///< for a scale a head where heads are rows: the row modulo this
  std::int64_t rows_a_cell_ = 1;
  std::int64_t channels_a_cell_ = 1;
};

/// All values of codes, source and scale of one quantized tensor, element by element.
struct QuantizedElements {
  std::shared_ptr<const std::vector<float>> code_values;
  std::shared_ptr<const std::vector<float>> source;
  std::int64_t channels = 1;
  ScaleGrid scale;

  float scale_at(std::size_t element) const {
    const auto index = static_cast<std::int64_t>(element);
    return scale.at(index / channels, index % channels);
  }
};
/// Nothing when source or scale were not dumped, or their sizes do not fit.
std::optional<QuantizedElements> elements_of(DumpFacts& facts, const Quantized& quantized);

/// The scale that code values and their source imply, and how well all agree on it. For dumps without their scales.
struct ImpliedScale {
  double scale = 0;
  double agreeing = 0;  ///< share of the elements that are not clipped and agree within the format's rounding
};
std::optional<ImpliedScale> implied_scale(DumpFacts& facts, const Quantized& quantized);

}  // namespace nanscope
