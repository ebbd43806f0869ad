#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "core/run/fact.h"
#include "instrument/quantized/quantization_config.h"
#include "instrument/quantized/stored_module.h"

/// Weights of small codes that stand for integers, or for the numbers of a table.
namespace nanscope {

/// Codes of 1 to 8 bits, the lowest bits first, in words of 8 or 32 bits. They follow each other along lines: rows or
/// columns of the matrix.
struct PackedCodes {
  std::span<const std::byte> bytes;
  int bits = 0;
  int word_bits = 32;
  bool dense = true;           ///< codes leave no bits of a word unused; a code may end in the next word
  bool interleaved = false;    ///< AWQ: a word holds codes 0, 2, 4, 6, 1, 3, 5, 7
  bool upper_first = false;    ///< bitsandbytes: a byte's upper half is the first code
  std::int64_t next_word = 1;  ///< words from one word of a line to the next
  std::int64_t next_line = 0;  ///< words from one line to the next

  /// Words that hold `count` codes of a line.
  std::int64_t words(std::int64_t count) const;
  /// Code `number` of a line.
  unsigned at(std::int64_t line, std::int64_t number) const;
};

/// A matrix of packed codes: (code - zero point) x scale.
struct PackedWeight {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 1;  ///< of the columns: each has a scale in each row
  PackedCodes codes;
  bool along_columns = true;           ///< a line of codes is a row; else it is a column
  std::vector<float> levels;           ///< what each code stands for; empty: its own number
  float zero = 0;                      ///< the zero point of all, where zero_points is empty
  std::vector<float> zero_points;      ///< rows x groups
  std::vector<float> scales;           ///< rows x groups
  std::vector<std::int32_t> group_of;  ///< of each column
  Format scale_format = Format::f32;   ///< of the scales in the file

  /// Codes of a row less their zero points.
  void codes_of_row(std::int64_t row, std::span<float> values) const;
  /// Sets the scales by a tensor of a number each, or of one number for all. Errors: it holds no scales.
  Status set_scales(const CheckpointFiles::Tensor& tensor);
  /// "4-bit integers with zero points, f16 scales of groups of 128"
  std::string text() const;
};

/// A module's tensor. Errors: there is none, or it has another shape.
Result<CheckpointFiles::Tensor> part_of(const StoredModule& module, std::string_view part,
                                        const std::vector<std::int64_t>& shape);

/// The group of each column by a tensor of that name, or, where there is none, by equal shares. Errors: a number that
/// is no group.
Result<std::vector<std::int32_t>> groups_of_columns(const StoredModule& module, std::string_view part,
                                                    std::int64_t columns, std::int64_t groups, std::int64_t size);

/// Of a matrix [groups, rows] as rows x groups.
std::vector<float> turned(const std::vector<float>& values, std::int64_t groups, std::int64_t rows);

/// How one producer packs the codes of a weight. Absent: the module's weight is not of this layout. Not understood: it
/// is of a kind that is not decoded. Unreadable: a tensor that does not fit, by name.
using PackedLayout = Fact<PackedWeight> (*)(const StoredModule&, const QuantizationConfig&);

#define NANSCOPE_LAYOUT(name) \
  Fact<PackedWeight> layout_##name(const StoredModule& module, const QuantizationConfig& config);
#include "instrument/quantized/layouts.def"
#undef NANSCOPE_LAYOUT

/// A module's weight by the layout that it is of; absent where it is of none.
Fact<PackedWeight> packed_weight(const StoredModule& module, const QuantizationConfig& config);

}  // namespace nanscope
