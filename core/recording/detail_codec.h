#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/recording/writer.h"
#include "core/tensor/pyramid.h"

/// Health of token rows and tiles as table `detail` stores it (docs/recording.md, "Health"). Private to core/recording.
namespace nanscope::detail_codec {

/// By bits: 0 and -0 differ.
bool same_bits(const Health& a, const Health& b);

/// Where nothing but finite numbers was counted, a record is these; the rest of its Health follows from the elements
/// that it covers.
struct Numbers {
  double sum = 0;
  double sum_sq = 0;
  float min = 0;
  float max = 0;
};
static_assert(sizeof(Numbers) == 24, "recordings store this layout");

/// Bytes of a record of tensors.detail `kind` kDetailStored or kDetailNumbers.
std::int64_t record_bytes(std::int64_t kind);

/// A TensorDetail where it lies.
struct HealthView {
  std::span<const Health> tokens;
  std::span<const Health> tiles;
};

/// The records of one tensor.
struct Encoded {
  std::int64_t kind = 0;  ///< kDetailStored or kDetailNumbers
  std::int64_t levels = 0;
  std::span<const std::byte> token_rows = {};
  std::span<const std::byte> tiles = {};
  std::span<const std::byte> upper = {};  ///< more of the tiles, of levels above those
};

/// Memory is kept from one tensor to the next.
class Encoder {
 public:
  /// `detail.tokens` has a record a token row; `detail.tiles` those of level 0 where that has several columns. Valid
  /// until the next call, and as long as `detail` is.
  Encoded encode(const TensorRow& row, const HealthView& detail);

 private:
  /// Makes the levels above `finest`, which is level 0, as far as they are stored.
  void merge_levels(const TensorRow& row, std::span<const Health> finest);
  /// Whether every record follows from its numbers, which are then in numbers_.
  bool to_numbers(std::span<const Health> records, const LevelShape& shape, const TensorRow& row);
  bool to_numbers(const TensorRow& row, const HealthView& detail);

  std::vector<Health> levels_;  ///< from level 1 on
  std::vector<Numbers> numbers_;
};

/// The records of a level of `shape` of `row`, in a blob of shape.tiles() records of `kind`.
std::vector<Health> decode(std::span<const std::byte> blob, std::int64_t kind, const LevelShape& shape,
                           const TensorRow& row);

/// The token rows as a level: one column.
LevelShape token_rows_shape(const TensorRow& row);

}  // namespace nanscope::detail_codec
