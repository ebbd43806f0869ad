#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/numbers/format.h"
#include "core/recording/reader.h"
#include "core/result.h"

namespace nanscope {

/// The elements of one recorded tensor: `tokens` x `channels` codes, row-major, each of
/// info(format).storage_bytes() bytes, little-endian.
struct TensorData {
  Format format = Format::f32;
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::vector<std::byte> bytes;

  std::int64_t count() const { return tokens * channels; }
  /// The stored bits of the element at row-major `index`, which must be below count().
  std::uint32_t code(std::int64_t index) const;
  std::uint32_t code(std::int64_t row, std::int64_t channel) const { return code(row * channels + channel); }
  /// Rows [first, first + count), which must be there.
  TensorData rows(std::int64_t first, std::int64_t count) const;
  /// The value of that code, unscaled.
  float value(std::int64_t index) const;
  float value(std::int64_t row, std::int64_t channel) const { return value(row * channels + channel); }
  /// All values; `into` is given their size.
  void decode_into(std::vector<float>& into) const;
  /// All values that the codes have when they are read as `as`.
  std::vector<float> values_as(Format as) const;
};

/// Bytes that live as long as this does.
struct ElementBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Where elements come from: the recording's stored bytes, a replay that re-makes them, or nowhere.
/// Health and hashes never need one. Not thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Errors, in one line, when the elements cannot be had; detectors then say "not available".
  virtual Result<TensorData> fetch(std::int64_t tensor) = 0;
  /// Rows [first, first + count) alone. Errors: those of fetch(), or rows that are not there.
  virtual Result<TensorData> fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count);
  /// Bytes that may be kept of what it gave.
  virtual std::size_t cache_budget() const { return std::size_t{256} << 20; }
};

/// Nothing is available.
class NoTensors final : public TensorSource {
 public:
  Result<TensorData> fetch(std::int64_t tensor) override;
};

/// The bytes that the recording holds. The recording must outlive it.
class StoredTensors final : public TensorSource {
 public:
  explicit StoredTensors(const Recording& recording) : recording_(recording) {}
  /// Errors: not stored, of another size than its shape says.
  Result<TensorData> fetch(std::int64_t tensor) override;
  Result<TensorData> fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) override;

 private:
  const Recording& recording_;
};

/// Keeps what another source gave last, up to a byte budget, and remembers what it could not give.
class CachedTensors final {
 public:
  /// With the budget that the source states.
  explicit CachedTensors(TensorSource& source) : CachedTensors(source, source.cache_budget()) {}
  CachedTensors(TensorSource& source, std::size_t budget) : source_(source), budget_(budget) {}
  /// Null when the source has no such elements. The pointer keeps the tensor alive.
  std::shared_ptr<const TensorData> fetch(std::int64_t tensor);
  /// Why fetch() gave null.
  std::string why_not(std::int64_t tensor) const;

 private:
  struct Entry {
    std::shared_ptr<const TensorData> data;
    std::string problem;  ///< where there are none
    std::list<std::int64_t>::iterator use;
  };
  TensorSource& source_;
  std::size_t budget_;
  std::size_t held_ = 0;
  std::list<std::int64_t> uses_;  ///< most recent first
  std::unordered_map<std::int64_t, Entry> entries_;
};

}  // namespace nanscope
