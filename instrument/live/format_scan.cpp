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

void scan_on_cpu(const ScanJob& job) {
  const std::uint64_t first = job.range.first_word() * 4;
  for (int pass = 0; pass < job.passes(); ++pass) {
    for (std::uint64_t i = 0; i < job.words(pass); ++i) {
      std::uint32_t word = 0;
      // An address of the host that is a number. NOLINTNEXTLINE(performance-no-int-to-ptr)
      std::memcpy(&word, reinterpret_cast<const void*>(first + 4 * i), sizeof word);
      job.look(job.scan->of(pass), word, i, pass);
    }
  }
}

}  // namespace nanscope::live
