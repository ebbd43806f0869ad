#include "instrument/files/utf8.h"

namespace nanscope {

bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

std::size_t utf8_prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto at = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U; };
    const unsigned lead = at(i);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xc2 && lead < 0xe0 ? 2
                               : lead < 0xf0                 ? 3
                               : lead < 0xf5                 ? 4
                                                             : 0;
    if (length == 0 || (lead >= 0x80 && lead < 0xc2)) return i;
    for (std::size_t k = 1; k < length; ++k) {
      if ((at(i + k) & 0xc0U) != 0x80) return i;
    }
    // Longer than needed, halves of surrogates, beyond U+10FFFF (Unicode 15, table 3-7).
    const unsigned next = at(i + 1);
    if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) || (lead == 0xf0 && next < 0x90) ||
        (lead == 0xf4 && next > 0x8f)) {
      return i;
    }
    i += length;
  }
  return i;
}

}  // namespace nanscope
