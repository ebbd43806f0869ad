#include "instrument/engine/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/numbers/decode_span.h"
#include "instrument/weights/random.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/all_reduce.h"
#include "kernels/ops/argmax.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/gemm_tensor_core.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/patch_embedding.h"
#include "kernels/ops/recurrent_scan.h"
#include "kernels/ops/residual_add.h"
#include "kernels/ops/softcap.h"
#include "kernels/ops/softmax.h"

namespace nanscope {

using kernels::TensorView;

namespace {

TensorView view_of(const Weight* weight) { return weight == nullptr ? TensorView{} : weight->view; }

ProbeInput tensor_input(std::string_view role, const Live& live) { return {role, live.id, {}}; }

ProbeInput weight_input(std::string_view role, const Weight* weight) {
  return {role, 0, weight == nullptr ? std::string_view() : std::string_view(weight->name)};
}

TensorView last(const TensorView& view, std::size_t rows) {
  return slice(view, view.rows - static_cast<std::int64_t>(rows), static_cast<std::int64_t>(rows));
}

}  // namespace

Forward::Forward(const ForwardParts& parts, const StepInput& step)
    : parts_(parts),
      step_(step),
      emitter_(parts.emitter),
      inner_norm_(resolved_inner_norm(parts.config)),
      rows_(step.row.tokens) {
  for (const SpanInput& input : step.spans) {
    spans_.push_back(input.span);
    if (input.stores) stored_rows_ = input.span.row + input.span.rows;
  }
}

void Forward::begin() {
  emitter_.set_place(step_rows());
  upload_slots();
  upload_block_tables();
  upload_key_slots();
  upload_rope_tables();
  upload_head_rows();
  x_ = embed();
}

Result<std::vector<std::int32_t>> Forward::finish() {
  std::vector<std::int32_t> tokens = head(x_);
  if (!emitter_.ok()) return tl::unexpected(emitter_.status().error());
  return tokens;
}

/// Rows that go nowhere have the slots of a matrix of their own, where listeners see what they would have stored.
void Forward::upload_slots() {
  const std::int64_t block_size = parts_.config.kv.block_size;
  std::vector<std::int32_t> slots;
  for (const SpanInput& input : step_.spans) {
    for (std::int64_t position = input.span.first_token; input.stores && position < input.span.context; ++position) {
      const std::int64_t block = input.blocks[static_cast<std::size_t>(position / block_size)];
      slots.push_back(static_cast<std::int32_t>(block * block_size + position % block_size));
    }
  }
  for (std::int64_t row = stored_rows_; row < rows_; ++row) {
    slots.push_back(static_cast<std::int32_t>(row - stored_rows_));
  }
  kv_slots_ = upload_i32(Slot::kv_slots, slots);
}

void Forward::upload_block_tables() {
  std::vector<std::int32_t> tables;
  for (const SpanInput& input : step_.spans) tables.insert(tables.end(), input.blocks.begin(), input.blocks.end());
  const TensorView all = upload_i32(Slot::blocks, tables);
  std::int64_t first = 0;
  for (const SpanInput& input : step_.spans) {
    blocks_.push_back(slice(all, first, static_cast<std::int64_t>(input.blocks.size())));
    first += static_cast<std::int64_t>(input.blocks.size());
  }
}

std::vector<Forward::RowGroup> Forward::row_groups() const {
  std::vector<RowGroup> groups;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < step_.spans.size(); ++i) {
    const Span& span = step_.spans[i].span;
    groups.push_back({&step_.spans[i], i, span.row, span.rows, span.first_token});
    row = span.row + span.rows;
  }
  for (; row < step_.row.tokens; ++row) groups.push_back({nullptr, 0, row, 1, 0});
  return groups;
}

RowPlace Forward::step_rows() const {
  if (step_.batched) return {step_.row.first_token, Axis::rows, -1};
  return {step_.row.first_token};
}

RowPlace Forward::of_span(const SpanInput& input, Axis axis, std::int64_t first_token) const {
  if (!step_.batched) return {first_token};
  return {first_token, axis, &input - step_.spans.data()};
}

const OpPlan& Forward::plan_of_span(const OpPlan& plan, const SpanInput& input) {
  if (step_.spans.size() == 1) return plan;
  of_span_ = plan;
  of_span_.name = fmt::format("{}_{}", plan.name, &input - step_.spans.data());
  return of_span_;
}

Forward::Patches Forward::embed_images() {
  const LoadedModel& model = parts_.model;
  const std::int64_t width = parts_.config.model.width;
  std::int64_t patches = 0;
  for (const SpanInput& input : step_.spans) {
    for (const PromptImage& image : input.images) patches += image.patches;
  }
  if (patches == 0) return {};
  Patches all{matrix(Slot::patch_out, parts_.config.activation_format, patches, width), {}};
  std::int64_t first_patch = 0;
  for (const SpanInput& input : step_.spans) {
    for (const PromptImage& image : input.images) {
      const std::int64_t inputs = model.patch_embed.weight->view.columns;
      const TensorView values = matrix(Slot::patches, Format::f32, image.patches, inputs);
      if (!emitter_.ok()) return {};
      emitter_.check(parts_.device.upload(values.data, std::as_bytes(std::span(image.values))));
      const TensorView out = slice(all.values, first_patch, image.patches);
      launch(kernels::PatchEmbeddingArgs{.patches = values,
                                         .weight = view_of(model.patch_embed.weight),
                                         .bias = view_of(model.patch_embed.bias),
                                         .out = out});
      emitter_.set_place(of_span(input, Axis::part, image.first_token));
      all.last = emit(parts_.plan.patch_embed,
                      {weight_input("weight", model.patch_embed.weight), weight_input("bias", model.patch_embed.bias)},
                      "out", out);
      first_patch += image.patches;
    }
  }
  emitter_.set_place(step_rows());
  return all;
}

Live Forward::embed() {
  const LoadedModel& model = parts_.model;
  const Patches patches = embed_images();
  std::vector<std::int32_t> patch_rows;
  std::int32_t first_patch = 0;
  for (const SpanInput& input : step_.spans) {
    patch_rows.resize(static_cast<std::size_t>(input.span.row), 0);
    const auto rows = std::min(static_cast<std::size_t>(input.span.rows), input.patch_rows.size());
    for (std::size_t i = 0; i < rows; ++i) patch_rows.push_back(first_patch + input.patch_rows[i]);
    for (const PromptImage& image : input.images) first_patch += static_cast<std::int32_t>(image.patches);
  }
  const bool has_images = std::any_of(step_.spans.begin(), step_.spans.end(),
                                      [](const SpanInput& input) { return !input.patch_rows.empty(); });
  patch_rows.resize(step_.tokens.size(), 0);
  const TensorView out = activation(Slot::embed, parts_.config.model.width);
  const TensorView tokens = upload_i32(Slot::tokens, step_.tokens);
  const TensorView rows = has_images ? upload_i32(Slot::patch_rows, patch_rows) : TensorView{};
  for (const RowGroup& group : row_groups()) {
    launch(kernels::EmbeddingArgs{.tokens = slice(tokens, group.row, group.rows),
                                  .patch_rows = has_images ? slice(rows, group.row, group.rows) : TensorView{},
                                  .table = view_of(model.embed.weight),
                                  .patches = has_images ? patches.values : TensorView{},
                                  .positions = view_of(model.positions.weight),
                                  .out = slice(out, group.row, group.rows),
                                  .first_position = group.first_position,
                                  .scale = static_cast<float>(parts_.config.model.embedding_scale)});
  }
  const RunControl& control = emitter_.control();
  if (control.edit_embedding && emitter_.ok()) {
    emitter_.check(control.edit_embedding(parts_.device, out, step_.row));
  }
  if (model.positions.weight != nullptr) {
    return emit(parts_.plan.embed,
                {weight_input("weight", model.embed.weight), weight_input("positions", model.positions.weight)}, "out",
                out);
  }
  return emit(parts_.plan.embed, {weight_input("weight", model.embed.weight), tensor_input("patches", patches.last)},
              "out", out);
}

void Forward::branch(std::size_t layer, Branch which) {
  const LayerPlan& plan = parts_.plan.layers[layer];
  const LayerWeights& weights = parts_.model.layers[layer];
  const NormConfig& form = parts_.config.norm;
  const bool before = norms_before(parts_.config.model);
  if (which == Branch::attention) {
    layer_in_ = x_;
    attention_in_ = before ? norm(plan.attn_norm, {Slot::attn_norm, Slot::stats}, x_, weights.attn_norm, form) : x_;
    branch_ = !plan.recurrent                 ? attention(plan, weights, attention_in_)
              : is_delta(parts_.config.model) ? delta_net(plan, weights, attention_in_)
                                              : recurrence(plan, weights, attention_in_);
    return;
  }
  const Live& stream = parts_.config.model.parallel ? layer_in_ : x_;
  Live in = before ? attention_in_ : stream;
  if (norms_before_mlp(parts_.config.model))
    in = norm(plan.mlp_norm, {Slot::mlp_norm, Slot::stats}, stream, weights.mlp_norm, form);
  branch_ = mlp(plan, weights, in);
}

void Forward::add(std::size_t layer, Branch which) {
  const LayerPlan& plan = parts_.plan.layers[layer];
  const LayerWeights& weights = parts_.model.layers[layer];
  const NormConfig& form = parts_.config.norm;
  const NormPlacement placement = parts_.config.model.norm_placement;
  const bool on_branch = placement == NormPlacement::sandwich || placement == NormPlacement::branch;
  const auto add = [&](const OpPlan& post, Slot post_slot, const Affine& affine, const OpPlan& sum, Slot sum_slot) {
    if (on_branch) branch_ = norm(post, {post_slot, Slot::stats}, branch_, affine, form);
    x_ = residual(sum, sum_slot, x_, branch_);
    if (placement == NormPlacement::post) x_ = norm(post, {post_slot, Slot::stats}, x_, affine, form);
  };
  if (which == Branch::attention) {
    add(plan.attn_post_norm, Slot::attn_post_norm, weights.attn_post_norm, plan.attn_residual, Slot::attn_residual);
  } else {
    add(plan.mlp_post_norm, Slot::mlp_post_norm, weights.mlp_post_norm, plan.mlp_residual, Slot::mlp_residual);
  }
}

void Forward::reduce(std::size_t layer, Branch which, const TensorView& parts) {
  const LayerPlan& plan = parts_.plan.layers[layer];
  const TensorView out = activation(Slot::reduced, parts.columns);
  launch(kernels::AllReduceArgs{
      .parts = parts, .out = out, .ranks = parts_.config.ranks.count, .order = parts_.config.ranks.order});
  if (parts_.config.ranks.stuck_rank == parts_.rank) stick_bit(out);
  branch_ = emit(which == Branch::attention ? plan.attn_all_reduce : plan.mlp_all_reduce, {tensor_input("x", branch_)},
                 "out", out);
}

/// A cell of this rank's memory that always reads 1.
void Forward::stick_bit(const TensorView& sum) {
  const RanksConfig& ranks = parts_.config.ranks;
  if (ranks.stuck_element >= sum.elements() || !emitter_.ok()) return;
  const auto bytes = static_cast<std::size_t>(kernels::storage_size(sum.format));
  std::byte* at = static_cast<std::byte*>(sum.data) + static_cast<std::size_t>(ranks.stuck_element) * bytes;
  std::array<std::byte, 4> element{};
  emitter_.check(parts_.device.download(std::span(element).first(bytes), at));
  element[static_cast<std::size_t>(ranks.stuck_bit / 8)] |= std::byte{1} << (ranks.stuck_bit % 8);
  emitter_.check(parts_.device.upload(at, std::span(element).first(bytes)));
}

Live Forward::recurrence(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const Live gated = gemm(plan.recurrent_in, Slot::recurrent_in, x, weights.recurrent_in);
  const TensorView out = activation(Slot::recurrent, gated.view.columns);
  std::vector<ProbeInput> parts;
  Live scanned{out, 0};
  for (const RowGroup& group : row_groups()) {
    scanned.id = scan(plan, weights, group, gated, slice(out, group.row, group.rows)).id;
    if (group.input != nullptr) parts.push_back({"x", scanned.id, {}});
  }
  if (step_.batched) {
    emitter_.set_place(step_rows());
    const ProbeTensor all = emitter_.output("out", out);
    emitter_.op(plan.recurrent_rows, std::span<const ProbeInput>(parts), std::span(&all, 1));
    scanned.id = all.id;
  }
  freed_ = gated.view;
  return row_parallel(plan.recurrent_out, Slot::recurrent_out, scanned, weights.recurrent_out);
}

bool Forward::resumes(const SpanInput& input) const {
  const ResumeState from_start = parts_.config.kv.resume_state;
  return input.span.first_token > 0 || from_start == ResumeState::always ||
         (from_start == ResumeState::warm_up && input.span.request < 0);
}

Live Forward::scan(const LayerPlan& plan, const LayerWeights& weights, const RowGroup& group, const Live& x,
                   const TensorView& out) {
  kernels::RecurrentScanArgs args{.x = slice(x.view, group.row, group.rows),
                                  .decay = view_of(weights.decay.weight),
                                  .state = {},
                                  .out = out,
                                  .resume = false};
  if (group.input == nullptr) {
    args.state = matrix(Slot::pad_state, Format::f32, 1, x.view.columns);
    launch(args);
    return {out, 0};
  }
  const SpanInput& input = *group.input;
  args.state = parts_.pool.state(plan.rank, input.state_block);
  args.resume = resumes(input);
  launch(args);
  if (step_.batched) emitter_.set_place(of_span(input, Axis::part, input.span.first_token));
  return emit(plan_of_span(plan.recurrent_scan, input),
              {tensor_input("x", x), weight_input("decay", weights.decay.weight), ProbeInput{"state", 0, {}}}, "out",
              out, 1, attributes<RecurrentAttributes>(plan.recurrent_scan, [&](auto& all) {
                all.resume = args.resume;
                all.block = input.state_block;
              }));
}

Live Forward::mlp(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  if (!plan.experts.empty()) return mixture(plan, weights, x);
  const Operand in =
      quantised(plan.mlp_quantise, plan.mlp_dequantise, {Slot::mlp_codes, Slot::mlp_scales, Slot::mlp_read}, x);
  const Operand active = activated(plan.mlp, weights.mlp, in);
  return mlp_product(plan.mlp.down_proj, branch_memory(Slot::down), active, weights.mlp.down_proj, branch_role());
}

Forward::Operand Forward::activated(const MlpPlan& plan, const MlpWeights& weights, const Operand& x) {
  const bool gated = weights.gate_proj.weight != nullptr;
  const std::int64_t width = weights.up_proj.weight->view.rows;
  const Live gate = gated ? mlp_product(plan.gate_proj, activation(Slot::gate, width), x, weights.gate_proj) : Live{};
  const Live up = mlp_product(plan.up_proj, activation(Slot::up, width), x, weights.up_proj);
  const TensorView out = activation(Slot::act, width);
  launch(kernels::ActivationArgs{.x = gated ? gate.view : up.view,
                                 .up = gated ? up.view : TensorView{},
                                 .out = out,
                                 .kind = parts_.config.model.mlp,
                                 .alpha = static_cast<float>(parts_.config.model.swiglu_alpha),
                                 .limit = static_cast<float>(parts_.config.model.swiglu_limit)});
  const Live act = gated ? emit(plan.mlp_act, {tensor_input("gate", gate), tensor_input("up", up)}, "out", out)
                         : emit(plan.mlp_act, {tensor_input("x", up)}, "out", out);
  freed_ = gated ? gate.view : up.view;
  return quantised(plan.act_quantise, plan.act_dequantise, {Slot::act_codes, Slot::act_scales, Slot::act_read}, act);
}

Live Forward::finish_with_logits() { return logits(x_); }

Live Forward::logits(const Live& x) {
  const LoadedModel& model = parts_.model;
  const Live normed =
      norm(parts_.plan.final_norm, {Slot::final_norm, Slot::stats}, x, model.final_norm, parts_.config.norm);
  const TensorView out = activation(Slot::logits, model.vocabulary);
  multiply(normed.view, model.lm_head, out);
  const bool capped = parts_.config.model.logit_softcap > 0;
  const bool scaled = parts_.config.model.logit_scale != 1;
  const std::string_view role = capped || scaled ? "raw_logits" : "logits";
  const ProbeInput weight = weight_input("weight", model.lm_head.weight);
  Live made = model.lm_head.bias != nullptr
                  ? emit(parts_.plan.lm_head,
                         {tensor_input("x", normed), weight, weight_input("bias", model.lm_head.bias)}, role, out)
                  : emit(parts_.plan.lm_head, {tensor_input("x", normed), weight}, role, out);
  if (scaled) made = scaled_logits(made, capped ? "raw_logits" : "logits");
  return capped ? capped_logits(made) : made;
}

std::vector<std::int32_t> Forward::head(const Live& x) {
  const Live logits = this->logits(last_rows(x));
  if (parts_.config.sampling.temperature > 0) return sample(logits);
  const Live choice = has_grammar() ? token_probabilities(logits) : logits;
  const TensorView tokens = matrix(Slot::argmax, Format::i32, choice.view.rows, 1);
  launch(kernels::ArgmaxArgs{.x = choice.view, .out = tokens, .nan = parts_.config.argmax_nan});
  emit(parts_.plan.argmax, {tensor_input(has_grammar() ? "probs" : "logits", choice)}, "token", tokens);
  std::vector<std::int32_t> chosen(step_.spans.size(), 0);
  if (!emitter_.ok()) return chosen;
  const TensorView ends = last(tokens, step_.spans.size());
  emitter_.check(parts_.device.download(std::as_writable_bytes(std::span(chosen)), ends.data));
  return chosen;
}

bool Forward::has_grammar() const { return !step_.spans.empty() && !step_.spans.front().legal.empty(); }

/// The rows whose logits are wanted: in a batch the last one of each span, gathered as an embedding is.
Live Forward::last_rows(const Live& x) {
  if (!step_.batched) return x;
  std::vector<std::int32_t> ends;
  for (const Span& span : spans_) ends.push_back(static_cast<std::int32_t>(span.row + span.rows - 1));
  rows_ = static_cast<std::int64_t>(ends.size());
  const TensorView out = activation(Slot::ends, x.view.columns);
  launch(kernels::EmbeddingArgs{.tokens = upload_i32(Slot::end_rows, ends),
                                .patch_rows = {},
                                .table = x.view,
                                .patches = {},
                                .positions = {},
                                .out = out});
  emitter_.set_place({step_.row.first_token, Axis::ends, -1});
  return emit(parts_.plan.last_rows, {tensor_input("x", x)}, "out", out);
}

/// The Gumbel-max trick: the largest of logit / T - log(-log(u)) is a draw from softmax(logits / T). A draw is
/// addressed by request, position and token, so that it does not depend on who else is in the step.
std::vector<std::int32_t> Forward::sample(const Live& logits) {
  const SamplingConfig& sampling = parts_.config.sampling;
  const TensorView ends = last(logits.view, step_.spans.size());
  const auto tokens = static_cast<std::size_t>(ends.columns);
  std::vector<std::byte> bytes(static_cast<std::size_t>(ends.elements()) * info(ends.format).storage_bytes());
  std::vector<std::int32_t> chosen(step_.spans.size(), 0);
  if (!emitter_.ok()) return chosen;
  emitter_.check(parts_.device.download(bytes, ends.data));
  std::vector<float> values(static_cast<std::size_t>(ends.elements()));
  decode(ends.format, bytes, values);
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    const std::uint64_t stream = stream_of(fmt::format("sample.{}.{}", spans_[row].request, spans_[row].context));
    double best = -std::numeric_limits<double>::infinity();
    for (std::size_t token = 0; token < tokens; ++token) {
      const double u = uniform(static_cast<std::uint64_t>(sampling.seed), stream, token);
      const double score =
          double{values[row * tokens + token]} / double{sampling.temperature} - plain_log(-plain_log(u));
      if (!(score > best)) continue;
      best = score;
      chosen[row] = static_cast<std::int32_t>(token);
    }
  }
  const TensorView out = upload_i32(Slot::argmax, chosen);
  if (!step_.batched) emitter_.set_place({step_.row.context - 1});
  emit(parts_.plan.sample, {tensor_input("logits", logits)}, "token", out);
  return chosen;
}

/// The lookup of embeddings multiplies rows by a number.
Live Forward::scaled_logits(const Live& raw, std::string_view role) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(raw.view.rows));
  std::iota(rows.begin(), rows.end(), 0);
  const TensorView out = activation(Slot::scaled_logits, raw.view.columns);
  launch(kernels::EmbeddingArgs{.tokens = upload_i32(Slot::logit_rows, rows),
                                .patch_rows = {},
                                .table = raw.view,
                                .patches = {},
                                .positions = {},
                                .out = out,
                                .scale = static_cast<float>(parts_.config.model.logit_scale)});
  return emit(parts_.plan.logits_scale, {tensor_input("x", raw)}, role, out);
}

Live Forward::capped_logits(const Live& raw) {
  const TensorView out = activation(Slot::capped_logits, raw.view.columns);
  launch(kernels::SoftcapArgs{.x = raw.view, .out = out, .cap = static_cast<float>(parts_.config.model.logit_softcap)});
  return emit(parts_.plan.logits_softcap, {tensor_input("x", raw)}, "logits", out);
}

/// softmax(logits + mask) of each span's last token, the only one that is sampled: the mask is 0 where the grammar
/// allows a token and -Inf elsewhere. What follows stands at that token's position too.
Live Forward::token_probabilities(const Live& logits) {
  const TensorView ends = last(logits.view, step_.spans.size());
  const auto tokens = static_cast<std::size_t>(ends.columns);
  std::vector<float> mask(step_.spans.size() * tokens, 0.0F);
  std::int64_t most_legal = 0;
  bool masks = false;
  for (std::size_t row = 0; row < step_.spans.size(); ++row) {
    const std::vector<std::int32_t>& allowed = step_.spans[row].legal;
    const auto legal = std::count(allowed.begin(), allowed.end(), 1);
    const bool masked = legal > 0 || parts_.config.grammar_empty == EmptyRow::mask;
    most_legal = std::max<std::int64_t>(most_legal, legal);
    masks = masks || masked;
    for (std::size_t token = 0; masked && token < tokens; ++token) {
      if (allowed[token] == 0) mask[row * tokens + token] = -std::numeric_limits<float>::infinity();
    }
  }
  const TensorView mask_rows = matrix(Slot::token_mask, Format::f32, ends.rows, ends.columns);
  if (emitter_.ok()) emitter_.check(parts_.device.upload(mask_rows.data, std::as_bytes(std::span(mask))));
  const TensorView out = matrix(Slot::token_probs, Format::f32, ends.rows, ends.columns);
  launch(kernels::ResidualAddArgs{.a = ends, .b = mask_rows, .out = out});
  launch(kernels::SoftmaxArgs{.scores = out, .out = out, .first_position = ends.columns - 1});
  if (!step_.batched) emitter_.set_place({step_.row.context - 1});
  return emit(parts_.plan.token_softmax, {tensor_input("logits", logits)}, "probs", out, 1,
              attributes<TokenSoftmaxAttributes>(parts_.plan.token_softmax, [&](auto& all) {
                all.legal = most_legal;
                all.masked = masks;
              }));
}

Live Forward::norm(const OpPlan& plan, std::pair<Slot, Slot> slots, const Live& x, const Affine& affine,
                   const NormConfig& form, std::int64_t groups) {
  const TensorView out = activation(slots.first, x.view.columns);
  const TensorView stats = matrix(slots.second, Format::f32, rows_, groups * 3);
  launch(kernels::LayerNormArgs{.x = x.view,
                                .weight = view_of(affine.weight),
                                .bias = view_of(affine.bias),
                                .out = out,
                                .stats = stats,
                                .groups = groups,
                                .kind = parts_.config.model.norm,
                                .variance = form.variance,
                                .order = form.order,
                                .contract = form.contract,
                                .clamp = form.clamp,
                                .mean_by_reciprocal = form.mean_by_reciprocal,
                                .eps = form.eps});
  const std::array outputs{emitter_.output("out", out, groups), emitter_.output("stats", stats, groups)};
  if (affine.bias != nullptr) {
    emitter_.op(plan, {tensor_input("x", x), weight_input("weight", affine.weight), weight_input("bias", affine.bias)},
                outputs);
  } else {
    emitter_.op(plan, {tensor_input("x", x), weight_input("weight", affine.weight)}, outputs);
  }
  return {out, outputs[0].id};
}

Live Forward::gemm(const OpPlan& plan, Slot slot, const Live& x, const Affine& affine, std::int64_t heads) {
  return product(plan, activation(slot, affine.weight->view.rows), x, affine, heads);
}

void Forward::multiply(const TensorView& x, const Affine& affine, const TensorView& out) {
  const Weight& weight = *affine.weight;
  if (parts_.config.kernel_form == KernelForm::tensor_core) {
    launch(kernels::GemmTensorCoreArgs{.x = x, .weight = weight.view, .bias = view_of(affine.bias), .out = out});
    return;
  }
  launch(kernels::GemmArgs{.x = x,
                           .weight = weight.view,
                           .packed = weight.packed,
                           .bias = view_of(affine.bias),
                           .out = out,
                           .partial = parts_.config.partial_sums,
                           .scaled = weight.scaled});
}

Live Forward::row_parallel(const OpPlan& plan, Slot slot, const Live& x, const Affine& affine) {
  return product(plan, branch_memory(slot), x, affine, 1, branch_role());
}

TensorView Forward::branch_memory(Slot slot) {
  return parts_.part.given() ? parts_.part : activation(slot, parts_.config.model.width);
}

Live Forward::product(const OpPlan& plan, const TensorView& out, const Live& x, const Affine& affine,
                      std::int64_t heads, std::string_view role) {
  multiply(x.view, affine, out);
  if (affine.bias == nullptr) {
    return emit(plan, {tensor_input("x", x), weight_input("weight", affine.weight)}, role, out, heads);
  }
  return emit(plan, {tensor_input("x", x), weight_input("weight", affine.weight), weight_input("bias", affine.bias)},
              role, out, heads);
}

Live Forward::residual(const OpPlan& plan, Slot slot, const Live& a, const Live& b) {
  const TensorView out = activation(slot, a.view.columns);
  launch(kernels::ResidualAddArgs{
      .a = a.view, .b = b.view, .out = out, .factor = static_cast<float>(parts_.config.model.residual_scale)});
  return emit(plan, {tensor_input("a", a), tensor_input("b", b)}, "out", out);
}

TensorView Forward::matrix(Slot slot, Format format, std::int64_t rows, std::int64_t columns) {
  const Result<TensorView> view = parts_.workspace.matrix(slot, format, rows, columns);
  if (view) return *view;
  emitter_.check(tl::unexpected(view.error()));
  return {};
}

TensorView Forward::activation(Slot slot, std::int64_t columns) {
  return matrix(slot, parts_.config.activation_format, rows_, columns);
}

TensorView Forward::upload_i32(Slot slot, std::span<const std::int32_t> values) {
  const TensorView view = matrix(slot, Format::i32, static_cast<std::int64_t>(values.size()), 1);
  if (emitter_.ok()) emitter_.check(parts_.device.upload(view.data, std::as_bytes(values)));
  return view;
}

Live Forward::emit(const OpPlan& plan, std::initializer_list<ProbeInput> inputs, std::string_view role,
                   const TensorView& view, std::int64_t heads, std::string_view attributes) {
  const ProbeTensor output = emitter_.output(role, view, heads);
  emitter_.op(plan, inputs, std::span(&output, 1), attributes);
  return {view, output.id};
}

}  // namespace nanscope
