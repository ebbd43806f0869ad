#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nanscope {

/// The content hash of a tensor's bytes, some at a time: what kernels/ops/content_hash.h computes on a device.
class ContentHash {
 public:
  ContentHash();
  void add(std::span<const std::byte> bytes);
  /// Of all that was added. Nothing can be added afterwards.
  std::uint64_t finish();

 private:
  static constexpr std::size_t kLanes = 32;
  static constexpr std::size_t kStep = kLanes * 8;  ///< bytes that the lanes take at a time
  static constexpr std::size_t kChunk = 8192;

  void begin_chunk();
  void step(const std::byte* bytes);
  void end_chunk();

  std::array<std::uint64_t, kLanes> secret_{};
  std::array<std::uint64_t, kLanes> total_{};
  std::array<std::byte, kStep> pending_{};
  std::size_t pending_bytes_ = 0;
  std::size_t chunk_bytes_ = 0;
  std::uint64_t all_bytes_ = 0;
  std::vector<std::uint64_t> chunks_;
};

}  // namespace nanscope
