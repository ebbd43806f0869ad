/// Mixtures of experts: the outputs of a token's experts, dumped or made of their weights, by the router's weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>

#include "instrument/recompute/activations.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/routing.h"

namespace nanscope {
namespace {

constexpr std::int64_t kMostExperts = 256;
constexpr std::int64_t kExpertOutputsAtOnce = 512;
constexpr std::size_t kMostFaults = 64;

int mixing(const OpForm& form) { return static_cast<int>(form.number); }

std::vector<const Tensor*> inputs_of(RunView& run, const Op& op, std::string_view role) {
  std::vector<const Tensor*> found;
  for (const Input& input : op.inputs) {
    const Tensor* in = input.role == role ? run.tensor(input.tensor) : nullptr;
    if (in != nullptr) found.push_back(in);
  }
  return found;
}

/// What a product gives, see Matrices.
struct ExpertProducts {
  std::int64_t columns = 0;
  std::vector<float> sums;
  std::vector<float> squares;
  std::vector<float> inherited;
  std::shared_ptr<const std::vector<float>> bias;  ///< not in the sums
};

/// Where the matrices of the experts lie: below each other in one tensor, or in one tensor each.
class Matrices {
 public:
  /// `turned`: what those of which the shape says nothing are, (inputs, outputs) instead of (outputs, inputs).
  Matrices(std::vector<const Tensor*> tensors, std::int64_t experts, std::int64_t inputs, bool turned)
      : tensors_(std::move(tensors)) {
    if (tensors_.empty()) return;
    const Tensor& one = *tensors_.front();
    const bool together = tensors_.size() == 1;
    if (experts <= 0 || (together ? one.tokens % experts != 0 : static_cast<std::int64_t>(tensors_.size()) != experts))
      return;
    rows_ = together ? one.tokens / experts : one.tokens;
    const bool alike = std::all_of(tensors_.begin(), tensors_.end(), [&](const Tensor* other) {
      return other->known && !other->stated && info(other->format).bits >= 16 && other->tokens == one.tokens &&
             other->channels == one.channels;
    });
    square_ = one.channels == inputs && rows_ == inputs;
    turned_ = square_ ? turned : rows_ == inputs;
    fits_ = alike && (one.channels == inputs || turned_);
  }

  bool fits() const { return fits_; }
  bool square() const { return square_; }
  bool turned() const { return turned_; }
  std::int64_t outputs() const { return turned_ ? tensors_.front()->channels : rows_; }

  /// x times the matrix of an expert: `sums`, rows by outputs, and of the weights of each output the sum of squares.
  /// Where elements of x are `off` by roundings of their own: the squares of what each sum inherits, of independent
  /// ones.
  bool product(Values& values, std::int64_t expert, const Block& x, ExpertProducts& into) const {
    const Tensor& tensor = tensors_.size() == 1 ? *tensors_.front() : *tensors_[static_cast<std::size_t>(expert)];
    const std::int64_t begin = tensors_.size() == 1 ? expert * rows_ : 0;
    const auto size = static_cast<std::size_t>(x.rows * outputs());
    into.columns = outputs();
    into.sums.assign(size, 0.0F);
    into.squares.assign(static_cast<std::size_t>(outputs()), 0.0F);
    into.inherited.assign(x.error.empty() ? 0 : size, 0.0F);
    std::vector<float> off_squares(x.error);
    for (float& one : off_squares) one *= one;
    const std::int64_t at_once = turned_ ? rows_ : kExpertOutputsAtOnce;
    std::vector<float> weights;
    std::vector<float> part;
    for (std::int64_t first = 0; first < rows_; first += at_once) {
      const std::int64_t count = std::min(at_once, rows_ - first);
      const Fact<TensorData> data = values.run().read(tensor, begin + first, count);
      if (!data) return false;
      data->decode_into(weights);
      const std::int64_t outputs = turned_ ? into.columns : count;
      const auto times = [&](const std::vector<float>& left, std::span<float> squares, std::vector<float>& sums) {
        part.assign(static_cast<std::size_t>(x.rows * outputs), 0.0F);
        const MatrixView view{std::as_bytes(std::span<const float>(weights)), Format::f32, count, tensor.channels,
                              tensor.channels};
        if (!values.arithmetic().product(left, x.rows, view, turned_, part, squares)) return false;
        for (std::int64_t t = 0; t < x.rows; ++t) {
          std::copy_n(part.begin() + t * outputs, outputs, sums.begin() + t * into.columns + (turned_ ? 0 : first));
        }
        return true;
      };
      const std::span<float> squares =
          std::span(into.squares)
              .subspan(turned_ ? 0 : static_cast<std::size_t>(first), static_cast<std::size_t>(outputs));
      if (!times(x.value, squares, into.sums)) return false;
      if (off_squares.empty()) continue;
      for (float& weight : weights) weight *= weight;
      std::vector<float> unused(squares.size());
      if (!times(off_squares, unused, into.inherited)) return false;
    }
    return true;
  }

 private:
  std::vector<const Tensor*> tensors_;
  std::int64_t rows_ = 0;  ///< of one expert
  bool square_ = false;
  bool turned_ = false;
  bool fits_ = false;
};

/// What is added to a product of each expert, in one tensor or in one each; none where there is nothing.
class Biases {
 public:
  Biases(std::vector<const Tensor*> tensors, std::int64_t experts) : tensors_(std::move(tensors)), experts_(experts) {}

  /// Null where there is none. False where there is one that cannot be read.
  bool of(RunView& run, std::int64_t expert, std::int64_t outputs,
          std::shared_ptr<const std::vector<float>>& into) const {
    into = nullptr;
    if (tensors_.empty()) return true;
    const bool together = tensors_.size() == 1 && experts_ > 1;
    const auto at = static_cast<std::size_t>(expert);
    if (!together && at >= tensors_.size()) return false;
    const Tensor& tensor = together ? *tensors_.front() : *tensors_[at];
    if (!tensor.known || tensor.stated) return false;
    into = together ? run.row_values(tensor, expert) : run.values(tensor);
    return into != nullptr && static_cast<std::int64_t>(into->size()) == outputs;
  }

 private:
  std::vector<const Tensor*> tensors_;
  std::int64_t experts_;
};

/// Which experts a row goes to, and how much each counts.
struct Share {
  std::int64_t expert = 0;
  double weight = 0;
};

/// What the softmax of all logits leaves the chosen ones: what normalised weights sum up to before.
double part_of_all(const float* logits, std::int64_t experts, const std::vector<Share>& shares) {
  const double largest = double{*std::max_element(logits, logits + experts)};
  double all = 0;
  for (std::int64_t e = 0; e < experts; ++e) all += std::exp(double{logits[e]} - largest);
  double chosen = 0;
  for (const Share& share : shares) chosen += std::exp(double{logits[share.expert]} - largest);
  return chosen / all;
}

class Mixture {
 public:
  Mixture(Values& values, const Op& op, const Tensor& out, const OpForm& form)
      : values_(values), run_(values.run()), op_(op), out_(out), form_(form) {}

  /// False, with the reason, when its inputs cannot be had.
  bool open(std::string& why) {
    ids_ = run_.input(op_, "ids");
    outputs_ = inputs_of(run_, op_, "expert");
    logits_ = run_.input(op_, "logits");
    width_ = out_.channels;
    const bool dumped = ids_ != nullptr && ids_->known && run_.input(op_, "weights") != nullptr;
    by_logits_ = !dumped && logits_ != nullptr && logits_->known && form_.top > 0 && form_.top <= logits_->channels;
    if (by_logits_ && may_be_a_part()) {
      why = "which experts are this rank's was not dumped";
      return false;
    }
    if (!dumped && !by_logits_) {
      why = "which experts are chosen was not dumped";
      return false;
    }
    experts_ =
        logits_ != nullptr && logits_->channels > 0 ? logits_->channels : static_cast<std::int64_t>(outputs_.size());
    if (experts_ <= 0 || experts_ > kMostExperts) {
      why = experts_ <= 0 ? "how many experts there are was not dumped" : "there are more experts than are recomputed";
      return false;
    }
    if (static_cast<std::int64_t>(outputs_.size()) == experts_) return true;
    outputs_.clear();
    return open_weights(why);
  }

  bool shares_of(std::int64_t first, std::int64_t count, std::string& why) {
    if (by_logits_) return shares_by_logits(first, count, why);
    Block weights;
    Block ids;
    if (!input_rows(values_, op_, "weights", out_, first, count, weights, why) ||
        !input_rows(values_, op_, "ids", out_, first, count, ids, why))
      return false;
    if (weights.columns != ids.columns) {
      why = "there are not as many weights as chosen experts";
      return false;
    }
    Block logits;
    const bool all = mixing(form_) == kNotNormalised;
    if (all && !input_rows(values_, op_, "logits", out_, first, count, logits, why)) return false;
    shares_.assign(static_cast<std::size_t>(count), {});
    for (std::int64_t t = 0; t < count; ++t) {
      std::vector<Share>& own = shares_[static_cast<std::size_t>(t)];
      for (std::int64_t j = 0; j < ids.columns; ++j) {
        // An id that names no expert adds nothing.
        const double id = double{ids.row(t)[j]};
        if (id >= 0 && id < static_cast<double>(experts_))
          own.push_back({static_cast<std::int64_t>(id), double{weights.row(t)[j]}});
      }
      const double part = all && !own.empty() ? part_of_all(logits.row(t), experts_, own) : 1;
      for (Share& share : own) share.weight *= part;
      if (mixing(form_) == kLeftOut)
        std::erase_if(own, [this](const Share& share) { return share.expert == form_.heads; });
    }
    return true;
  }

  /// The same where the choice was not dumped: a row whose logits leave it open has no shares.
  bool shares_by_logits(std::int64_t first, std::int64_t count, std::string& why) {
    Block logits;
    if (!input_rows(values_, op_, "logits", out_, first, count, logits, why)) return false;
    shares_.assign(static_cast<std::size_t>(count), {});
    for (std::int64_t t = 0; t < count; ++t) {
      const std::vector<double> scores = scores_of(logits.row(t), experts_, form_.routed);
      const auto chosen = chosen_by(scores, form_.top, 64 * kF32);
      if (!chosen) continue;
      const bool normed = (form_.routed & kNormed) != 0 && mixing(form_) != kNotNormalised;
      double sum = 0;
      for (const std::size_t expert : *chosen) sum += scores[expert];
      for (const std::size_t expert : *chosen) {
        const auto which = static_cast<std::int64_t>(expert);
        const bool left_out = mixing(form_) == kLeftOut && which == form_.heads;
        const bool elsewhere = mixing(form_) == kSomeExperts && (which < form_.heads || which >= form_.other);
        if (left_out || elsewhere) continue;
        shares_[static_cast<std::size_t>(t)].push_back(
            {static_cast<std::int64_t>(expert), scores[expert] / (normed ? sum : 1)});
      }
    }
    return true;
  }

  std::int64_t experts() const { return experts_; }
  const std::vector<std::vector<Share>>& shares() const { return shares_; }

  bool predict(std::int64_t first, std::int64_t count, Prediction& into, std::string& why) {
    if (!shares_of(first, count, why)) return false;
    into.resize(count, width_);
    std::map<std::int64_t, std::vector<std::int64_t>> rows;  // by expert
    for (std::int64_t t = 0; t < count; ++t) {
      for (const Share& share : shares_[static_cast<std::size_t>(t)]) rows[share.expert].push_back(t);
    }
    if (outputs_.empty() && !input_rows(values_, op_, "x", out_, first, count, x_, why)) return false;
    std::vector<double> sums(into.value.size());
    std::vector<double> bounds(into.value.size());
    for (const auto& [expert, own] : rows) {
      if (!(outputs_.empty() ? make(expert, own, why) : take(expert, first, own, why))) return false;
      add(expert, own, sums, bounds);
    }
    const double u = stored_roundoff(values_, out_);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (by_logits_ && mixing(form_) != kSomeExperts && shares_[i / static_cast<std::size_t>(width_)].empty()) {
        into.bound[i] = -1;
        continue;
      }
      into.value[i] = static_cast<float>(sums[i]);
      into.bound[i] = static_cast<float>(bounds[i] + 1.01 * u * std::abs(sums[i]) + least_error(out_.format));
    }
    return true;
  }

 private:
  /// Whether something is done to what comes out before it is the output of its layer's MLP: ranks that have some of
  /// the experts sum up their parts there.
  bool may_be_a_part() const {
    const auto readers = run_.readers(out_);
    return std::any_of(readers.begin(), readers.end(),
                       [](const Op* reader) { return reader->kind == OpKind::all_reduce; });
  }

  bool open_weights(std::string& why) {
    const Tensor* x = run_.input(op_, "x");
    why = "the outputs of its experts were not dumped, nor their weights";
    if (x == nullptr || x->channels <= 0) return false;
    fused_ = op_.input("expert_gate_up") != 0;
    const std::string_view first = fused_ ? "expert_gate_up" : "expert_gate";
    gate_ = Matrices(inputs_of(run_, op_, first), experts_, x->channels, false);
    up_ = Matrices(inputs_of(run_, op_, "expert_up"), experts_, x->channels, false);
    if (!gate_.fits() || !(fused_ ? gate_.outputs() % 2 == 0 : up_.fits() && up_.outputs() == gate_.outputs()))
      return false;
    inner_ = fused_ ? gate_.outputs() / 2 : gate_.outputs();
    down_ = Matrices(inputs_of(run_, op_, "expert_down"), experts_, inner_, gate_.turned());
    if (!down_.fits()) return false;
    // A model keeps them all alike.
    if (gate_.square() && !down_.square())
      gate_ = Matrices(inputs_of(run_, op_, first), experts_, x->channels, down_.turned());
    gate_bias_ = Biases(inputs_of(run_, op_, std::string(first) + "_bias"), experts_);
    up_bias_ = Biases(inputs_of(run_, op_, "expert_up_bias"), experts_);
    down_bias_ = Biases(inputs_of(run_, op_, "expert_down_bias"), experts_);
    if (width_ == 0) width_ = down_.outputs();
    return down_.outputs() == width_;
  }

  std::int64_t stand_in(std::int64_t expert, std::initializer_list<int> faults) const {
    const bool replaced =
        expert == form_.heads && std::find(faults.begin(), faults.end(), mixing(form_)) != faults.end();
    const bool swapped = mixing(form_) == kSwapped && (expert == form_.heads || expert == form_.other);
    if (swapped) return expert == form_.heads ? form_.other : form_.heads;
    return replaced ? form_.other : expert;
  }

  /// Rows of a dumped output of an expert.
  bool take(std::int64_t expert, std::int64_t first, const std::vector<std::int64_t>& own, std::string& why) {
    const Tensor& from = *outputs_[static_cast<std::size_t>(stand_in(expert, {kOtherExpert}))];
    made_.clear();
    made_error_.clear();
    for (const std::int64_t t : own) {
      Block row;
      if (!rows_like(values_, from, out_, first + t, 1, row) || row.columns != width_) {
        why = fmt::format("the output of expert {} was not dumped", expert);
        return false;
      }
      for (std::int64_t c = 0; c < width_; ++c) {
        made_.push_back(double{row.row(0)[c]});
        made_error_.push_back(double{row.off(0, c)});
      }
    }
    return true;
  }

  /// down(act(gate x) * up x) of an expert for some rows, each product and what is between rounded as activations are.
  bool make(std::int64_t expert, const std::vector<std::int64_t>& own, std::string& why) {
    Block x{static_cast<std::int64_t>(own.size()), x_.columns, {}, {}};
    for (const std::int64_t t : own) x.value.insert(x.value.end(), x_.row(t), x_.row(t) + x_.columns);
    const std::int64_t first = stand_in(expert, {kOtherExpert, kOtherGate});
    ExpertProducts gate;
    ExpertProducts up;
    ExpertProducts down;
    why = "the weights of its experts cannot be read";
    if (!gate_.product(values_, first, x, gate)) return false;
    if (!fused_ && !up_.product(values_, first, x, up)) return false;
    if (!gate_bias_.of(run_, first, gate.columns, gate.bias)) return false;
    if (!fused_ && !up_bias_.of(run_, first, up.columns, up.bias)) return false;
    std::vector<double> norm(own.size());
    std::vector<double> systematic(own.size());
    const Block h = between(gate, fused_ ? gate : up, own, norm, systematic);
    const std::int64_t last = stand_in(expert, {kOtherExpert, kOtherDown});
    if (!down_.product(values_, last, h, down) || !down_bias_.of(run_, last, width_, down.bias)) return false;
    made_.assign(down.sums.begin(), down.sums.end());
    made_error_.resize(made_.size());
    for (std::size_t at = 0; at < made_.size(); ++at) {
      const std::size_t row = at / static_cast<std::size_t>(width_);
      const std::size_t column = at % static_cast<std::size_t>(width_);
      const double w_norm = std::sqrt(double{down.squares[column]});
      // A product is rounded before its bias is added.
      const double product = down.bias ? std::abs(made_[at]) : 0;
      if (down.bias) made_[at] += double{(*down.bias)[column]};
      made_error_[at] = 1.01 * inner_roundoff() * (std::abs(made_[at]) + product) +
                        w_norm * (sum_error(inner_, kF32) * norm[row] + systematic[row]) +
                        sum_error(0, 1) * std::sqrt(double{down.inherited[at]});
    }
    return true;
  }

  /// What goes into the last product: off by the roundings of its own steps, which know nothing of each other, and by
  /// what x brought along (`systematic`, a norm of a row).
  Block between(const ExpertProducts& gate, const ExpertProducts& up, const std::vector<std::int64_t>& own,
                std::vector<double>& norm, std::vector<double>& systematic) const {
    const double u = inner_roundoff();
    Block h{static_cast<std::int64_t>(own.size()), inner_, {}, {}};
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto [x_norm, x_off] = norms(own[i]);
      const double sums = x_norm * sum_error(x_.columns, kF32);
      for (std::int64_t c = 0; c < inner_; ++c) {
        const Part g = part(gate, static_cast<std::int64_t>(i), c, true);
        const Part other = part(up, static_cast<std::int64_t>(i), c, false);
        const Gated at = gated_element(form_, g.value, other.value);
        const double value = at.active * at.other;
        const double by_gate = std::abs(at.other) * at.slope;
        // The function is rounded, inside it a sigmoid before that, and the product with up.
        const double rounded = 1.01 * (3 + at.roundings) * u * std::abs(value) +
                               4 * kF32 * std::abs(at.gate * at.other) +
                               by_gate * (1.01 * u * g.rounded + g.norm * sums) +
                               std::abs(at.active) * (1.01 * u * other.rounded + other.norm * sums);
        const double brought = (by_gate * g.norm + std::abs(at.active) * other.norm) * x_off;
        h.value.push_back(static_cast<float>(value));
        h.error.push_back(static_cast<float>(rounded));
        norm[i] += value * value;
        systematic[i] += brought * brought;
      }
      norm[i] = std::sqrt(norm[i]);
      systematic[i] = std::sqrt(systematic[i]);
    }
    return h;
  }

  /// One element of gate or up, what was rounded on the way to it, and the norm of the weights that it is a sum over.
  struct Part {
    double value = 0;
    double rounded = 0;
    double norm = 0;
  };

  Part part(const ExpertProducts& made, std::int64_t row, std::int64_t c, bool gate) const {
    const std::int64_t column = fused_ ? place_in_halves(form_.shift, gate, c, inner_) : c;
    const double product = double{made.sums[static_cast<std::size_t>(row * made.columns + column)]};
    const double norm = std::sqrt(double{made.squares[static_cast<std::size_t>(column)]});
    if (!made.bias) return {product, std::abs(product), norm};
    const double value = product + double{(*made.bias)[static_cast<std::size_t>(column)]};
    return {value, std::abs(product) + std::abs(value), norm};
  }

  double inner_roundoff() const { return std::max(roundoff(values_.activation_format(out_.step)), kF32); }

  std::pair<double, double> norms(std::int64_t row) const {
    double norm = 0;
    double off = 0;
    for (std::int64_t k = 0; k < x_.columns; ++k) {
      norm += double{x_.row(row)[k]} * double{x_.row(row)[k]};
      off += double{x_.off(row, k)} * double{x_.off(row, k)};
    }
    return {std::sqrt(norm), std::sqrt(off)};
  }

  /// A term of the sum: the router's weight may be rounded to the activations' format, so is the product, and so is the
  /// sum so far.
  void add(std::int64_t expert, const std::vector<std::int64_t>& own, std::vector<double>& sums,
           std::vector<double>& bounds) const {
    const double u = inner_roundoff();
    for (std::size_t i = 0; i < own.size(); ++i) {
      double weight = 0;
      for (const Share& share : shares_[static_cast<std::size_t>(own[i])]) {
        if (share.expert == expert) weight += share.weight;
      }
      for (std::int64_t c = 0; c < width_; ++c) {
        const std::size_t from = i * static_cast<std::size_t>(width_) + static_cast<std::size_t>(c);
        const auto at = static_cast<std::size_t>(own[i] * width_ + c);
        const double term = weight * made_[from];
        sums[at] += term;
        bounds[at] += std::abs(weight) * made_error_[from] + 2.02 * u * std::abs(term) + 1.01 * u * std::abs(sums[at]);
      }
    }
  }

  Values& values_;
  RunView& run_;
  const Op& op_;
  const Tensor& out_;
  const OpForm& form_;
  const Tensor* ids_ = nullptr;
  const Tensor* logits_ = nullptr;
  bool by_logits_ = false;              ///< the choice was not dumped
  std::vector<const Tensor*> outputs_;  ///< of all experts; empty: made of weights
  Matrices gate_{{}, 0, 0, false};      ///< with up, where they are fused
  Matrices up_{{}, 0, 0, false};
  Matrices down_{{}, 0, 0, false};
  Biases gate_bias_{{}, 0};
  Biases up_bias_{{}, 0};
  Biases down_bias_{{}, 0};
  bool fused_ = false;
  std::int64_t experts_ = 0;
  std::int64_t inner_ = 0;
  std::int64_t width_ = 0;
  Block x_;
  std::vector<std::vector<Share>> shares_;
  std::vector<double> made_;  ///< of the expert at work, its rows together
  std::vector<double> made_error_;
};

/// Experts most of whose rows did not come out; all of them where that is not known yet.
std::vector<std::int64_t> suspects(Values& values, const Op& op, const Tensor& out, const OpForm& form) {
  Mixture mixture(values, op, out, form);
  std::string why;
  if (!mixture.open(why) || !mixture.shares_of(0, out.tokens, why)) return {};
  const Recomputed* result = values.recomputer().result(out.id);
  const bool told = result != nullptr && result->rows == out.tokens;
  std::map<std::int64_t, std::int64_t> more_bad;  // rows than others, by expert
  for (std::int64_t row = 0; row < out.tokens; ++row) {
    const bool bad = !told || std::binary_search(result->bad_rows.begin(), result->bad_rows.end(), row);
    for (const Share& share : mixture.shares()[static_cast<std::size_t>(row)]) more_bad[share.expert] += bad ? 1 : -1;
  }
  std::vector<std::int64_t> found;
  for (const auto& [expert, rows] : more_bad) {
    if (rows > 0) found.push_back(expert);
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](std::int64_t a, std::int64_t b) { return more_bad.at(a) > more_bad.at(b); });
  return found;
}

}  // namespace

std::vector<OpForm> forms_expert_mix(Values&, const Op& op, const Tensor&) {
  if (op.input("expert") != 0 || op.input("expert_down") == 0) return {{.text = "the chosen experts by their weights"}};
  std::vector<OpForm> forms;
  for (std::size_t i = 0; i + 1 < activations().size(); ++i) {
    for (const int lie : {kGateFirst, kUpFirst, kInterleaved}) {
      if (lie != kGateFirst && op.input("expert_gate_up") == 0) continue;
      forms.push_back({.text = fmt::format("the chosen experts by their weights, {}{}", activations()[i].name,
                                           lie == kUpFirst       ? ", up first"
                                           : lie == kInterleaved ? ", gate and up in turns"
                                                                 : ""),
                       .variant = static_cast<int>(i),
                       .shift = lie});
    }
  }
  return forms;
}

std::vector<OpForm> faults_expert_mix(Values& values, const Op& op, const Tensor& out) {
  const OpForm chosen = values.recomputer().form_of(op, out);
  std::vector<OpForm> forms;
  const auto add = [&](Mixing what, std::int64_t expert, std::int64_t other, std::string text) {
    OpForm form = chosen;
    form.text = std::move(text);
    form.number = what;
    form.heads = expert;
    form.other = other;
    form.fault = true;
    forms.push_back(std::move(form));
  };
  if (op.input("logits") != 0) add(kNotNormalised, 0, 0, "the weights of the chosen experts not normalised");
  const std::vector<std::int64_t> whose = suspects(values, op, out, chosen);
  for (const std::int64_t expert : whose) {
    if (forms.size() < kMostFaults) add(kLeftOut, expert, 0, fmt::format("expert {} left out", expert));
  }
  const std::int64_t experts = [&]() -> std::int64_t {
    Mixture mixture(values, op, out, chosen);
    std::string why;
    return mixture.open(why) ? mixture.experts() : 0;
  }();
  const bool by_weights = op.input("expert") == 0;
  for (const std::int64_t expert : whose) {
    for (std::int64_t other = 0; other < experts && forms.size() < kMostFaults; ++other) {
      if (other == expert) continue;
      add(kOtherExpert, expert, other, fmt::format("expert {} in the place of expert {}", other, expert));
      if (!by_weights) continue;
      add(kOtherDown, expert, other, fmt::format("the down projection of expert {} is that of {}", expert, other));
      add(kOtherGate, expert, other, fmt::format("gate and up of expert {} are those of {}", expert, other));
    }
  }
  return forms;
}

std::int64_t cost_expert_mix(Values& values, const Op& op, const Tensor& out) {
  const Tensor* ids = values.run().input(op, "ids");
  const std::int64_t chosen = ids != nullptr ? std::max<std::int64_t>(1, ids->channels) : 1;
  const Tensor* down = values.run().input(op, "expert_down");
  if (op.input("expert") != 0 || down == nullptr || out.channels <= 0) return chosen;
  return 3 * chosen * std::min(down->channels, down->tokens);
}

bool predict_expert_mix(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                        std::int64_t count, Prediction& into, std::string& why) {
  Mixture mixture(values, op, out, form);
  return mixture.open(why) && mixture.predict(first, count, into, why);
}

}  // namespace nanscope
