#include <fmt/format.h>
#include <png.h>

#include "gui/platform/platform.h"

namespace nanscope::gui {

Status write_png(const std::filesystem::path& path, const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.size.width);
  image.height = static_cast<png_uint_32>(picture.size.height);
  image.format = PNG_FORMAT_RGBA;
  const int written = png_image_write_to_file(&image, path.c_str(), 0, picture.rgba.data(), 0, nullptr);
  if (written == 0) return fail(fmt::format("{}: the picture cannot be written ({})", path.string(), image.message));
  return {};
}

}  // namespace nanscope::gui
