#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"
#include "tests/unit/kernels/ops/case_data.h"

namespace nanscope::kernels::cases {

/// What one case left behind: the bytes of every written tensor, named, rows without their padding.
struct Output {
  std::string name;
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::byte> bytes;
  std::int64_t products = 0;  ///< where tensor cores make it: of each element; 0 elsewhere
  /// The tensor_core_magnitude() of an element of such.
  std::function<double(std::int64_t row, std::int64_t column)> magnitude = {};
};

/// How the tensors of a case are placed.
struct Placement {
  std::int64_t shift = 0;  ///< elements by which a tensor begins behind where it would
  /// Told of each tensor: its allocation, all of whose bytes are written, and where in it the tensor lies.
  std::function<void(const Buffer& allocation, const TensorView& view, std::size_t element_bytes)> placed;
};

/// The tensors of one case on one device. Every tensor lies between two guards and its rows are
/// padded; guards, padding and inputs must be unchanged after the op.
class CaseMemory {
 public:
  explicit CaseMemory(Device& device, Placement placement = {}) : device_(device), placement_(std::move(placement)) {}

  /// A tensor the op reads: codes, row-major, rows * columns of them.
  TensorView input(Format format, std::int64_t rows, std::int64_t columns, std::span<const std::uint32_t> codes,
                   std::int64_t padding = 0);
  /// A tensor the op writes; it holds the guard pattern until then.
  TensorView output(const std::string& name, Format format, std::int64_t rows, std::int64_t columns,
                    std::int64_t padding = 0);
  /// A tensor the op reads and writes.
  TensorView in_out(const std::string& name, Format format, std::int64_t rows, std::int64_t columns,
                    std::span<const std::uint32_t> codes, std::int64_t padding = 0);
  /// Untyped memory that the op writes, such as health tiles.
  void* output_bytes(const std::string& name, std::size_t bytes);

  /// The output of that name is made by tensor cores, which have bits of their own on each kind of device.
  void by_tensor_cores(const std::string& output, std::int64_t products,
                       std::function<double(std::int64_t, std::int64_t)> magnitude) {
    bounded_[output] = {products, std::move(magnitude)};
  }

  /// Launches, remembering the first failure.
  template <class Args>
  void launch(const Args& args) {
    if (status_) status_ = device_.launch(args);
  }

  /// Waits, checks guards, padding and inputs, and hands back what was written.
  Result<std::vector<Output>> finish();

 private:
  struct Block {
    std::string name;  ///< empty: input
    Buffer buffer;
    std::vector<std::byte> before;  ///< the whole allocation as it was uploaded
    TensorView view;
    std::size_t begin = 0;  ///< of the view in the allocation
    std::size_t element = 1;
  };
  TensorView place(Block block, std::int64_t padding, std::span<const std::uint32_t> codes);
  Status check(const Block& block, std::span<const std::byte> after) const;

  Device& device_;
  Placement placement_;
  std::vector<Block> blocks_;
  std::map<std::string, std::pair<std::int64_t, std::function<double(std::int64_t, std::int64_t)>>> bounded_;
  Status status_;
};

/// An input of the given shape, filled as the shape says.
inline TensorView data_input(CaseMemory& memory, Format format, const Shape& shape, std::uint64_t seed) {
  return memory.input(format, shape.rows, shape.columns, fill(shape.fill, format, shape.rows, shape.columns, seed),
                      shape.padding);
}

}  // namespace nanscope::kernels::cases
