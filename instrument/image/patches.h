#pragma once
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "instrument/image/image.h"

namespace nanscope {

/// What the samples 0..255 become.
enum class SampleRange : std::uint8_t {
  unit,       ///< [0, 1]: sample / 255
  symmetric,  ///< [-1, 1]: (2 * sample - 255) / 255
};

/// An image cut into square patches, one matrix row each, as vision transformers read it
/// (Dosovitskiy et al. 2021, "An image is worth 16x16 words", section 3.1).
struct Patches {
  std::int64_t rows = 0;     ///< patches: across first, then down
  std::int64_t columns = 0;  ///< 3 * size * size
  std::int64_t across = 0;   ///< patches per image row
  std::int64_t down = 0;
  std::vector<float> values;  ///< rows x columns, row-major f32
};

/// Cuts the image. Column ((y * size) + x) * 3 + channel of a row is that sample of the patch
/// (channels last). Each value is one correctly rounded f32 division.
/// Error: an empty image, or sides that are no multiple of `size`.
Result<Patches> make_patches(const Image& image, std::int64_t size, SampleRange range = SampleRange::symmetric);

}  // namespace nanscope
