#include "tests/gui/compare_pictures.h"

#include <GL/gl.h>
#include <ft2build.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/files/output_file.h"

#include FT_FREETYPE_H

namespace nanscope::gui {
namespace {

constexpr int kBlock = 8;
constexpr int kAmplified = 4;

double mean_of_block(const Picture& picture, int left, int top, std::size_t channel) {
  double sum = 0;
  int count = 0;
  for (int y = top; y < std::min(top + kBlock, picture.size.height); ++y) {
    for (int x = left; x < std::min(left + kBlock, picture.size.width); ++x) {
      const auto pixel =
          static_cast<std::size_t>(y) * static_cast<std::size_t>(picture.size.width) + static_cast<std::size_t>(x);
      sum += picture.rgba[pixel * 4 + channel];
      ++count;
    }
  }
  return sum / count;
}

double worst_block(const Picture& one, const Picture& other) {
  double worst = 0;
  for (int top = 0; top < one.size.height; top += kBlock) {
    for (int left = 0; left < one.size.width; left += kBlock) {
      for (std::size_t channel = 0; channel < 3; ++channel) {
        const double apart = mean_of_block(one, left, top, channel) - mean_of_block(other, left, top, channel);
        worst = std::max(worst, std::abs(apart));
      }
    }
  }
  return worst;
}

}  // namespace

Picture read_png(const std::filesystem::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  Picture picture;
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) return picture;
  image.format = PNG_FORMAT_RGBA;
  picture.size = {static_cast<int>(image.width), static_cast<int>(image.height)};
  picture.rgba.resize(PNG_IMAGE_SIZE(image));
  if (png_image_finish_read(&image, nullptr, picture.rgba.data(), 0, nullptr) == 0) return {};
  return picture;
}

Comparison compare(const Picture& expected, const Picture& found) {
  Comparison comparison;
  comparison.difference.size = expected.size;
  comparison.difference.rgba.resize(expected.rgba.size());
  for (std::size_t pixel = 0; pixel + 4 <= expected.rgba.size(); pixel += 4) {
    int largest = 0;
    for (std::size_t i = pixel; i < pixel + 3; ++i) {
      const int apart = std::abs(int{expected.rgba[i]} - int{found.rgba[i]});
      comparison.difference.rgba[i] = static_cast<std::uint8_t>(std::min(apart * kAmplified, 255));
      largest = std::max(largest, apart);
    }
    comparison.difference.rgba[pixel + 3] = 255;
    if (largest > kTolerance) ++comparison.pixels;
    comparison.largest = std::max(comparison.largest, largest);
  }
  comparison.worst_block = worst_block(expected, found);
  return comparison;
}

Status write_picture(const std::filesystem::path& path, const Picture& picture) {
  const auto png = encode_png(picture);
  if (!png) return tl::unexpected(png.error());
  return write_output(path, *png, {.replace = true});
}

std::string renderer_name() {
  const auto platform = open_egl_platform({64, 64});
  if (!platform) return "nothing";
  const auto* version = reinterpret_cast<const char*>(glGetString(GL_VERSION));
  FT_Library library = nullptr;
  int major = 0;
  int minor = 0;
  int patch = 0;
  if (FT_Init_FreeType(&library) == 0) {
    FT_Library_Version(library, &major, &minor, &patch);
    FT_Done_FreeType(library);
  }
  return std::string("OpenGL ") + (version == nullptr ? "" : version) + ", FreeType " + std::to_string(major) + "." +
         std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace nanscope::gui
