#pragma once
#include <filesystem>
#include <string_view>

#include "core/result.h"

namespace nanscope {

/// Keeps other processes from writing a folder while this object lives. The lock is a file next to the folder, as the
/// folder may not be there yet: ".NAME.lock" holds the process and its command, and goes when the lock is released. The
/// kernel releases the lock of a process that died, so a file that stays behind locks nothing.
class FolderLock {
 public:
  /// `command`: what the holder does, such as "quantize". Errors: another process holds it, with its command and id;
  /// the file cannot be made.
  static Result<FolderLock> take(const std::filesystem::path& folder, std::string_view command);

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  FolderLock(std::filesystem::path path, int fd);

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace nanscope
