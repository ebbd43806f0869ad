#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// The whole content of a regular file. Refuses what is not a regular file and what is larger than
/// `max_bytes`, before anything is allocated.
Result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Replaces `path` by `bytes`: written beside it first and renamed, so that a reader never sees half.
Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A read-only memory map of a regular file; the pages come in as they are touched.
/// The file must keep its length while it is mapped: the operating system ends the process that
/// touches a page which another process has cut off.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace nanscope
