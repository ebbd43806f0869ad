#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/run/ranks.h"
#include "instrument/recompute/judgements.h"
#include "instrument/recompute/known_model.h"
#include "instrument/recompute/recipe.h"
#include "instrument/recompute/values.h"

namespace nanscope {

/// Share of the elements of an output that have to be within the bound: one in a thousand may be off without a finding.
/// By Hoeffding's inequality a sum is further off than lambda = 4 allows (bounds.h) with a probability of at most
/// 2 e^(-4^2 / 2) = 6.7e-4.
inline constexpr double kExplained = 0.999;

/// Share of the elements from which on a form, or an explanation, is taken to give an output. Of 600 elements, each off
/// with that probability, more than one in a hundred are off in less than 10^-6 of all cases.
inline constexpr double kComesOut = 0.99;

/// Share of the elements above which what a form does is right, and something of it is not: of forms that differ in
/// every element, one alone can give more than half of an output.
inline constexpr double kMostly = 0.5;

/// Distance, in units of the bound, beyond which an element is as far off as any: one element that far lifts the mean
/// square of 10^7 above what a form may leave (kLargestMeanSquare), and samples are smaller.
inline constexpr double kFarthest = 1e3;

/// One element where the recomputed value is furthest off, in units of its bound.
struct WorstElement {
  std::int64_t row = -1;
  std::int64_t channel = -1;
  double actual = 0;
  double expected = 0;
  double bound = 0;
  double ratio = 0;  ///< |actual - expected| / bound
};

/// How far an element is off in units of its bound: infinite where that is 0. NaN where it is not judged: nothing says
/// what it should be, it is hidden (`hides`: scores far below 0 stand for keys that are not seen), or one of both is
/// not finite. What is beyond the format it is stored in is taken to be its largest number.
double distance_in_bounds(double value, double expected, double bound, Format format, bool hides);

/// How far a row is off.
struct RowDistance {
  std::int64_t row = 0;
  float largest = 0;  ///< in units of the bound; infinite where that is 0; NaN: none of its elements is judged
};

/// A row whose elements are together further off than rounding.
struct ScatteredRow {
  std::int64_t row = 0;
  std::int64_t elements = 0;  ///< that were measured
  double mean_square = 0;     ///< of what they are off by, in units of the standard deviation of their rounding
};

/// An output that was done again.
struct Recomputed {
  OpId op = 0;
  StepId step = 0;
  TensorId tensor = 0;
  OpForm form;                 ///< that was used
  std::int64_t elements = 0;   ///< judged
  std::int64_t explained = 0;  ///< of them, within the bound
  std::int64_t open = 0;       ///< elements of live rows that were not judged, as nothing says what they should be
  std::int64_t rows = 0;       ///< looked at
  std::int64_t rows_in_all = 0;
  WorstElement worst;
  double bounds = 0;    ///< of all elements, summed
  double distance = 0;  ///< |actual - expected| of all elements, summed
  /// Of an explanation: the decimal logarithm of the chance that a form which is not the right one comes out so, for
  /// any of those that were tried. 0: certain to happen.
  double log10_chance = 0;
  double squares = 0;                  ///< of the distances in units of the bound, none counted as more than kFarthest
  double squares_within = 0;           ///< the same of the elements within the bound alone
  double squares_left = 0;             ///< what rounding leaves of `squares`; of attention, while forms are chosen
  std::vector<std::int64_t> bad_rows;  ///< with elements that are not explained
  /// Rows that hold a NaN or an Inf where what they are made of gives a number. Their elements are not judged: where
  /// those come from is another question.
  std::vector<std::int64_t> not_finite;
  /// Rows whose elements are together further off than rounding, even if each is within its bound. They are among the
  /// bad rows, and none of their elements counts as explained.
  std::vector<ScatteredRow> scattered;
  std::vector<RowDistance> distances;  ///< of the rows that were looked at, with Recomputer::Options::distances
  double share() const { return elements == 0 ? 1 : static_cast<double>(explained) / static_cast<double>(elements); }
};

/// Why an output was not recomputed, where its recipe gives no reason of its own.
inline constexpr std::string_view kNoRecipe = "nanscope has no recipe for this op";
inline constexpr std::string_view kRowsMissing = "not all of its rows are available";
inline constexpr std::string_view kNothingRecomputed = "none of its elements could be recomputed";

/// The decimal logarithm of the chance below which what explains wrong elements is taken to be shown.
inline constexpr double kShownByChance = -6;

/// Of a normal distribution that leaves one element in a thousand beyond the bound, the mean square in units of
/// it: 3.29 sigma hold 99.9 %.
inline constexpr double kLargestMeanSquare = 1.0 / (3.29 * 3.29);

/// The squares, in units of the bound, that rounding leaves on average, summed up over a prediction: the last rounding
/// is uniform within half a unit in the last place, and the rest of the bound is that of such a normal distribution.
double squares_left(const Prediction& prediction, Format format);

/// Sets log10_chance of forms that were tried on the rows of which `healthy` says how far the healthy one is off.
void measure_chances(const Recomputed& healthy, std::span<Recomputed> tried, std::size_t tried_in_all);

struct NotRecomputed {
  TensorId tensor = 0;
  std::string reason;
};

/// Whether an output is further off than rounding and different libraries make it: many elements, or few by far.
bool deviates(const Recomputed& result);
/// Whether the largest distance is no part of the spread of the elements within the bound: as a normal distribution
/// with their mean square, any of so many elements would be as far off with a probability of less than
/// 10^kShownByChance.
bool stands_out(const Recomputed& result);
/// Of rows of a tensor those that are somebody's.
std::vector<std::int64_t> live_rows(Facts& facts, const Tensor& tensor, const std::vector<std::int64_t>& rows);

struct RecomputerOptions {
  std::stop_token stop;
  std::function<void(std::size_t done, std::size_t total)> progress;  ///< ops
  KnownModel model;
  bool distances = false;            ///< keep how far each row is off
  int threads = 0;                   ///< 0: one for each usable CPU; no bit of a result depends on it
  Judgements* judgements = nullptr;  ///< spare judge() whole outputs, and hear of others; no result depends on them
};

/// Does ops again from their dumped inputs and says which elements that explains.
class Recomputer {
 public:
  using Options = RecomputerOptions;
  static constexpr std::int64_t kOpCost = std::int64_t{1} << 34;  ///< multiplications that one op may take

  Recomputer(Facts& facts, Arithmetic& arithmetic, Options options = {});

  /// All ops of these steps.
  void run(std::span<const StepId> steps);
  std::span<const Recomputed> results() const { return results_; }
  std::span<const NotRecomputed> not_recomputed() const { return not_recomputed_; }
  const Recomputed* result(TensorId tensor) const;

  /// The healthy form of an op: what explains most ops of its name over all layers.
  const OpForm& form_of(const Op& op, const Tensor& out);
  /// Whether how it is done is known: by its kind alone, or because an op of that name came out.
  bool settled(const Op& op, const Tensor& out);
  /// Whether any op of that name came out under its form, or there is one way of doing it: else the form is not
  /// understood.
  bool understood(const Op& op) const;
  /// Whether an op is made of scores, or of the weights that they give.
  static bool of_attention(OpKind kind);

  /// An output under some form: rows evenly spread, at most `most_rows`, or those given. `why`: set where its first
  /// rows cannot be had.
  std::optional<Recomputed> judge(const Op& op, const Tensor& out, const OpForm& form,
                                  std::optional<std::vector<std::int64_t>> rows = {}, std::int64_t most_rows = 0,
                                  std::string* why = nullptr);
  /// Whether judge() of a whole output depends on the bytes of the op's inputs and output alone, and on no form of
  /// another op. Reads no elements.
  bool judged_alone(const Op& op, const Tensor& out);
  /// The ways in which healthy models do an op, the usual one first.
  std::vector<OpForm> forms_of(const Op& op, const Tensor& out);
  /// The faults of the op's recipe, best first, with how they come out on the rows that are not explained.
  std::vector<Recomputed> alternatives(const Op& op, const Tensor& out, const std::vector<std::int64_t>& rows);
  /// What rows should be; nothing when the inputs cannot be had.
  std::optional<Prediction> predict(const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                                    std::int64_t count, std::string* why = nullptr);
  /// Rows of an output that judge() would look at if all could be: of a pool, those that the step wrote, or reads.
  std::vector<std::int64_t> rows_to_judge(const Tensor& out);
  /// Takes an op to be done in this way until release(), whatever its numbers say: for what was not dumped and is
  /// computed on the way to something that was.
  void assume(const Op& op, const Tensor& out, const OpForm& form);
  void release(const Op& op, const Tensor& out);
  /// Whether attention is done in a way of its own in a layer and in others like it: SmolLM3 and Llama 4 rotate nothing
  /// in every fourth layer, Qwen2 has a window from some layer on.
  bool layer_is_apart(std::int64_t layer) const { return layers_apart_.contains(layer); }
  const std::set<std::int64_t>& layers_apart() const { return layers_apart_; }
  Values& values() { return values_; }
  const KnownModel& model() const { return options_.model; }
  const StepsOfRanks& ranks();
  Facts& facts() { return facts_; }

 private:
  struct Group {
    std::vector<std::pair<OpId, TensorId>> ops;
    std::optional<OpForm> form;
    int came_out = 0;  ///< ops that the form explains
    double share = 0;  ///< of elements other than 0 that it explains, over all ops that were tried
    bool only_form = false;
    bool by_readers = false;  ///< not shown by outputs of its own
    bool open = false;        ///< nothing that was there when it was chosen shows the form
  };
  void run_once(std::span<const StepId> steps);
  void take(Recomputer& other);
  static bool depends_on_layer(OpKind kind);
  /// Whether the model's configuration decides how ops of a kind are computed.
  bool decided(OpKind kind) const;
  const std::string& attention_modules(const Op& op);
  bool keeps_window(std::int64_t layer);
  /// The end of the name of a group of products whose inputs are cast.
  static constexpr std::string_view kCastInputs = "|cast input";
  static bool casts_input(const Op& op);
  std::string what_it_reads(const Op& op) const;
  std::size_t off() const;
  std::map<std::int64_t, bool> layers_right() const;
  std::string group_of(const Op& op, const Tensor& out);
  std::string_view circumstance(const Op& op) const;
  bool plain_linear(const Op& op) const;
  bool shows_its_form(const Op& op, const Tensor& out) const;
  std::optional<FactKey> key_of(const Op& op, const Tensor& out, const OpForm& form);
  void choose_form(const std::string& key, const Op& op, const Tensor& out);
  bool forget_since(std::size_t before, bool settled_too = true);
  std::optional<Group> twin_of(const Op& op, const Tensor& out);
  /// The mean square distance of the nearer of two forms over that of the other: less is a difference that the order
  /// in which a kernel sums does not make on the hundreds of elements of a sample. Of two times 200 distances that are
  /// normal and independent it is less in 6e-7 of all cases (Fisher's F distribution).
  static constexpr double kClearlyNearer = 0.5;
  /// What a form does for the ops that it is tried on.
  struct Tried {
    int ops = 0;
    int came_out = 0;            ///< of them
    double share = 0;            ///< of elements, summed over the ops
    double telling = 0;          ///< the same of elements that are not 0: any form gives the zeros of a ReLU
    double squares = 0;          ///< of the distances in units of the bound, over all elements
    std::vector<double> shares;  ///< of each op
    void add(double one, double distance = 0, bool near = true, double zeros = 0) {
      ++ops;
      telling += zeros < 1 ? std::max(0.0, (one - zeros) / (1 - zeros)) : 0;
      shares.push_back(one);
      came_out += one >= kComesOut && near ? 1 : 0;
      share += one;
      squares += distance;
    }
    bool all() const { return ops > 0 && share > ops - 1e-9; }
    /// Both explain everything, and this one is nearer to the values: an eps of 1e-6 hides in the bound around 1e-5.
    bool nearer_than(const Tried& other) const {
      return all() && other.all() && squares < kClearlyNearer * other.squares;
    }
    bool better_than(const Tried& other) const {
      return came_out != other.came_out ? came_out > other.came_out : share > other.share + 1e-9;
    }
    /// A row that is wrong is explained a little more by one form or the other, by chance.
    bool nowhere_worse_than(const Tried& other) const {
      return std::equal(shares.begin(), shares.end(), other.shares.begin(), other.shares.end(),
                        [](double one, double its) { return one >= its - 1e-9; });
    }
  };
  Tried try_form(const OpForm& form, std::vector<std::pair<OpId, TensorId>>& sample,
                 std::span<const std::pair<OpId, TensorId>> members);
  Tried try_form_by_readers(const std::string& key, const OpForm& form);
  std::vector<std::pair<OpId, TensorId>> known_readers(const Tensor& out, int depth);
  std::optional<Recomputed> judge_sample(const Op& op, const Tensor& out, const OpForm& form, std::int64_t rows);
  double best_share(const Op& op, const Tensor& out);
  void compare(const Prediction& prediction, const Tensor& out, std::int64_t first, Recomputed& into);
  std::vector<std::int64_t> own_slot_rows(const Tensor& pool);
  std::int64_t rows_allowed(const Op& op, const Tensor& out);

  Facts& facts_;
  int choosing_ = 0;  ///< forms are being tried: what is not settled is used all the same
  Options options_;
  Values values_;
  std::optional<StepsOfRanks> ranks_;  ///< made when it is asked for
  std::map<std::string, Group> groups_;
  std::unordered_map<OpId, std::pair<std::string, const Group*>> first_groups_;  ///< of an op's outputs, by name
  std::vector<std::string> chosen_;  ///< groups in the order in which they were given a form; some lost it again
  std::set<StepId> grouped_;
  std::map<std::pair<StepId, std::int64_t>, std::string> attention_modules_;  ///< by step and layer
  std::optional<std::set<std::int64_t>> window_layers_;  ///< see keeps_window(); made when asked for
  std::set<std::int64_t> layers_apart_;  ///< whose attention is done in a way of its own, by the model's design
  std::unordered_map<TensorId, Recomputed> judged_whole_;  ///< when forms were chosen
  std::vector<Recomputed> results_;
  std::unordered_map<TensorId, std::size_t> by_tensor_;
  std::vector<NotRecomputed> not_recomputed_;
};

}  // namespace nanscope
