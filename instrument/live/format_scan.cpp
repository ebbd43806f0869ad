#include "instrument/live/format_scan.h"

#include <cstring>

namespace nanscope::live {

ScanCounts scan_bytes(const void* data, std::size_t bytes) {
  ScanCounts counts;
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t offset = 0; offset < bytes; offset += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, at + offset, bytes - offset < 4 ? bytes - offset : 4);
    add_word(counts, word, offset / 4);
  }
  return counts;
}

}  // namespace nanscope::live
