#include "instrument/dump/scan.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/tensor/health_of.h"
#include "kernels/health.h"
#include "kernels/ops/health_scan.h"

namespace nanscope {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 24;    ///< elements a launch: their tiles take 3.5 MiB
constexpr std::int64_t kFlatRow = std::int64_t{1} << 14;  ///< a tensor is scanned flat, whatever its shape

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

/// Asks the system for pages that come next, so that a cold file is read while what is here is scanned.
void read_ahead(std::span<const std::byte> bytes) {
  constexpr std::size_t kAhead = std::size_t{64} << 20;
  constexpr std::uintptr_t kPage = 4096;
  if (bytes.empty()) return;
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()) / kPage * kPage;
  const std::size_t size = std::min(kAhead, bytes.size());
  // Advice: where it cannot be taken, the pages come when they are touched.
  static_cast<void>(
      ::madvise(reinterpret_cast<void*>(first), size, MADV_WILLNEED));  // NOLINT(performance-no-int-to-ptr)
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

Result<std::vector<Health>> tiles_of(kernels::Device& device, const kernels::TensorView& view) {
  std::vector<Health> tiles(static_cast<std::size_t>(view.rows * ((view.columns + kTileChannels - 1) / kTileChannels)));
  const kernels::HealthScanArgs args{.x = view, .source = {}, .source_scales = {}, .tiles = tiles.data()};
  if (Status status = device.launch(args); !status) return tl::unexpected(status.error());
  return tiles;
}

Status scan_piece(kernels::Device& device, const kernels::TensorView& view, std::int64_t first, Health& into) {
  if (view.elements() == 0) return {};
  Result<std::vector<Health>> tiles = tiles_of(device, view);
  if (!tiles) return tl::unexpected(tiles.error());
  for (Health& tile : *tiles) {
    if (tile.first_bad >= 0) tile.first_bad += first;
    merge(into, tile);
  }
  return {};
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

}  // namespace

Result<Health> scan_tensor(kernels::Device& device, const DumpTensor& tensor, std::span<const std::byte> bytes,
                           const std::function<void(std::size_t)>& done, const std::stop_token& stop) {
  const std::int64_t count = tensor.count();
  const bool by_kernel = scannable(tensor) || codes_in_bytes(tensor);
  if (!by_kernel && tensor.dtype->kind != DtypeKind::real) {
    done(bytes.size());
    return counted_only(count);
  }
  const std::size_t element = static_cast<std::size_t>(std::max(1, tensor.dtype->bits / 8));
  const bool dtype_bytes_whole = tensor.dtype->bits % 8 == 0;
  Health health = empty_health();
  for (std::int64_t first = 0; first < count; first += kPiece) {
    if (stop.stop_requested()) return fail("stopped");
    const std::int64_t length = std::min(kPiece, count - first);
    if (dtype_bytes_whole) read_ahead(bytes.subspan(static_cast<std::size_t>(first) * element));
    if (!by_kernel) {
      merge(health,
            scan_slowly(bytes, *tensor.dtype, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(length)));
    } else {
      const std::int64_t rows = length / kFlatRow;
      const Aligned piece(bytes.subspan(static_cast<std::size_t>(first) * element),
                          static_cast<std::size_t>(length) * element, element);
      if (Status status = scan_piece(device, view_of(tensor, piece.bytes, rows, kFlatRow), first, health); !status) {
        return tl::unexpected(status.error());
      }
      const std::int64_t rest = length - rows * kFlatRow;
      const auto tail = piece.bytes.subspan(static_cast<std::size_t>(rows * kFlatRow) * element);
      if (Status status = scan_piece(device, view_of(tensor, tail, 1, rest), first + rows * kFlatRow, health);
          !status) {
        return tl::unexpected(status.error());
      }
    }
    done(static_cast<std::size_t>(length) * element);
  }
  return health;
}

Result<std::vector<Health>> scan_rows(kernels::Device& device, const DumpTensor& tensor,
                                      std::span<const std::byte> bytes) {
  const std::int64_t rows = tensor.rows();
  const std::int64_t channels = tensor.channels();
  std::vector<Health> health(static_cast<std::size_t>(rows), counted_only(channels));
  if (channels == 0 || rows == 0) return health;
  if (!scannable(tensor) && !codes_in_bytes(tensor)) {
    if (tensor.dtype->kind != DtypeKind::real) return health;
    for (std::int64_t row = 0; row < rows; ++row) {
      health[static_cast<std::size_t>(row)] = scan_slowly(
          bytes, *tensor.dtype, static_cast<std::uint64_t>(row * channels), static_cast<std::uint64_t>(channels));
    }
    return health;
  }
  const std::int64_t tiles_per_row = (channels + kTileChannels - 1) / kTileChannels;
  const std::int64_t rows_a_piece = std::max<std::int64_t>(1, kPiece / std::max(channels, kTileChannels));
  const std::size_t row_bytes = static_cast<std::size_t>(channels) * info(*tensor.format).storage_bytes();
  for (std::int64_t first = 0; first < rows; first += rows_a_piece) {
    const std::int64_t length = std::min(rows_a_piece, rows - first);
    const Aligned piece(bytes.subspan(static_cast<std::size_t>(first) * row_bytes),
                        static_cast<std::size_t>(length) * row_bytes, info(*tensor.format).storage_bytes());
    Result<std::vector<Health>> tiles = tiles_of(device, view_of(tensor, piece.bytes, length, channels));
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
