#include "instrument/quantized/stored_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/numbers/codec.h"
#include "core/numbers/decode_span.h"
#include "core/text/safe_text.h"

namespace nanscope {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

std::string shape_text(const SafetensorsEntry& entry) { return fmt::format("[{}]", fmt::join(entry.shape, ",")); }

/// The format of what a scale tensor holds; U8 is E8M0.
std::optional<Format> scale_format(const SafetensorsEntry& entry) {
  if (entry.dtype == "U8") return Format::e8m0;
  if (!entry.format) return std::nullopt;
  switch (*entry.format) {
    case Format::f32:
    case Format::f16:
    case Format::bf16:
    case Format::e4m3:
    case Format::e8m0:
      return entry.format;
    default:
      return std::nullopt;
  }
}

std::int64_t blocks(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// Without sides of 1 behind the first, and 4-D grids of blocks (ModelOpt's [rows,1,columns,1]) as two.
std::vector<std::int64_t> grid_of(const SafetensorsEntry& entry) {
  std::vector<std::int64_t> shape = entry.shape;
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) shape = {shape[0], shape[2]};
  return shape;
}

struct Weight {
  const StoredModule& module;
  const CheckpointFiles::Tensor tensor;
  const SafetensorsEntry& entry() const { return *tensor.entry; }
};

/// Rows and columns of codes: experts and the like stand under each other.
Status set_size(const Weight& weight, std::int64_t per_byte, StoredMatrix& out) {
  const std::vector<std::int64_t>& shape = weight.entry().shape;
  out.columns = shape.empty() ? 1 : shape.back();
  out.rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) out.rows *= shape[i];
  out.columns *= per_byte;
  if (out.rows < 1 || out.columns < 1 || out.rows > kMostElements / out.columns) {
    return fail(fmt::format("{} has shape {}, which is no matrix", weight.tensor.where(), shape_text(weight.entry())));
  }
  out.codes = weight.tensor.bytes();
  return {};
}

tl::unexpected<Error> misfit(const Weight& weight, const CheckpointFiles::Tensor& scale, std::string_view expected) {
  return fail(fmt::format("'{}' has shape {} beside a weight of {}, expected {}", one_line(scale.entry->name),
                          shape_text(*scale.entry), shape_text(weight.entry()), expected));
}

/// A scale for every `group` elements of a row.
Result<StoredMatrix> with_groups(const Weight& weight, const CheckpointFiles::Tensor& scale, std::int64_t group,
                                 StoredMatrix out) {
  std::vector<std::int64_t> expected = weight.entry().shape;
  expected.back() = blocks(out.columns, group);
  std::vector<std::int64_t> found = scale.entry->shape;
  // gpt-oss keeps a dimension for the bytes of a block.
  if (weight.entry().shape.size() == found.size() + 1) expected.pop_back();
  if (found != expected) return misfit(weight, scale, fmt::format("[{}]: one for {}", fmt::join(expected, ","), group));
  out.block_rows = 1;
  out.block_columns = group;
  out.scale_columns = blocks(out.columns, group);
  return out;
}

/// 8-bit codes with one scale for all, for a row, or for a block.
Result<StoredMatrix> with_grid(const Weight& weight, const CheckpointFiles::Tensor& scale,
                               const QuantizationConfig& config, StoredMatrix out) {
  const std::vector<std::int64_t> grid = grid_of(*scale.entry);
  const std::int64_t count = scale.entry->count();
  out.block_rows = out.rows;
  out.block_columns = out.columns;
  out.scale_columns = 1;
  if (count == 1) return out;
  out.block_rows = 1;
  if (count == out.rows && (grid.size() == 1 || grid.back() == 1)) return out;
  if (grid.size() < 2) return misfit(weight, scale, fmt::format("1 or {}", out.rows));
  std::array<std::int64_t, 2> block = config.block.value_or(std::array<std::int64_t, 2>{128, 128});
  for (const QuantGroup& group : config.groups) {
    if (group.block[0] > 0) block = group.block;
    if (group.group_size > 0) block = {1, group.group_size};
  }
  // OCP MX: a byte for 32 elements of a row.
  if (*out.scale == Format::e8m0 && grid.back() == blocks(out.columns, 32) &&
      grid[grid.size() - 2] != blocks(out.rows, block[0])) {
    block = {1, 32};
  }
  const std::int64_t matrices = grid.size() > 2 ? count / (grid[grid.size() - 2] * grid.back()) : 1;
  const std::int64_t rows = out.rows / std::max<std::int64_t>(1, matrices);
  if (grid[grid.size() - 2] != blocks(rows, block[0]) || grid.back() != blocks(out.columns, block[1]) ||
      (matrices > 1 && rows % block[0] != 0)) {
    return misfit(weight, scale,
                  fmt::format("[{},{}]: one for {} x {}", blocks(rows, block[0]), blocks(out.columns, block[1]),
                              block[0], block[1]));
  }
  out.block_rows = block[0];
  out.block_columns = block[1];
  out.scale_columns = grid.back();
  return out;
}

Status set_global(const StoredModule& module, StoredMatrix& out) {
  for (const auto& [part, kind] : {std::pair<const char*, GlobalScale>{"weight_global_scale", GlobalScale::divisor},
                                   {"weight_scale_2", GlobalScale::multiplier}}) {
    const CheckpointFiles::Tensor tensor = module.find(part);
    if (tensor.entry == nullptr) continue;
    const auto values = scale_values(tensor);
    if (!values) return tl::unexpected(values.error());
    if (values->size() != 1) {
      return fail(fmt::format("'{}' has shape {}, expected one number", one_line(tensor.entry->name),
                              shape_text(*tensor.entry)));
    }
    out.global = kind;
    out.global_scale = values->front();
  }
  return {};
}

/// torchao says in the file's metadata what a tensor is; scales in tiles of 128 x 4 look like any other.
Status check_layout(const StoredModule& module, const CheckpointFiles::Tensor& scale) {
  const auto& metadata = scale.file->content->header().metadata;
  const auto said = metadata.find(module.path + ".weight");
  if (said == metadata.end() || said->second.find("\"is_swizzled_scales\": true") == std::string::npos) return {};
  return fail(fmt::format("'{}' is stored in tiles of 128 x 4, which are not read", one_line(scale.entry->name)));
}

/// Of a packed layout: a scale for each group of the columns of a row.
StoredMatrix matrix_of(PackedWeight&& weight) {
  StoredMatrix out;
  out.rows = weight.rows;
  out.columns = weight.columns;
  out.element = Format::int8;
  out.scale = weight.scale_format;
  out.block_rows = 1;
  out.block_columns = (weight.columns + weight.groups - 1) / weight.groups;
  out.scale_columns = weight.groups;
  out.layout = std::make_shared<const PackedWeight>(std::move(weight));
  return out;
}

CheckpointFiles::Tensor scale_of(const StoredModule& module) {
  for (const char* part : {"weight_scale_inv", "weight_scale", "scales"}) {
    if (module.has(part)) return module.find(part);
  }
  return {};
}

/// Codes of a byte or of half a byte, and floats.
Result<StoredMatrix> matrix_of_bytes(const Weight& weight, const QuantizationConfig& config) {
  const SafetensorsEntry& entry = weight.entry();
  StoredMatrix out;
  const CheckpointFiles::Tensor scale = scale_of(weight.module);
  if (scale.entry != nullptr) {
    out.scale = scale_format(*scale.entry);
    if (!out.scale) {
      return fail(
          fmt::format("'{}' is {}, which is no scale", one_line(scale.entry->name), one_line(scale.entry->dtype)));
    }
    out.scales = scale.bytes();
    if (Status linear = check_layout(weight.module, scale); !linear) return tl::unexpected(linear.error());
  }
  if (entry.dtype == "U8" || (entry.dtype == "I8" && out.scale == Format::e8m0)) {
    out.element = Format::e2m1;
    out.packed = true;
    const bool blocks = weight.module.has("blocks");
    if (Status sized = set_size(weight, 2, out); !sized) return tl::unexpected(sized.error());
    if (blocks && entry.shape.size() > 2) {
      out.columns *= entry.shape[entry.shape.size() - 2];
      out.rows /= entry.shape[entry.shape.size() - 2];
    }
    if (!out.scale) return fail(fmt::format("'{}' is packed and has no scale beside it", one_line(entry.name)));
    if (Status global = set_global(weight.module, out); !global) return tl::unexpected(global.error());
    return with_groups(weight, scale, out.scale == Format::e8m0 ? 32 : 16, out);
  }
  if (!entry.format || *entry.format == Format::i32) {
    return fail(fmt::format("'{}' is {}, which is no code of a weight", one_line(entry.name), one_line(entry.dtype)));
  }
  out.element = *entry.format;
  if (Status sized = set_size(weight, 1, out); !sized) return tl::unexpected(sized.error());
  if (!out.scale) return out;
  return with_grid(weight, scale, config, out);
}

}  // namespace

Result<std::vector<float>> scale_values(const CheckpointFiles::Tensor& tensor) {
  const std::optional<Format> format = scale_format(*tensor.entry);
  if (!format)
    return fail(
        fmt::format("'{}' is {}, which is no scale", one_line(tensor.entry->name), one_line(tensor.entry->dtype)));
  std::vector<float> values(static_cast<std::size_t>(tensor.entry->count()));
  decode(*format, tensor.bytes(), values);
  return values;
}

Fact<StoredMatrix> stored_matrix(const StoredModule& module, const QuantizationConfig& config) {
  auto packed = packed_weight(module, config);
  if (packed) return matrix_of(std::move(*packed));
  if (packed.error().why != Unknown::absent) return tl::unexpected(std::move(packed.error()));
  const Weight weight{module, module.weight()};
  if (weight.tensor.entry == nullptr) return absent(fmt::format("'{}' has no weight", one_line(module.path)));
  auto matrix = matrix_of_bytes(weight, config);
  if (!matrix) return unreadable(std::move(matrix.error().message));
  return std::move(*matrix);
}

void StoredMatrix::codes_of_row(std::int64_t row, std::span<float> values) const {
  if (layout != nullptr) return layout->codes_of_row(row, values);
  const auto begin = static_cast<std::size_t>(row * columns);
  if (!packed) {
    const std::size_t width = info(element).storage_bytes();
    decode(element, codes.subspan(begin * width, values.size() * width), values);
    return;
  }
  const std::span<const float, 256> table = code_values(element);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(codes[(begin + i) / 2]);
    values[i] = table[(begin + i) % 2 == 0 ? byte & 15U : byte >> 4];
  }
}

void StoredMatrix::scales_of_row(std::int64_t row, std::span<float> values) const {
  if (layout != nullptr) {
    const auto from = std::span(layout->scales).subspan(static_cast<std::size_t>(row * scale_columns), values.size());
    std::copy(from.begin(), from.end(), values.begin());
    return;
  }
  const std::size_t width = info(*scale).storage_bytes();
  const auto begin = static_cast<std::size_t>(row / block_rows * scale_columns);
  decode(*scale, scales.subspan(begin * width, values.size() * width), values);
}

void StoredMatrix::row(std::int64_t row, std::span<float> values) const {
  codes_of_row(row, values);
  if (!scale) return;
  std::vector<float> factors(static_cast<std::size_t>(scale_columns));
  scales_of_row(row, factors);
  for (float& factor : factors) {
    if (global == GlobalScale::divisor) factor /= global_scale;
    if (global == GlobalScale::multiplier) factor *= global_scale;
    if (scales_as) factor = decode(*scales_as, encode(*scales_as, factor, Overflow::saturate));
  }
  const auto block = static_cast<std::size_t>(block_columns);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *= factors[layout != nullptr ? static_cast<std::size_t>(layout->group_of[i]) : i / block];
}

std::string StoredMatrix::text() const {
  if (layout != nullptr) return layout->text();
  std::string out(name(element));
  if (!scale) return out;
  out += fmt::format(", {} scale", name(*scale));
  if (block_rows == rows && block_columns == columns) return out;
  if (block_columns == columns) return out + " of a row";
  out += fmt::format("s of {} x {}", block_rows, block_columns);
  if (global != GlobalScale::none) out += " and one of all";
  return out;
}

}  // namespace nanscope
