#include "core/files/rename.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/files/temporary.h"
#include "core/system_reason.h"

namespace nanscope::files {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> cannot(const fs::path& to, int reason) {
  return fail(fmt::format("{}: cannot be written: {}", to.string(), system_reason(reason)));
}

bool not_known_here(int reason) { return reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP; }

/// Where the file system cannot rename without replacing: an empty file or folder of ours takes the name first.
Result<bool> claim_and_rename(const fs::path& from, const fs::path& to) {
  struct stat status {};
  if (::lstat(from.c_str(), &status) != 0) return cannot(to, errno);
  if (S_ISDIR(status.st_mode)) {
    if (::mkdir(to.c_str(), 0777) != 0) return errno == EEXIST ? Result<bool>(false) : cannot(to, errno);
  } else {
    const int claimed = ::open(to.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (claimed < 0) return errno == EEXIST ? Result<bool>(false) : cannot(to, errno);
    ::close(claimed);
  }
  if (std::rename(from.c_str(), to.c_str()) != 0) return cannot(to, errno);
  return true;
}

}  // namespace

Result<bool> rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (!not_known_here(errno)) return cannot(to, errno);
  return claim_and_rename(from, to);
}

Status rename_over(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return cannot(to, errno);
  return {};
}

Result<bool> rename_over(const fs::path& from, const fs::path& to, const FileIdentity& expected) {
  // Both keep a name until it is known what was replaced.
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    if (identity_of(from, false) == expected) {
      temporaries::discard(from);
      return true;
    }
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) return cannot(to, errno);
    return false;
  }
  if (errno == ENOENT) return rename_to_new(from, to);
  if (!not_known_here(errno)) return cannot(to, errno);
  if (identity_of(to, false) != expected) return false;
  if (auto renamed = rename_over(from, to); !renamed) return tl::unexpected(renamed.error());
  return true;
}

}  // namespace nanscope::files
