#include "core/recording/page_queue.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace nanscope::sqlite {
namespace {

/// Space ahead of the end is taken as much as there is in the file already, within these: a file system that finds room
/// for megabytes at once writes a third faster than one that is asked for each page (docs/measurements.md).
constexpr std::int64_t kLeastReserve = std::int64_t{1} << 20;
constexpr std::int64_t kMostReserve = std::int64_t{16} << 20;

}  // namespace

PageQueue::~PageQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

int PageQueue::push(std::span<const std::byte> bytes, std::int64_t offset) {
  if (!thread_.joinable()) {
    const bool direct = bytes.size() <= direct_;
    if (direct) direct_ -= bytes.size();
    if (direct || !start()) return write(bytes, offset);
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return count_ < kPages || error_ != 0; });
  if (error_ != 0) return take_error();
  const std::size_t slot = (first_ + count_) % kPages;
  lock.unlock();  // the slot is nobody's until it is counted
  std::memcpy(memory(slot, bytes.size()).data(), bytes.data(), bytes.size());
  lock.lock();
  if (error_ != 0) return take_error();
  pages_[slot] = {offset, bytes.size()};
  if (++count_ == kTogether) work_.notify_one();
  return 0;
}

int PageQueue::drain() {
  std::unique_lock lock(mutex_);
  return drain(lock);
}

int PageQueue::drain(std::int64_t offset, std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < count_; ++i) {
    const Page& page = pages_[(first_ + i) % kPages];
    if (page.offset < offset + bytes && offset < page.offset + static_cast<std::int64_t>(page.bytes))
      return drain(lock);
  }
  return take_error();
}

int PageQueue::drain(std::unique_lock<std::mutex>& lock) {
  if (count_ > 0) {
    draining_ = true;
    work_.notify_one();
    done_.wait(lock, [this] { return count_ == 0; });
    draining_ = false;
  }
  return take_error();
}

void PageQueue::give_back() {
  struct stat file {};
  if (::fstat(file_, &file) != 0 || reserved_ <= file.st_size) return;
  // To the length that it has: what lies behind is freed.
  if (::ftruncate(file_, file.st_size) == 0) reserved_ = file.st_size;
}

/// False: the system has no thread to give, or no memory.
bool PageQueue::start() {
  try {
    if (!memory_) memory_ = std::make_unique_for_overwrite<std::byte[]>(kPages * kPageBytes);
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void PageQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return count_ >= kTogether || (draining_ && count_ > 0) || stopping_; });
    if (count_ == 0) return;
    const std::size_t count = together();
    const std::int64_t offset = pages_[first_].offset;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) bytes += pages_[first_ + i].bytes;
    const std::span<const std::byte> next = memory(first_, bytes);
    lock.unlock();
    const int code = write(next, offset);
    lock.lock();
    if (code != 0) error_ = code;
    const std::size_t gone = code == 0 ? count : count_;
    first_ = (first_ + gone) % kPages;
    count_ -= gone;
    if (!draining_ || count_ == 0) done_.notify_one();
  }
}

std::span<std::byte> PageQueue::memory(std::size_t slot, std::size_t bytes) {
  return {memory_.get() + slot * kPageBytes, bytes};
}

std::size_t PageQueue::together() const {
  const std::size_t most = std::min({count_, kTogether, kPages - first_});
  std::size_t count = 1;
  while (count < most && pages_[first_ + count - 1].bytes == kPageBytes &&
         pages_[first_ + count].offset == pages_[first_ + count - 1].offset + static_cast<std::int64_t>(kPageBytes))
    ++count;
  return count;
}

/// The system's error number, 0 where all is written.
int PageQueue::write(std::span<const std::byte> bytes, std::int64_t offset) {
  reserve(offset, offset + std::ssize(bytes));
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return 0;
}

void PageQueue::reserve(std::int64_t offset, std::int64_t end) {
  if (!reserves_ || end <= std::max(reserved_, kLeastReserve)) return;
  const std::int64_t from = std::max(reserved_, offset);
  const std::int64_t size = std::clamp(end, kLeastReserve, kMostReserve);
  // A file system that cannot do this, or has no room for it, is not asked again.
  reserves_ = ::fallocate(file_, FALLOC_FL_KEEP_SIZE, from, size) == 0;
  if (reserves_) reserved_ = from + size;
}

int PageQueue::take_error() { return std::exchange(error_, 0); }

}  // namespace nanscope::sqlite
