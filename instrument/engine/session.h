#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/forward.h"
#include "instrument/engine/held_step.h"
#include "instrument/engine/kv_pool.h"
#include "instrument/engine/prefix_cache.h"
#include "instrument/engine/prompt.h"
#include "instrument/engine/shard.h"

namespace nanscope {

inline constexpr std::int64_t kNullBlock = 0;  ///< of kv.table_blocks: in a block table it means "none"

/// What an engine keeps between runs.
struct EngineParts {
  EngineConfig config;
  kernels::Device* device = nullptr;
  std::shared_ptr<const LoadedModel> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<Shard> shards;  ///< by rank
};

/// The KV memory of each rank of a run, as kv.memory says it begins.
Result<kernels::Buffer> make_kv_memory(const EngineParts& parts);
/// The same memory after a profiling pass used it as its workspace.
Result<kernels::Buffer> make_recycled_memory(const EngineParts& parts);

/// One run of an engine: its KV pool, prefix cache, scales and counters, from first to last request.
class Session {
 public:
  /// A workspace for each rank. The transients outlive it.
  static Result<std::unique_ptr<Session>> create(const EngineParts& parts, std::span<Workspace> workspaces,
                                                 Probe& probe, const RunControl& control, std::int64_t expected_ops,
                                                 std::span<const Transient> transients = {});

  /// The warm-up request of kv.warm_up: its id is -1 and its result is not returned.
  Status warm_up();
  /// The batch of engine.dummy_batch: one token without a context, whose block table is all zeros. Each call is a step
  /// of one request of its own.
  Status dummy_batch();
  Result<RequestRow> run(std::int64_t id, const RequestSpec& spec, const Prompt& prompt);
  /// All requests, up to engine.batch of them in a step. The first has the id `first`, the others follow.
  Result<std::vector<RequestRow>> run_batch(std::int64_t first, std::span<const RequestSpec> specs,
                                            std::span<const Prompt> prompts);
  /// The step of the schedule that comes next.
  std::int64_t now() const { return now_; }
  /// The server frees its cache and wakes up with an empty one, and with the scales that kv.wake says.
  Status sleep_and_wake();

  std::int64_t ops() const { return emitter_.ops(); }
  std::int64_t tensors() const { return emitter_.tensors(); }
  std::int64_t steps() const { return passes_ * ranks(); }
  std::uint64_t kv_bytes() const;
  Status tell_weights();

 private:
  /// A request while it runs.
  struct Sequence {
    RequestRow row;
    const Prompt* prompt = nullptr;
    std::vector<std::uint64_t> keys;    ///< by position, generated tokens too
    std::vector<std::int64_t> blocks;   ///< its block table
    std::string answer;                 ///< bytes of the generated tokens
    std::vector<std::uint64_t> hashes;  ///< chained, of the leading full blocks
    std::int64_t state_block = -1;
    std::int64_t steps = 0;
    bool stores = true;
    bool fresh = false;        ///< RequestSpec::fresh
    bool tells_shared = true;  ///< blocks that it has before it took any are to be told of
    // In a batch:
    std::vector<std::int32_t> tokens;  ///< by position: the prompt's, then the generated ones
    std::int64_t computed = 0;         ///< of them
    std::int64_t preempted_at = 0;     ///< how many were when it lost its blocks
    int max_tokens = 0;
    std::int64_t arrive = 0;
    bool begun = false;
    bool done = false;
  };

  /// What a step does for one sequence.
  struct Part {
    Sequence* sequence = nullptr;
    StepKind kind = StepKind::prefill;
    std::span<const std::int32_t> tokens;
    std::int64_t first = 0;
  };

  /// What a rank keeps from step to step.
  struct RankState {
    Workspace* workspace = nullptr;
    KvPool pool;
    ScaleBook scales;
    std::optional<SchemeBook> schemes;
    std::optional<ScoreBook> scores;
    HeldStep held;  ///< of ranks above 0
  };

  Session(const EngineParts& parts, Probe& probe, const RunControl& control, std::int64_t expected_ops);

  std::int64_t ranks() const { return std::ssize(parts_.shards); }
  /// StepRow::id of a rank's part of the pass that is under way, or was last; 0 before the first.
  std::int64_t step_id(std::int64_t rank = 0) const { return passes_ == 0 ? 0 : (passes_ - 1) * ranks() + rank + 1; }

  /// What happens before the pass that begins.
  Status make_transients();
  Status tell_weight(const Weight& weight);
  Result<RequestRow> generate(Sequence& sequence, int max_tokens);
  void tell_prompt(const Sequence& sequence);
  void share_prefix(Sequence& sequence);
  /// Blocks for the tokens of a part; of a window, those behind it are given back or overwritten.
  Status take_blocks(Sequence& sequence, const Span& span);
  std::int64_t table_blocks(const Sequence& sequence, std::int64_t tokens) const;
  void give_back_behind(Sequence& sequence, std::int64_t first);
  /// Its blocks, each once, with the position that they begin at.
  std::vector<std::pair<std::int64_t, std::int64_t>> held_blocks(const Sequence& sequence) const;
  std::vector<std::int32_t> block_table(const Sequence& sequence);
  std::vector<std::int32_t> legal_tokens(const Sequence& sequence) const;
  void tell_taken(const Sequence& sequence, std::int64_t block, std::int64_t first_token, std::string_view writer,
                  KvAction action);
  Result<std::int64_t> take_block(const Sequence& sequence, std::int64_t first_token, std::string_view writer);
  Result<std::int32_t> step(Sequence& sequence, StepKind kind, std::span<const std::int32_t> tokens,
                            std::int64_t first);
  /// One forward pass. The token that follows each part, -1 when argmax refuses.
  Result<std::vector<std::int32_t>> step(std::span<const Part> parts, bool batched);
  /// The pass on all ranks, from the embedding to the tokens, which are rank 0's.
  Result<std::vector<std::int32_t>> forward(std::span<const StepInput> inputs, std::span<Emitter> others);
  /// `others` are the emitters of ranks above 0.
  void end_step(std::span<const StepInput> inputs, std::span<const Emitter> others);
  StepRow step_row(std::span<const Part> parts, bool batched);
  Result<SpanInput> span_input(const Part& part, const Span& span);
  static void give_images(const Part& part, SpanInput& input);
  std::int64_t state_block(const Sequence& sequence, StepKind kind) const;
  void read_states_with_unit_stride(std::span<SpanInput> spans) const;

  // batch_session.cpp
  /// The parts of the next step: those of running requests first, then of those that wait and for which there is room.
  std::vector<Part> schedule(std::int64_t now);
  void schedule_running(std::vector<Part>& parts, std::int64_t& reserved);
  void admit(std::int64_t now, std::vector<Part>& parts, std::int64_t& reserved);
  Part next_part(Sequence& sequence) const;
  /// Blocks that the part needs besides those that its sequence has.
  std::int64_t missing_blocks(const Part& part) const;
  void begin(Sequence& sequence);
  void preempt(Sequence& sequence);
  void advance(const Part& part, std::int32_t token);
  void finish(Sequence& sequence);
  void tell_begin(Sequence& sequence);

  void tell_written(const Sequence& sequence, const Span& span, std::int64_t state_block);
  void remember_full_blocks(Sequence& sequence, std::int64_t context);
  void release(Sequence& sequence);
  std::uint64_t block_hash(const Sequence& sequence, std::size_t block, std::uint64_t before) const;
  bool caches_prefixes() const;
  bool ends(std::int32_t token) const;
  std::string text_of(std::span<const std::int32_t> tokens) const;
  std::string_view writer(const Sequence& sequence) const;
  /// Of the pool of each rank, in the step of each.
  void tell_kv(KvRow row);

  const EngineParts& parts_;
  std::span<const Transient> transients_;
  std::shared_ptr<const LoadedModel> changed_model_;  ///< null while no weight has changed
  const RunControl& control_;
  std::int64_t expected_ops_;
  Emitter emitter_;
  std::vector<RankState> ranks_;
  bool in_pass_ = false;
  BlockAllocator allocator_;
  PrefixCache cache_;
  Prompt dummy_prompt_;
  Sequence dummy_;
  std::vector<std::int32_t> end_tokens_;
  Format slot_format_;       ///< that keys of the last layer are stored in
  bool keeps_rows_ = false;  ///< beside codes
  // Of a batch, in order of priority:
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;
  std::int64_t now_ = 0;
  std::int64_t passes_ = 0;
};

}  // namespace nanscope
