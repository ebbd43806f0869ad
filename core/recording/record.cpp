#include "core/recording/record.h"

#include <bit>
#include <cstring>

namespace nanscope::sqlite {
namespace {

// Serial types. Zero and one are types of their own and take no byte.
constexpr std::uint64_t kNull = 0;
constexpr std::uint64_t kReal = 7;
constexpr std::uint64_t kZero = 8;
constexpr std::uint64_t kFirstText = 13;

/// Bytes of an integer, and its type.
struct Width {
  std::size_t bytes;
  std::uint64_t type;
};

Width width_of(std::int64_t value) {
  const auto magnitude = static_cast<std::uint64_t>(value < 0 ? ~value : value);
  const auto bits = static_cast<std::size_t>(std::bit_width(magnitude)) + 1;
  if (bits <= 32) return bits <= 8 ? Width{1, 1} : bits <= 16 ? Width{2, 2} : bits <= 24 ? Width{3, 3} : Width{4, 4};
  return bits <= 48 ? Width{6, 5} : Width{8, 6};
}

}  // namespace

Varint::Varint(std::uint64_t value) {
  if (value < 0x80) {
    of[0] = static_cast<std::byte>(value);
    size = 1;
    return;
  }
  const auto bits = static_cast<std::size_t>(std::bit_width(value));
  size = bits > 56 ? kMostBytes : (bits + 6) / 7;
  std::size_t at = size;
  if (size == kMostBytes) {
    of[--at] = static_cast<std::byte>(value);
    value >>= 8;
  }
  for (; at > 0; value >>= 7) of[--at] = static_cast<std::byte>(value | 0x80);
  if (size < kMostBytes) of[size - 1] &= std::byte{0x7f};
}

void put_big_endian(std::byte* to, std::uint64_t value, std::size_t count) {
  while (count > 0) {
    to[--count] = static_cast<std::byte>(value);
    value >>= 8;
  }
}

void Record::clear() { types_.used = values_.used = 0; }

void Record::type(std::uint64_t serial) {
  std::byte* to = types_.room(Varint::kMostBytes);
  if (serial < 0x80) {
    *to = static_cast<std::byte>(serial);
    ++types_.used;
    return;
  }
  const Varint varint(serial);
  std::memcpy(to, varint.of.data(), varint.size);
  types_.used += varint.size;
}

void Record::value(std::uint64_t value, std::size_t count) {
  const std::uint64_t ordered = __builtin_bswap64(value << (64 - 8 * count));
  std::memcpy(values_.room(sizeof ordered), &ordered, sizeof ordered);
  values_.used += count;
}

Record& Record::null() {
  type(kNull);
  return *this;
}

Record& Record::integer(std::int64_t value) {
  if (value == 0 || value == 1) {
    type(kZero + static_cast<std::uint64_t>(value));
    return *this;
  }
  const Width width = width_of(value);
  type(width.type);
  this->value(static_cast<std::uint64_t>(value), width.bytes);
  return *this;
}

Record& Record::real(double value) {
  if (value != value) return null();
  type(kReal);
  this->value(std::bit_cast<std::uint64_t>(value), sizeof value);
  return *this;
}

Record& Record::text(std::string_view value) {
  type(kFirstText + 2 * value.size());
  if (!value.empty()) std::memcpy(values_.room(value.size()), value.data(), value.size());
  values_.used += value.size();
  return *this;
}

std::span<const std::byte> Record::bytes() {
  // Its own length is part of the header's.
  std::size_t own = 1;
  while (Varint(types_.used + own).size > own) ++own;
  const Varint header(types_.used + own);
  whole_.resize(header.size + types_.used + values_.used);
  std::memcpy(whole_.data(), header.of.data(), header.size);
  std::memcpy(whole_.data() + header.size, types_.bytes.data(), types_.used);
  if (values_.used > 0) std::memcpy(whole_.data() + header.size + types_.used, values_.bytes.data(), values_.used);
  return whole_;
}

}  // namespace nanscope::sqlite
