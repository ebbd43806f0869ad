#include "instrument/gguf/block_type.h"

#include <algorithm>
#include <array>

#include "instrument/gguf/types/decoders.h"

namespace nanscope {
namespace {

using ScaleKind = GgufScales::Kind;

constexpr GgufScales kNoScales;
constexpr GgufScales kSpreadScale{ScaleKind::spread, 48, 1};
constexpr GgufScales kPowerOfTwo{ScaleKind::e8m0, 0, 1};
constexpr GgufScales kFourE4m3{ScaleKind::ue4m3, 0, 4};

constexpr GgufScales f16_at(std::uint8_t offset) { return {ScaleKind::f16, offset, 1}; }
constexpr GgufScales f16_pair_at(std::uint8_t offset) { return {ScaleKind::f16, offset, 2, true}; }

constexpr std::array kTypes = {
#define NANSCOPE_GGUF_TYPE(id, name, elements, bytes, scales, format) \
  GgufType{id, #name, elements, bytes, scales, format, gguf::decode_##name},
#include "instrument/gguf/types.def"
#undef NANSCOPE_GGUF_TYPE
};

}  // namespace

std::span<const GgufType> gguf_types() { return kTypes; }

const GgufType* find_gguf_type(std::uint32_t id) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const GgufType& one) { return one.id == id; });
  return found == kTypes.end() ? nullptr : &*found;
}

void decode_blocks(const GgufType& type, std::span<const std::byte> bytes, std::span<float> values) {
  const std::byte* block = bytes.data();
  for (std::size_t i = 0; i < values.size(); i += type.elements, block += type.bytes)
    type.decode(block, values.data() + i);
}

std::span<const float> block_scales(const GgufType& type, const std::byte* block,
                                    std::span<float, kMostGgufScales> into) {
  const std::byte* at = block + type.scales.offset;
  for (std::size_t i = 0; i < type.scales.count; ++i) {
    switch (type.scales.kind) {
      case ScaleKind::none:
        break;
      case ScaleKind::f16:
        into[i] = gguf::half_at(at + 2 * i);
        break;
      case ScaleKind::e8m0:
        into[i] = 2 * gguf::half_of_e8m0(gguf::byte_at(at, i));
        break;
      case ScaleKind::ue4m3:
        into[i] = gguf::ue4m3(gguf::byte_at(at, i));
        break;
      case ScaleKind::spread:
        into[i] = gguf::spread_half(at);
        break;
    }
  }
  return into.first(type.scales.count);
}

}  // namespace nanscope
