#pragma once
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>

#include "core/result.h"
#include "instrument/files/file.h"

namespace nanscope {

/// A regular file whose bytes are in memory while somebody holds them: a hundred thousand may be open at once, whatever
/// the limits of descriptors and of mappings. Small ones are read, others mapped.
class SourceFile : public std::enable_shared_from_this<SourceFile> {
 public:
  /// Bytes, and what keeps them alive.
  struct Held {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };

  static Result<std::shared_ptr<const SourceFile>> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return state_.size; }
  /// The whole file. Thread-safe. Error: it is no longer what was opened.
  Result<Held> hold() const;
  /// Error: it is another one now, was written to, or lost pages while they were held.
  Status check() const;

 private:
  explicit SourceFile(std::filesystem::path path) : path_(std::move(path)) {}
  struct Mapped;
  Result<Held> read() const;

  std::filesystem::path path_;
  FileState state_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const void> held_;
  mutable std::span<const std::byte> bytes_;  ///< of what is held
  mutable std::weak_ptr<const Mapped> mapped_;
  mutable std::atomic<bool> lost_{false};
};

}  // namespace nanscope
