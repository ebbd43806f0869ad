#include "core/blocks/block_loops.h"

#include <vector>

#include "core/numbers/codec.h"

namespace nanscope {

namespace baseline {
extern const BlockLoops kLoops;
}
#if defined(NANSCOPE_BLOCK_LOOPS_X86)
namespace avx2 {
extern const BlockLoops kLoops;
}
namespace avx512 {
extern const BlockLoops kLoops;
}
#endif

namespace {

std::vector<const BlockLoops*> loops_here() {
  std::vector<const BlockLoops*> loops = {&baseline::kLoops};
#if defined(NANSCOPE_BLOCK_LOOPS_X86)
  const bool avx2_here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx512_here = avx2_here && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl");
  if (avx2_here) loops.push_back(&avx2::kLoops);
  if (avx512_here) loops.push_back(&avx512::kLoops);
#endif
  return loops;
}

bool knows_scale(const BlockFormat& f) {
  switch (f.scale) {
    case Format::e8m0:
      return f.second == SecondScale::none && f.scaling == Scaling::divide &&
             (f.rule == ScaleRule::floor || f.rule == ScaleRule::ceil || f.rule == ScaleRule::even ||
              f.rule == ScaleRule::rceil);
    case Format::e4m3:
      return f.rule == ScaleRule::amax_over_max && f.smallest_amax == 0 && !f.codes_from_unrounded;
    case Format::f16:
    case Format::f32:
      return f.second == SecondScale::none && f.smallest_amax == 0 && f.smallest_scale == 0 &&
             (f.scale == Format::f32 || (f.codes_from_unrounded && f.scaling == Scaling::reciprocal)) &&
             (f.rule != ScaleRule::max_over_amax || f.scaling == Scaling::reciprocal);
    default:
      return false;
  }
}

bool knows_elements(const BlockFormat& f) {
  if (f.scaling == Scaling::bounds) return f.ties == Ties::down && f.zero_sign == ZeroSign::positive;
  switch (f.ties) {
    case Ties::even:
      return f.element != Format::int8 && (f.zero_sign == ZeroSign::kept || f.zero_sign == ZeroSign::scaled_positive);
    case Ties::away:
      return f.element == Format::int8 && f.scaling == Scaling::reciprocal;
    case Ties::away_sum:
      return f.element != Format::int8 && f.zero_sign == ZeroSign::scaled_positive;
    case Ties::down:
      return f.element != Format::int8 &&
             (f.zero_sign == ZeroSign::positive || f.zero_sign == ZeroSign::scaled_negative);
    case Ties::offset:
      return f.scaling == Scaling::reciprocal;
    default:
      return false;
  }
}

}  // namespace

std::span<const BlockLoops* const> all_block_loops() {
  static const std::vector<const BlockLoops*> kAll = loops_here();
  return kAll;
}

const BlockLoops& block_loops() { return *all_block_loops().back(); }

bool has_block_loops(const BlockFormat& format) {
  const std::int32_t columns = format.block.columns;
  return (columns == 16 || columns == 32 || columns % 64 == 0) && knows_scale(format) && knows_elements(format);
}

bool may_pack(const BlockFormat& format) {
  return has_block_loops(format) && format.packing == Packing::low_first && format.ties == Ties::even &&
         format.scaling != Scaling::bounds && format.element == Format::e2m1 && format.block.rows == 1 &&
         format.layout != ScaleLayout::interleaved;
}

BlockPlan make_block_plan(const BlockFormat& format, float second) {
  const CodecParams codec = codec_params(format.element);
  BlockPlan plan;
  plan.format = format;
  plan.second = second;
  plan.largest = info(format.element).max_finite;
  plan.integer = codec.exponent_bits == 0;
  plan.kept = codec.mantissa_bits;
  plan.lowest = 128 - codec.bias;
  plan.sign_shift = codec.exponent_bits + codec.mantissa_bits;
  plan.max_code = codec.max_finite_code;
  plan.inf_code = codec.specials == Specials::ieee ? codec.max_finite_code + 1 : 0;
  return plan;
}

}  // namespace nanscope
