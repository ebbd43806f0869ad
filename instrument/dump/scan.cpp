#include "instrument/dump/scan.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/system_reason.h"
#include "core/tensor/health_of.h"
#include "core/threads/team.h"
#include "kernels/health.h"
#include "kernels/ops/health_scan.h"

namespace nanscope {
namespace {

/// Elements that one core scans at a time: their bytes and their tiles stay in its cache.
constexpr std::int64_t kPiece = std::int64_t{1} << 19;
constexpr std::int64_t kRowsAtOnce = std::int64_t{1} << 24;  ///< elements of whole rows a launch
constexpr std::int64_t kFlatRow = std::int64_t{1} << 14;     ///< a tensor is scanned flat, whatever its shape

/// Formats whose elements take whole bytes, one code each.
bool scannable(const DumpTensor& tensor) {
  return tensor.format && tensor.dtype->kind == DtypeKind::real && tensor.dtype->bits % 8 == 0 &&
         static_cast<std::size_t>(tensor.dtype->bits / 8) == info(*tensor.format).storage_bytes();
}

/// Codes held in integers of one byte.
bool codes_in_bytes(const DumpTensor& tensor) {
  return tensor.format && *tensor.format != Format::i32 && tensor.dtype->kind == DtypeKind::integer &&
         tensor.dtype->bits == 8 && info(*tensor.format).storage_bytes() == 1;
}

kernels::TensorView view_of(const DumpTensor& tensor, std::span<const std::byte> bytes, std::int64_t rows,
                            std::int64_t columns) {
  // Kernels take views that may be written; this one only reads.
  auto* data = const_cast<std::byte*>(bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return {data, *tensor.format, rows, columns, columns};
}

constexpr std::size_t kAhead = std::size_t{32} << 20;  ///< bytes that the system is asked to read before their turn
constexpr std::size_t kAskedAtOnce = std::size_t{4} << 20;

/// Asks the system for mapped pages that come soon, so that a cold file is read while what is here is scanned. What is
/// here already, as its last page tells, is not asked for: the system would walk all its pages in vain.
void read_ahead(std::span<const std::byte> bytes) {
  constexpr std::uintptr_t kPage = 4096;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kAskedAtOnce, bytes.size()))) {
    const std::span<const std::byte> part = bytes.first(std::min(kAskedAtOnce, bytes.size()));
    const auto first = reinterpret_cast<std::uintptr_t>(part.data()) / kPage * kPage;
    const auto last = reinterpret_cast<std::uintptr_t>(&part.back()) / kPage * kPage;
    unsigned char here = 0;
    // Advice: where it cannot be taken, the pages come when they are touched.
    if (::mincore(reinterpret_cast<void*>(last), kPage, &here) == 0 && (here & 1U) != 0) continue;      // NOLINT
    static_cast<void>(::madvise(reinterpret_cast<void*>(first), last - first + kPage, MADV_WILLNEED));  // NOLINT
  }
}

double double_at(std::span<const std::byte> bytes, std::uint64_t index) {
  double value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

/// The elements where kernels may read them: files put tensors at any offset.
struct Aligned {
  std::span<const std::byte> bytes;
  std::vector<float> copy;

  Aligned(std::span<const std::byte> given, std::size_t size, std::size_t element) : bytes(given.first(size)) {
    if (reinterpret_cast<std::uintptr_t>(given.data()) % element == 0) return;
    copy.resize((size + sizeof(float) - 1) / sizeof(float));
    std::memcpy(copy.data(), given.data(), size);
    bytes = std::as_bytes(std::span<const float>(copy)).first(size);
  }
};

Result<std::span<const Health>> tiles_of(kernels::Device& device, const kernels::TensorView& view, bool sums,
                                         std::vector<Health>& memory) {
  const auto count = static_cast<std::size_t>(view.rows * ((view.columns + kTileChannels - 1) / kTileChannels));
  if (memory.size() < count) memory.resize(count);
  const kernels::HealthScanArgs args{
      .x = view, .source = {}, .source_scales = {}, .tiles = memory.data(), .sums = sums};
  if (Status status = device.launch(args); !status) return tl::unexpected(status.error());
  return std::span<const Health>(memory).first(count);
}

/// Dtypes that the kernels do not read (f64, packed e2m1), element by element: few dumps hold them.
Health scan_slowly(std::span<const std::byte> bytes, const Dtype& dtype, std::uint64_t first, std::uint64_t count) {
  Result<std::vector<float>> values = decode_values(dtype, bytes, first, count);
  if (!values) return empty_health();
  for (std::size_t i = 0; dtype.bits == 64 && i < values->size(); ++i) {
    // A finite f64 beyond f32 is finite still.
    float& value = (*values)[i];
    if (std::isinf(value) && std::isfinite(double_at(bytes, first + i))) {
      value = std::copysign(std::numeric_limits<float>::max(), value);
    }
  }
  return health_of(*values, static_cast<std::int64_t>(first));
}

Health counted_only(std::int64_t count) {
  Health health = empty_health();
  health.count = static_cast<std::uint64_t>(count);
  return health;
}

bool by_kernel(const DumpTensor& tensor) { return scannable(tensor) || codes_in_bytes(tensor); }

std::size_t piece_bytes(const DumpTensor& tensor) {
  return static_cast<std::size_t>(tensor.dtype->bytes(static_cast<std::uint64_t>(kPiece)));
}

/// What one thread scans with.
class PieceScanner {
 public:
  explicit PieceScanner(std::unique_ptr<kernels::Device> device) : device_(std::move(device)) {}

  /// Elements [first, first + length) of a tensor.
  Result<Health> scan(const DumpTensor& tensor, std::span<const std::byte> bytes, std::int64_t first,
                      std::int64_t length, bool sums) {
    if (!by_kernel(tensor)) {
      return scan_slowly(bytes, *tensor.dtype, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(length));
    }
    const std::size_t element = info(*tensor.format).storage_bytes();
    const Aligned piece(bytes.subspan(static_cast<std::size_t>(first) * element),
                        static_cast<std::size_t>(length) * element, element);
    const std::int64_t rows = length / kFlatRow;
    const std::int64_t rest = length - rows * kFlatRow;
    const auto tail = piece.bytes.subspan(static_cast<std::size_t>(rows * kFlatRow) * element);
    Health health = empty_health();
    if (Status status = add(view_of(tensor, piece.bytes, rows, kFlatRow), first, sums, health); !status) {
      return tl::unexpected(status.error());
    }
    if (Status status = add(view_of(tensor, tail, 1, rest), first + rows * kFlatRow, sums, health); !status) {
      return tl::unexpected(status.error());
    }
    return health;
  }

 private:
  Status add(const kernels::TensorView& view, std::int64_t first, bool sums, Health& into) {
    if (view.elements() == 0) return {};
    const Result<std::span<const Health>> tiles = tiles_of(*device_, view, sums, tiles_);
    if (!tiles) return tl::unexpected(tiles.error());
    Health health = empty_health();
    merge(health, *tiles);
    if (health.first_bad >= 0) health.first_bad += first;
    merge(into, health);
    return {};
  }

  std::unique_ptr<kernels::Device> device_;
  std::vector<Health> tiles_;
};

/// Hands out pieces of the tensors in order, and puts their results together in order.
class Scan {
 public:
  Scan(std::span<DumpTensor* const> tensors, const FetchTensor& fetch, const ScanOptions& options)
      : tensors_(tensors), fetch_(fetch), options_(options) {}

  Result<std::vector<UnscannedTensor>> run() {
    std::vector<PieceScanner> scanners;
    for (int i = 0; i < (options_.threads > 0 ? options_.threads : usable_cpus()); ++i) {
      auto device = kernels::make_cpu_device(kernels::Isa::best, 1);
      if (!device) return tl::unexpected(device.error());
      scanners.emplace_back(std::move(*device));
    }
    {
      std::vector<std::jthread> others;
      try {
        for (std::size_t i = 1; i < scanners.size(); ++i) others.emplace_back([&, i] { work(scanners[i]); });
      } catch (const std::exception&) {  // no more threads are to be had: those that run do all of it
      }
      work(scanners.front());
    }
    if (error_) return tl::unexpected(*error_);
    std::sort(unscanned_.begin(), unscanned_.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
    return std::move(unscanned_);
  }

 private:
  struct Job {
    std::size_t index = 0;
    TensorBytes held;
    std::vector<Health> pieces;
    std::size_t left = 0;
    bool sums = true;
  };
  struct Piece {
    std::shared_ptr<Job> job;
    std::size_t index = 0;
  };

  void work(PieceScanner& scanner) {
    try {
      while (std::optional<Piece> piece = next()) {
        const DumpTensor& tensor = *tensors_[piece->job->index];
        const std::int64_t first = static_cast<std::int64_t>(piece->index) * kPiece;
        const std::int64_t length = std::min(kPiece, tensor.count() - first);
        finish(*piece, scanner.scan(tensor, piece->job->held.bytes, first, length, piece->job->sums));
      }
    } catch (const std::exception& exception) {
      give_up(reason_of(exception));
    }
  }

  /// Nothing when all is handed out or the scan has ended. A tensor's bytes are fetched outside the lock: an archive
  /// may have to unpack them.
  std::optional<Piece> next() {
    std::unique_lock lock(mutex_);
    while (true) {
      if (options_.stop.stop_requested() && !error_) error_ = Error{"stopped"};
      if (error_) return std::nullopt;
      const bool all_fetched = next_tensor_ == tensors_.size();
      if (!ready_.empty() && (all_fetched || ready_bytes_ >= kAhead / 2)) return take();
      if (!all_fetched) {
        const std::size_t index = next_tensor_++;
        ++fetching_;
        lock.unlock();
        Result<TensorBytes> held = fetch_(index);
        lock.lock();
        --fetching_;
        add(index, std::move(held));
        changed_.notify_all();
      } else if (fetching_ > 0) {
        changed_.wait(lock);
      } else {
        return std::nullopt;
      }
    }
  }

  Piece take() {
    Piece piece = std::move(ready_.front());
    ready_.pop_front();
    const std::span<const std::byte> bytes = piece.job->held.bytes;
    const std::size_t size = piece_bytes(*tensors_[piece.job->index]);
    ready_bytes_ -= std::min(ready_bytes_, size);
    const std::size_t ahead = piece.index * size + kAhead;
    if (ahead < bytes.size() && ahead % kAskedAtOnce < size) {
      read_ahead(bytes.subspan(ahead, std::min(kAskedAtOnce, bytes.size() - ahead)));
    }
    return piece;
  }

  void add(std::size_t index, Result<TensorBytes> held) {
    DumpTensor& tensor = *tensors_[index];
    if (!held) {
      unscanned_.push_back({index, held.error().message});
      return;
    }
    const std::int64_t count = tensor.count();
    if (!by_kernel(tensor) && tensor.dtype->kind != DtypeKind::real) {
      tensor.health = counted_only(count);
      if (options_.scanned) options_.scanned(index);
      if (options_.done) options_.done(held->bytes.size());
      return;
    }
    tensor.health = empty_health();
    if (count == 0 && options_.scanned) options_.scanned(index);
    const auto pieces = static_cast<std::size_t>((count + kPiece - 1) / kPiece);
    const auto job = std::make_shared<Job>(Job{index, std::move(*held), std::vector<Health>(pieces, empty_health()),
                                               pieces, !options_.sums || options_.sums(tensor)});
    for (std::size_t i = 0; i < pieces; ++i) ready_.push_back({job, i});
    ready_bytes_ += pieces * piece_bytes(tensor);
    read_ahead(job->held.bytes.first(std::min(kAhead, job->held.bytes.size())));
  }

  void finish(const Piece& piece, Result<Health> health) {
    if (!health) {
      give_up(health.error().message);
      return;
    }
    Job& job = *piece.job;
    DumpTensor& tensor = *tensors_[job.index];
    const std::int64_t first = static_cast<std::int64_t>(piece.index) * kPiece;
    const auto length = static_cast<std::uint64_t>(std::min(kPiece, tensor.count() - first));
    const std::lock_guard lock(mutex_);
    job.pieces[piece.index] = *health;
    if (--job.left == 0) {
      merge(tensor.health, job.pieces);
      if (options_.scanned) options_.scanned(job.index);
    }
    if (options_.done) options_.done(tensor.dtype->bytes(length));
  }

  void give_up(std::string reason) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = Error{std::move(reason)};
    changed_.notify_all();
  }

  std::span<DumpTensor* const> tensors_;
  const FetchTensor& fetch_;
  const ScanOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> ready_;
  std::size_t ready_bytes_ = 0;
  std::size_t next_tensor_ = 0;
  int fetching_ = 0;
  std::vector<UnscannedTensor> unscanned_;
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<UnscannedTensor>> scan_tensors(std::span<DumpTensor* const> tensors, const FetchTensor& fetch,
                                                  const ScanOptions& options) {
  return Scan(tensors, fetch, options).run();
}

Result<std::vector<Health>> scan_rows(kernels::Device& device, const DumpTensor& tensor,
                                      std::span<const std::byte> bytes) {
  const std::int64_t rows = tensor.rows();
  const std::int64_t channels = tensor.channels();
  std::vector<Health> health(static_cast<std::size_t>(rows), counted_only(channels));
  if (channels == 0 || rows == 0) return health;
  if (!by_kernel(tensor)) {
    if (tensor.dtype->kind != DtypeKind::real) return health;
    for (std::int64_t row = 0; row < rows; ++row) {
      health[static_cast<std::size_t>(row)] = scan_slowly(
          bytes, *tensor.dtype, static_cast<std::uint64_t>(row * channels), static_cast<std::uint64_t>(channels));
    }
    return health;
  }
  const std::int64_t tiles_per_row = (channels + kTileChannels - 1) / kTileChannels;
  const std::int64_t rows_a_piece = std::max<std::int64_t>(1, kRowsAtOnce / std::max(channels, kTileChannels));
  const std::size_t row_bytes = static_cast<std::size_t>(channels) * info(*tensor.format).storage_bytes();
  std::vector<Health> memory;
  for (std::int64_t first = 0; first < rows; first += rows_a_piece) {
    const std::int64_t length = std::min(rows_a_piece, rows - first);
    const Aligned piece(bytes.subspan(static_cast<std::size_t>(first) * row_bytes),
                        static_cast<std::size_t>(length) * row_bytes, info(*tensor.format).storage_bytes());
    const auto tiles = tiles_of(device, view_of(tensor, piece.bytes, length, channels), true, memory);
    if (!tiles) return tl::unexpected(tiles.error());
    kernels::HealthSummary summary = kernels::summarize(*tiles, length, tiles_per_row);
    for (Health& row : summary.rows) {
      if (row.first_bad >= 0) row.first_bad += first * channels;
    }
    std::move(summary.rows.begin(), summary.rows.end(), health.begin() + static_cast<std::ptrdiff_t>(first));
  }
  return health;
}

}  // namespace nanscope
