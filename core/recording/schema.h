#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// The tables of a recording, in SQL. docs/recording.md explains them and says what a change of
/// this file entails. Private to core/recording.
namespace nanscope::schema {

inline constexpr std::uint32_t kApplicationId = 0x4e414e53;  ///< "NANS", offset 68 of the file
inline constexpr std::uint32_t kVersion = 4;                 ///< PRAGMA user_version, offset 60 of the file

/// A table, an index or a view.
struct Object {
  std::string_view name;
  std::string sql;  ///< exactly as it stands in sqlite_schema
};

/// What readers insist on, of a version from 1 to kVersion, tables before their indexes. Those of 1 are read and never
/// written; 2 and 3 have those of 4, and lack words and kinds of detail.
std::span<const Object> objects(std::uint32_t version = kVersion);
/// For people and the stock shell; readers never use them.
std::span<const Object> views();

/// Health columns in the order in which they are bound and read: see each_health_column().
inline constexpr int kHealthColumns = 16;
inline constexpr std::string_view kHealthColumnNames =
    "elements, bad, nan, pos_inf, neg_inf, saturated, subnormal, zero, flushed, clipped, first_bad, sum, sum_sq, "
    "min, max, absmax";

/// tensors.detail: where the health of the token rows and tiles is.
inline constexpr std::int64_t kDetailNone = 0;     ///< not recorded
inline constexpr std::int64_t kDetailSelf = 1;     ///< one token row of one tile: the tensor's own
inline constexpr std::int64_t kDetailStored = 2;   ///< table detail, whole records
inline constexpr std::int64_t kDetailNumbers = 3;  ///< table detail, numbers alone: see detail_codec.h

/// Tensor bytes are cut into chunks of this many; chunks.id = tensor * kChunksPerTensor + part.
inline constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kChunksPerTensor = 65536;

/// Levels above 0 are stored only for tensors with more tiles than this; else readers merge them.
inline constexpr std::int64_t kStoredPyramidTiles = 1024;

}  // namespace nanscope::schema
