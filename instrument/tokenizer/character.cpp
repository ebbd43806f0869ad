#include "instrument/tokenizer/character.h"

#include <utf8proc.h>

#include <algorithm>

namespace nanscope {
namespace {

/// The letters that Unicode counts among the symbols: "circled" and "squared" ones (Other_Alphabetic, category So).
constexpr bool is_enclosed_letter(std::int32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  Character character;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &character.code_point);
  if (length <= 0) return {-1, 1};
  character.length = static_cast<std::size_t>(length);
  return character;
}

Character last_character(std::string_view text) {
  if (text.empty()) return {};
  for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
    const Character character = first_character(text.substr(text.size() - length));
    if (character.code_point >= 0 && character.length == length) return character;
  }
  return {-1, 1};
}

bool is_space(Character c) {
  if (c.code_point < 0) return false;
  if ((c.code_point >= 9 && c.code_point <= 13) || c.code_point == 0x85) return true;
  const auto category = utf8proc_category(c.code_point);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(Character c) {
  if (c.code_point < 0) return false;
  constexpr std::int32_t kZeroWidthNonJoiner = 0x200C;
  constexpr std::int32_t kZeroWidthJoiner = 0x200D;
  switch (utf8proc_category(c.code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c.code_point == kZeroWidthNonJoiner || c.code_point == kZeroWidthJoiner ||
             is_enclosed_letter(c.code_point);
  }
}

bool is_one_character(std::string_view text) {
  const Character character = first_character(text);
  return character.code_point >= 0 && character.length == text.size();
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  return out.append(text.substr(done));
}

}  // namespace nanscope
