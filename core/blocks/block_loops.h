#pragma once
#include <cstdint>
#include <span>

#include "core/blocks/block_format.h"

/// The loops over whole blocks, compiled once for every instruction set; the same bits as encode_block and block_value.
///
/// They do what is common: finite blocks of a multiple of 16 columns under an ordinary scale. A block that they cannot
/// do is marked and done by itself. All arrays of a run of blocks hold room for a multiple of 16 of them.
namespace nanscope {

/// Elements of a run of blocks that is worked on at a time.
constexpr std::int64_t kBlockPiece = 4096;

/// What the loops need of a format, worked out once for a matrix.
struct BlockPlan {
  BlockFormat format;
  float second = 1;
  float largest = 6;          ///< of the elements' codes
  std::int32_t lowest = 127;  ///< exponent field of the smallest normal code
  std::int32_t kept = 1;      ///< bits of mantissa
  std::int32_t sign_shift = 3;
  std::uint32_t max_code = 7;
  std::uint32_t inf_code = 0;  ///< 0: none
  bool integer = false;
  bool packed = false;               ///< codes are stored two a byte, low first, where may_pack()
  std::int64_t ahead = kBlockPiece;  ///< elements from what codes are made of to what is read next
};

/// Scales of a run of blocks.
struct BlockScales {
  std::uint32_t* codes;
  float* factors;        ///< what elements are multiplied with, or divided by (divides())
  std::uint32_t* alone;  ///< not 0 where a block is to be done by itself
};

/// Where the blocks of a row lie whose scales stand between them.
struct BlockPlaces {
  std::int64_t blocks;
  std::int64_t width;
  std::int64_t together;     ///< blocks that lie beside each other
  std::int64_t block_bytes;  ///< of the codes of one
  std::int64_t group_bytes;  ///< from those that lie together to the next
  bool halves;               ///< Packing::halves, else a code a byte
  std::uint8_t shift;        ///< stored nibbles are so much more than codes
};

/// Scales of a run of blocks that may be chosen.
struct ScaleChoice {
  std::uint32_t* scales;
  float* factors;
};

struct BlockLoops {
  /// extremes[b] becomes the largest magnitude of block b, or stays what it is where that is more. A NaN is the
  /// largest.
  void (*magnitudes)(const float* x, std::int64_t blocks, std::int64_t width, float* extremes);
  /// The element of largest magnitude with its sign; NaN where two of either sign are, or where there is a NaN.
  void (*signed_extremes)(const float* x, std::int64_t blocks, std::int64_t width, float* extremes);
  /// Whether any block may be one to be done by itself. `expansion`: see block_scale().
  bool (*scales)(const BlockPlan& plan, const float* extremes, std::int64_t blocks, float expansion, BlockScales to);
  void (*elements)(const BlockPlan& plan, const float* x, std::int64_t blocks, const float* factors,
                   std::uint8_t* codes);
  /// Of blocks of 16 of e2m1, `first` becomes the `other` where the sum of the squared errors of its codes is smaller:
  /// in f64, as 16 lanes are, halves added to halves. `table`: as of products().
  void (*nearer)(const BlockPlan& plan, const float* table, const float* x, std::int64_t blocks, ScaleChoice first,
                 ScaleChoice other);
  /// values = code values x wholes, NaN canonical.
  void (*values)(const BlockPlan& plan, const std::uint8_t* codes, std::int64_t blocks, const float* wholes,
                 float* values);
  /// Of elements of 4 bits under scales of a byte: table[16 x scale + code].
  void (*products)(const float* table, std::int64_t width, const std::uint8_t* codes, std::int64_t blocks,
                   const std::uint32_t* scales, float* values);
  /// The values of f16 codes. A NaN is one.
  void (*half_values)(const std::uint32_t* codes, std::int64_t count, float* values);
  /// `bytes` of two codes each, and words of three bytes of four codes each.
  void (*pack_low_first)(const std::uint8_t* codes, std::int64_t bytes, std::uint8_t* to);
  void (*unpack_low_first)(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* codes);
  void (*pack_six_bit)(const std::uint8_t* codes, std::int64_t words, std::uint8_t* to);
  void (*unpack_six_bit)(const std::uint8_t* from, std::int64_t words, std::uint8_t* codes);
  /// Blocks that lie apart, of a multiple of 16 codes; of halves 16 or a multiple of 32.
  void (*pack_blocks)(const BlockPlaces& places, const std::uint8_t* codes, std::uint8_t* to);
  void (*unpack_blocks)(const BlockPlaces& places, const std::uint8_t* from, std::uint8_t* codes);
};

/// Those that this machine can run, the best last.
std::span<const BlockLoops* const> all_block_loops();
/// The best of them.
const BlockLoops& block_loops();

/// Whether the loops know the format.
bool has_block_loops(const BlockFormat& format);
/// Whether the loops can store its codes as they are packed.
bool may_pack(const BlockFormat& format);
BlockPlan make_block_plan(const BlockFormat& format, float second);

}  // namespace nanscope
