#include "instrument/recompute/kernel_arithmetic.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/numbers/decode_span.h"
#include "kernels/device.h"
#include "kernels/ops/dot_products.h"
#include "kernels/ops/gemm.h"
#include "kernels/pack.h"

namespace nanscope {
namespace {

constexpr std::int64_t kOutputsAtOnce = 512;  ///< of a weight that is widened: 8 MiB at 4096 inputs

/// Kernels take mutable views and write none that they read.
void* reading(const void* data) { return const_cast<void*>(data); }

kernels::TensorView view_of(std::span<const float> values, std::int64_t rows) {
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  return {reading(values.data()), Format::f32, rows, columns, columns};
}

std::span<const std::byte> row_of(const MatrixView& weight, std::int64_t row) {
  return weight.bytes.subspan(static_cast<std::size_t>(row * weight.stride) * info(weight.format).storage_bytes());
}

/// Whether kernels can read it where it lies: mapped files need not align their tensors.
bool in_place(const MatrixView& weight) {
  if (weight.format != Format::f32 && weight.format != Format::f16 && weight.format != Format::bf16) return false;
  return reinterpret_cast<std::uintptr_t>(weight.bytes.data()) % info(weight.format).storage_bytes() == 0;
}

}  // namespace

struct KernelArithmetic::Kernels {
  std::unique_ptr<kernels::Device> device;
  std::vector<float> widened;

  /// weight: of (outputs, inputs); out: rows of `outputs` numbers, `stride` apart.
  bool multiply(const kernels::TensorView& x, const kernels::TensorView& weight, float* out, std::int64_t stride,
                std::span<float> squares) {
    kernels::DotProductsArgs dots;
    dots.x = x;
    dots.weight = weight;
    dots.out = {out, Format::f32, x.rows, weight.rows, stride};
    dots.squares = {squares.data(), Format::f32, 1, weight.rows, weight.rows};
    return device->launch(dots) && device->synchronize();
  }

  bool by_widened_rows(const kernels::TensorView& x, const MatrixView& weight, std::span<float> out,
                       std::span<float> squares) {
    for (std::int64_t first = 0; first < weight.rows; first += kOutputsAtOnce) {
      const std::int64_t count = std::min(kOutputsAtOnce, weight.rows - first);
      widened.resize(static_cast<std::size_t>(count * weight.columns));
      for (std::int64_t row = 0; row < count; ++row) {
        const auto to = std::span(widened).subspan(static_cast<std::size_t>(row * weight.columns),
                                                   static_cast<std::size_t>(weight.columns));
        decode(weight.format, row_of(weight, first + row), to);
      }
      const auto norms = squares.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
      if (!multiply(x, view_of(widened, count), out.data() + first, weight.rows, norms)) return false;
    }
    return true;
  }

  /// A weight of (inputs, outputs): its rows are those of the kernel's panels, cut in pieces.
  bool by_panels(const kernels::TensorView& x, const MatrixView& weight, std::span<float> out,
                 std::span<float> squares) {
    constexpr std::int64_t kPanel = kernels::kPanelColumns;
    std::fill(squares.begin(), squares.end(), 0.0F);
    std::vector<float> row(static_cast<std::size_t>(weight.columns));
    for (std::int64_t first = 0; first < weight.columns; first += kOutputsAtOnce) {
      const std::int64_t count = std::min(kOutputsAtOnce, weight.columns - first);
      widened.assign(static_cast<std::size_t>(kernels::packed_floats(count, weight.rows)), 0.0F);
      for (std::int64_t k = 0; k < weight.rows; ++k) {
        const auto part = std::span(row).first(static_cast<std::size_t>(count));
        const std::size_t skipped = static_cast<std::size_t>(first) * info(weight.format).storage_bytes();
        decode(weight.format, row_of(weight, k).subspan(skipped), part);
        for (std::int64_t n = 0; n < count; ++n) {
          const float value = part[static_cast<std::size_t>(n)];
          widened[static_cast<std::size_t>((n / kPanel * weight.rows + k) * kPanel + n % kPanel)] = value;
          squares[static_cast<std::size_t>(first + n)] += value * value;
        }
      }
      kernels::GemmArgs gemm;
      gemm.x = x;
      gemm.packed = kernels::packed_view(widened.data(), count, weight.rows);
      gemm.out = {out.data() + first, Format::f32, x.rows, count, weight.columns};
      if (!device->launch(gemm) || !device->synchronize()) return false;
    }
    return true;
  }
};

KernelArithmetic::KernelArithmetic() {
  auto device = kernels::make_cpu_device();
  if (device) kernels_ = std::make_unique<Kernels>(Kernels{std::move(*device), {}});
}

KernelArithmetic::~KernelArithmetic() = default;

bool KernelArithmetic::product(std::span<const float> x, std::int64_t rows, const MatrixView& weight, bool transposed,
                               std::span<float> out, std::span<float> squares) {
  if (!kernels_) return PlainArithmetic().product(x, rows, weight, transposed, out, squares);
  if (rows == 0 || weight.rows == 0 || weight.columns == 0) return true;
  const kernels::TensorView left = view_of(x, rows);
  if (transposed) return kernels_->by_panels(left, weight, out, squares);
  if (!in_place(weight)) return kernels_->by_widened_rows(left, weight, out, squares);
  const kernels::TensorView right{reading(weight.bytes.data()), weight.format, weight.rows, weight.columns,
                                  weight.stride};
  return kernels_->multiply(left, right, out.data(), weight.rows, squares);
}

}  // namespace nanscope
