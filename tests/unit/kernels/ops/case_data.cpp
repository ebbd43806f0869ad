#include "tests/unit/kernels/ops/case_data.h"

#include <cmath>

#include "core/numbers/codec.h"

namespace nanscope::kernels::cases {
namespace {

/// f32 has NaN payloads of its own: quiet, negative, what NVIDIA documents, signalling, with payload.
constexpr std::uint32_t kF32Nans[] = {0x7fc00000, 0xffc00000, 0x7fffffff, 0x7f800001, 0xff800001, 0x7fc00123};

void add_nans(std::vector<std::uint32_t>& codes, const FormatInfo& format) {
  if (format.format == Format::f32) codes.insert(codes.end(), std::begin(kF32Nans), std::end(kF32Nans));
  if (format.format == Format::f32 || format.canonical_nan_code == 0) return;
  codes.push_back(format.canonical_nan_code);
  const std::uint32_t sign = 1U << (format.bits - 1);
  if (format.specials == Specials::ieee) {
    const std::uint32_t infinity = format.max_finite_code + 1;
    codes.insert(codes.end(), {infinity + 1, (infinity + 1) | sign, format.canonical_nan_code | sign});
  }
  if (format.specials == Specials::fn) codes.push_back(format.canonical_nan_code | sign);
}

void add_both_signs(std::vector<std::uint32_t>& codes, const FormatInfo& format, std::uint32_t code) {
  codes.push_back(code);
  const std::uint32_t sign = 1U << (format.bits - 1);
  if (format.has_sign && (code | sign) != format.canonical_nan_code) codes.push_back(code | sign);
}

}  // namespace

float Sequence::next() {
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<float>(state_ >> 40) * 0x1p-23F - 1.0F;
}

std::vector<std::uint32_t> specials(Format format) {
  const FormatInfo& row = info(format);
  std::vector<std::uint32_t> codes;
  if (row.exponent_bits == 0) {
    const std::uint32_t top = row.max_finite_code;
    return {0, 1, top, top + 1, top - 1, (top << 1) | 1};
  }
  add_nans(codes, row);
  if (row.specials == Specials::ieee) add_both_signs(codes, row, row.max_finite_code + 1);
  add_both_signs(codes, row, row.max_finite_code);
  if (row.has_sign) {
    const std::uint32_t normal = 1U << row.mantissa_bits;
    for (const std::uint32_t code : {0U, 1U, normal - 1, normal}) add_both_signs(codes, row, code);
  }
  const std::uint32_t one = encode(format, 1.0F, Overflow::saturate);
  for (const std::uint32_t code : {one - 1, one, one + 1}) add_both_signs(codes, row, code);
  return codes;
}

std::vector<std::uint32_t> fill(Fill kind, Format format, std::int64_t rows, std::int64_t columns, std::uint64_t seed,
                                float amplitude) {
  Sequence sequence(seed);
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows * columns));
  for (auto& code : codes) {
    const float value = sequence.next() * amplitude;
    const int binade = kind == Fill::wide ? static_cast<int>(sequence.next() * 20.0F) : 0;
    code = encode(format, std::ldexp(value, binade), Overflow::saturate);
  }
  if (kind != Fill::zoo) return codes;
  const auto zoo = specials(format);
  for (std::int64_t row = 0; row + 1 < rows; ++row) {
    codes[static_cast<std::size_t>(row * columns + row * 7 % columns)] =
        zoo[static_cast<std::size_t>(row) % zoo.size()];
  }
  for (std::int64_t column = 0; column < columns; ++column) {
    const auto at = static_cast<std::size_t>((rows - 1) * columns + column);
    codes[at] = zoo[static_cast<std::size_t>(column) % zoo.size()];
  }
  return codes;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"ordinary", Fill::ordinary, 4, 64, 0},
      {"ragged", Fill::ordinary, 3, 77, 5},
      {"wide", Fill::ordinary, 2, 1000, 0},
      {"zoo", Fill::zoo, static_cast<std::int64_t>(specials(Format::f32).size()) + 1, 45, 3},
  };
  return all;
}

}  // namespace nanscope::kernels::cases
