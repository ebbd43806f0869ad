#include "tests/unit/kernels/ops/case_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace nanscope::kernels::cases {
namespace {

/// More than a warp's widest access, so that a stray one lands inside.
constexpr std::size_t kGuard = 512;
/// Not a plausible result: as f32 it is -2.9e-16.
constexpr std::byte kPattern{0xa5};

}  // namespace

TensorView CaseMemory::place(Block block, std::int64_t padding, std::span<const std::uint32_t> codes) {
  TensorView& view = block.view;
  view.stride = view.columns + padding;
  const std::size_t element = block.element;
  const std::size_t begin = block.begin;
  const auto bytes = static_cast<std::size_t>(view.rows * view.stride) * element;
  block.before.assign(begin + bytes + kGuard, kPattern);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / view.columns;
    const auto column = static_cast<std::int64_t>(i) % view.columns;
    const auto at = begin + static_cast<std::size_t>(row * view.stride + column) * element;
    std::memcpy(block.before.data() + at, &codes[i], element);
  }
  auto buffer = device_.allocate(block.before.size(), false);
  if (!buffer) {
    if (status_) status_ = tl::unexpected(buffer.error());
    return view;
  }
  block.buffer = *std::move(buffer);
  view.data = static_cast<std::byte*>(block.buffer.data()) + begin;
  if (status_) status_ = device_.upload(block.buffer.data(), block.before);
  if (placement_.placed) placement_.placed(block.buffer, view, element);
  blocks_.push_back(std::move(block));
  return blocks_.back().view;
}

TensorView CaseMemory::input(Format format, std::int64_t rows, std::int64_t columns,
                             std::span<const std::uint32_t> codes, std::int64_t padding) {
  return in_out("", format, rows, columns, codes, padding);
}

TensorView CaseMemory::output(const std::string& name, Format format, std::int64_t rows, std::int64_t columns,
                              std::int64_t padding) {
  return in_out(name, format, rows, columns, {}, padding);
}

TensorView CaseMemory::in_out(const std::string& name, Format format, std::int64_t rows, std::int64_t columns,
                              std::span<const std::uint32_t> codes, std::int64_t padding) {
  Block block;
  block.name = name;
  block.view = {nullptr, format, rows, columns, columns};
  block.element = info(format).storage_bytes();
  block.begin = kGuard + static_cast<std::size_t>(placement_.shift) * block.element;
  return place(std::move(block), padding, codes);
}

void* CaseMemory::output_bytes(const std::string& name, std::size_t bytes) {
  Block block;
  block.name = name;
  block.view = {nullptr, Format::int8, 1, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(bytes)};
  block.begin = kGuard;
  return place(std::move(block), 0, {}).data;
}

Status CaseMemory::check(const Block& block, std::span<const std::byte> after) const {
  const auto row_bytes = static_cast<std::size_t>(block.view.columns) * block.element;
  const auto stride_bytes = static_cast<std::size_t>(block.view.stride) * block.element;
  const auto rows = static_cast<std::size_t>(block.view.rows);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == block.before[i]) continue;
    const bool inside =
        i >= block.begin && i - block.begin < rows * stride_bytes && (i - block.begin) % stride_bytes < row_bytes;
    if (inside && !block.name.empty()) continue;
    const auto offset = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(block.begin);
    return fail(fmt::format("{}: byte {} of the memory around it was overwritten, expected {:#04x}, found {:#04x}",
                            block.name.empty() ? "an input" : block.name, offset,
                            static_cast<unsigned>(block.before[i]), static_cast<unsigned>(after[i])));
  }
  return {};
}

Result<std::vector<Output>> CaseMemory::finish() {
  if (!status_) return tl::unexpected(status_.error());
  if (auto status = device_.synchronize(); !status) return tl::unexpected(status.error());
  std::vector<Output> outputs;
  for (const Block& block : blocks_) {
    std::vector<std::byte> after(block.before.size());
    if (auto status = device_.download(after, block.buffer.data()); !status) return tl::unexpected(status.error());
    if (auto status = check(block, after); !status) return tl::unexpected(status.error());
    if (block.name.empty()) continue;
    Output output;
    output.name = block.name;
    output.format = block.view.format;
    output.rows = block.view.rows;
    output.columns = block.view.columns;
    const auto row_bytes = static_cast<std::ptrdiff_t>(block.view.columns) * static_cast<std::ptrdiff_t>(block.element);
    for (std::int64_t row = 0; row < block.view.rows; ++row) {
      const auto begin = after.begin() + static_cast<std::ptrdiff_t>(block.begin) +
                         row * block.view.stride * static_cast<std::ptrdiff_t>(block.element);
      output.bytes.insert(output.bytes.end(), begin, begin + row_bytes);
    }
    if (const auto bounded = bounded_.find(block.name); bounded != bounded_.end()) {
      std::tie(output.products, output.magnitude) = bounded->second;
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

}  // namespace nanscope::kernels::cases
