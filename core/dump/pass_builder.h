#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/dump/paged_cache.h"
#include "core/dump/slot_history.h"

/// Puts the tensors of a pass into the graph of a transformer. Internal to DumpRun.
namespace nanscope {

/// Parts of an MLP, and of a mixture of experts.
inline constexpr std::string_view kMlpOps[] = {"gate_proj", "up_proj", "gate_up_proj", "act",
                                               "down_proj", "gate",    "up",           "mlp_out"};
inline constexpr std::string_view kMixtureOps[] = {"router",     "router_logits", "router_weights",
                                                   "router_ids", "router_scores", "experts"};

/// Layers of one tower, or what stands outside of them.
struct Scope {
  std::string tower;
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> expert;
  auto operator<=>(const Scope&) const = default;  // NOLINT(modernize-use-nullptr)
};

class PassBuilder {
 public:
  explicit PassBuilder(DumpRun& run);

  /// Of a checkpoint, or whatever lies beside the passes.
  void add_parameters(const std::vector<std::size_t>& tensors);
  void add_pass(const std::vector<std::size_t>& tensors);

 private:
  using Index = std::size_t;  ///< in Dump::tensors
  /// What identifies a tensor within its scope.
  struct Key {
    std::string op;
    Port port = Port::output;
    int index = 0;
    Form form = Form::value;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  /// An output to be: its role, and the dumped tensors that are it, best first.
  struct Output {
    std::string role;
    std::vector<Index> dumped = {};
    Axis axis = Axis::rows;
  };
  using Inputs = std::vector<Input>;

  const DumpTensor& tensor(Index index) const { return run_.dump_.tensors[index]; }
  void settle_names();
  void settle_checkpoints();
  std::vector<Index> shared_by_ranks(const std::vector<std::size_t>& tensors) const;
  void settle_rotated();
  void settle_routed();
  void settle_router_scores();
  void settle_hooked_gates();
  void settle_last_states();
  void settle_exported();
  static TensorName first_call_of(const TensorName& at);
  bool is_cosine(Index index) const;
  bool seen(std::string_view op) const { return seen_.contains({scope_.tower, std::string(op)}); }
  bool seen_any(std::span<const std::string_view> ops) const;
  bool has_mixture() const;
  bool seen_any(std::initializer_list<std::string_view> ops) const {
    return seen_any(std::span(ops.begin(), ops.size()));
  }

  // Lookups in the scope; `take` marks what was found as placed.
  std::vector<Index> find(std::string_view op, Port port, Form form = Form::value, int index = 0) const;
  std::vector<Index> find_role(std::string_view role, Form form = Form::value) const;
  std::optional<Index> parameter(std::string_view op, std::string_view role, Form form = Form::value);
  std::vector<Index> outputs_of(std::string_view op, std::string_view role) const;

  std::optional<Index> of_input(std::string_view op, Form form);
  OpAttributes product_with(std::optional<Index> weight) const;

  // Emission.
  TensorId emit_parameter(Index index);
  void give_parameter(Inputs& inputs, std::string_view role, std::optional<Index> index);
  TensorId emit(const std::string& name, OpKind kind, Inputs inputs, Output output, OpAttributes attributes = {});
  TensorId add_output(const Output& output, std::int64_t channels);
  const Span* span_of(Index index) const;
  Layout layout_of(Index index, int half = 0);
  std::optional<std::vector<std::int64_t>> integers_of(const DumpTensor& one) const;
  /// Those of one sequence, or of all where `sequence` is nothing.
  std::vector<Index> of_sequence(const std::vector<Index>& all, std::optional<std::int64_t> sequence) const;
  Layout whole_layout_of(Index index);
  void settle_first_bad(TensorId id, const Layout& layout);
  Tensor describe(Index index, std::string_view role, int half = 0);
  Tensor describe(Index index, std::string_view role, const Layout& layout);
  void bind(TensorId virtual_tensor, Index index);
  TensorId copy(TensorId expected, Index index, std::string_view name);
  /// What the op reads where `expected` is what it should: a dumped input is a copy of it, or is it.
  TensorId input_of(std::string_view op, TensorId expected, int index = 0);
  bool is_branch(TensorId part, const Tensor& sum) const;
  /// A value as an op may read it: itself, or its codes.
  struct Operand {
    TensorId x = 0;
    TensorId codes = 0;
    TensorId scale = 0;
    TensorId zero_point = 0;  ///< of integer codes
  };
  std::optional<Index> history_of(std::string_view op);
  Operand with_forms(std::string_view op, Port port, TensorId value, int index = 0);
  bool is_given_integer(Index index) const;
  std::optional<TensorId> same_bytes_before(Index index, TensorId except);
  /// A tensor as `described`, in the run or not yet.
  struct Described {
    const Tensor& tensor;
    Index index = 0;  ///< where it is not in the run yet
  };
  /// Known tensors of the pass, as places in its content: by shape, and by what else is the same of tensors that hold
  /// the same in the same format.
  struct Numbers {
    using Shape = std::tuple<std::int64_t, std::int64_t, Format>;
    using Key = std::tuple<Shape, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t>;
    /// Where many agree, they are told apart by a hash of what same_bytes() compares.
    struct Alike {
      std::vector<std::size_t> places;
      std::size_t looked_at = 0;                                      ///< of them
      std::unordered_map<std::size_t, std::set<std::size_t>> hashed;  ///< those by it
      std::vector<std::size_t> unread;                                ///< and those whose elements cannot be had
    };
    std::map<Shape, std::vector<std::size_t>> by_shape;
    std::map<Key, Alike> by_numbers;
    std::size_t seen = 0;           ///< tensors of the content that were looked at
    std::vector<TensorId> touched;  ///< that may have become known since
  };
  void index_members();
  void index_numbers();
  std::vector<std::size_t> with_numbers_of(const Described& wanted);
  std::vector<std::size_t> alike(Numbers::Alike& all, const Described& wanted);
  std::optional<std::size_t> hash_of(const Described& one);
  bool same_bytes(const Described& a, const Described& b);
  bool same_bytes(const Tensor& a, Index b) { return same_bytes({a, 0}, {describe(b, a.role), b}); }
  bool same_bytes(Index a, Index b) { return same_bytes({describe(a, "x"), a}, {describe(b, "x"), b}); }
  bool same_columns(const Tensor& whole, std::int64_t first, Index index);
  /// Of a tensor with elements.
  static std::int64_t rows_compared(const Tensor& one);
  std::optional<std::vector<float>> first_rows(const Described& one, std::int64_t rows);
  Tensor* tensor_of(TensorId id);

  // The graph.
  void build_tower(const std::string& name);
  TensorId through_undumped(TensorId x);
  TensorId summed(TensorId embedded);
  TensorId layer(TensorId x);
  void take_layer_parameters();
  void take_tower_tables();
  void take_layer_tables();
  void take_probabilities_of_layer();
  std::optional<bool> norms_other_than_branch();
  bool norms_sum();
  TensorId normed(std::string_view op, TensorId x);
  TensorId norm(std::string_view op, TensorId x);
  TensorId norm_of(std::string_view op, TensorId x);
  bool adds_in_norm() const;
  TensorId fused_layer(TensorId x, const std::vector<Index>& outs);
  bool holds_residual(TensorId branch, std::string_view next);
  bool is_mlp_alone();
  bool is_here(std::string_view op) const;
  bool norms_before_alone() const;
  TensorId mlp_layer(TensorId x, std::vector<Index> outs);
  struct Fused {
    TensorId sum = 0;
    TensorId normed = 0;
  };
  Fused fused_norm(std::string_view op, std::string_view sum_name, TensorId stream, TensorId branch,
                   std::vector<Index> sums);
  /// `own_output`: what the module gave is the product, beside `more`.
  TensorId linear(std::string_view op, TensorId x, std::string_view role, const std::vector<Index>& more = {},
                  bool own_output = true);
  TensorId attention(TensorId x);
  TensorId recurrence(TensorId x);
  std::tuple<TensorId, TensorId, TensorId> projections(TensorId x);
  std::tuple<TensorId, TensorId, TensorId> parts_of_heads(TensorId fused);
  std::vector<Index> states(std::string_view letter);

  // pass_delta.cpp
  TensorId delta_net(TensorId x);
  std::pair<TensorId, TensorId> query_and_gate(TensorId both);

  // pass_latent.cpp
  bool knows_latents();
  std::tuple<TensorId, TensorId, TensorId> latents(TensorId x);
  TensorId expanded(TensorId latent);
  TensorId rotated_queries(TensorId q);
  std::vector<Index> given_to_attention(std::string_view letter, int index);
  TensorId shared_keys(TensorId both, std::int64_t rank);
  std::vector<Index> of_width(std::vector<Index> dumped, std::int64_t channels);
  void settle_width(TensorId made, std::int64_t channels, std::int64_t heads);
  TensorId part_of(TensorId fused, std::string_view op, std::string_view role, std::int64_t first,
                   std::int64_t channels);
  Health health_of_part(const Tensor& part);
  bool learns_positions() const;
  Inputs rotation_of(TensorId x) const;
  TensorId rotated(std::string_view letter, TensorId x);
  void settle_stored(std::int64_t width, const std::string& letter);
  std::optional<StepRows> step_rows(Index index, const Dtype* dtype) const;
  std::optional<StepKeys> step_keys(const Dtype* dtype, std::int64_t channels) const;
  std::optional<std::int64_t> value_width() const;
  void settle_geometry();
  void settle_pools();
  void settle_pool(Index index);
  void take_sequences(const PagedCache& cache);
  void give_slots(SlotMap& map, std::int64_t block) const;
  void store(TensorId k, TensorId v);
  bool gathered_for(const Tensor& read, std::optional<std::int64_t> pool) const;
  std::vector<TensorId> keys(std::string_view letter, TensorId fresh);
  const Op* store_of_layer();
  std::optional<Index> mask_of_layer();
  std::optional<Index> mask_of_sequence(std::int64_t sequence, std::optional<Index> shared) const;
  std::map<std::optional<std::int64_t>, std::vector<Index>> by_sequence(const std::vector<Index>& all) const;
  static std::string suffixed(std::string name, std::optional<std::int64_t> sequence);
  /// The dumped scores and probabilities of a sequence, or of all.
  struct ScoreTensors {
    std::vector<Index> raw, scores, masked, probs;
  };
  TensorId own_of(TensorId fresh, const std::vector<TensorId>& read) const;
  TensorId mix(TensorId q, const std::vector<TensorId>& k, const std::vector<TensorId>& v, TensorId own_k,
               TensorId own_v);
  TensorId probabilities(TensorId q, const Inputs& keys, const ScoreTensors& own, std::optional<Index> mask,
                         std::optional<std::int64_t> sequence);
  TensorId mlp(TensorId x);
  TensorId mixture(TensorId x);
  TensorId with_shared_expert(TensorId routed);
  void give_experts(Inputs& inputs, std::int64_t experts);
  TensorId gated(TensorId x);
  TensorId ungated(TensorId projected);
  TensorId residual(std::string_view op, TensorId a, TensorId b, std::vector<Index> more = {});
  TensorId logits_of(TensorId x);
  TensorId selected(TensorId x);
  void head(TensorId x);
  void leftovers(const Scope& scope);
  void leftovers_before_head();
  void place_leftover(Index index);
  void place_loose(Index index);
  std::optional<TensorId> put_out_elsewhere(Index index);
  void place_in_order(std::vector<Index> left);
  bool names_a_side(Index index) const;
  void note_unknown_name(Index index, std::string_view elements);
  TensorId whole(std::string_view op, TensorId inner);
  bool appears_elsewhere(Index index);
  OpKind kind_by_name(const TensorName& at, const Inputs& inputs, const Tensor& out);
  OpKind kind_by_shapes(const Inputs& inputs, const Tensor& out);
  void scale_ledger();
  void slot_history();

  /// What a request used when it last ran.
  struct Held {
    std::string folder;
    std::vector<std::int64_t> blocks;
    std::int64_t context = 0;
    std::int64_t prefix_of = -1;
  };
  /// The requests of one rank, which has passes of its own.
  struct RankRequests {
    std::map<std::int64_t, Held> held;
    std::int64_t passes = 0;
  };
  std::int64_t request_by_name(const std::string& name);
  std::string request_folder(Index any) const;
  std::optional<std::vector<std::int64_t>> integers_of_pass(std::string_view role, std::int64_t& width);
  std::vector<std::vector<std::int64_t>> blocks_of_sequences();
  std::int64_t request_with_blocks(const RankRequests& rank, const std::string& folder, std::size_t sequence,
                                   const std::vector<std::int64_t>& blocks, const std::vector<std::int64_t>& taken);
  std::int64_t prefix_of(const RankRequests& rank, const std::string& folder, std::int64_t request, const Span& span,
                         const std::vector<std::int64_t>& blocks) const;
  std::vector<std::int64_t> requests_of(std::int64_t of_rank, Index any);
  void continue_requests(std::int64_t rank, Index any);

  DumpRun& run_;
  std::map<std::string, Geometry> geometry_;            ///< by tower
  std::set<std::pair<std::string, std::string>> seen_;  ///< tower and op
  std::map<std::string, std::int64_t> requests_;
  std::map<std::int64_t, RankRequests> rank_requests_;
  std::int64_t block_size_ = 0;
  std::map<std::int64_t, HeldBlocks> pool_blocks_;                          ///< by rank, each with a pool of its own
  std::set<Index> strange_pools_;                                           ///< that are not understood
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> progress_;  ///< request: steps so far, context
  std::unordered_map<std::string, Index> shared_;                           ///< parameters outside of passes
  std::map<std::string, std::vector<Index>> written_once_;                  ///< what may be of all ranks, by its step

  // Of the pass at work.
  Frame frame_;
  std::map<Index, PoolLayouts> pools_;  ///< whose layout is not the one of their shape
  SlotSequences in_slots_;              ///< by a pool's values; empty where they do not tell
  bool slots_differ_ = false;           ///< between layers
  TensorId residual_ = 0;               ///< the stream that the next norm adds its input to; 0: its input is the stream
  std::int64_t first_tensor_ = 0;
  std::map<Scope, std::multimap<Key, Index>> members_;
  std::map<Scope, std::multimap<std::pair<std::string, Form>, Index>> roles_;
  // The same in the order of members_, so that a pass of many tensors is not walked through for each of them.
  struct Shortcuts {
    std::multimap<std::pair<std::string, Form>, Index> forms;                     ///< by op
    std::multimap<std::tuple<std::string, Form, std::string>, Index> parameters;  ///< by op, form and role
    std::multimap<std::string, std::pair<int, Index>> inputs;                     ///< by module; with Key::index
  };
  std::map<Scope, Shortcuts> shortcuts_;
  Numbers numbers_;
  std::set<Index> placed_;
  std::map<std::string, std::optional<bool>> norms_other_;  ///< by tower; made when asked for
  std::set<Index> placing_;                                 ///< of which the modules that give them are being placed
  std::map<Scope, std::multimap<std::uint32_t, Index>>
      loose_outputs_;  ///< by their largest magnitude; made when asked for
  std::unordered_map<Index, TensorId> emitted_;
  Scope scope_;
  TensorId cos_ = 0;
  TensorId sin_ = 0;
  std::vector<std::pair<TensorId, TensorId>> other_tables_;  ///< that a layer may use as well: cosines and sines
  TensorId positions_ = 0;
  TensorId gate_ = 0;  ///< of the layer's attention
  TensorId last_ = 0;  ///< the last activation that was dumped
};

/// Of parameters: the same for the module in whichever pass or file it lies.
std::string parameter_key(const TensorName& at, std::string_view op, std::string_view role, Form form);

}  // namespace nanscope
