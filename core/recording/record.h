#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Rows as SQLite stores them. Private to core/recording.
namespace nanscope::sqlite {

/// A variable-length integer, https://www.sqlite.org/fileformat2.html#varint: seven bits a byte, the highest first; a
/// ninth byte holds eight.
struct Varint {
  static constexpr std::size_t kMostBytes = 9;

  explicit Varint(std::uint64_t value);
  std::span<const std::byte> bytes() const { return {of.data(), size}; }

  std::array<std::byte, kMostBytes> of{};
  std::size_t size = 0;
};

/// Writes the `count` lowest bytes of `value`, the highest of them first, as all of the file format's integers are.
void put_big_endian(std::byte* to, std::uint64_t value, std::size_t count);

/// The values of a row, in the order in which they are added, https://www.sqlite.org/fileformat2.html#record_format.
/// Values are kept as they are given, as columns of STRICT tables keep values of their own type and ANY all of them.
class Record {
 public:
  void clear();
  Record& null();
  Record& integer(std::int64_t value);
  Record& real(double value);  ///< a NaN is NULL, as it is to SQLite
  Record& text(std::string_view value);

  /// All of it, until the next call of another function.
  std::span<const std::byte> bytes();

 private:
  /// Bytes of which the first `used` are written, and some behind them are there to be.
  struct Buffer {
    std::vector<std::byte> bytes;
    std::size_t used = 0;

    /// Where `count` bytes, and up to 8 that do not stay, may be written; `used` is the caller's to move.
    std::byte* room(std::size_t count) {
      if (bytes.size() - used < count + sizeof(std::uint64_t)) bytes.resize(2 * bytes.size() + count + 64);
      return bytes.data() + used;
    }
  };
  void type(std::uint64_t serial);
  /// The `count` lowest bytes of `value`.
  void value(std::uint64_t value, std::size_t count);

  Buffer types_;
  Buffer values_;
  std::vector<std::byte> whole_;
};

}  // namespace nanscope::sqlite
