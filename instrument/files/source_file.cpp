#include "instrument/files/source_file.h"

#include <utility>
#include <vector>

namespace nanscope {
namespace {

/// Reading costs less than mapping up to here, and needs no guard.
constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;

}  // namespace

struct SourceFile::Mapped {
  Mapped(MappedFile file_, std::shared_ptr<const SourceFile> source_)
      : file(std::move(file_)), source(std::move(source_)) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (file.lost()) source->lost_ = true;
  }

  MappedFile file;
  std::shared_ptr<const SourceFile> source;
};

Result<std::shared_ptr<const SourceFile>> SourceFile::open(const std::filesystem::path& path) {
  const Result<FileState> state = state_of(path);
  if (!state) return tl::unexpected(state.error());
  const std::shared_ptr<SourceFile> file(new SourceFile(path));
  file->state_ = *state;
  return file;
}

Result<SourceFile::Held> SourceFile::hold() const {
  const std::lock_guard lock(mutex_);
  if (auto held = held_.lock()) return Held{bytes_, std::move(held)};
  Result<Held> read = this->read();
  if (!read) return read;
  held_ = read->owner;
  bytes_ = read->bytes;
  return read;
}

Result<SourceFile::Held> SourceFile::read() const {
  if (state_.size <= kSmall) {
    Result<std::vector<std::byte>> bytes = read_file(path_, kSmall);
    // Before what reading says: a file that is gone is no longer what it was.
    if (Status same = check_unchanged(path_, state_); !same) return tl::unexpected(same.error());
    if (!bytes) return tl::unexpected(bytes.error());
    auto owner = std::make_shared<const std::vector<std::byte>>(std::move(*bytes));
    return Held{*owner, owner};
  }
  Result<MappedFile> mapped = MappedFile::open(path_);
  if (!mapped) return tl::unexpected(mapped.error());
  if (mapped->state() != state_) return changed_while_read(path_);
  const auto owner = std::make_shared<const Mapped>(std::move(*mapped), shared_from_this());
  mapped_ = owner;
  return Held{owner->file.bytes(), owner};
}

Status SourceFile::check() const {
  if (Status same = check_unchanged(path_, state_); !same) return same;
  const std::lock_guard lock(mutex_);
  const auto mapped = mapped_.lock();
  if (lost_ || (mapped && mapped->file.lost())) return fail(path_.string() + ": cannot be read");
  return {};
}

}  // namespace nanscope
