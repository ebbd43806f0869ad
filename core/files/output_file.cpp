#include "core/files/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <system_error>

#include "core/files/rename.h"
#include "core/files/temporary.h"
#include "core/system_reason.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;
/// Far behind every byte of a file, and behind those that SQLite locks. The lock is of the open file, not of the
/// process: closing another descriptor of the file does not lose it, and it goes with a process that is killed.
constexpr off_t kLockedByte = off_t{1} << 62;

tl::unexpected<Error> cannot(const fs::path& path, const char* what, int reason) {
  return fail(fmt::format("{}: {}: {}", path.string(), what, system_reason(reason)));
}

/// The folder is to blame: it is not there, is none, or may not be written.
tl::unexpected<Error> cannot_be_in(const fs::path& target, const fs::path& folder, int reason) {
  if (reason == ENOENT) return fail(fmt::format("{}: there is no folder '{}'", target.string(), folder.string()));
  if (reason == ENOTDIR) return fail(fmt::format("{}: '{}' is no folder", target.string(), folder.string()));
  if (reason == EACCES || reason == EROFS) {
    return fail(fmt::format("{}: the folder '{}' cannot be written: {}", target.string(), folder.string(),
                            system_reason(reason)));
  }
  return cannot(target, "cannot create", reason);
}

struct flock lock_of(short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = kLockedByte;
  lock.l_len = 1;
  return lock;
}

/// The descriptor of this process that /dev/stdout, /dev/fd/5 and the like lead to; -1: it is another name.
int descriptor_named(fs::path path) {
  std::error_code error;
  const fs::path descriptors = fs::canonical("/proc/self/fd", error);
  fs::path folder;
  for (int i = 0; !error && i < kMostLinks && folder != descriptors; ++i) {
    folder = fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
    if (error || folder == descriptors) break;
    const fs::path next = fs::read_symlink(folder / path.filename(), error);
    path = next.is_absolute() ? next : folder / next;
  }
  if (error || folder != descriptors) return -1;
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
  return wrong == std::errc() && end == name.data() + name.size() && ::fcntl(number, F_GETFD) >= 0 ? number : -1;
}

/// A pipe, a terminal, a device of characters: what is written there replaces nothing.
bool takes_a_stream(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode));
}

Status write_all(int file, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return cannot(path, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Status write_stream(const fs::path& path, std::span<const std::byte> bytes) {
  const int named = descriptor_named(path);
  const int file =
      named >= 0 ? ::fcntl(named, F_DUPFD_CLOEXEC, 3) : ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return cannot(path, "cannot be opened", errno);
  Status written = write_all(file, bytes, path);
  ::close(file);
  return written;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  const fs::path outer = error ? fs::path() : fs::canonical(folder, error);
  if (error) return false;
  return std::mismatch(outer.begin(), outer.end(), whole.begin(), whole.end()).first == outer.end();
}

Status check_inputs(const fs::path& target, const OutputOptions& options) {
  const auto there = identity_of(target);
  for (const fs::path& input : options.inputs) {
    if (there && identity_of(input) == there) {
      return fail(fmt::format("{}: is what this command reads: name another file", target.string()));
    }
    std::error_code ignored;
    if (there && fs::is_directory(input, ignored) && lies_in(target, input)) {
      return fail(
          fmt::format("{}: lies in {}, which this command reads: name another file", target.string(), input.string()));
    }
  }
  return {};
}

/// Of a file that exists: whether it may be replaced.
Status check_existing(const fs::path& target, const OutputOptions& options) {
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) return fail(target.string() + ": is a folder");
  if (Status apart = check_inputs(target, options); !apart) return apart;
  if (is_being_written(target)) {
    return fail(target.string() + ": is being written by another process: name another file, or wait for its end");
  }
  const bool allowed = options.replace || (options.replaces && identity_of(target, false) == options.replaces);
  if (!allowed) return fail(target.string() + ": exists already: name another file (--force replaces it)");
  const fs::file_status status = fs::status(target, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) return fail(target.string() + ": is no regular file");
  return {};
}

/// Of a regular file that is to be replaced: what was private stays so.
std::optional<mode_t> mode_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status.st_mode & 0777;
}

Status sync_folder(const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return {};  // it may be written and not read: the name is there all the same
  const int failed = ::fsync(opened) == 0 ? 0 : errno;
  ::close(opened);
  return failed == 0 || failed == EINVAL ? Status{} : cannot(target, "cannot be written", failed);
}

}  // namespace

std::optional<FileIdentity> identity_of(const fs::path& path, bool follow_link) {
  struct stat status {};
  if (::fstatat(AT_FDCWD, path.c_str(), &status, follow_link ? 0 : AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino};
}

bool is_being_written(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  struct flock lock = lock_of(F_RDLCK);
  const bool locked = ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(file);
  return locked;
}

bool is_stream(const fs::path& target) { return descriptor_named(target) >= 0 || takes_a_stream(target); }

Status check_output(const fs::path& target, const OutputOptions& options) {
  if (!target.has_filename()) return fail(fmt::format("'{}': is no name of a file", target.string()));
  if (is_stream(target)) return check_inputs(target, options);
  struct stat status {};
  if (::lstat(target.c_str(), &status) == 0) return check_existing(target, options);
  const int reason = errno;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (reason != ENOENT) return cannot_be_in(target, folder, reason);
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) return cannot_be_in(target, folder, errno);
  return {};
}

Status write_output(const fs::path& target, std::span<const std::byte> bytes, const OutputOptions& options) {
  if (Status allowed = check_output(target, options); !allowed) return allowed;
  if (is_stream(target)) return write_stream(target, bytes);
  auto file = OutputFile::create(target, options);
  if (!file) return tl::unexpected(file.error());
  if (Status written = file->write(bytes); !written) return written;
  return file->commit();
}

Status write_output(const fs::path& target, std::string_view text, const OutputOptions& options) {
  return write_output(target, std::as_bytes(std::span(text)), options);
}

Status rename_output(const fs::path& from, const fs::path& target, const OutputOptions& options) {
  if (Status allowed = check_output(target, options); !allowed) return allowed;
  Result<bool> named = true;
  if (!identity_of(target, false)) {
    named = files::rename_to_new(from, target);
  } else if (options.replace) {
    if (Status over = files::rename_over(from, target); !over) return over;
  } else {
    named = files::rename_over(from, target, *options.replaces);
  }
  if (!named) return tl::unexpected(named.error());
  if (!*named) return fail(target.string() + ": was made by another process meanwhile; name another file");
  return {};
}

Result<OutputFile> OutputFile::create_beside(const fs::path& target, OutputOptions options) {
  OutputFile file(target, std::move(options));
  mode_t mode = file.options_.mode;
  if (const auto before = mode_of(target)) mode &= *before | S_IWUSR;
  do {
    const auto name = temporaries::name_beside(target);
    if (!name) return tl::unexpected(name.error());
    // Entered before it is there: it may never be there without being known.
    if (Status entered = temporaries::enter(*name); !entered) return tl::unexpected(entered.error());
    file.file_ = ::open(name->c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, mode);
    if (file.file_ >= 0) {
      file.path_ = *name;
      file.temporary_ = true;
    } else {
      const int reason = errno;
      temporaries::leave(*name);
      if (reason != EEXIST) return cannot(target, "cannot create", reason);
    }
  } while (file.file_ < 0);
  return file;
}

Result<OutputFile> OutputFile::create(const fs::path& target, OutputOptions options) {
  if (Status allowed = check_output(target, options); !allowed) return tl::unexpected(allowed.error());
  if (is_stream(target)) return fail(target.string() + ": is no regular file");
  return create_beside(target, std::move(options));
}

Result<OutputFile> OutputFile::create_in_view(const fs::path& target, OutputOptions options) {
  auto file = create(target, std::move(options));
  std::error_code ignored;
  if (!file || fs::exists(fs::symlink_status(target, ignored))) return file;
  // Locked before it can be seen. A file system without such locks writes without.
  struct flock lock = lock_of(F_WRLCK);
  std::ignore = ::fcntl(file->file_, F_OFD_SETLK, &lock);
  const auto named = files::rename_to_new(file->path_, target);
  if (!named) return tl::unexpected(named.error());
  if (!*named) return fail(target.string() + ": exists already: name another file (--force replaces it)");
  temporaries::leave(file->path_);
  file->path_ = target;
  if (Status entered = temporaries::enter(target); !entered) return tl::unexpected(entered.error());
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : target_(std::move(other.target_)),
      options_(std::move(other.options_)),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      temporary_(std::exchange(other.temporary_, false)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(options_, other.options_);
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() {
  if (temporary_) {
    temporaries::discard(path_);
    temporaries::leave(path_);
    temporary_ = false;
  }
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void OutputFile::keep() {
  if (path_ != target_ || !temporary_) return;
  temporaries::leave(path_);
  temporary_ = false;
}

Status OutputFile::write(std::span<const std::byte> bytes) { return write_all(file_, bytes, target_); }

/// What is written is in the file, and as durable as it is wanted.
Status OutputFile::settle() {
  if (options_.durable && ::fsync(file_) != 0) return cannot(target_, "cannot be written", errno);
  return {};
}

Status OutputFile::commit() {
  if (Status settled = settle(); !settled) return settled;
  keep();
  if (temporary_) {
    const auto mode = mode_of(target_);
    if (mode && ::fchmod(file_, *mode & options_.mode) != 0) return cannot(target_, "cannot be written", errno);
    if (Status named = rename_output(path_, target_, options_); !named) return named;
    temporaries::leave(path_);
    path_ = target_;
    temporary_ = false;
  }
  if (::close(std::exchange(file_, -1)) != 0) return cannot(target_, "cannot be written", errno);
  return options_.durable ? sync_folder(target_) : Status{};
}

Result<bool> OutputFile::commit_as(const fs::path& name) {
  if (Status settled = settle(); !settled) return tl::unexpected(settled.error());
  auto named = files::rename_to_new(path_, name);
  if (!named || !*named) return named;
  temporaries::leave(path_);
  path_ = name;
  temporary_ = false;
  if (::close(std::exchange(file_, -1)) != 0) return cannot(name, "cannot be written", errno);
  return true;
}

}  // namespace nanscope
