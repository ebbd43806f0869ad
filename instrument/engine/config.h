#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/blocks/block_format.h"
#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/model/model_config.h"

/// Everything that a run of the reference transformer depends on besides its prompts. Plain
/// structs whose defaults are a healthy deployment; each field is a knob of the same name
/// (instrument/engine/knobs.h), which documents it.
namespace nanscope {

enum class BlockReuse : std::uint8_t { lifo, fifo };
enum class KvTail : std::uint8_t { read, skip };
enum class KvMemory : std::uint8_t { zeroed, recycled };
/// What becomes of positions that have left a sliding window.
enum class WindowCache : std::uint8_t { all, ring, rolling };
enum class StateIndex : std::uint8_t { own, minus_one, unit_stride };
enum class CausalMask : std::uint8_t { exact, off_by_one, block, none };
enum class ResumeState : std::uint8_t { own, warm_up, always };
enum class WakeScales : std::uint8_t { restored, stale };
enum class Padding : std::uint8_t { none, left };
enum class DummyBatch : std::uint8_t { none, masked, slot_0 };
enum class DummyAt : std::uint8_t { start, decode };
enum class PadRows : std::uint8_t { zero, masked };
enum class Preempt : std::uint8_t { recompute, stale };
enum class EmptyRow : std::uint8_t { keep, mask };
enum class ActivationBlocks : std::uint8_t { none, mxfp8, mxfp4, nvfp4, fp8 };
enum class BlockOps : std::uint8_t { mlp, linears };
enum class TensorScales : std::uint8_t { config, checkpoint };
enum class ScaleMemory : std::uint8_t { zeroed, recycled };
enum class ScaleReads : std::uint8_t { used, tile };
enum class RankScales : std::uint8_t { own, rank_0 };
enum class ScoresPer : std::uint8_t { layer, head };
/// Which kernel makes the products of linear layers and of the head.
enum class KernelForm : std::uint8_t { exact, tensor_core };
/// Whose weights a file of scales may be of.
enum class ScalesOf : std::uint8_t { own, any };

struct NormConfig {
  kernels::VarianceForm variance = kernels::VarianceForm::two_pass;
  kernels::SumOrder order = kernels::SumOrder::warp;
  bool contract = false;
  bool clamp = false;
  bool mean_by_reciprocal = false;
  float eps = 1e-5F;
};

/// What differs from NormConfig in the norm on the attention output; an empty field follows it.
struct InnerNormConfig {
  std::optional<kernels::VarianceForm> variance;
  std::optional<kernels::SumOrder> order;
  std::optional<bool> contract;
  std::optional<bool> clamp;
  std::optional<bool> mean_by_reciprocal;
  std::optional<float> eps;
};

struct KvConfig {
  Format format = Format::bf16;
  std::string policy = "unit_scale";
  std::string scheme;    ///< a name of instrument/kv_schemes/policies.def; with it format and policy are not looked at
  std::string scheme_k;  ///< text of a KvScheme, in place of the named one's
  std::string scheme_v;
  float scale_k = 1;
  float scale_v = 1;
  float divisor_k = 200;
  float divisor_v = 100;
  std::int64_t history = 16;
  Overflow overflow = Overflow::saturate;
  kernels::NanRule clamp_nan = kernels::NanRule::propagate;
  kernels::ScaleUse read_scale = kernels::ScaleUse::once;
  std::optional<Format> read_format;
  std::int64_t block_size = 16;
  std::int64_t blocks = 64;
  BlockReuse reuse = BlockReuse::lifo;
  bool scrub = false;
  bool prefix_cache = true;
  KvTail tail = KvTail::read;
  KvMemory memory = KvMemory::zeroed;
  bool warm_up = false;
  ResumeState resume_state = ResumeState::own;
  std::int64_t sleep_after = 0;
  WakeScales wake = WakeScales::restored;
  std::int64_t table_blocks = 0;
  WindowCache window_cache = WindowCache::all;
  StateIndex state_index = StateIndex::own;
  RankScales rank_scales = RankScales::own;
};

/// Along what the elements of a block lie.
enum class BlockAxis : std::uint8_t { channels, tokens };

/// Attention on block-scaled operands, tile by tile. Each of q, k, v and p names a preset of core/blocks; all empty:
/// attention is not tiled.
struct AttentionBlocks {
  std::string q, k, v, p;
  BlockAxis k_axis = BlockAxis::channels;
  BlockAxis v_axis = BlockAxis::tokens;
  kernels::Diagonal diagonal = kernels::Diagonal::quantized;
  std::int64_t tile = 32;
  bool online = true;  ///< the maximum runs with the tiles, and p is divided by its sum at the end

  bool any() const { return !(q.empty() && k.empty() && v.empty() && p.empty()); }
};

struct AttentionConfig {
  kernels::MaskMode mask = kernels::MaskMode::select;
  CausalMask causal = CausalMask::exact;
  kernels::NanRule max_nan = kernels::NanRule::propagate;
  bool zero_guard = false;
  bool fused = false;  ///< it reads codes of the cache itself
  /// Keys of a block that has statistics and a sum of its own (kernels/ops/softmax_partials.h); 0: there are none.
  std::int64_t split = 0;
  AttentionBlocks blocks;
};

/// Attention's scores, and the queries and keys that they are made of, as codes of 8 bits; see
/// instrument/spectral/score_policy.h.
struct ScoresConfig {
  Format format = Format::f32;  ///< f32: they are not quantized
  std::string policy = "current";
  ScoresPer per = ScoresPer::layer;
  float scale = 1;
  Format qk_format = Format::f32;  ///< of queries and keys
  std::string qk_policy = "current";
  float q_scale = 1;
  float k_scale = 1;
  std::string scales;       ///< a file of instrument/spectral/scale_file.h, instead of the three numbers
  std::string scales_hash;  ///< of its bytes, as scale_file_hash(); not a knob. Empty: whatever it holds
  ScalesOf scales_of = ScalesOf::own;
  std::int64_t history = 16;
  std::int64_t burn_in = 100;  ///< steps that auto_alpha watches
  float kappa = 1;
  float quantile = 1;
  float start = 1;
  float margin = 0.9F;
  float utilization = 0.8F;
  float delta = 1e-6F;
  std::int64_t length = 1024;
  Overflow overflow = Overflow::saturate;
};

/// Block-scaled inputs of the MLP's products, or of the attention's projections as well.
struct BlockConfig {
  ActivationBlocks format = ActivationBlocks::none;
  std::string preset;  ///< of core/blocks, instead of what `format` means
  BlockOps ops = BlockOps::mlp;
  float tensor_scale = 1;
  TensorScales tensor_scales = TensorScales::config;
  Overflow overflow = Overflow::saturate;
  kernels::ScalePacking packing = kernels::ScalePacking::rounded;
  ScaleMemory memory = ScaleMemory::zeroed;
  ScaleReads reads = ScaleReads::used;
};

/// Which requests a step works on, and on how much of each.
struct BatchConfig {
  std::int64_t requests = 1;  ///< at most in a step; 1: one after another
  std::int64_t chunk = 0;     ///< most tokens of a prompt in a step; 0: all
  std::int64_t pad_to = 0;    ///< rows of a step are a multiple of it; 0: no padding
  PadRows pad_rows = PadRows::zero;
  Preempt preempt = Preempt::recompute;
};

/// Tensor parallelism within the process, and how its sums are made.
struct RanksConfig {
  std::int64_t count = 1;
  kernels::AllReduceOrder order = kernels::AllReduceOrder::rank;
  std::int64_t stuck_rank = -1;    ///< in whose memory of sums a bit is always 1; -1: in none
  std::int64_t stuck_element = 0;  ///< of the sum, row-major
  std::int64_t stuck_bit = 0;
};

struct SamplingConfig {
  float temperature = 0;  ///< 0: the largest logit
  std::int64_t seed = 0;
};

/// What becomes of the learning rate after the warm-up.
enum class LearningRateDecay : std::uint8_t { none, linear, cosine };
/// dynamic: halved at a step whose gradients are not finite, which is skipped; doubled after `loss_scale_growth` steps
/// without one (Micikevicius et al. 2018, 3.2).
enum class LossScaling : std::uint8_t { fixed, dynamic };
/// What becomes of the losses of tokens that are no targets: they are left out, or are multiplied by 0.
enum class LossMask : std::uint8_t { skip, multiply };
/// Where sequences of a training step are taken from.
enum class TextOrder : std::uint8_t { shuffled, sequential };

/// Training: AdamW on the cross-entropy of the next token of a text. No steps: nothing is trained.
struct TrainConfig {
  std::int64_t steps = 0;
  std::string text;                  ///< a file
  std::string text_hash;             ///< of its bytes, as train::text_hash(); not a knob. Empty: whatever it holds
  std::int64_t batch = 8;            ///< sequences of a step
  std::int64_t length = 64;          ///< tokens of a sequence that have a target
  std::int64_t ranks = 1;            ///< of data parallelism, which share a step's sequences
  std::int64_t unreduced_rank = -1;  ///< whose optimizer reads gradients before their sum over ranks; -1: none
  std::string unreduced;             ///< the weight that has them; empty: all
  TextOrder order = TextOrder::shuffled;
  std::int64_t seed = 0;  ///< of the order, and of stochastic rounding
  std::string ignore;     ///< targets on lines that begin with it have no loss; empty: all have
  LossMask mask = LossMask::skip;
  float learning_rate = 1e-3F;
  std::int64_t warm_up = 0;  ///< steps in which the learning rate rises to its value
  LearningRateDecay decay = LearningRateDecay::none;
  std::int64_t spike_step = -1;  ///< step, from 0, whose learning rate is multiplied
  float spike = 1;
  std::int64_t weight_spike_step = -1;  ///< step, from 0, before which weights are multiplied
  float weight_spike = 1;
  std::string weight_spike_of = "layers.*.q_proj.weight";
  std::int64_t forget_scales_step = -1;  ///< step, from 0, before which the state of scores.policy is lost
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0.01F;
  float clip = 1;  ///< largest norm of all gradients; 0: they are not clipped
  LossScaling loss_scaling = LossScaling::fixed;
  float loss_scale = 1;  ///< at the start
  std::int64_t loss_scale_growth = 2000;
  bool skip_overflow = true;             ///< a step whose gradients are not finite changes no weight
  Format gradient_format = Format::f32;  ///< of the gradients of activations
  Format state_format = Format::f32;     ///< of the optimizer's moments
  std::string blocks;            ///< preset that the backward products read their operands in; empty: as they are
  std::string gradient_blocks;   ///< preset for gradients among them; empty: `blocks`
  std::string weight_blocks;     ///< preset that projections' weights are rounded to behind each step; empty: they stay
  bool stochastic = false;       ///< elements of gradients are rounded stochastically
  bool hadamard = false;         ///< operands are rotated before they are quantized
  bool attention_blocks = true;  ///< gradients of attention are made on blocks where attention itself is
};

struct EngineConfig {
  ModelConfig model;
  NormConfig norm;
  InnerNormConfig inner_norm;
  RopeConfig rope;
  MoeConfig moe;
  Format activation_format = Format::f32;
  Format partial_sums = Format::f32;
  KernelForm kernel_form = KernelForm::exact;
  BlockConfig blocks;
  KvConfig kv;
  AttentionConfig attention;
  ScoresConfig scores;
  BatchConfig batch;
  RanksConfig ranks;
  SamplingConfig sampling;
  TrainConfig train;
  Padding pad = Padding::none;
  DummyBatch dummy_batch = DummyBatch::none;
  DummyAt dummy_at = DummyAt::start;
  std::string grammar;
  bool grammar_stop = true;
  EmptyRow grammar_empty = EmptyRow::keep;
  kernels::ArgmaxNan argmax_nan = kernels::ArgmaxNan::first_greater;
  std::string device = "cpu";  ///< as make_device() names it; not part of the numerics
  int threads = 0;             ///< 0: one a core; not part of the numerics
};

/// The files and folders that a run of this configuration reads: no output may replace them.
std::vector<std::filesystem::path> files_read(const EngineConfig& config);

/// The inner norm's parameters with the empty ones filled in from `config.norm`.
NormConfig resolved_inner_norm(const EngineConfig& config);

/// The format in which attention takes the codes of the cache: kv.read_format where the cache is fp8, else its own.
Format read_format(const KvConfig& kv);

/// The block format, as serving kernels have it: e8m0 scales are rounded up (mxfp8-rceil, mxfp4-rceil). Of `none` and
/// of `fp8`, which has one scale for all, nothing is asked.
const BlockFormat& block_format(const BlockConfig& blocks);
/// What stands above the scales of blocks where the checkpoint does not say it; 1 where nothing does.
float second_scale(const BlockConfig& blocks);

/// Whether scores of a row's own tile are those of unquantized keys.
inline bool reads_exact_scores(const AttentionBlocks& blocks) {
  return blocks.diagonal == kernels::Diagonal::exact && !blocks.k.empty() && blocks.k_axis == BlockAxis::tokens;
}
/// Of an operand of attention: `preset` with its blocks along the axis.
BlockFormat attention_block(const std::string& preset, BlockAxis axis);

/// Of the norms on latents: norm with model.latent_norm_eps.
NormConfig latent_norm_of(const EngineConfig& config);

/// Refuses shapes that fit no model (heads that kv_heads do not divide, odd head_dim, a recurrent
/// layer that does not exist ...) in one line that names the knobs.
Status check(const EngineConfig& config);

}  // namespace nanscope
