#include "instrument/image/image.h"

#include "core/files/output_file.h"
#include "instrument/files/file.h"

namespace nanscope {

namespace {
constexpr std::uint64_t kMaxFile = std::uint64_t{256} << 20;
}

Result<Image> read_png(const std::filesystem::path& path) {
  const auto bytes = read_file(path, kMaxFile);
  if (!bytes) return tl::unexpected(bytes.error());
  return decode_png(*bytes, path.string());
}

Status write_png(const Image& image, const std::filesystem::path& path) {
  const auto bytes = encode_png(image);
  if (!bytes) return fail(path.string() + ": " + bytes.error().message);
  return write_output(path, *bytes, {.replace = true});
}

}  // namespace nanscope
