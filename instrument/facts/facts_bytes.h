#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/fact_key.h"

/// Numbers and texts in the records of a file of facts, little-endian.
namespace nanscope::facts_bytes {

class Writer {
 public:
  void put(std::uint64_t number) {
    for (unsigned i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  }
  void put(std::int64_t number) { put(static_cast<std::uint64_t>(number)); }
  void put(double number) { put(std::bit_cast<std::uint64_t>(number)); }
  void put(const FactKey& key) { put(key.low), put(key.high); }
  void put(std::string_view text) { put(std::uint64_t{text.size()}), bytes_.append(text); }
  void put(const std::vector<std::int64_t>& numbers) {
    put(std::uint64_t{numbers.size()});
    for (const std::int64_t one : numbers) put(one);
  }
  void put_kind(char kind) { bytes_.push_back(kind); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// After the first number that is not there, all are 0 and ok() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    if (!has(8)) return 0;
    for (unsigned i = 0; i < 8; ++i) value |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
    bytes_ = bytes_.subspan(8);
    return value;
  }
  std::int64_t integer() { return static_cast<std::int64_t>(number()); }
  double real() { return std::bit_cast<double>(number()); }
  FactKey key() {
    const std::uint64_t low = number();
    return {low, number()};
  }
  std::string text() {
    const std::uint64_t size = number();
    if (!has(size)) return {};
    const std::string value(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::size_t>(size));
    bytes_ = bytes_.subspan(static_cast<std::size_t>(size));
    return value;
  }
  std::vector<std::int64_t> integers() {
    const std::uint64_t count = number();
    if (!has(count) || !has(8 * count)) return {};
    std::vector<std::int64_t> values;
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(integer());
    return values;
  }
  char kind() {
    if (!has(1)) return 0;
    const char value = static_cast<char>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }
  /// Whether all that was asked for was there, and nothing else is.
  bool ended() const { return ok_ && bytes_.empty(); }
  bool ok() const { return ok_; }

 private:
  bool has(std::uint64_t count) {
    ok_ = ok_ && count <= bytes_.size();
    return ok_;
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace nanscope::facts_bytes
