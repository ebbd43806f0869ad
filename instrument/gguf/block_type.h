#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/numbers/format.h"

/// The types of tensors in GGUF: how many elements a block has, and what its bytes stand for. One line of types.def
/// each, and one function in types/.
namespace nanscope {

/// Where a block keeps its scales.
struct GgufScales {
  enum class Kind : std::uint8_t {
    none,  ///< each element is a number of its own
    f16,
    e8m0,    ///< 2^(code - 127); every code is a number
    ue4m3,   ///< e4m3 without a sign; 0x7f is 0, and 0xff 480
    spread,  ///< IQ1_M: an f16 in the upper halves of four words
  };
  Kind kind = Kind::none;
  std::uint8_t offset = 0;  ///< in the block
  std::uint8_t count = 0;
  bool minimum = false;  ///< the last of them scales what is subtracted or added
};

struct GgufType {
  std::uint32_t id = 0;  ///< as files have it
  std::string_view name;
  std::uint32_t elements = 1;  ///< of a block
  std::uint32_t bytes = 1;
  GgufScales scales;
  std::optional<Format> format;  ///< of the elements, where nanscope has it
  /// The elements of one block as f32.
  void (*decode)(const std::byte* block, float* values) = nullptr;

  double bits_per_weight() const { return 8.0 * bytes / elements; }
};

/// All that are decoded, by rising id.
std::span<const GgufType> gguf_types();

/// Null where the id is none of them.
const GgufType* find_gguf_type(std::uint32_t id);

/// Whole blocks: `bytes` holds as many as `values` needs.
void decode_blocks(const GgufType& type, std::span<const std::byte> bytes, std::span<float> values);

/// The scales of one block, those that multiply first. At most kMostGgufScales.
inline constexpr std::size_t kMostGgufScales = 4;
std::span<const float> block_scales(const GgufType& type, const std::byte* block,
                                    std::span<float, kMostGgufScales> into);

}  // namespace nanscope
