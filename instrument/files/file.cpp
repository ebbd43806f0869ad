#include "instrument/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "core/system_reason.h"
#include "instrument/files/page_guard.h"

namespace nanscope {
namespace {

tl::unexpected<Error> system_failure(const std::filesystem::path& path, const char* what) {
  return fail(path.string() + ": " + what + ": " + system_reason(errno));
}

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

FileState state_from(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino),
          static_cast<std::uint64_t>(status.st_size), status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

Result<FileState> state_of(const Descriptor& file, const std::filesystem::path& path) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return system_failure(path, "cannot stat");
  if (!S_ISREG(status.st_mode)) return fail(path.string() + ": not a regular file");
  return state_from(status);
}

/// Fills `bytes` from the file's beginning; fewer where it ends before.
Result<std::size_t> read_some(const Descriptor& file, std::span<std::byte> bytes, const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure(path, "cannot read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

/// Non-blocking, so that a named pipe is refused instead of waited for.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

}  // namespace

Result<FileState> state_of(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return system_failure(path, "cannot stat");
  if (!S_ISREG(status.st_mode)) return fail(path.string() + ": not a regular file");
  return state_from(status);
}

tl::unexpected<Error> changed_while_read(const std::filesystem::path& path) {
  return fail(path.string() + ": changed while it was read");
}

Status check_unchanged(const std::filesystem::path& path, const FileState& before) {
  const Result<FileState> now = state_of(path);
  if (!now || *now != before) return changed_while_read(path);
  return {};
}

Result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), kOpenFlags));
  if (file.get() < 0) return system_failure(path, "cannot open");
  const auto before = state_of(file, path);
  if (!before) return tl::unexpected(before.error());
  if (before->size > max_bytes) {
    return fail(path.string() + ": " + std::to_string(before->size) + " bytes, expected at most " +
                std::to_string(max_bytes));
  }
  std::vector<std::byte> bytes(before->size);
  const auto got = read_some(file, bytes, path);
  if (!got) return tl::unexpected(got.error());
  const auto after = state_of(file, path);
  if (!after) return tl::unexpected(after.error());
  if (*after != *before) return changed_while_read(path);
  if (*got < bytes.size()) {
    return fail(path.string() + ": ends at offset " + std::to_string(*got) + ", expected " +
                std::to_string(bytes.size()) + " bytes");
  }
  return bytes;
}

Result<std::vector<std::byte>> read_beginning(const std::filesystem::path& path, std::size_t bytes) {
  const Descriptor file(::open(path.c_str(), kOpenFlags));
  if (file.get() < 0) return system_failure(path, "cannot open");
  const auto state = state_of(file, path);
  if (!state) return tl::unexpected(state.error());
  // By what it says of its size: files of the system that say 0 may wait for their bytes.
  std::vector<std::byte> head(std::min<std::uint64_t>(bytes, state->size));
  const auto got = read_some(file, head, path);
  if (!got) return tl::unexpected(got.error());
  head.resize(*got);
  return head;
}

/// Where it stays: the guard's pages and flag must.
struct MappedFile::Mapping {
  Mapping(std::filesystem::path path_, const FileState& state_, std::span<const std::byte> pages_)
      : path(std::move(path_)), state(state_), pages(pages_) {
    if (!pages.empty()) guard.emplace(pages, lost);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    guard.reset();
    if (!pages.empty()) ::munmap(const_cast<std::byte*>(pages.data()), pages.size());
  }

  std::filesystem::path path;
  FileState state;
  std::span<const std::byte> pages;
  std::atomic<bool> lost{false};
  std::optional<PageGuard> guard;
};

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), kOpenFlags));
  if (file.get() < 0) return system_failure(path, "cannot open");
  const auto state = state_of(file, path);
  if (!state) return tl::unexpected(state.error());
  std::span<const std::byte> pages;
  if (state->size > 0) {
    void* address = ::mmap(nullptr, state->size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) return system_failure(path, "cannot map");
    pages = {static_cast<const std::byte*>(address), state->size};
  }
  return MappedFile(std::make_unique<Mapping>(path, *state, pages));
}

MappedFile::MappedFile(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;
MappedFile::~MappedFile() = default;

std::span<const std::byte> MappedFile::bytes() const { return mapping_->pages; }
const FileState& MappedFile::state() const { return mapping_->state; }
bool MappedFile::lost() const { return mapping_->lost; }

Status MappedFile::check() const {
  if (Status same = check_unchanged(mapping_->path, mapping_->state); !same) return same;
  if (lost()) return fail(mapping_->path.string() + ": cannot be read");
  return {};
}

}  // namespace nanscope
