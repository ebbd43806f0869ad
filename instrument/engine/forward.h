#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/recording/rows.h"
#include "instrument/engine/emitter.h"
#include "instrument/engine/kv_pool.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/op_plan.h"
#include "instrument/engine/scale_book.h"
#include "instrument/engine/scheme_book.h"
#include "instrument/engine/score_book.h"
#include "instrument/engine/workspace.h"
#include "kernels/ops/kv_operand.h"

namespace nanscope {

/// An image of a prompt, cut into patches of 3 * patch_size^2 values in [0, 1], row-major.
struct PromptImage {
  std::int64_t first_token = 0;  ///< position of its first patch
  std::int64_t patches = 0;
  std::vector<float> values;
};

/// One sequence of a forward pass.
struct SpanInput {
  Span span;
  std::span<const std::int32_t> patch_rows;  ///< row of the patches of each image token; empty: no image
  std::span<const PromptImage> images;       ///< to be embedded in this step
  std::vector<std::int32_t> blocks;          ///< its block table, covering span.context tokens
  std::int64_t state_block = -1;             ///< block of the recurrent states
  std::int64_t first_key = 0;                ///< keys before it are padding
  std::vector<std::int32_t> legal;           ///< by token, 1: the grammar allows it; empty: there is no grammar
  bool stores = true;                        ///< else the slot mapping is -1: keys and values go nowhere
};

/// What one forward pass works on. Rows behind those of the spans are padding: token 0 at position 0, which sees no key
/// and is stored nowhere.
struct StepInput {
  StepRow row;
  std::vector<std::int32_t> tokens;  ///< row.tokens of them; -1 is an image token
  std::vector<SpanInput> spans;      ///< one behind the other, from row 0 on
  bool batched = false;              ///< the head works on the last row of each span, not on all rows
};

/// The parts of an engine that a pass works with; all outlive it.
struct ForwardParts {
  const EngineConfig& config;
  const LoadedModel& model;
  const ModelPlan& plan;
  kernels::Device& device;
  Workspace& workspace;
  KvPool& pool;
  ScaleBook& scales;
  Emitter& emitter;
  std::int64_t rank = 0;
  /// Where this rank's part of a sum over ranks goes, (rows, width); not given where there is one rank.
  kernels::TensorView part = {};
  SchemeBook* schemes = nullptr;  ///< where kv.scheme says how K and V are kept, instead of `scales`
  ScoreBook* scores = nullptr;    ///< where scores, or queries and keys, are quantized
};

/// The halves of a layer, each a branch that is added to the residual stream.
enum class Branch : std::uint8_t { attention, mlp };

/// One forward pass of one rank over the tokens of a step: launches every op in order, tells the emitter.
/// After the first error nothing more is launched; the error is in the emitter's status.
/// Whoever runs it calls begin(), then for each layer and each of its branches branch(), with several ranks reduce()
/// once all have come so far, and add(); then finish().
class Forward {
 public:
  Forward(const ForwardParts& parts, const StepInput& step);

  void begin();
  void branch(std::size_t layer, Branch which);
  /// The branch's output is the sum of all ranks' parts, (ranks * rows, width).
  void reduce(std::size_t layer, Branch which, const kernels::TensorView& parts);
  void add(std::size_t layer, Branch which);
  /// The token that follows the last row of each span: -1 when argmax refuses.
  Result<std::vector<std::int32_t>> finish();
  /// Instead of finish(): the logits of every row, and no token.
  Live finish_with_logits();

  /// Scales that attention of the layer which ran last read keys and values with.
  std::pair<float, float> read_scales() const { return {scale_k_, scale_v_}; }
  /// Attention reads with these instead of the scales under which it stores.
  void read_with(std::pair<float, float> scales) { foreign_scales_ = scales; }

 private:
  Live embed();
  Live attention(const LayerPlan& plan, const LayerWeights& weights, const Live& x);
  struct Heads {
    Live q, k, v;
  };
  /// Queries, keys and values, rotated.
  Heads projected(const LayerPlan& plan, const LayerWeights& weights, const Live& x);

  // latent_attention.cpp
  Heads from_latents(const LayerPlan& plan, const LayerWeights& weights, const Live& x);
  /// Columns [first, first + width) of a matrix.
  Live columns(const OpPlan& plan, Slot slot, const Live& x, std::int64_t first, std::int64_t width);
  /// `rows` names the row of `from` that each of `into` is a copy of.
  void copy_rows(const kernels::TensorView& rows, const kernels::TensorView& from, const kernels::TensorView& into);
  Live split_values(const OpPlan& plan, const Live& kv);
  Live join_keys(const OpPlan& plan, const Live& kv, const Live& shared);
  /// Which row of a step's tokens, or of its tokens' heads, each head is of.
  void upload_head_rows();

  Live recurrence(const LayerPlan& plan, const LayerWeights& weights, const Live& x);
  /// What a product reads: `x`, or where codes are given those of its blocks, or where `read` is what codes of one
  /// scale stand for.
  struct Operand {
    Live x, codes, scales, read = {};
  };
  /// Memory of codes, scales and what is read back.
  struct OperandSlots {
    Slot codes, scales, read;
  };
  Live mlp(const LayerPlan& plan, const LayerWeights& weights, const Live& x);
  /// The MLP up to its down projection, whose input it is.
  Operand activated(const MlpPlan& plan, const MlpWeights& weights, const Operand& x);
  /// The gated sum of what the chosen experts made of `x` and what the shared one makes of it.
  Live with_shared_expert(const LayerPlan& plan, const LayerWeights& weights, const Operand& x, const Live& mixed);
  /// Uploads the angles of layers with a window and of those without, for each span.
  void upload_rope_tables();
  void upload_slots();
  void upload_block_tables();
  struct Patches {
    kernels::TensorView values;
    Live last;  ///< of the image that was embedded last
  };
  Patches embed_images();
  /// Whose rows are consecutive positions: of a span, or each of the padding's.
  struct RowGroup {
    const SpanInput* input = nullptr;  ///< null: padding
    std::size_t index = 0;             ///< of the span
    std::int64_t row = 0;
    std::int64_t rows = 0;
    std::int64_t first_position = 0;
  };

  // delta_net.cpp
  Live delta_net(const LayerPlan& plan, const LayerWeights& weights, const Live& x);
  /// What a span of the delta net's rows continues: its state in the pool, or zeros.
  struct DeltaState {
    kernels::TensorView q, k, v, rule;
    bool resume = false;
    std::int64_t block = -1;
  };
  /// Projections of all rows, before the convolutions.
  struct DeltaInputs {
    Live q, k, v, a, b;
  };
  Live ruled(const LayerPlan& plan, const LayerWeights& weights, const DeltaInputs& in);
  DeltaState delta_state(const LayerPlan& plan, const RowGroup& group);
  bool resumes(const SpanInput& input) const;
  Live convolved(const OpPlan& plan, const RowGroup& group, const Live& x, const Affine& weight,
                 const kernels::TensorView& state, const DeltaState& from, const kernels::TensorView& out);
  std::vector<RowGroup> row_groups() const;
  /// The place of all rows of the step.
  RowPlace step_rows() const;
  /// That of a tensor of one span alone.
  RowPlace of_span(const SpanInput& input, Axis axis, std::int64_t first_token) const;
  /// An op that runs once a span has the span's number in its name, where there are several.
  const OpPlan& plan_of_span(const OpPlan& plan, const SpanInput& input);
  /// `x` as the plans have products read it: of `back`, what codes of one scale stand for.
  Operand quantised(const OpPlan& plan, const OpPlan& back, OperandSlots slots, const Live& x);
  Operand cast(const OpPlan& plan, const OpPlan& back, OperandSlots slots, const Live& x);
  kernels::TensorView scale_table(Slot slot, std::int64_t columns, bool& recycled);
  /// A product into memory of the caller's.
  Live mlp_product(const OpPlan& plan, const kernels::TensorView& out, const Operand& in, const Affine& affine,
                   std::string_view role = "out", std::int64_t heads = 1);
  Live mixture(const LayerPlan& plan, const LayerWeights& weights, const Live& x);
  struct Routed {
    Live weights, ids;
  };
  Routed route(const LayerPlan& plan, const LayerWeights& weights, const Live& x);

  Live norm(const OpPlan& plan, std::pair<Slot, Slot> slots, const Live& x, const Affine& affine,
            const NormConfig& form, std::int64_t groups = 1);
  Live gemm(const OpPlan& plan, Slot slot, const Live& x, const Affine& affine, std::int64_t heads = 1);
  /// Launches a product with a weight, by the kernel that engine.kernel_form names.
  void multiply(const kernels::TensorView& x, const Affine& affine, const kernels::TensorView& out);
  /// The same into memory of the caller's.
  Live product(const OpPlan& plan, const kernels::TensorView& out, const Live& x, const Affine& affine,
               std::int64_t heads, std::string_view role = "out");
  Live rope(const OpPlan& plan, bool local, Slot slot, const Live& x, std::int64_t heads);
  /// A product with some of its inputs where there are several ranks: this one's part of the sum.
  Live row_parallel(const OpPlan& plan, Slot slot, const Live& x, const Affine& affine);
  /// Memory of what a branch puts out, or of this rank's part of it, and what it is called.
  kernels::TensorView branch_memory(Slot slot);
  std::string_view branch_role() const { return parts_.part.given() ? "partial" : "out"; }
  void stick_bit(const kernels::TensorView& sum);
  Live residual(const OpPlan& plan, Slot slot, const Live& a, const Live& b);
  void kv_store(const LayerPlan& plan, const Live& k, const Live& v);
  Live attend(const LayerPlan& plan, const Live& q);
  /// Keys or values: as kv_read read them, or from the cache.
  struct KvSource {
    Live read;
    kernels::KvOperand cache;
  };
  std::pair<KvSource, KvSource> kv_read(const LayerPlan& plan, const RowGroup& group);
  Live scores(const LayerPlan& plan, const RowGroup& group, const Live& q, const KvSource& k);

  // quantised_scores.cpp
  /// What a product or the softmax reads: x, or where it is quantized what its codes stand for. Rows behind `counted`
  /// are nobody's: they are cast, and say nothing of the scale.
  Live quantised_for(ScoreTarget target, const LayerPlan& plan, const RowGroup& group, const Live& x,
                     std::int64_t counted);
  Live quantised_keys(const LayerPlan& plan, const RowGroup& group, const Live& k);

  /// Of blocks of keys; not given where attention.split is 0.
  struct SoftmaxStatistics {
    Live max, sum;
  };
  Live softmax(const LayerPlan& plan, const RowGroup& group, const Live& scores, const SoftmaxStatistics& blocks);
  /// Null where the model has none.
  const Weight* sinks_of(const LayerPlan& plan) const;
  std::int64_t keys_of_span(const SpanInput& input) const;
  std::int64_t last_visible_key(const RowGroup& group, std::int64_t keys) const;
  /// Rows that a launch masks: row `first` + t sees keys up to `last_key` + t, of which a window takes `more` further
  /// ones.
  struct MaskedRows {
    std::int64_t first = 0;
    std::int64_t rows = 0;
    std::int64_t last_key = 0;
    std::int64_t more = 0;
  };
  std::vector<MaskedRows> masked_rows(const RowGroup& group, std::int64_t keys) const;
  void mix(const LayerPlan& plan, const RowGroup& group, const kernels::TensorView& out, const Live& probs,
           const KvSource& v);
  /// Tells attn_mix, of all spans, what it read.
  Live emit_mix(const LayerPlan& plan, const kernels::TensorView& out, std::span<const ProbeInput> inputs);

  // split_attention.cpp
  SoftmaxStatistics softmax_partials(const LayerPlan& plan, const RowGroup& group, const Live& scores);
  /// mix() by blocks of keys, whose results are added to `out`'s: those results.
  Live mix_in_blocks(const LayerPlan& plan, const RowGroup& group, const kernels::TensorView& out, const Live& probs,
                     const KvSource& v);

  // tiled_attention.cpp
  /// Where an operand's codes and scales go, and what attention reads of them.
  struct BlockSlots {
    Slot codes, scales, read;
  };
  struct BlockPlans {
    const OpPlan& quantise;
    const OpPlan& dequantise;
  };
  /// What attention reads of `x` in blocks of `preset`: x itself where that is empty. `rows`: what x's rows are.
  Live in_blocks(const BlockPlans& plans, const BlockSlots& slots, const RowGroup& group, Axis rows, const Live& x,
                 const std::string& preset, BlockAxis axis, std::int64_t heads);
  struct Tiles {
    Live probs, exact_probs, max, sum;
  };
  Tiles tile_softmax(const LayerPlan& plan, const RowGroup& group, const Live& scores, const Live& exact_scores);
  /// What attn_mix is told of a span that it read.
  void mix_tiles(const LayerPlan& plan, const RowGroup& group, const kernels::TensorView& out, const Tiles& tiles,
                 const Live& v, const Live& exact_v, std::vector<ProbeInput>& inputs);
  Live exact_scores(const LayerPlan& plan, const RowGroup& group, const Live& q, const Live& k);
  Live attend_tiles(const LayerPlan& plan, const Live& q);
  /// What attention gives rows that have no key.
  void pad_mix(const LayerPlan& plan, const RowGroup& group, const kernels::TensorView& out);
  Live scan(const LayerPlan& plan, const LayerWeights& weights, const RowGroup& group, const Live& x,
            const kernels::TensorView& out);
  std::vector<std::int32_t> head(const Live& x);
  Live logits(const Live& x);
  Live last_rows(const Live& x);
  std::vector<std::int32_t> sample(const Live& logits);
  bool has_grammar() const;
  Live scaled_logits(const Live& raw, std::string_view role);
  Live capped_logits(const Live& raw);
  Live token_probabilities(const Live& logits);

  // scheme_attention.cpp
  const KvScheme& scheme(const LayerPlan& plan, KvTarget target) const;
  bool rotates(const LayerPlan& plan, KvTarget target) const;
  bool stores_before_rope(const LayerPlan& plan) const;
  Live hadamard(const OpPlan& plan, Slot slot, const Live& x, std::int64_t heads);
  struct Quantized {
    SchemeBook::Use use;
    std::vector<ProbeTensor> outputs;
  };
  /// The first `stored` of the rows go to their slots in the pool, the others are encoded for listeners alone.
  Quantized quantize(const LayerPlan& plan, const ScaleContext& context, const kernels::TensorView& rows,
                     const kernels::TensorView& slots, std::int64_t stored);
  Quantized keep(const LayerPlan& plan, KvTarget target, const kernels::TensorView& rows);
  void tell_scale(const LayerPlan& plan, const ScaleContext& context, const SchemeBook::Use& use);
  void scheme_store(const LayerPlan& plan, const Live& k, const Live& v);
  void seal(const LayerPlan& plan, bool behind);
  void seal_rows(const LayerPlan& plan, const RowGroup& group, KvTarget target, std::int64_t from, std::int64_t to);
  kernels::KvReadArgs scheme_read(const LayerPlan& plan, KvTarget target, const RowGroup& group) const;
  void tell_coded(const LayerPlan& plan, const RowGroup& group, KvReadAttributes& all) const;
  Live rope_of_keys(const LayerPlan& plan, const RowGroup& group, const Live& k);

  ProbeTensor store_target(const LayerPlan& plan, KvTarget target, const Live& rows, ScaleBook::Use& use);
  /// How K or V of a span is read; `out` is left open.
  kernels::KvReadArgs read_args(const LayerPlan& plan, KvTarget target, const RowGroup& group) const;
  /// The same read by attention itself; not given where attention.fused is off, or K or V is no codes alone.
  kernels::KvOperand cached(const LayerPlan& plan, KvTarget target, const RowGroup& group) const;
  void upload_key_slots();

  kernels::TensorView matrix(Slot slot, Format format, std::int64_t rows, std::int64_t columns);
  kernels::TensorView activation(Slot slot, std::int64_t columns);
  kernels::TensorView upload_i32(Slot slot, std::span<const std::int32_t> values);
  template <class Args>
  void launch(const Args& args) {
    if (emitter_.ok()) emitter_.check(parts_.device.launch(args));
  }
  /// Declares an op with one output that was just launched.
  Live emit(const OpPlan& plan, std::initializer_list<ProbeInput> inputs, std::string_view role,
            const kernels::TensorView& view, std::int64_t heads = 1, std::string_view attributes = {});
  /// The plan's attributes, of the kind T, with those that `change` sets, which differ from step to step, as JSON;
  /// empty when nobody listens. Valid until the next call.
  template <class T, class Change>
  std::string_view attributes(const OpPlan& plan, const Change& change) {
    if (!emitter_.listening()) return {};
    const T* fixed = std::get_if<T>(&plan.attributes);
    T all = fixed == nullptr ? T{} : *fixed;
    change(all);
    attributes_ = to_json(std::move(all));
    return attributes_;
  }
  ScaleContext scale_context(const LayerPlan& plan, KvTarget target) const;

  ForwardParts parts_;
  const StepInput& step_;
  Emitter& emitter_;
  Live x_;             ///< the residual stream
  Live layer_in_;      ///< the stream before the layer's attention
  Live attention_in_;  ///< what its attention reads
  Live branch_;        ///< what the branch that ran last put out
  NormConfig inner_norm_;
  std::int64_t rows_ = 0;         ///< of the activations: the step's, or in the head those of its ends
  std::int64_t stored_rows_ = 0;  ///< that go into the pool, from the first on
  std::vector<Span> spans_;
  kernels::TensorView kv_slots_;
  kernels::TensorView head_rows_, token_rows_;  ///< of latent attention
  std::vector<kernels::TensorView> blocks_;     ///< by span
  std::vector<kernels::TensorView> key_slots_;  ///< by span, where attention reads the cache itself
  /// A table of angles on the device; not given where the op makes them.
  struct Angles {
    kernels::TensorView frequencies;
    float amplitude = 1;
  };
  std::vector<Angles> global_angles_, local_angles_;  ///< by span
  OpPlan of_span_;
  float scale_k_ = 1;  ///< of the layer that runs, for reading
  float scale_v_ = 1;
  std::optional<std::pair<float, float>> foreign_scales_;
  kernels::TensorView freed_;  ///< a tensor of this layer that nothing reads any more
  std::string attributes_;
};

}  // namespace nanscope
