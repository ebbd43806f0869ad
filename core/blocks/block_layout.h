#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/blocks/block_codec.h"
#include "core/blocks/block_loops.h"

namespace nanscope {

/// Where a matrix's codes and scales lie in memory.
class BlockLayout {
 public:
  BlockLayout(const BlockFormat& format, std::int64_t rows, std::int64_t columns);

  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t scale_bytes() const { return scale_bytes_; }
  /// The scale codes of a row of blocks, to and from among the scales, or all bytes where they are interleaved.
  void store_scales(std::span<const std::uint32_t> codes, std::int64_t row, std::span<std::byte> to) const;
  void load_scales(std::span<const std::byte> from, std::int64_t row, std::span<std::uint32_t> codes) const;
  /// One code a byte and nothing between: a row of codes is its bytes.
  bool straight() const { return straight_; }

  void store_row(std::span<const std::uint8_t> codes, std::span<std::byte> row) const;
  void load_row(std::span<const std::byte> row, std::span<std::uint8_t> codes) const;

 private:
  /// Scales that lie beside each other, where the first of a row lie, and how far the next are.
  std::size_t scales_together() const;
  std::size_t scale_place(std::int64_t row) const;
  std::size_t scale_step() const;
  /// Calls move(first scale, its byte, scales) for all that lie beside each other.
  template <class Move>
  void for_scales(std::size_t count, std::int64_t row, const Move& move) const;
  /// Of the whole blocks of an interleaved row.
  BlockPlaces places(std::size_t codes) const;
  template <class Run>
  void for_rest(std::size_t codes, std::size_t done, const Run& run) const;

  BlockFormat format_;
  BlockGrid grid_;
  std::size_t scale_bytes_;
  std::size_t group_codes_;  ///< bytes of the codes of an interleaved group
  std::size_t group_bytes_;  ///< with its scales
  std::size_t row_bytes_;
  bool straight_;
  bool loops_know_;  ///< interleaved blocks
};

}  // namespace nanscope
