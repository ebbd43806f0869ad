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
#include "core/run/fact.h"

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

/// The source of elements: the recording's stored bytes, a replay that recomputes them, or none.
/// Health and hashes never need one. Not thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// All elements of a tensor. absent: neither stored nor recomputable; unreadable: damaged, or a replay failed.
  virtual Fact<TensorData> fetch(std::int64_t tensor) = 0;
  /// Rows [first, first + count) alone; unreadable also where they are out of range.
  virtual Fact<TensorData> fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count);
  /// Bytes that may be kept of what it gave.
  virtual std::size_t cache_budget() const { return std::size_t{256} << 20; }
};

/// Holds no elements.
class NoTensors final : public TensorSource {
 public:
  Fact<TensorData> fetch(std::int64_t tensor) override;
};

/// The bytes that the recording holds. The recording must outlive it.
class StoredTensors final : public TensorSource {
 public:
  explicit StoredTensors(const Recording& recording) : recording_(recording) {}
  /// absent: not captured. unreadable: damaged, of another size than its shape, or against its hash or health.
  Fact<TensorData> fetch(std::int64_t tensor) override;
  Fact<TensorData> fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) override;

 private:
  const Recording& recording_;
};

/// Keeps the tensors that another source gave last, up to a byte budget, and the reasons for those that it did not
/// give.
class CachedTensors final {
 public:
  /// With the source's own budget.
  explicit CachedTensors(TensorSource& source) : CachedTensors(source, source.cache_budget()) {}
  CachedTensors(TensorSource& source, std::size_t budget) : source_(source), budget_(budget) {}
  /// The pointer keeps the tensor alive, and is never null.
  Fact<std::shared_ptr<const TensorData>> fetch(std::int64_t tensor);

 private:
  struct Entry {
    Fact<std::shared_ptr<const TensorData>> data;
    std::list<std::int64_t>::iterator use;
  };
  TensorSource& source_;
  std::size_t budget_;
  std::size_t held_ = 0;
  std::list<std::int64_t> uses_;  ///< most recent first
  std::unordered_map<std::int64_t, Entry> entries_;
};

}  // namespace nanscope
