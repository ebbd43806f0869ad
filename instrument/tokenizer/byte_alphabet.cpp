#include "instrument/tokenizer/byte_alphabet.h"

#include <cstddef>

namespace nanscope {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::uint8_t, 256> byte{};        // by rank
  std::array<std::uint8_t, 256> rank{};        // by byte
  std::array<std::uint16_t, 256> character{};  // by byte
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  int rank = 0;
  int invented = 0x100;
  for (const bool printable : {true, false}) {
    for (int byte = 0; byte < 256; ++byte) {
      if (is_printable(byte) != printable) continue;
      const auto at = static_cast<std::size_t>(byte);
      alphabet.byte[static_cast<std::size_t>(rank)] = static_cast<std::uint8_t>(byte);
      alphabet.rank[at] = static_cast<std::uint8_t>(rank++);
      alphabet.character[at] = static_cast<std::uint16_t>(printable ? byte : invented++);
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

int byte_rank(std::uint8_t byte) { return kAlphabet.rank[byte]; }

std::uint8_t byte_of_rank(int rank) { return kAlphabet.byte[static_cast<std::size_t>(rank) & 0xFF]; }

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const unsigned character = kAlphabet.character[static_cast<unsigned char>(c)];
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0 | (character >> 6));
      text += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      // Every character of the alphabet beyond ASCII takes two bytes of UTF-8.
      if ((character & 0xE0) != 0xC0 || i + 1 == text.size()) return std::nullopt;
      const unsigned next = static_cast<unsigned char>(text[++i]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      character = ((character & 0x1F) << 6) | (next & 0x3F);
    }
    if (character >= 0x100) {
      // The invented characters stand for ranks from 188 (94 + 12 + 82 printable bytes) on.
      const unsigned rank = 188 + (character - 0x100);
      if (rank > 255) return std::nullopt;
      bytes += static_cast<char>(kAlphabet.byte[rank]);
    } else {
      if (!is_printable(static_cast<int>(character)) || character < 0x21) return std::nullopt;
      bytes += static_cast<char>(character);
    }
  }
  return bytes;
}

}  // namespace nanscope
