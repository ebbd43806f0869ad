#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "instrument/recompute/keys.h"
#include "instrument/recompute/values.h"

/// Attention a row and a head at a time: what its recipes, apart and fused, share.
namespace nanscope {

/// How the heads of queries share those of keys.
struct Heads {
  std::int64_t count = 1;
  std::int64_t groups = 1;  ///< of keys and values
  std::int64_t width = 1;   ///< of a head
  std::int64_t group_of(std::int64_t head, bool tiled) const {
    return tiled ? head % groups : head / std::max<std::int64_t>(1, count / groups);
  }
};

/// OpForm::shift of scores and mixes: how heads of keys and values are shared.
enum Sharing : int { kInTurn = 0, kTiled = 1 };

std::optional<Heads> heads_of(std::int64_t query_channels, std::int64_t key_channels, std::int64_t heads,
                              std::string& why);

/// Heads that a query of so many channels may have where nothing states it.
std::vector<std::int64_t> possible_heads(std::int64_t query_channels, std::int64_t key_channels);

/// Caps of the families that have one: Gemma 2, Grok-1.
inline constexpr double kCaps[] = {50.0, 30.0};

/// Numbers and how far each may be off: by its error and kDeviations times its deviation.
struct Line {
  std::vector<double> value;
  std::vector<double> error;      ///< at most
  std::vector<double> deviation;  ///< standard deviation of roundings that are random
  double common = 0;              ///< the relative deviation that all of them share
  void resize(std::int64_t columns) {
    value.assign(static_cast<std::size_t>(columns), 0.0);
    error.assign(static_cast<std::size_t>(columns), 0.0);
    deviation.assign(static_cast<std::size_t>(columns), 0.0);
    common = 0;
  }
};

/// Measures rows of keys in groups of `width` channels, for score_line(). `squared`: also for the squares of products.
void measure_keys(KeyMatrix& keys, std::int64_t width, bool squared);

/// q k' of all heads of a row, and the sums of the squares of the products if the keys were measured so: keys.stride
/// numbers for each head.
struct ScoreProducts {
  std::vector<double> sums;
  std::vector<double> squares;
  std::vector<float> row_squares;  ///< of the row of q
};
void score_products(const Block& q, std::int64_t row, const KeyMatrix& keys, const Heads& heads, bool tiled,
                    ScoreProducts& into);

/// cap * tanh(factor * q k' / cap) of one head over all keys, of its score_products(). Error: that of q and k
/// (Cauchy-Schwarz), and without the squares of the products Higham's bound of the sums in f32.
void score_line(const Block& q, std::int64_t row, const KeyMatrix& keys, const Heads& heads, std::int64_t head,
                const OpForm& form, const ScoreProducts& products, Line& into);

/// What an op is told as `sinks`: a learned score a head, which takes its share beside those of the keys and goes
/// nowhere (gpt-oss). Null where there are none, or the form goes without. False, with the reason, where the op has
/// some whose numbers are not there, as of a recording.
bool read_sinks(Values& values, const Op& op, const OpForm& form, std::int64_t heads,
                std::shared_ptr<const std::vector<float>>& into, std::string& why);

/// Softmax over the visible keys, and over `sink` where there is one. False when there are none: what a kernel gives
/// then is its own affair. `rounded` is the roundoff of scores that are rounded on the way. Where score j may be off by
/// e_j, probability i is largest when its own score is up and all others are down, and smallest the other way round:
/// p_i e^(e_i) / (p_i e^(e_i) + sum over j != i of p_j e^(-e_j)). A token with one key has a probability of 1 whatever
/// its score.
bool softmax_line(const Line& scores, const RowMask& mask, double rounded, std::optional<double> sink, Line& into);

/// Sum over keys of p v for one head, p's first key being number `first`; false in `there` when a key that counts could
/// not be had. `rounded` is the roundoff of probabilities that are rounded on the way. Where the true ones sum to one
/// as those here do, what they are off by sums to zero: v counts by how far it is from the mix.
bool mix_line(const Line& p, const KeyMatrix& values, std::int64_t group, std::int64_t width, double rounded,
              bool sums_to_one, Line& into, std::int64_t first = 0);

/// Visits the rows of an output span by span: visit(span or null, first row, end row); stops at false.
template <class Visit>
bool each_span(Values& values, const Tensor& out, std::int64_t first, std::int64_t count, const Visit& visit) {
  RunView& run = values.run();
  for (std::int64_t row = first; row < first + count;) {
    const Span* span = run.token_of(out, row).span;
    std::int64_t end = row + 1;
    while (end < first + count && run.token_of(out, end).span == span) ++end;
    if (!visit(span, row, end)) return false;
    row = end;
  }
  return true;
}

/// A number of tokens that an op states, kept where it can be computed with: a recording may state anything.
inline std::int64_t tokens_of(const std::optional<std::int64_t>& stated) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  return std::clamp<std::int64_t>(stated.value_or(0), -kMost, kMost);
}

/// The keys of a block of an op that goes over blocks of them; 0 where that is not stated. Kept where it can be
/// computed with: a recording may state anything.
template <class Attributes>
std::int64_t split_of(const Op& op) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const auto* stated = op.get<Attributes>();
  return stated != nullptr ? std::clamp<std::int64_t>(stated->split.value_or(0), 0, kMost) : 0;
}

/// The row of the step that a row of an output stands at.
std::int64_t step_row(RunView& run, const Tensor& out, std::int64_t row, const Span& span);

/// The probabilities behind scores, where those were dumped.
const Tensor* known_probs(RunView& run, const Op& scores);

/// Forms that read an operand of attention (k or v) wrongly: its scale, its format, the order of its heads.
std::vector<OpForm> wrong_reads(Values& values, const Op& op, std::string_view role, const OpForm& chosen);

}  // namespace nanscope
