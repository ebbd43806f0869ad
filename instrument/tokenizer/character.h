#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nanscope {

/// One character of a text that should be UTF-8.
struct Character {
  std::int32_t code_point = -1;  ///< -1 for a byte that is no UTF-8, and at the end of the text
  std::size_t length = 0;        ///< in bytes; 0 at the end of the text
};

Character first_character(std::string_view text);
Character last_character(std::string_view text);

/// Unicode's White_Space.
bool is_space(Character c);

/// What regular expressions call a word character (Unicode technical standard 18, annex C): Alphabetic, marks, decimal
/// digits, connector punctuation, and the two joiners.
bool is_word(Character c);

/// Whether `text` is one character of UTF-8 and nothing else.
bool is_one_character(std::string_view text);

/// `text` with `to` for every `from`, which must not be empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace nanscope
