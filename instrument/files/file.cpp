#include "instrument/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace nanscope {
namespace {

tl::unexpected<Error> system_failure(const std::filesystem::path& path, const char* what) {
  return fail(path.string() + ": " + what + ": " + std::strerror(errno));
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
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Size of an open regular file.
Result<std::uint64_t> regular_size(const Descriptor& file, const std::filesystem::path& path) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return system_failure(path, "cannot stat");
  if (!S_ISREG(status.st_mode)) return fail(path.string() + ": not a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

/// Non-blocking, so that a named pipe is refused instead of waited for.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

}  // namespace

Result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const Descriptor file(::open(path.c_str(), kOpenFlags));
  if (file.get() < 0) return system_failure(path, "cannot open");
  const auto size = regular_size(file, path);
  if (!size) return tl::unexpected(size.error());
  if (*size > max_bytes) {
    return fail(path.string() + ": " + std::to_string(*size) + " bytes, expected at most " + std::to_string(max_bytes));
  }
  std::vector<std::byte> bytes(*size);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure(path, "cannot read");
    if (got == 0) {
      return fail(path.string() + ": ends at offset " + std::to_string(done) + ", expected " +
                  std::to_string(bytes.size()) + " bytes");
    }
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::string beside = path.string() + ".XXXXXX";
  Descriptor file(::mkstemp(beside.data()));
  if (file.get() < 0) return system_failure(path, "cannot create");
  const auto give_up = [&](const char* what) -> Status {
    const auto failure = system_failure(path, what);
    ::unlink(beside.c_str());
    return failure;
  };
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return give_up("cannot write");
    done += static_cast<std::size_t>(put);
  }
  // mkstemp makes private files; the result should be readable as any other output.
  if (::fchmod(file.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0) return give_up("cannot set permissions");
  if (::close(file.release()) != 0) return give_up("cannot write");
  if (std::rename(beside.c_str(), path.c_str()) != 0) return give_up("cannot replace");
  return {};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), kOpenFlags));
  if (file.get() < 0) return system_failure(path, "cannot open");
  const auto size = regular_size(file, path);
  if (!size) return tl::unexpected(size.error());
  if (*size == 0) return MappedFile({});
  void* address = ::mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return system_failure(path, "cannot map");
  return MappedFile({static_cast<const std::byte*>(address), *size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace nanscope
