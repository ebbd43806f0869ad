#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "instrument/image/image.h"

/// Whatever is accepted must be a whole image that survives being written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto image = nanscope::decode_png(std::as_bytes(std::span(data, size)), "fuzz");
  if (!image || image->rgb.size() > 65536) return 0;
  const auto written = nanscope::encode_png(*image);
  if (!written || nanscope::decode_png(*written, "again") != *image) std::abort();
  return 0;
}
