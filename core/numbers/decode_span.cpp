#include "core/numbers/decode_span.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

template <class T, class Convert>
void convert(const std::byte* from, std::span<float> to, Convert convert_one) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T code;
    std::memcpy(&code, from + i * sizeof(T), sizeof(T));
    to[i] = convert_one(code);
  }
}

template <Format F, class Code>
void decode_wide(const std::byte* from, std::span<float> to) {
  convert<Code>(from, to, [](Code code) { return std::bit_cast<float>(decode_bits<F>(std::uint32_t{code})); });
}

using CodeTable = std::array<float, 256>;

}  // namespace

/// The codec's integer steps are for lanes; one load is faster for one byte.
std::span<const float, 256> code_values(Format format) {
  static const auto kTables = [] {
    std::array<CodeTable, kFormatCount> tables{};
    for (const FormatInfo& row : formats()) {
      if (row.bits > 8) continue;
      CodeTable& table = tables[static_cast<std::size_t>(row.format)];
      for (std::uint32_t code = 0; code < table.size(); ++code) {
        table[code] = decode(row.format, code & ((1U << row.bits) - 1U));
      }
    }
    return tables;
  }();
  return kTables[static_cast<std::size_t>(format)];
}

void decode(Format format, std::span<const std::byte> from, std::span<float> to) {
  switch (format) {
    case Format::f32:
      return decode_wide<Format::f32, std::uint32_t>(from.data(), to);
    case Format::f16:
      return decode_wide<Format::f16, std::uint16_t>(from.data(), to);
    case Format::bf16:
      return decode_wide<Format::bf16, std::uint16_t>(from.data(), to);
    case Format::i32:
      return convert<std::int32_t>(from.data(), to, [](std::int32_t value) { return static_cast<float>(value); });
    default: {
      const std::span<const float, 256> table = code_values(format);
      return convert<std::uint8_t>(from.data(), to, [&](std::uint8_t code) { return table[code]; });
    }
  }
}

}  // namespace nanscope
