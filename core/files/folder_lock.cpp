#include "core/files/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "core/system_reason.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

fs::path lock_of(const fs::path& folder) {
  fs::path normal = folder.lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  return normal.parent_path() / fmt::format(".{}.lock", normal.filename().string());
}

/// Whether a name still leads to an open file: its last holder may have removed it meanwhile.
bool is_at(int fd, const fs::path& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino &&
         open.st_dev == there.st_dev;
}

/// "quantize, process 4711", as the holder wrote it.
std::string holder_of(int fd) {
  std::array<char, 200> text{};
  const ssize_t read = ::pread(fd, text.data(), text.size(), 0);
  return read > 0 ? std::string(text.data(), static_cast<std::size_t>(read)) : std::string("another process");
}

}  // namespace

Result<FolderLock> FolderLock::take(const fs::path& folder, std::string_view command) {
  const fs::path path = lock_of(folder);
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
      return fail(fmt::format("{}: cannot be locked: {}: {}", folder.string(), path.string(), system_reason(errno)));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const std::string holder = errno == EWOULDBLOCK ? holder_of(fd) : system_reason(errno);
      ::close(fd);
      return fail(
          fmt::format("{}: is being written by {}; wait for its end, or name another folder", folder.string(), holder));
    }
    if (!is_at(fd, path)) {
      ::close(fd);
      continue;
    }
    const std::string text = fmt::format("nanscope {}, process {}", command, ::getpid());
    const bool wrote = ::ftruncate(fd, 0) == 0 && ::pwrite(fd, text.data(), text.size(), 0) > 0;
    static_cast<void>(wrote);  // on a full disk the lock holds, and does not say who holds it
    return FolderLock(path, fd);
  }
}

FolderLock::FolderLock(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}
FolderLock::FolderLock(FolderLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  std::error_code error;
  fs::remove(path_, error);  // before it is released: whoever opened it meanwhile sees that the name is gone
  ::close(fd_);
}

}  // namespace nanscope
