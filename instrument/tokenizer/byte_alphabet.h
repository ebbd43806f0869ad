#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The byte alphabet of GPT-2's tokenizer (Radford et al. 2019, `bytes_to_unicode` in its released
/// code): every byte is written as one printable character, so that vocabularies are plain text.
/// '!'..'~', U+00A1..U+00AC and U+00AE..U+00FF stand for themselves; the other 68 bytes, in
/// ascending order, are U+0100..U+0143. In this order "!" is token 0.
namespace nanscope {

/// Number of the byte in GPT-2's order, 0..255: the id of its token in GPT-2's and in our vocabulary.
int byte_rank(std::uint8_t byte);

/// The byte with that rank.
std::uint8_t byte_of_rank(int rank);

/// Bytes to alphabet characters, as UTF-8.
std::string to_alphabet(std::string_view bytes);

/// Alphabet characters (UTF-8) back to bytes; none when a character is not of the alphabet.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace nanscope
