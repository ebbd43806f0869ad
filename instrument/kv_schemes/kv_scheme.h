#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/numbers/format.h"
#include "core/result.h"

/// How a KV cache keeps keys and values, as data: in what format, under which scales, computed from what and for how
/// long, after which transform, and what stays as it is. The named ones are in policies.def; docs/kv-policies.md tells
/// who does what.
namespace nanscope {

/// What shares a scale.
enum class KvAxis : std::uint8_t {
  tensor,      ///< all that a scale's lifetime covers
  token,       ///< a token's channels of all heads
  channel,     ///< a channel of a head over `group` tokens, or over all that the lifetime covers
  head,        ///< a head's channels, over all that the lifetime covers
  token_head,  ///< a token's channels of one head
  block,       ///< `group` channels of one token
};

/// What of the values the scale follows from.
enum class KvStatistic : std::uint8_t {
  absmax,
  percentile,  ///< the `percentile` of the magnitudes, with linear interpolation as numpy has it: what is above clips
  outliers,    ///< absmax of all but the `outliers` share of largest magnitude, which are kept apart as they are
               ///< (KVQuant)
  min_max,     ///< asymmetric: scale (max - min) / levels, zero point min (KIVI, lmdeploy)
};

/// From which rows, and for how long.
enum class KvLifetime : std::uint8_t {
  first,    ///< the first rows that are ever stored, for good (the locked scale)
  fixed,    ///< numbers from a file or the command line
  request,  ///< the rows of a request's first step
  step,     ///< the rows of each step, whoever's they are
  running,  ///< the largest so far: grows, never shrinks
  delayed,  ///< the `history` steps before, not this one
};

enum class KvTransform : std::uint8_t {
  none,
  minus_mean,  ///< less each channel's mean over the request's first rows: softmax does not see it of keys
  hadamard,    ///< each head's channels rotated by H / sqrt(head_dim), queries and outputs alike
};

/// The layers whose rows are quantized; those of the others are kept as they are.
enum class KvLayers : std::uint8_t {
  all,
  late,   ///< the second half
  early,  ///< the first half
  inner,  ///< all but the first two and the last two
};

/// Ties of integer codes; `up` is floor(x + 0.5) (lmdeploy).
enum class KvRounding : std::uint8_t { even, away, up };

/// What the zero point of KvStatistic::min_max is.
enum class KvZero : std::uint8_t {
  code,     ///< -min / scale, as it is: real = (code value - zero) x scale (lmdeploy)
  integer,  ///< the same, rounded to a code (vLLM's int4)
  value,    ///< min itself: real = code value x scale + zero (KIVI, quanto)
};

/// What attention of the step that brings rows reads of them.
enum class KvOwn : std::uint8_t {
  quantized,
  first,  ///< as they are in the first step of a sequence, its prefill (transformers' fp8)
  as_is,  ///< as they are: rows are quantized behind the attention of a step (transformers' quanto, KIVI)
};

/// When rows leave the window of `keep_last` tokens.
enum class KvWindow : std::uint8_t {
  sliding,  ///< one by one, or where channels share scales over tokens group by group
  filled,   ///< all that are in it, once there are `keep_last`; in the first step of a sequence at once (quanto)
};

/// Real = (code value - zero) x scale; without a zero point, code value x scale.
struct KvScheme {
  /// The elements' format: bf16, f16 and f32 are not quantized; `bits` below 8 uses so many of int8.
  Format format = Format::bf16;
  int bits = 0;  ///< of int8 codes: 2, 3, 4, 8; 0: all that the format has
  std::string
      block;  ///< a block format's preset (core/blocks/presets.def), which says format, scale and axis; or empty
  KvAxis axis = KvAxis::tensor;
  std::int64_t group = 0;  ///< of KvAxis::block and channel; 0: all
  KvStatistic statistic = KvStatistic::absmax;
  double percentile = 99.5;
  double outliers = 0.01;
  KvLifetime lifetime = KvLifetime::step;
  std::int64_t history = 16;
  double divisor = 0;         ///< scale = statistic / divisor; 0: the largest value of the format
  double fixed_scale = 1;     ///< of KvLifetime::fixed
  double smallest_scale = 0;  ///< scales are not less (vLLM's 1e-6); 0: constant rows of min_max give 0 / 0 (lmdeploy)
  bool reciprocal = false;    ///< x * (1 / scale) for x / scale
  KvZero zero = KvZero::code;
  KvRounding rounding = KvRounding::even;  ///< of integer codes
  Format scale_format = Format::f32;       ///< scales are rounded to it, and zero points that are values
  KvTransform transform = KvTransform::none;
  bool before_rope = false;  ///< keys are stored as they are before their rotation, which is done at reading (KVQuant)
  KvLayers layers = KvLayers::all;
  std::int64_t keep_first = 0;  ///< tokens of a sequence kept as they are: attention sinks
  std::int64_t keep_last = 0;   ///< the newest tokens are kept as they are, and quantized when they leave the window
  KvWindow window = KvWindow::sliding;
  KvOwn own = KvOwn::quantized;

  friend bool operator==(const KvScheme&, const KvScheme&) = default;
};

/// Whether elements become codes that a scale makes numbers of; bf16, f16 and f32 do not.
bool quantizes(const KvScheme& scheme);
/// The scheme of one layer: of those that `layers` leaves out f32, rows as they are.
KvScheme scheme_of_layer(const KvScheme& scheme, std::int64_t layer, std::int64_t layers);
/// Whether rows are kept as they are beside the codes: windows, first tokens, outliers, groups of tokens, rows that are
/// read before they are quantized.
bool keeps_rows(const KvScheme& scheme);

/// Schemes of K and of V under a name.
struct KvPolicy {
  std::string_view name;
  std::string_view ships_in;  ///< the program that does so, or the paper
  std::string_view doc;
  std::string_view needs;  ///< what of a model it is for, such as latent attention; empty: any model
  KvScheme k;
  KvScheme v;
};

/// In the order of policies.def.
std::span<const KvPolicy> kv_policies();
/// Null when there is none of this name.
const KvPolicy* find_kv_policy(std::string_view name);

/// "e4m3,axis=token_head,smallest=1e-6": what differs from the defaults; read back by parse_kv_scheme.
std::string to_text(const KvScheme& scheme);
/// Errors: what is not understood, or a combination that nobody can store, in one line.
Result<KvScheme> parse_kv_scheme(std::string_view text);
Status check(const KvScheme& scheme, std::int64_t kv_heads, std::int64_t head_dim);

/// Bytes that a token of a layer's K or V takes in the long run: codes packed, scales, zero points, outliers with their
/// indices; what is kept apart of the first and last tokens is counted for `context` tokens in high precision of 2
/// bytes.
double bytes_a_token(const KvScheme& scheme, std::int64_t kv_heads, std::int64_t head_dim, std::int64_t context);

}  // namespace nanscope
