#include "instrument/weights/weight_set.h"

#include <utility>

#include "core/files/output_file.h"

namespace nanscope {
namespace {

std::string shape_text(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

}  // namespace

Result<WeightSet> WeightSet::open(const std::filesystem::path& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return tl::unexpected(file.error());
  WeightSet set;
  set.file_ = std::make_unique<SafetensorsFile>(std::move(*file));
  for (const SafetensorsEntry& entry : set.file_->entries()) {
    if (!entry.format) {
      return fail(path.string() + ": weight '" + entry.name + "' has dtype " + entry.dtype +
                  ", expected a float format of at most 32 bits, I32 or I8");
    }
    Weight weight{*entry.format, 1, entry.count(), set.file_->bytes(entry)};
    if (entry.shape.size() > 1 && entry.shape[0] > 0) {
      weight.rows = entry.shape[0];
      weight.columns = entry.count() / entry.shape[0];
    }
    set.weights_.emplace(entry.name, weight);
  }
  return set;
}

Status WeightSet::add(std::string name, std::int64_t rows, std::int64_t columns, std::vector<float> values) {
  std::int64_t count = 0;
  if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &count) ||
      static_cast<std::uint64_t>(count) != values.size()) {
    return fail("weight '" + name + "': " + std::to_string(values.size()) + " values for a shape of " +
                shape_text(rows, columns));
  }
  if (weights_.contains(name)) return fail("weight '" + name + "' is given twice");
  const auto& kept = own_[name] = std::move(values);
  weights_.emplace(std::move(name), Weight{Format::f32, rows, columns, std::as_bytes(std::span(kept))});
  return {};
}

std::vector<std::string> WeightSet::names() const {
  std::vector<std::string> names;
  names.reserve(weights_.size());
  for (const auto& [name, weight] : weights_) names.push_back(name);
  return names;
}

const Weight* WeightSet::find(std::string_view name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

Result<std::vector<float>> WeightSet::values(std::string_view name, std::int64_t rows, std::int64_t columns) const {
  const Weight* weight = find(name);
  if (weight == nullptr) {
    return fail("weight '" + std::string(name) + "' is missing, expected " + shape_text(rows, columns));
  }
  if (weight->rows != rows || weight->columns != columns) {
    return fail("weight '" + std::string(name) + "' is " + shape_text(weight->rows, weight->columns) + ", expected " +
                shape_text(rows, columns));
  }
  SafetensorsEntry entry;
  entry.name = std::string(name);
  entry.dtype = std::string(safetensors_dtype(weight->format));
  entry.format = weight->format;
  return safetensors_values(entry, weight->bytes);
}

Status WeightSet::save(const std::filesystem::path& path) const {
  std::vector<SafetensorsInput> tensors;
  for (const auto& [name, weight] : weights_) {
    tensors.push_back(
        {name, std::string(safetensors_dtype(weight.format)), {weight.rows, weight.columns}, weight.bytes});
  }
  const auto bytes = encode_safetensors(std::move(tensors));
  if (!bytes) return tl::unexpected(bytes.error());
  return write_output(path, *bytes, {.replace = true});
}

}  // namespace nanscope
