#pragma once
#include <sys/uio.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "core/recording/lent_pages.h"

/// Pages on their way from SQLite to the file. Private to core/recording.
namespace nanscope::sqlite {

/// Writes to a file in the order of push(), by a thread of its own that starts with the first page. One thread pushes
/// and drains.
class PageQueue {
 public:
  static constexpr std::size_t kPageBytes = std::size_t{64} << 10;  ///< at most, of one push()

  /// `file` is open for writing, and stays so while this lives.
  PageQueue(int file, std::size_t direct) : file_(file), direct_(direct) {}
  /// Writes what is left.
  ~PageQueue();
  PageQueue(const PageQueue&) = delete;
  PageQueue& operator=(const PageQueue&) = delete;

  /// Copies the bytes, waits where too many are on their way, and returns 0; or the system's error number of a page
  /// that was pushed before: then what was pushed since is gone, and the error is told once.
  int push(std::span<const std::byte> bytes, std::int64_t offset) { return push(bytes, offset, {}); }
  /// The same of a page of which only the link is copied: `lent` takes the place of what is behind it.
  int push(std::span<const std::byte> page, std::int64_t offset, Lent lent);
  /// Until everything is in the file. Returns what push() does.
  int drain();
  /// The same where something of these bytes of the file is on its way; else at once.
  int drain(std::int64_t offset, std::int64_t bytes);
  /// After drain(): space that was taken ahead of the file's end is given back. Nobody else lengthens the file.
  void give_back();

 private:
  static constexpr std::size_t kPages = 32;    ///< 2 MiB stay in the caches of a processor
  static constexpr std::size_t kTogether = 4;  ///< to wake a thread for each page would cost as much as the page

  struct Page {
    std::int64_t offset = 0;
    std::size_t bytes = 0;
    Lent lent;
  };
  /// What is written at once. Without memory of its own: SQLite calls from C, through which no exception may pass.
  struct Parts {
    std::array<iovec, 3 * kTogether> all;
    std::size_t count = 0;
    std::int64_t bytes = 0;

    void add(const std::byte* data, std::size_t size);
    /// A page; what is copied of it, all or the link alone, begins at `copied`.
    void add_page(const std::byte* copied, std::size_t size, const Lent& lent);
  };

  bool start();
  void run();
  std::byte* memory(std::size_t slot);
  /// How many pages from first_ on lie side by side, here and in the file.
  std::size_t together() const;
  int write(Parts& parts, std::int64_t offset);
  void reserve(std::int64_t offset, std::int64_t end);
  int drain(std::unique_lock<std::mutex>& lock);
  int take_error();

  const int file_;
  std::size_t direct_;  ///< bytes that are left to be written without the thread
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t reserved_ = 0;  ///< of the thread that writes: space is taken up to here
  bool reserves_ = true;

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::condition_variable done_;
  Page pages_[kPages];
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  int error_ = 0;
  bool draining_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace nanscope::sqlite
