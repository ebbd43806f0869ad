/// The loops of one instruction set, NANSCOPE_ISA. See loops/lanes.h.
#include "core/blocks/block_loops.h"
#include "core/blocks/loops/elements.h"
#include "core/blocks/loops/extremes.h"
#include "core/blocks/loops/nearer.h"
#include "core/blocks/loops/packing.h"
#include "core/blocks/loops/scales.h"
#include "core/blocks/loops/values.h"

namespace nanscope::NANSCOPE_ISA {

extern const BlockLoops kLoops;
const BlockLoops kLoops = {.magnitudes = magnitudes,
                           .signed_extremes = signed_extremes,
                           .scales = scales,
                           .elements = elements,
                           .nearer = nearer,
                           .values = values,
                           .products = products,
                           .half_values = half_values,
                           .pack_low_first = pack_low_first,
                           .unpack_low_first = unpack_low_first,
                           .pack_six_bit = pack_six_bit,
                           .unpack_six_bit = unpack_six_bit,
                           .pack_blocks = pack_blocks,
                           .unpack_blocks = unpack_blocks};

}  // namespace nanscope::NANSCOPE_ISA
