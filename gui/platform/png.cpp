#include <fmt/format.h>
#include <png.h>

#include "gui/platform/platform.h"

namespace nanscope::gui {

Result<std::vector<std::byte>> encode_png(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.size.width);
  image.height = static_cast<png_uint_32>(picture.size.height);
  image.format = PNG_FORMAT_RGBA;
  std::vector<std::byte> bytes(PNG_IMAGE_PNG_SIZE_MAX(image));
  png_alloc_size_t size = bytes.size();
  const int written = png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.rgba.data(), 0, nullptr);
  if (written == 0) return fail(fmt::format("the picture cannot be encoded ({})", image.message));
  bytes.resize(size);
  return bytes;
}

}  // namespace nanscope::gui
