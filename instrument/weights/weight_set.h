#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {

/// One weight: a matrix of rows x columns, row-major. A vector is one row, a tensor of more than
/// two dimensions keeps its first as rows.
struct Weight {
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const std::byte> bytes;  ///< codes of `format`, as stored
};

/// Weights by name: views into a mapped file, or values of its own. Movable, not copyable.
class WeightSet {
 public:
  WeightSet() = default;
  /// Every tensor of a safetensors file. Errors: those of SafetensorsFile::open, and a tensor whose
  /// dtype is no format of nanscope.
  static Result<WeightSet> open(const std::filesystem::path& path);

  /// Adds an f32 weight of rows x columns. Errors: a size that does not fit, a name that is taken.
  Status add(std::string name, std::int64_t rows, std::int64_t columns, std::vector<float> values);

  std::vector<std::string> names() const;
  /// Null when there is no weight of that name.
  const Weight* find(std::string_view name) const;
  /// The values as f32, whatever they are stored as. Errors name the weight and what was expected:
  /// it is missing, or has another shape.
  Result<std::vector<float>> values(std::string_view name, std::int64_t rows, std::int64_t columns) const;

  /// Writes all weights as a safetensors file.
  Status save(const std::filesystem::path& path) const;

 private:
  std::unique_ptr<SafetensorsFile> file_;
  std::map<std::string, std::vector<float>, std::less<>> own_;
  std::map<std::string, Weight, std::less<>> weights_;
};

}  // namespace nanscope
