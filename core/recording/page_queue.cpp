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

int PageQueue::push(std::span<const std::byte> page, std::int64_t offset, Lent lent) {
  if (!thread_.joinable()) {
    const bool direct = page.size() <= direct_;
    if (direct) direct_ -= page.size();
    if (direct || !start()) {
      Parts parts;
      parts.add_page(page.data(), page.size(), lent);
      return write(parts, offset);
    }
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return count_ < kPages || error_ != 0; });
  if (error_ != 0) return take_error();
  const std::size_t slot = (first_ + count_) % kPages;
  lock.unlock();  // the slot is nobody's until it is counted
  std::memcpy(memory(slot), page.data(), lent.bytes.empty() ? page.size() : LentPages::kLinkBytes);
  lock.lock();
  if (error_ != 0) return take_error();
  pages_[slot] = {offset, page.size(), std::move(lent)};
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
    Parts parts;
    for (std::size_t slot = first_; slot < first_ + count; ++slot)
      parts.add_page(memory(slot), pages_[slot].bytes, pages_[slot].lent);
    lock.unlock();
    const int code = write(parts, offset);
    for (std::size_t slot = first_; slot < first_ + count; ++slot) pages_[slot].lent = {};  // no slot of push()
    lock.lock();
    if (code != 0) error_ = code;
    const std::size_t gone = code == 0 ? count : count_;
    first_ = (first_ + gone) % kPages;
    count_ -= gone;
    if (!draining_ || count_ == 0) done_.notify_one();
  }
}

std::byte* PageQueue::memory(std::size_t slot) { return memory_.get() + slot * kPageBytes; }

std::size_t PageQueue::together() const {
  const std::size_t most = std::min({count_, kTogether, kPages - first_});
  std::size_t count = 1;
  while (count < most && pages_[first_ + count - 1].bytes == kPageBytes &&
         pages_[first_ + count].offset == pages_[first_ + count - 1].offset + static_cast<std::int64_t>(kPageBytes))
    ++count;
  return count;
}

void PageQueue::Parts::add(const std::byte* data, std::size_t size) {
  if (size == 0) return;
  all[count++] = {const_cast<std::byte*>(data), size};  // what is written is not changed, whatever the type says
  bytes += static_cast<std::int64_t>(size);
}

void PageQueue::Parts::add_page(const std::byte* copied, std::size_t size, const Lent& lent) {
  static constexpr std::array<std::byte, kPageBytes> kZeros{};
  if (lent.bytes.empty()) return add(copied, size);
  add(copied, LentPages::kLinkBytes);
  add(lent.bytes.data(), lent.bytes.size());
  add(kZeros.data(), size - LentPages::kLinkBytes - lent.bytes.size());
}

/// The system's error number, 0 where all is written.
int PageQueue::write(Parts& parts, std::int64_t offset) {
  reserve(offset, offset + parts.bytes);
  std::span<iovec> left = std::span(parts.all).first(parts.count);
  while (!left.empty()) {
    const ssize_t written = ::pwritev(file_, left.data(), static_cast<int>(left.size()), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    offset += written;
    auto done = static_cast<std::size_t>(written);
    for (; !left.empty() && done >= left.front().iov_len; left = left.subspan(1)) done -= left.front().iov_len;
    if (left.empty()) break;
    left.front().iov_base = static_cast<std::byte*>(left.front().iov_base) + done;
    left.front().iov_len -= done;
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
