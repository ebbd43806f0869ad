#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/threads/team.h"
#include "instrument/diagnosis/facts.h"
#include "instrument/recompute/arithmetic.h"
#include "instrument/recompute/variants.h"

namespace nanscope {

/// Rows of a tensor as numbers, and how far each may be from what the run had: 0 for what was dumped.
struct Block {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> value;
  std::vector<float> error;  ///< empty: exact

  const float* row(std::int64_t at) const { return value.data() + at * columns; }
  float off(std::int64_t at, std::int64_t column) const {
    return error.empty() ? 0.0F : error[static_cast<std::size_t>(at * columns + column)];
  }
};

/// What an op that is done like this has wrong.
enum class About : std::uint8_t { arithmetic, scale, format, mask };

/// How an op is done again. What the kinds of ops leave open (the form of an activation, a factor, a reading of codes)
/// is a number that each kind gives its own meaning, with a text for people.
struct OpForm {
  std::string text;
  int variant = 0;
  double number = 0;  ///< a factor, a base, an eps
  double cap = 0;     ///< of scores, cap * tanh(score / cap); 0: none
  double alpha = 0;   ///< of a clamped SwiGLU, and what it holds its inputs to; 0: as published. Of the head a factor
                      ///< on its products, of a sum or a norm one on its first input; 0: none
  double limit = 0;
  int scale_power = 1;            ///< how often a scale is applied
  std::optional<Format> as = {};  ///< in which format codes are read
  TensorId other = 0;             ///< another tensor in the place of a weight, a scale or an operand
  int shift = 0;                  ///< of positions, rows or the mask
  std::int64_t heads = 0;         ///< of queries; 0: as its tensors state
  int rounded = 0;                ///< whether what is between is rounded to the activations' format
  std::int64_t window = 0;        ///< keys that a row sees under a causal mask, its own included; 0: all
  std::int64_t ids_off = 0;       ///< what token ids, or ids of positions, are off by
  bool tiled = false;             ///< heads of attention in one take their keys in turns: head % groups
  std::int64_t rotated = 0;       ///< channels of a head that tables of cosines are for; 0: as they show
  std::int64_t rotated_from = 0;  ///< the first channel of a head that is rotated
  std::int64_t hadamard = 0;  ///< channels of keys' or values' heads that go through a Hadamard matrix alone; 0: none
  bool hadamard_of_values = false;  ///< of attention in one: it is the values that do
  bool rounded_scales = false;      ///< of a decoded weight, the one whose scales were rounded when they were loaded
  bool without_sinks = false;       ///< a softmax goes over the keys alone
  std::int64_t top = 0;   ///< experts of a token, chosen by its logits where the choice was not dumped; 0: not known
  int routed = 0;         ///< what becomes of those logits: bits of Routing
  bool own_keys = false;  ///< a first step attends to its keys and values before they were stored
  bool turned = false;    ///< a weight is read the other way round than its shape or name says
  std::optional<Format> x_as = {};       ///< what a product reads went through this format, with a scale a tensor
  std::optional<Format> weight_as = {};  ///< the same of its weight
  std::shared_ptr<const RopeAngles> angles = {};  ///< instead of a base
  bool fault = false;                             ///< no healthy op does it like this
  bool only_whole = false;  ///< so wide that it counts where it explains everything, and not at all elsewhere
  About about = About::arithmetic;
  bool operator==(const OpForm& other_form) const {
    return variant == other_form.variant && number == other_form.number && cap == other_form.cap &&
           alpha == other_form.alpha && limit == other_form.limit && scale_power == other_form.scale_power &&
           as == other_form.as && other == other_form.other && shift == other_form.shift && heads == other_form.heads &&
           rounded == other_form.rounded && window == other_form.window && ids_off == other_form.ids_off &&
           tiled == other_form.tiled && rounded_scales == other_form.rounded_scales &&
           without_sinks == other_form.without_sinks && own_keys == other_form.own_keys &&
           turned == other_form.turned && top == other_form.top && routed == other_form.routed &&
           rotated == other_form.rotated && rotated_from == other_form.rotated_from &&
           hadamard == other_form.hadamard && hadamard_of_values == other_form.hadamard_of_values &&
           x_as == other_form.x_as && weight_as == other_form.weight_as &&
           (angles == other_form.angles ||
            (angles != nullptr && other_form.angles != nullptr && *angles == *other_form.angles));
  }
};

/// What an output should have been: value and bound of each element of some rows. Elements whose bound is negative are
/// not judged (a mask hides them).
struct Prediction {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> value;
  std::vector<float> bound;
  /// Standard deviation of the rounding of each element, where it is known. Empty: of none is it.
  std::vector<float> deviation;

  void resize(std::int64_t r, std::int64_t c, float bounds = 0) {
    rows = r;
    columns = c;
    value.assign(static_cast<std::size_t>(r * c), 0.0F);
    bound.assign(static_cast<std::size_t>(r * c), bounds);
  }
};

class Recomputer;

/// Values of tensors, those that were not dumped computed from what they are made of.
class Values {
 public:
  /// `threads`: see RecomputerOptions.
  Values(Facts& facts, Arithmetic& arithmetic, Recomputer& recomputer, int threads)
      : facts_(facts), arithmetic_(arithmetic), recomputer_(recomputer), team_(threads) {}

  Facts& facts() { return facts_; }
  RunView& run() { return facts_.run; }
  Arithmetic& arithmetic() { return arithmetic_; }
  Recomputer& recomputer() { return recomputer_; }

  /// Calls work(first, last) for ranges of `count` rows, on several threads where there is enough to do; `each`:
  /// elements of a row, as often as each is gone over. It must ask nothing of the run, of its facts or of this.
  template <class Work>
  void in_rows(std::int64_t count, std::int64_t each, const Work& work) {
    constexpr std::int64_t kLeastElements = 8192;  // less is done before another thread has begun
    team_.run(count, std::max<std::int64_t>(1, kLeastElements / std::max<std::int64_t>(1, each)),
              [&](std::int64_t first, std::int64_t last, int) { work(first, last); });
  }

  /// The same, where the results of rows are added up in their order: work(first, last, memory) as above, and then
  /// add(first, last, memory) for one range after another. Each thread has a `Memory`.
  template <class Memory, class Work, class Add>
  void in_order(std::int64_t count, std::int64_t each, const Work& work, const Add& add) {
    constexpr std::int64_t kElements = 16384;  // whose terms stay in the cache
    const std::int64_t rows = std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, each));
    std::vector<Memory> memories(static_cast<std::size_t>(team_.size()));
    InOrder turns;
    team_.each((count + rows - 1) / rows, [&](std::int64_t part, int member) {
      try {
        Memory& memory = memories[static_cast<std::size_t>(member)];
        const std::int64_t first = part * rows;
        const std::int64_t last = std::min(count, first + rows);
        work(first, last, memory);
        turns.take(part, [&] { add(first, last, memory); });
      } catch (...) {
        turns.fail();
        throw;
      }
    });
  }

  /// The bytes of rows as they are stored; nothing when they cannot be had.
  std::optional<ElementBytes> stored_rows(const Tensor& tensor, std::int64_t first, std::int64_t count);

  /// Nothing when they cannot be had. Rows [first, first + count).
  std::optional<Block> rows(const Tensor& tensor, std::int64_t first, std::int64_t count);
  /// All rows, kept for the next who asks.
  std::shared_ptr<const Block> all(const Tensor& tensor);
  /// Whether rows() would give any, without computing them.
  bool available(const Tensor& tensor, int depth = 0);
  /// The narrowest format that holds what a tensor holds: numbers of bf16 are often dumped as f32.
  Format precision(const Tensor& tensor);
  /// ones_hide() of a mask, looked at once.
  bool ones_hide(const Tensor& mask, std::int64_t length);
  /// The format that activations of a step have, mostly: what was not dumped is taken to be rounded to it.
  Format activation_format(StepId step);

  /// The format that a weight was rounded to when it was loaded, if it was: that of the step's activations, where the
  /// dumped weight has more bits than it (a checkpoint in f32, served in bf16). Nothing where it could not be.
  std::optional<Format> served_format(const Op& op, std::string_view role);

  /// What was computed of tensors that were not dumped: an op's form has changed.
  void forget() {
    kept_.clear();
    held_.clear();
    held_elements_ = 0;
  }

  /// What a recipe keeps under a name for the rows that come next, until forget().
  std::shared_ptr<void>& kept(const std::string& name) { return kept_[name]; }

  static constexpr std::int64_t kMostHeld = std::int64_t{1} << 22;  ///< elements of a tensor that is kept

 private:
  Facts& facts_;
  Arithmetic& arithmetic_;
  Recomputer& recomputer_;
  Team team_;
  std::unordered_map<TensorId, std::shared_ptr<const Block>> held_;
  std::size_t held_elements_ = 0;
  std::unordered_map<std::string, std::shared_ptr<void>> kept_;
  std::unordered_map<TensorId, bool> available_;
  std::unordered_map<StepId, Format> formats_;
  bool voting_ = false;  ///< on the format of a step's activations
  std::unordered_map<TensorId, Format> precisions_;
  std::unordered_map<TensorId, bool> ones_hide_;
  int depth_ = 0;
};

}  // namespace nanscope
