#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// What tells a file from others, and from itself after a write.
struct FileState {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified_s = 0;  ///< time of the last write: seconds, and nanoseconds of the next
  std::int64_t modified_ns = 0;
  bool operator==(const FileState&) const = default;
};

/// Of a regular file, links followed. Errors: not there, not a regular file.
Result<FileState> state_of(const std::filesystem::path& path);

/// What a file that was written to, or replaced, between two looks at it is refused with.
tl::unexpected<Error> changed_while_read(const std::filesystem::path& path);

/// Refuses a file that is no longer what it was.
Status check_unchanged(const std::filesystem::path& path, const FileState& before);

/// The whole content of a regular file. Refuses what is not a regular file and what is larger than
/// `max_bytes`, before anything is allocated; never waits for a named pipe or a terminal. A file that is written
/// meanwhile is refused.
Result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Its first bytes, or all where it has fewer; what lies behind them may change.
Result<std::vector<std::byte>> read_beginning(const std::filesystem::path& path, std::size_t bytes);

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A read-only memory map of a regular file; the pages come in as they are touched. Where another process cuts the file
/// off meanwhile, what is gone reads as zeros, and check() says so: what was read is to be believed after it alone.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const;
  /// As it was when it was opened.
  const FileState& state() const;
  /// Whether a page could not be had.
  bool lost() const;
  /// Error: the file is another one now, was written to, or lost pages.
  Status check() const;

 private:
  struct Mapping;
  explicit MappedFile(std::unique_ptr<Mapping> mapping);

  std::unique_ptr<Mapping> mapping_;
};

}  // namespace nanscope
