/// Attention over a cache that is kept under schemes: heads are rotated, rows quantized with scales of groups, or kept
/// and quantized when they leave a window.
#include <array>

#include "instrument/engine/forward.h"
#include "instrument/kv_schemes/scheme_ops.h"
#include "kernels/ops/hadamard.h"
#include "kernels/ops/rope.h"

namespace nanscope {

using kernels::TensorView;

namespace {

struct Slots {
  Slot codes, leaving;
};
Slots slots_of(KvTarget target) {
  if (target == KvTarget::k) return {Slot::k_codes, Slot::k_leaving};
  return {Slot::v_codes, Slot::v_leaving};
}

std::string_view role(KvTarget target, std::string_view k, std::string_view v) { return target == KvTarget::k ? k : v; }

}  // namespace

const KvScheme& Forward::scheme(const LayerPlan& plan, KvTarget target) const {
  return parts_.schemes->scheme(plan.rank, target);
}

bool Forward::rotates(const LayerPlan& plan, KvTarget target) const {
  return parts_.schemes != nullptr && scheme(plan, target).transform == KvTransform::hadamard;
}

bool Forward::stores_before_rope(const LayerPlan& plan) const {
  return parts_.schemes != nullptr && scheme(plan, KvTarget::k).before_rope;
}

Live Forward::hadamard(const OpPlan& plan, Slot slot, const Live& x, std::int64_t heads) {
  const TensorView out = activation(slot, x.view.columns);
  launch(kernels::HadamardArgs{.x = x.view, .out = out, .heads = heads});
  return emit(plan, {ProbeInput{"x", x.id, {}}}, "out", out, heads);
}

/// The rows of a step under the scales that are chosen for all of them, or of a sequence that leave its window.
Forward::Quantized Forward::quantize(const LayerPlan& plan, const ScaleContext& context, const TensorView& rows,
                                     const TensorView& slots, std::int64_t stored) {
  Quantized out;
  if (!emitter_.ok()) return out;
  const KvTarget target = context.target;
  const KvScheme& of = scheme(plan, target);
  Result<SchemeBook::Use> use = parts_.schemes->use(context, plan.rank, rows, parts_.workspace);
  if (!use) {
    emitter_.check(tl::unexpected(use.error()));
    return out;
  }
  out.use = std::move(*use);
  const TensorView codes =
      emitter_.listening() ? matrix(slots_of(target).codes, of.format, rows.rows, rows.columns) : TensorView{};
  const auto [scale_group, zero_group] = parts_.schemes->widths(plan.rank, target);
  const auto store = [&, scale_group = scale_group, zero_group = zero_group](std::int64_t first, std::int64_t count,
                                                                             bool into_pool) {
    const auto part = [&](const TensorView& view) { return view.rows > 1 ? slice(view, first, count) : view; };
    const TensorView own_codes = slice(codes, first, count);
    const KvConfig& kv = parts_.config.kv;
    kernels::KvStoreArgs args{.x = slice(rows, first, count),
                              .pool = into_pool ? parts_.pool.region(plan.rank, target) : own_codes,
                              .slots = slice(slots, first, count),
                              .scales = part(out.use.scales),
                              .slot_scales = into_pool ? parts_.pool.slot_scales(plan.rank, target) : TensorView{},
                              .codes = into_pool ? own_codes : TensorView{},
                              .overflow = kv.overflow};
    args.kept = part(out.use.kept);
    args.zeros = part(out.use.zeros);
    if (into_pool) args.slot_zeros = parts_.pool.slot_zeros(plan.rank, target);
    if (quantizes(of)) describe(of, scale_group, zero_group, args);
    if (kv.clamp_nan == kernels::NanRule::ignore && !args.integers()) args.clamp = info(of.format).max_finite;
    launch(args);
  };
  if (stored > 0) store(0, stored, true);
  if (stored < rows.rows && codes.given()) store(stored, rows.rows - stored, false);
  ProbeTensor made = emitter_.output(role(target, "k_codes", "v_codes"), codes, parts_.config.model.kv_heads);
  // What became of each value is counted where one scale and the whole format say it.
  const TensorView& read_with = out.use.read_with();
  if (!out.use.zeros.given() && of.bits == 0 && of.block.empty() && read_with.columns <= 1) {
    made.source = rows;
    made.source_scales = read_with;
  }
  out.outputs.push_back(made);
  const auto tell = [&](std::string_view name, const TensorView& view) {
    if (!view.given()) return;
    ProbeTensor scales = emitter_.output(name, view);
    if (view.rows != rows.rows) {
      scales.first_token = 0;
      scales.axis = Axis::none;
      scales.sequence = -1;
    }
    out.outputs.push_back(scales);
  };
  tell(role(target, "k_scales", "v_scales"), out.use.read_with());
  tell(role(target, "k_zeros", "v_zeros"), out.use.zeros);
  return out;
}

/// Rows as they are, beside the codes that they become later.
Forward::Quantized Forward::keep(const LayerPlan& plan, KvTarget target, const TensorView& rows) {
  Quantized out;
  const TensorView codes =
      emitter_.listening() ? matrix(slots_of(target).codes, Format::f32, rows.rows, rows.columns) : TensorView{};
  const auto store = [&](std::int64_t first, std::int64_t count, bool into_pool) {
    const TensorView own = slice(codes, first, count);
    launch(kernels::KvStoreArgs{.x = slice(rows, first, count),
                                .pool = into_pool ? parts_.pool.kept_rows(plan.rank, target) : own,
                                .slots = slice(kv_slots_, first, count),
                                .scales = {},
                                .slot_scales = {},
                                .codes = into_pool ? own : TensorView{}});
  };
  if (stored_rows_ > 0) store(0, stored_rows_, true);
  if (stored_rows_ < rows.rows && codes.given()) store(stored_rows_, rows.rows - stored_rows_, false);
  ProbeTensor made = emitter_.output(role(target, "k_codes", "v_codes"), codes, parts_.config.model.kv_heads);
  made.source = rows;
  out.outputs.push_back(made);
  return out;
}

void Forward::tell_scale(const LayerPlan& plan, const ScaleContext& context, const SchemeBook::Use& use) {
  if (!emitter_.listening() || !emitter_.ok()) return;
  emitter_.check(emitter_.probe().on_scale(parts_.schemes->ledger_row(context, plan.rank, emitter_.ops(), use)));
}

void Forward::scheme_store(const LayerPlan& plan, const Live& k, const Live& v) {
  std::vector<ProbeTensor> outputs;
  std::array<Quantized, 2> made;
  for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
    const TensorView& rows = target == KvTarget::k ? k.view : v.view;
    Quantized& of = made[target == KvTarget::k ? 0 : 1];
    of = keeps_rows(scheme(plan, target)) ? keep(plan, target, rows)
                                          : quantize(plan, scale_context(plan, target), rows, kv_slots_, stored_rows_);
    outputs.insert(outputs.end(), of.outputs.begin(), of.outputs.end());
  }
  scale_k_ = made[0].use.largest;
  scale_v_ = made[1].use.largest;
  if (!emitter_.ok()) return;
  emitter_.op(plan.kv_store, {ProbeInput{"k", k.id, {}}, ProbeInput{"v", v.id, {}}}, outputs,
              attributes<KvStoreAttributes>(plan.kv_store, [&](auto& all) {
                all.scale_k = static_cast<double>(scale_k_);
                all.scale_v = static_cast<double>(scale_v_);
                if (stored_rows_ == 0) all.stored = false;
              }));
  for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
    if (keeps_rows(scheme(plan, target))) continue;
    tell_scale(plan, scale_context(plan, target), made[target == KvTarget::k ? 0 : 1].use);
  }
}

/// Rows of each sequence that leave its window in this step are quantized: before its attention, or behind it.
void Forward::seal(const LayerPlan& plan, bool behind) {
  if (parts_.schemes == nullptr) return;
  for (const RowGroup& group : row_groups()) {
    if (group.input == nullptr || !group.input->stores) continue;
    for (const KvTarget target : {KvTarget::k, KvTarget::v}) {
      const KvScheme& of = scheme(plan, target);
      const Span& span = group.input->span;
      const bool first_step = span.first_token == 0;
      if (!keeps_rows(of) || quantizes_behind(of, first_step) != behind) continue;
      const std::int64_t from = first_step ? of.keep_first : parts_.schemes->coded_end(plan.rank, target, span.request);
      const std::int64_t to = coded_end(of, from, span.context, first_step);
      parts_.schemes->set_coded_end(plan.rank, target, span.request, to);
      if (to > from && emitter_.ok()) seal_rows(plan, group, target, from, to);
    }
  }
  emitter_.set_place(step_rows());
}

void Forward::seal_rows(const LayerPlan& plan, const RowGroup& group, KvTarget target, std::int64_t from,
                        std::int64_t to) {
  const ModelConfig& model = parts_.config.model;
  const std::int64_t block_size = parts_.config.kv.block_size;
  const SpanInput& input = *group.input;
  const TensorView all = matrix(slots_of(target).leaving, Format::f32, to, kv_channels(model, target));
  launch(kernels::KvReadArgs{.pool = parts_.pool.kept_rows(plan.rank, target),
                             .blocks = blocks_[group.index],
                             .slot_scales = {},
                             .out = all,
                             .block_size = block_size});
  const TensorView rows = slice(all, from, to - from);
  const RowPlace place{from, Axis::part, step_.batched ? static_cast<std::int64_t>(group.index) : 0};
  emitter_.set_place(place);
  const bool is_key = target == KvTarget::k;
  const ProbeTensor leaving = emitter_.output(role(target, "k_leaving", "v_leaving"), rows, model.kv_heads);
  emitter_.op(plan_of_span(is_key ? plan.k_leaving : plan.v_leaving, input), {ProbeInput{"pool", 0, {}}},
              std::span(&leaving, 1), attributes<KvReadAttributes>(plan.k_leaving, [&](auto& read) {
                read.context = input.span.context;
                read.blocks.emplace(input.blocks.begin(), input.blocks.end());
              }));
  std::vector<std::int32_t> slots;
  for (std::int64_t position = from; position < to; ++position) {
    const std::int64_t block = input.blocks[static_cast<std::size_t>(position / block_size)];
    slots.push_back(static_cast<std::int32_t>(block * block_size + position % block_size));
  }
  const Span leaves{.request = input.span.request,
                    .index = input.span.index,
                    .row = 0,
                    .rows = to - from,
                    .first_token = from,
                    .context = to};
  ScaleContext context = scale_context(plan, target);
  context.request = leaves.request;
  context.tokens = leaves.rows;
  context.spans = std::span(&leaves, 1);
  const Quantized made = quantize(plan, context, rows, upload_i32(Slot::leaving_slots, slots), leaves.rows);
  if (!emitter_.ok()) return;
  emitter_.op(plan_of_span(is_key ? plan.k_seal : plan.v_seal, input),
              {ProbeInput{role(target, "k", "v"), leaving.id, {}}}, made.outputs,
              attributes<KvStoreAttributes>(plan.k_seal, [&](auto& store) {
                (is_key ? store.scale_k : store.scale_v) = static_cast<double>(made.use.largest);
              }));
  tell_scale(plan, context, made.use);
}

kernels::KvReadArgs Forward::scheme_read(const LayerPlan& plan, KvTarget target, const RowGroup& group) const {
  const KvScheme& of = scheme(plan, target);
  const KvConfig& kv = parts_.config.kv;
  kernels::KvReadArgs args{.pool = parts_.pool.region(plan.rank, target),
                           .blocks = blocks_[group.index],
                           .slot_scales = parts_.pool.slot_scales(plan.rank, target),
                           .out = {},
                           .block_size = kv.block_size,
                           .scale_use = kv.read_scale};
  const bool fp8 = info(of.format).bits == 8 && info(of.format).exponent_bits > 0;
  if (fp8 && kv.read_format) args.pool.format = *kv.read_format;
  args.slot_zeros = parts_.pool.slot_zeros(plan.rank, target);
  if (quantizes(of)) {
    const auto [scale_group, zero_group] = parts_.schemes->widths(plan.rank, target);
    describe(of, scale_group, zero_group, args);
  }
  if (keeps_rows(of)) {
    args.kept_rows = parts_.pool.kept_rows(plan.rank, target);
    args.coded_from = of.keep_first;
    args.coded_end = parts_.schemes->coded_end(plan.rank, target, group.input->span.request);
  }
  return args;
}

void Forward::tell_coded(const LayerPlan& plan, const RowGroup& group, KvReadAttributes& all) const {
  if (parts_.schemes == nullptr) return;
  const std::int64_t request = group.input->span.request;
  if (const KvScheme& k = scheme(plan, KvTarget::k); keeps_rows(k)) {
    all.coded_from_k = k.keep_first;
    all.coded_end_k = parts_.schemes->coded_end(plan.rank, KvTarget::k, request);
  }
  if (const KvScheme& v = scheme(plan, KvTarget::v); keeps_rows(v)) {
    all.coded_from_v = v.keep_first;
    all.coded_end_v = parts_.schemes->coded_end(plan.rank, KvTarget::v, request);
  }
}

/// Keys that were stored before their rotation, rotated to where they stand.
Live Forward::rope_of_keys(const LayerPlan& plan, const RowGroup& group, const Live& k) {
  const ModelConfig& model = parts_.config.model;
  const bool local = window_of(model, plan.scores.layer) > 0;
  const Angles& angles = (local ? local_angles_ : global_angles_)[group.index];
  const TensorView out = matrix(Slot::k_read_rope, Format::f32, k.view.rows, k.view.columns);
  launch(kernels::RopeArgs{.x = k.view,
                           .out = out,
                           .frequencies = angles.frequencies,
                           .heads = model.kv_heads,
                           .first_position = 0,
                           .first_channel = model.rotated_from,
                           .base = model.rope_base,
                           .stretch = rope_stretch(parts_.config.rope),
                           .amplitude = angles.amplitude,
                           .neighbours = model.rope_pairs == RopePairs::neighbours});
  emitter_.set_place(of_span(*group.input, Axis::keys, 0));
  const Live made =
      emit(plan_of_span(plan.k_read_rope, *group.input), {ProbeInput{"x", k.id, {}}}, "out", out, model.kv_heads,
           attributes<RopeAttributes>(plan.k_read_rope, [](auto& all) { all.first_position = 0; }));
  emitter_.set_place(of_span(*group.input, Axis::part, group.input->span.first_token));
  return made;
}

}  // namespace nanscope
