#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/run/op_kind.h"

/// What an op was told besides its inputs: one struct a kind of op. A field that is nothing was not stated. Recordings
/// hold them as a JSON object with a member a field (docs/recording.md), which is read and written here alone.
namespace nanscope {

struct NoAttributes {
  template <class Self, class Visit>
  static void fields(Self&, const Visit&) {}
};

struct DumpedAttributes {
  std::optional<std::string> dumped_as;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("dumped_as", self.dumped_as);
  }
};

struct NormAttributes {
  std::optional<std::string> norm;      ///< "layer", "rms"
  std::optional<std::string> variance;  ///< "one_pass", "two_pass", "welford"
  std::optional<std::string> order;
  std::optional<bool> contract, clamp, mean_by_reciprocal;
  std::optional<double> eps;
  std::optional<double> offset;        ///< the weight is this much plus what is stored: 1 in Gemma
  std::optional<std::int64_t> groups;  ///< a row is normalised in this many parts
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("norm", self.norm), visit("variance", self.variance), visit("order", self.order);
    visit("contract", self.contract), visit("clamp", self.clamp), visit("mean_by_reciprocal", self.mean_by_reciprocal);
    visit("eps", self.eps), visit("offset", self.offset), visit("groups", self.groups);
  }
};

struct GemmAttributes {
  std::optional<std::string> partial_sums;  ///< "f16": sums of blocks are rounded to it
  std::optional<bool> transposed;           ///< the weight is (in, out), as GPT-2's Conv1D has it
  std::optional<std::string> kernel_form;   ///< "tensor_core": its bits are those of the device
  /// What x is cast to before the product: "e4m3", "int8"; "unknown": how is not understood.
  std::optional<std::string> input_format;
  /// By which scales: "fixed", or the largest magnitude of each "tensor", "row", or "group" of `input_group` elements;
  /// "row or tensor" where servers differ.
  std::optional<std::string> input_scales;
  std::optional<std::int64_t> input_group;
  std::optional<std::int64_t> weight_group;  ///< neighbours in a row of the weight that share a zero point
  bool operator==(const GemmAttributes&) const = default;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("partial_sums", self.partial_sums), visit("transposed", self.transposed);
    visit("kernel_form", self.kernel_form), visit("input_format", self.input_format);
    visit("input_scales", self.input_scales), visit("input_group", self.input_group);
    visit("weight_group", self.weight_group);
  }
};

struct BlockAttributes {
  std::optional<std::string> format;  ///< "mxfp8", "mxfp4", "nvfp4"
  std::optional<std::int64_t> block, blocks;
  std::optional<double> tensor_scale;
  std::optional<std::string> scale_overflow, packing;
  std::optional<bool> zero_padding, read_padding;
  std::optional<bool> stochastic;  ///< elements are rounded stochastically
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("format", self.format), visit("block", self.block), visit("blocks", self.blocks);
    visit("tensor_scale", self.tensor_scale), visit("scale_overflow", self.scale_overflow);
    visit("packing", self.packing), visit("zero_padding", self.zero_padding), visit("read_padding", self.read_padding);
    visit("stochastic", self.stochastic);
  }
};

struct QuantiseAttributes {
  std::optional<std::string> format;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("format", self.format);
  }
};

struct RopeAttributes {
  std::optional<std::int64_t> heads, first_position;
  std::optional<double> base, factor, stretch;
  std::optional<std::int64_t> trained, served;
  std::optional<std::int64_t> rotated;       ///< channels of a head that are rotated
  std::optional<std::int64_t> rotated_from;  ///< the first of them; not given: 0
  std::optional<std::string> scaling;        ///< "linear", "llama3", "yarn", "longrope": angles are a table
  std::optional<double> amplitude;           ///< of cosine and sine
  std::optional<bool> interleaved;           ///< neighbours are a pair, not halves
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("heads", self.heads), visit("base", self.base), visit("factor", self.factor), visit("trained", self.trained);
    visit("served", self.served), visit("stretch", self.stretch), visit("rotated", self.rotated);
    visit("rotated_from", self.rotated_from);
    visit("interleaved", self.interleaved), visit("first_position", self.first_position);
    visit("scaling", self.scaling), visit("amplitude", self.amplitude);
  }
};

struct HadamardAttributes {
  std::optional<std::int64_t> heads;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("heads", self.heads);
  }
};

struct KvStoreAttributes {
  std::optional<std::string> policy, format, overflow, clamp_nan;
  std::optional<std::string> scheme_k, scheme_v;  ///< texts of KvSchemes: scales and zero points are outputs of the op
  std::optional<std::int64_t> low_k, high_k, low_v, high_v;  ///< codes of integers, where they do not take all
  std::optional<std::string> zero_k, zero_v;     ///< "code": code = x / scale + zero; "value": (x - zero) / scale
  std::optional<bool> unrounded_k, unrounded_v;  ///< codes were made with scales before these were rounded to f16
  std::optional<std::int64_t> block_size;
  std::optional<double> scale_k, scale_v;
  std::optional<bool> stored;  ///< false: the slot mapping sent it nowhere
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("policy", self.policy), visit("format", self.format), visit("overflow", self.overflow);
    visit("clamp_nan", self.clamp_nan), visit("block_size", self.block_size), visit("scale_k", self.scale_k);
    visit("scale_v", self.scale_v), visit("stored", self.stored), visit("scheme_k", self.scheme_k);
    visit("scheme_v", self.scheme_v), visit("low_k", self.low_k), visit("high_k", self.high_k);
    visit("low_v", self.low_v), visit("high_v", self.high_v), visit("zero_k", self.zero_k);
    visit("zero_v", self.zero_v), visit("unrounded_k", self.unrounded_k), visit("unrounded_v", self.unrounded_v);
  }
};

struct KvReadAttributes {
  std::optional<std::string> tail, read_scale, read_format;
  std::optional<std::int64_t> block_size, context;
  std::optional<std::vector<std::int64_t>> blocks;
  std::optional<double> scale_k, scale_v;
  std::optional<bool> per_slot;
  std::optional<std::string> scheme_k, scheme_v;
  std::optional<std::int64_t> coded_from_k, coded_end_k;  ///< positions that codes are read of, where rows are kept
  std::optional<std::int64_t> coded_from_v, coded_end_v;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("tail", self.tail), visit("block_size", self.block_size), visit("read_scale", self.read_scale);
    visit("read_format", self.read_format), visit("context", self.context), visit("blocks", self.blocks);
    visit("scale_k", self.scale_k), visit("scale_v", self.scale_v), visit("per_slot", self.per_slot);
    visit("scheme_k", self.scheme_k), visit("scheme_v", self.scheme_v), visit("coded_from_k", self.coded_from_k);
    visit("coded_end_k", self.coded_end_k), visit("coded_from_v", self.coded_from_v);
    visit("coded_end_v", self.coded_end_v);
  }
};

struct ScoresAttributes {
  std::optional<std::int64_t> heads, kv_heads;
  std::optional<double> factor, softcap;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("heads", self.heads), visit("kv_heads", self.kv_heads), visit("factor", self.factor);
    visit("softcap", self.softcap);
  }
};

struct SoftmaxAttributes {
  std::optional<std::string> mask;  ///< "additive", "select", "multiply"
  std::optional<std::string> max_nan;
  std::optional<bool> zero_guard;
  std::optional<std::int64_t> heads, first_position, first_key;
  std::optional<std::int64_t> window;  ///< keys that a row sees, its own included
  std::optional<std::int64_t> tile;    ///< keys of a tile
  std::optional<bool> online;          ///< the maximum runs with the tiles
  std::optional<std::int64_t> split;   ///< keys of a block that has statistics of its own
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("mask", self.mask), visit("max_nan", self.max_nan), visit("zero_guard", self.zero_guard);
    visit("heads", self.heads), visit("first_position", self.first_position), visit("first_key", self.first_key);
    visit("window", self.window), visit("tile", self.tile), visit("online", self.online);
    visit("split", self.split);
  }
};

struct MixAttributes {
  std::optional<std::int64_t> heads, kv_heads, first_position, first_key, window;
  std::optional<bool> visible_only;
  std::optional<std::int64_t> tile;     ///< keys of a tile
  std::optional<std::string> diagonal;  ///< "quantized", "exact", "past": what is read of a row's own tile
  std::optional<std::int64_t> split;    ///< keys of a block that has a sum of its own
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("heads", self.heads), visit("kv_heads", self.kv_heads), visit("visible_only", self.visible_only);
    visit("first_position", self.first_position), visit("first_key", self.first_key), visit("window", self.window);
    visit("tile", self.tile), visit("diagonal", self.diagonal), visit("split", self.split);
  }
};

struct ActivationAttributes {
  std::optional<std::string> activation;  ///< "swiglu", "swiglu_clamped", "gelu", "gelu_tanh", "silu", "relu"
  std::optional<double> alpha, limit;     ///< of swiglu_clamped
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("activation", self.activation), visit("alpha", self.alpha), visit("limit", self.limit);
  }
};

struct RouteAttributes {
  std::optional<std::string> weights;
  std::optional<double> eps;
  std::optional<std::string> score;  ///< "sigmoid", "softmax"
  std::optional<bool> normalise;
  std::optional<double> scale;                     ///< on the weights; not given: 1
  std::optional<std::int64_t> groups, top_groups;  ///< of neighbouring experts; not given: 1
  std::optional<std::string> group_score;          ///< "top_two", "best"
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("weights", self.weights), visit("eps", self.eps), visit("score", self.score);
    visit("normalise", self.normalise), visit("scale", self.scale);
    visit("groups", self.groups), visit("top_groups", self.top_groups);
    visit("group_score", self.group_score);
  }
};

struct ResidualAttributes {
  std::optional<double> factor;  ///< on b; not given: 1
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("factor", self.factor);
  }
};

struct ScaleAttributes {
  std::optional<double> factor;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("factor", self.factor);
  }
};

struct SoftcapAttributes {
  std::optional<double> cap;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("cap", self.cap);
  }
};

struct EmbeddingAttributes {
  std::optional<double> scale;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("scale", self.scale);
  }
};

struct RecurrentAttributes {
  std::optional<bool> resume;
  std::optional<std::int64_t> block;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("resume", self.resume), visit("block", self.block);
  }
};

struct DeltaAttributes {
  std::optional<bool> resume;
  std::optional<std::int64_t> block;
  std::optional<std::int64_t> key_heads, value_heads;
  std::optional<std::int64_t> key_width, value_width;  ///< channels of a head
  std::optional<bool> by_heads;  ///< of fused inputs: each key head's parts lie one behind the other
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("resume", self.resume), visit("block", self.block);
    visit("key_heads", self.key_heads), visit("value_heads", self.value_heads);
    visit("key_width", self.key_width), visit("value_width", self.value_width);
    visit("by_heads", self.by_heads);
  }
};

struct TokenSoftmaxAttributes {
  std::optional<std::int64_t> legal;
  std::optional<bool> masked;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("legal", self.legal), visit("masked", self.masked);
  }
};

struct ArgmaxAttributes {
  std::optional<std::string> nan;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("nan", self.nan);
  }
};

struct SampleAttributes {
  std::optional<double> temperature;
  std::optional<std::int64_t> seed;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("temperature", self.temperature), visit("seed", self.seed);
  }
};

struct SplitAttributes {
  std::optional<std::int64_t> first_channel;
  std::optional<std::int64_t> heads;  ///< each has such columns, from first_channel of its own on; not given: 1
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("first_channel", self.first_channel), visit("heads", self.heads);
  }
};

/// The channel of the whole that a channel of the part is, of so many channels each.
std::int64_t whole_channel(const SplitAttributes& split, std::int64_t channel, std::int64_t part, std::int64_t whole);

struct JoinAttributes {
  std::optional<std::int64_t> heads;
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("heads", self.heads);
  }
};

struct AllReduceAttributes {
  std::optional<std::int64_t> ranks;
  std::optional<std::string> order;  ///< "rank", "ring", "tree"
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("ranks", self.ranks), visit("order", self.order);
  }
};

struct LossAttributes {
  std::optional<std::int64_t> targets;
  std::optional<double> mean;        ///< of the losses of all targets
  std::optional<double> loss_scale;  ///< what the gradient is multiplied by
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("targets", self.targets), visit("mean", self.mean), visit("loss_scale", self.loss_scale);
  }
};

struct BackwardAttributes {
  std::optional<std::string> blocks;  ///< preset that the operands are read in
  std::optional<bool> stochastic, hadamard;
  std::optional<std::string> gradient_blocks;  ///< that of gradients among them, where it is another
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("blocks", self.blocks), visit("stochastic", self.stochastic), visit("hadamard", self.hadamard);
    visit("gradient_blocks", self.gradient_blocks);
  }
};

struct GradientNormAttributes {
  std::optional<double> clip, loss_scale;
  std::optional<bool> skipped;  ///< not finite: no weight is changed
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("clip", self.clip), visit("loss_scale", self.loss_scale), visit("skipped", self.skipped);
  }
};

struct AdamWAttributes {
  std::optional<std::int64_t> step;  ///< from 1
  std::optional<double> learning_rate, beta1, beta2, eps, weight_decay;
  std::optional<double> gradient_scale;  ///< what a gradient is multiplied by: clipping over the loss's scale
  std::optional<std::string> state;      ///< format of the moments
  template <class Self, class Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("step", self.step), visit("learning_rate", self.learning_rate), visit("beta1", self.beta1);
    visit("beta2", self.beta2), visit("eps", self.eps), visit("weight_decay", self.weight_decay);
    visit("gradient_scale", self.gradient_scale), visit("state", self.state);
  }
};

/// What an op states: one of the above. A class of its own, so that the copies of 31 alternatives are compiled once and
/// not in every source that holds an op.
class OpAttributes
    : public std::variant<NoAttributes, DumpedAttributes, NormAttributes, GemmAttributes, BlockAttributes,
                          QuantiseAttributes, RopeAttributes, HadamardAttributes, KvStoreAttributes, KvReadAttributes,
                          ScoresAttributes, SoftmaxAttributes, MixAttributes, ActivationAttributes, RouteAttributes,
                          RecurrentAttributes, TokenSoftmaxAttributes, ArgmaxAttributes, SampleAttributes,
                          SplitAttributes, JoinAttributes, SoftcapAttributes, EmbeddingAttributes, AllReduceAttributes,
                          LossAttributes, BackwardAttributes, GradientNormAttributes, AdamWAttributes,
                          ResidualAttributes, ScaleAttributes, DeltaAttributes> {
 public:
  using variant::variant;
  OpAttributes();
  OpAttributes(const OpAttributes& other);
  OpAttributes(OpAttributes&& other) noexcept;
  OpAttributes& operator=(const OpAttributes& other);
  OpAttributes& operator=(OpAttributes&& other) noexcept;
  ~OpAttributes();
};

/// Those of a kind of op, with nothing stated.
OpAttributes attributes_of(OpKind kind);
/// A JSON object as text, of the fields that are stated. NaN and infinities are the texts "nan", "inf" and "-inf".
std::string to_json(const OpAttributes& attributes);
/// What the object states in the types of its fields; all else is left out, and all of a text that is no object.
OpAttributes attributes_from_json(OpKind kind, std::string_view json);

}  // namespace nanscope
