#pragma once
#include <cstdint>

/// How much memory reading a file may take. What a file says about itself (names, shapes, trees of values) grows
/// when it is read, and a hostile file makes it grow most: readers charge what they keep before they keep it.
namespace nanscope {

/// Lets small files be read whatever they hold. Smaller in fuzzed builds, so that inputs of some kilobytes reach
/// the limit.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
inline constexpr std::uint64_t kReadFloor = 128 << 10;
#else
inline constexpr std::uint64_t kReadFloor = 1 << 20;
#endif

/// What of that constant is not given to charges: messages, a reader's own objects, zlib's window.
inline constexpr std::uint64_t kUncharged = 64 << 10;

/// Bytes that may be live at once for a file of `file_bytes`: four times its size, and a constant.
constexpr std::uint64_t read_budget(std::uint64_t file_bytes) { return 4 * file_bytes + kReadFloor; }

/// What is left of it. Charges are estimates from above.
class ReadBudget {
 public:
  explicit ReadBudget(std::uint64_t file_bytes) : left_(read_budget(file_bytes) - kUncharged) {}
  /// False, and nothing is charged, where the file would take more than it may.
  [[nodiscard]] bool take(std::uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }
  /// Whether so much may be held for a moment.
  [[nodiscard]] bool fits(std::uint64_t bytes) const { return bytes <= left_; }
  /// For another file that is read as a part of the first.
  void grow(std::uint64_t file_bytes) { left_ += 4 * file_bytes; }

 private:
  std::uint64_t left_;
};

/// Bytes of memory that a text takes beside its std::string object.
constexpr std::uint64_t text_bytes(std::uint64_t length) { return length > 15 ? length + 1 : 0; }

}  // namespace nanscope
