/// Block-scaled inputs of the MLP and of the attention's projections: their quantisation, and the products that read
/// codes and scales.
#include <array>
#include <span>

#include "instrument/engine/forward.h"
#include "kernels/ops/block_gemm.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/cast.h"

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

/// One scale, which is known before: e4m3 codes, and what they stand for.
Forward::Operand Forward::cast(const OpPlan& plan, const OpPlan& back, OperandSlots slots, const Live& x) {
  const TensorView codes = matrix(slots.codes, Format::e4m3, rows_, x.view.columns);
  const TensorView scale = matrix(slots.scales, Format::f32, 1, 1);
  if (emitter_.ok()) {
    emitter_.check(parts_.device.upload(scale.data, std::as_bytes(std::span(&plan.second, 1))));
  }
  launch(kernels::CastArgs{.x = x.view, .out = codes, .scale = plan.second, .overflow = parts_.config.blocks.overflow});
  ProbeTensor stored = emitter_.output("codes", codes);
  stored.source = x.view;
  stored.source_scales = scale;
  ProbeTensor told = emitter_.output("scale", scale);
  told.first_token = 0;
  told.axis = Axis::none;
  told.sequence = -1;
  const std::array outputs{stored, told};
  emitter_.op(plan, {ProbeInput{"x", x.id, {}}}, outputs);
  const TensorView read = matrix(slots.read, Format::f32, rows_, x.view.columns);
  launch(kernels::CastArgs{.x = codes, .out = read, .scale = plan.second, .dequantise = true});
  return {x, {}, {}, emit(back, {ProbeInput{"codes", stored.id, {}}, ProbeInput{"scale", told.id, {}}}, "out", read)};
}

Forward::Operand Forward::quantised(const OpPlan& plan, const OpPlan& back, OperandSlots slots, const Live& x) {
  if (plan.kind == OpKind::quantise) return cast(plan, back, slots, x);
  const BlockConfig& blocks = parts_.config.blocks;
  if (plan.kind != OpKind::block_quantise) return {x, {}, {}};
  const BlockFormat& format = block_format(blocks);
  const bool unmasked = blocks.packing == kernels::ScalePacking::unmasked && rows_ == 1 && format.scale == Format::e8m0;
  const TensorView codes = matrix(slots.codes, format.element, rows_, x.view.columns);
  bool recycled = false;
  const TensorView scales = scale_table(slots.scales, x.view.columns, recycled);
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
  if (!in.codes.view.given()) return product(plan, out, in.read.view.given() ? in.read : in.x, affine, heads, role);
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
