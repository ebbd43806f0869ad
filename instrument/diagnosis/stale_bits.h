#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "instrument/diagnosis/facts.h"

namespace nanscope {

/// The number whose bits a KV slot still holds after its block changed hands: an f32 of a recurrent
/// layer's state, one byte (or more) of which is read as a code of the cache's format.
struct StaleBits {
  const Tensor* state = nullptr;  ///< the recurrent op's output; its last row is the state
  std::int64_t row = 0;
  std::int64_t channel = 0;
  std::uint32_t bits = 0;  ///< of the f32
  float value = 0;
  std::int64_t byte = 0;         ///< the first byte that is read, 0 is the lowest
  Format format = Format::e4m3;  ///< as what it is read
  std::uint32_t code = 0;
};

/// What `channel` of a key row that attention layer `layer` read as `target` (k or v) is made of, when
/// the row's last writer is a recurrent state whose f32 elements can be had. The pool's layout is that
/// of the reference engine: for each attention layer K then V, block-major; the state of recurrent
/// layer i lies in the first bytes of its block in region i modulo the number of regions.
std::optional<StaleBits> stale_bits(Facts& facts, const Step& step, std::optional<std::int64_t> layer,
                                    std::string_view target, const KeyRow& key, std::int64_t channel);

/// "byte 1 of f32 -1.98 (0xBFFD7F12) is read as e4m3 0x7F".
std::string text_of(const StaleBits& bits);

}  // namespace nanscope
