#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// An RGB image of 8 bits a channel: rgb[(y * width + x) * 3 + channel], top row first.
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
  bool operator==(const Image&) const = default;
};

/// Reads a PNG of any colour type and depth into 8-bit RGB: palettes and greys are expanded, 16-bit
/// samples scaled to 8 with rounding, alpha dropped. Samples are taken as they stand: gamma and
/// colour profiles are not applied, so equal samples give equal numbers on every machine.
/// `file` is what errors call it. Refused: what is no PNG, is damaged or cut short, is larger than
/// 16384 pixels a side or 64 megapixels.
Result<Image> decode_png(std::span<const std::byte> bytes, std::string_view file);
Result<Image> read_png(const std::filesystem::path& path);

/// A PNG of the image, 8-bit RGB, not interlaced. Error: a size that does not fit `rgb`.
Result<std::vector<std::byte>> encode_png(const Image& image);
Status write_png(const Image& image, const std::filesystem::path& path);

}  // namespace nanscope
