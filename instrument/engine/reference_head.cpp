#include "instrument/engine/reference_head.h"

#include <bit>
#include <cstdint>

extern "C" const unsigned char nanscope_reference_head_begin[];
extern "C" const unsigned char nanscope_reference_head_end[];

namespace nanscope {

std::vector<float> reference_head() {
  const auto* bytes = nanscope_reference_head_begin;
  const auto count = static_cast<std::size_t>(nanscope_reference_head_end - bytes) / 2;
  std::vector<float> head(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = bytes[2 * i] | (static_cast<std::uint32_t>(bytes[2 * i + 1]) << 8U);
    head[i] = std::bit_cast<float>(code << 16U);
  }
  return head;
}

}  // namespace nanscope
