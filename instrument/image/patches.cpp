#include "instrument/image/patches.h"

#include <array>
#include <cstddef>
#include <string>

namespace nanscope {

Result<Patches> make_patches(const Image& image, std::int64_t size, SampleRange range) {
  const std::string shape = std::to_string(image.width) + "x" + std::to_string(image.height);
  if (size < 1 || image.width < 1 || image.height < 1 || image.width % size != 0 || image.height % size != 0) {
    return fail("image of " + shape + " pixels cannot be cut into patches of " + std::to_string(size) +
                ": both sides must be multiples of it");
  }
  const auto width = static_cast<std::size_t>(image.width);
  if (image.rgb.size() != width * static_cast<std::size_t>(image.height) * 3) {
    return fail("image of " + shape + " pixels holds " + std::to_string(image.rgb.size()) + " samples");
  }
  std::array<float, 256> value{};
  for (int sample = 0; sample < 256; ++sample) {
    const int numerator = range == SampleRange::unit ? sample : 2 * sample - 255;
    value[static_cast<std::size_t>(sample)] = static_cast<float>(numerator) / 255.0F;
  }
  Patches patches;
  patches.across = image.width / size;
  patches.down = image.height / size;
  patches.rows = patches.across * patches.down;
  patches.columns = 3 * size * size;
  patches.values.reserve(image.rgb.size());
  const std::size_t line = static_cast<std::size_t>(size) * 3;
  for (std::int64_t row = 0; row < patches.rows; ++row) {
    const auto top = static_cast<std::size_t>(row / patches.across * size);
    const auto left = static_cast<std::size_t>(row % patches.across * size);
    for (std::size_t y = top; y < top + static_cast<std::size_t>(size); ++y) {
      const std::uint8_t* samples = &image.rgb[(y * width + left) * 3];
      for (std::size_t i = 0; i < line; ++i) patches.values.push_back(value[samples[i]]);
    }
  }
  return patches;
}

}  // namespace nanscope
