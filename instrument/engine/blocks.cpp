/// Block-scaled inputs of the MLP and of the attention's projections: their quantisation, and the products that read
/// codes and scales.
#include <array>

#include "instrument/engine/forward.h"
#include "kernels/ops/block_gemm.h"
#include "kernels/ops/block_quantise.h"

namespace nanscope {

using kernels::TensorView;

namespace {

constexpr std::int64_t kTile = 4;        // scales of a tile, to which a row of them is filled up
constexpr std::int64_t kSmallRows = 32;  // up to which kernels for small batches run

}  // namespace

/// The table's memory: its own, or that of the tensor which was freed last, where the table fits into it.
TensorView Forward::scale_table(Slot slot, std::int64_t columns, bool& recycled) {
  const BlockFormat& format = block_format(parts_.config.blocks);
  const std::int64_t blocks = (columns + format.block.columns - 1) / format.block.columns;
  const std::int64_t width = (blocks + kTile - 1) / kTile * kTile;
  const std::int64_t rows = rows_;
  const auto element = static_cast<std::int64_t>(info(freed_.format).storage_bytes());
  const bool fits = freed_.given() && rows * width <= freed_.rows * freed_.columns * element;
  recycled = parts_.config.blocks.memory == ScaleMemory::recycled && fits;
  return recycled ? TensorView{freed_.data, format.scale, rows, width, width} : matrix(slot, format.scale, rows, width);
}

Forward::Operand Forward::quantised(const OpPlan& plan, std::pair<Slot, Slot> slots, const Live& x) {
  const BlockConfig& blocks = parts_.config.blocks;
  if (plan.kind != OpKind::block_quantise) return {x, {}, {}};
  const BlockFormat& format = block_format(blocks);
  const bool unmasked = blocks.packing == kernels::ScalePacking::unmasked && rows_ == 1 && format.scale == Format::e8m0;
  const TensorView codes = matrix(slots.first, format.element, rows_, x.view.columns);
  bool recycled = false;
  const TensorView scales = scale_table(slots.second, x.view.columns, recycled);
  launch(
      kernels::BlockQuantiseArgs{.x = x.view,
                                 .codes = codes,
                                 .scales = scales,
                                 .format = format,
                                 .second = plan.second,
                                 .packing = unmasked ? kernels::ScalePacking::unmasked : kernels::ScalePacking::rounded,
                                 .scale_overflow = blocks.overflow,
                                 .zero_padding = !recycled});
  const std::array outputs{emitter_.output("codes", codes), emitter_.output("scales", scales)};
  emitter_.op(plan, {ProbeInput{"x", x.id, {}}}, outputs, attributes<BlockAttributes>(plan, [&](auto& all) {
                all.packing = unmasked ? "unmasked" : "rounded";
                all.zero_padding = !recycled;
              }));
  return {x, {codes, outputs[0].id}, {scales, outputs[1].id}};
}

Live Forward::mlp_product(const OpPlan& plan, const TensorView& out, const Operand& in, const Affine& affine,
                          std::string_view role, std::int64_t heads) {
  if (!in.codes.view.given()) return product(plan, out, in.x, affine, heads, role);
  const BlockConfig& blocks = parts_.config.blocks;
  const bool read_padding = blocks.reads == ScaleReads::tile && rows_ <= kSmallRows;
  launch(kernels::BlockGemmArgs{.codes = in.codes.view,
                                .scales = in.scales.view,
                                .packed = affine.weight->packed,
                                .bias = affine.bias == nullptr ? TensorView{} : affine.bias->view,
                                .out = out,
                                .format = block_format(blocks),
                                .second = plan.second,
                                .read_padding = read_padding,
                                .weight = affine.weight->view,
                                .scaled = affine.weight->scaled});
  const ProbeTensor output = emitter_.output(role, out, heads);
  const std::array inputs{ProbeInput{"codes", in.codes.id, {}}, ProbeInput{"scales", in.scales.id, {}},
                          ProbeInput{"weight", 0, affine.weight->name},
                          ProbeInput{"bias", 0, affine.bias == nullptr ? std::string_view() : affine.bias->name}};
  emitter_.op(plan, std::span(inputs).first(affine.bias == nullptr ? 3 : 4), std::span(&output, 1),
              attributes<BlockAttributes>(plan, [&](auto& all) { all.read_padding = read_padding; }));
  return {out, output.id};
}

}  // namespace nanscope
