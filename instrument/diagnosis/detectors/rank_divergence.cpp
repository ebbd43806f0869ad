#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <string>

#include "core/counted.h"
#include "core/recording/weight_version.h"
#include "core/run/ranks.h"
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/recompute/bounds.h"

namespace nanscope {
namespace {

/// A tensor of one rank and its counterpart of another.
struct Pair {
  const Op* op = nullptr;
  const Tensor* a = nullptr;
  const Tensor* b = nullptr;
  std::vector<std::int64_t> rows;     ///< that differ
  std::int64_t elements = 0;          ///< of these rows that do, in any bit
  std::int64_t row = 0, channel = 0;  ///< of the last of them
  bool gradient = false;              ///< of a weight, as a hook of its producer saw it
};

/// Rows of weights and of their gradients are nobody's, and all of them matter.
bool of_weights(RunView& run, const Op& op) {
  const Step* step = run.step(op.step);
  return op.kind == OpKind::parameter || (step != nullptr && step->kind == StepKind::optimizer);
}

/// What every rank computes by itself and alike, whatever is sharded.
bool always_shared(const Op& op, const Tensor& tensor) {
  if (tensor.role == "partial") return false;  // of a sum over ranks
  if (op.kind == OpKind::parameter) return op.name.find("norm") != std::string::npos && tensor.role == "weight";
  if (op.kind == OpKind::layer_norm) return op.name != "q_norm" && op.name != "k_norm" && op.name != "inner_norm";
  return op.kind == OpKind::residual_add || op.kind == OpKind::embedding || op.kind == OpKind::all_reduce ||
         op.kind == OpKind::argmax;
}

class Comparer {
 public:
  explicit Comparer(Survey& survey) : survey_(survey), run_(survey.run()) {}

  /// Pairs of all steps in order of execution.
  std::vector<Pair> pairs() {
    std::vector<Pair> all;
    parameters(all);
    const StepsOfRanks ranks(run_);
    for (const Step& a : run_.steps()) {
      if (a.rank != 0) continue;
      for (const Step* b : ranks.others(a)) compare(a, *b, all);
    }
    return all;
  }

  /// Pairs of steps that were not compared, since their ranks read different tokens.
  std::int64_t of_other_tokens() const { return of_other_tokens_; }

 private:
  /// Ranks of data parallelism read different tokens: their ids differ or, where those were not dumped, most rows of
  /// what is embedded of them.
  bool read_other_tokens(const Step& a, const Step& b) {
    for (const Op& op : run_.content(a.id).ops) {
      const Op* other = run_.find_op(b.id, op.layer, op.name);
      const Tensor* x = run_.result(op);
      const Tensor* y = other != nullptr ? run_.result(*other) : nullptr;
      const bool ids = op.name == "tokens";
      if (x == nullptr || y == nullptr || !x->known || !y->known || x->stated || y->stated) continue;
      if (!ids && (op.kind != OpKind::embedding || x->axis != Axis::rows)) continue;
      if (x->tokens != y->tokens || x->channels != y->channels) continue;
      std::int64_t differ = 0;
      for (std::int64_t row = 0; row < x->tokens; ++row) {
        const auto left = run_.row_values(*x, row);
        const auto right = run_.row_values(*y, row);
        if (!left || !right) return false;
        differ += *left != *right ? 1 : 0;
      }
      return ids ? differ > 0 : 2 * differ > x->tokens;
    }
    return false;
  }

  /// A weight, and not what tells where a step's rows stand.
  static bool is_weight(const Op& op) {
    return op.kind == OpKind::parameter && (op.name.ends_with("weight") || op.name.ends_with("bias"));
  }

  /// Gradients that hooks dumped by the names of their weights: "layers.0.norm.weight.grad".
  void gradients(const Step& a, const Step& b, std::vector<Pair>& all) {
    const auto name_of = [](const Tensor& tensor) {
      const std::size_t slash = tensor.name.find('/');
      return tensor.name.starts_with("rank") && slash != std::string::npos ? tensor.name.substr(slash + 1)
                                                                           : tensor.name;
    };
    std::map<std::string, const Tensor*> others;
    for (const Tensor& tensor : run_.content(b.id).tensors) {
      if (tensor.name.ends_with(".grad")) others.emplace(name_of(tensor), &tensor);
    }
    for (const Tensor& tensor : run_.content(a.id).tensors) {
      const auto other = tensor.name.ends_with(".grad") ? others.find(name_of(tensor)) : others.end();
      const Op* op = other != others.end() ? run_.maker(tensor) : nullptr;
      if (op == nullptr) continue;
      const std::size_t before = all.size();
      add(*op, &tensor, other->second, all);
      if (all.size() > before) all.back().gradient = true;
    }
  }

  /// Outputs of one number, where their names have one: a table of cosines is no counterpart of one of sines.
  static bool counterparts(const Tensor& x, const Tensor& y) {
    const auto number = [](const std::string& name) {
      const std::string last = name.substr(name.rfind('.') + 1);
      return last.find_first_not_of("0123456789") == std::string::npos ? last : std::string();
    };
    return number(x.name) == number(y.name);
  }

  void compare(const Step& a, const Step& b, std::vector<Pair>& all) {
    gradients(a, b, all);
    const bool other_tokens = a.kind != StepKind::optimizer && read_other_tokens(a, b);
    of_other_tokens_ += other_tokens ? 1 : 0;
    depth_ = 0;
    for (const Op& op : run_.content(a.id).ops) {
      const Op* other = run_.find_op(b.id, op.layer, op.name);
      if (op.kind != OpKind::parameter) ++depth_;
      if (other == nullptr || (other_tokens && !is_weight(op))) continue;
      for (std::size_t i = 0; i < op.outputs.size() && i < other->outputs.size(); ++i) {
        const Tensor* x = run_.tensor(op.outputs[i]);
        const Tensor* y = run_.tensor(other->outputs[i]);
        add(op, x, y, all);
      }
    }
  }

  /// The first step that reads each weight which lies outside of passes: of which run and rank it is.
  std::map<TensorId, const Step*> users() {
    std::map<TensorId, const Step*> found;
    for (const Step& step : run_.steps()) {
      for (const Op& op : run_.content(step.id).ops) {
        for (const Input& input : op.inputs) found.emplace(input.tensor, &step);
      }
    }
    return found;
  }

  /// Weights that lie outside of passes, one set a rank. Those of two checkpoints side by side differ by right.
  void parameters(std::vector<Pair>& all) {
    const std::map<TensorId, const Step*> used = users();
    std::map<std::string, std::pair<const Tensor*, std::int64_t>> first;  // with its rank
    for (const Op& op : run_.content(kBeforeSteps).ops) {
      const Tensor* made = run_.result(op);
      const auto user = made != nullptr ? used.find(made->id) : used.end();
      if (user == used.end()) continue;
      const Step& step = *user->second;
      const std::string key = fmt::format("{}|{}|{}", step.run, op.layer.value_or(-1), op.name);
      const auto [at, is_new] = first.try_emplace(key, made, step.rank);
      if (!is_new && at->second.second != step.rank) add(op, at->second.first, made, all);
    }
  }

  void add(const Op& op, const Tensor* x, const Tensor* y, std::vector<Pair>& all) {
    if (x == nullptr || y == nullptr || !x->known || !y->known || x->stated || y->stated) return;
    if (!counterparts(*x, *y)) return;
    if (x->tokens != y->tokens || x->channels != y->channels || x->format != y->format || x->count() == 0) return;
    Pair pair{&op, x, y, {}};
    const bool exact = info(x->format).bits <= 8 || x->format == Format::i32;
    const bool everybodys = of_weights(run_, op) || x->name.ends_with(".grad");
    // Replicas of a weight, and of its summed gradient, are one rounding of one sum at most apart.
    const double allowed = exact        ? 0
                           : everybodys ? 4 * roundoff(x->format)
                                        : rounding_between_runs(roundoff(x->format), depth_, x->channels);
    for (std::int64_t row = 0; row < x->tokens; ++row) {
      if (!everybodys && !survey_.facts.live(*x, row)) continue;
      const auto left = run_.row_values(*x, row);
      const auto right = run_.row_values(*y, row);
      if (!left || !right) return;
      double largest = 0;
      double off = 0;
      std::vector<std::int64_t> differing;
      for (std::size_t c = 0; c < left->size(); ++c) {
        const double p = double{(*left)[c]};
        const double q = double{(*right)[c]};
        if (p == q || (std::isnan(p) && std::isnan(q))) continue;
        differing.push_back(static_cast<std::int64_t>(c));
        off = std::isfinite(p - q) ? std::max(off, std::abs(p - q)) : INFINITY;
        largest = std::max({largest, std::abs(p), std::abs(q)});
      }
      if (!(off > allowed * largest)) continue;
      pair.rows.push_back(row);
      pair.elements += std::ssize(differing);
      pair.row = row;
      pair.channel = differing.back();
    }
    all.push_back(std::move(pair));
  }

  Survey& survey_;
  RunView& run_;
  std::int64_t depth_ = 0;  ///< ops before the tensors that are compared
  std::int64_t of_other_tokens_ = 0;
};

}  // namespace

/// Which of the two is wrong: what is not what its inputs give; else what differs from all other ranks; else rank 0's
/// is believed.
const Tensor& culprit(const Survey& survey, std::span<const Pair> pairs, const Pair& pair) {
  const auto deviates = [&](const Tensor& tensor) {
    return std::any_of(survey.deviations.begin(), survey.deviations.end(),
                       [&](const Deviation& one) { return one.tensor == tensor.id; });
  };
  if (deviates(*pair.b)) return *pair.b;
  if (deviates(*pair.a)) return *pair.a;
  std::int64_t others = 0;
  std::int64_t differ = 0;
  for (const Pair& one : pairs) {
    if (one.a->id != pair.a->id) continue;
    ++others;
    differ += one.rows.empty() ? 0 : 1;
  }
  return others > 1 && differ == others ? *pair.a : *pair.b;
}

/// "bit 27 of [2,5]" where one bit of one element differs.
std::string flipped_bit(RunView& run, const Pair& pair) {
  if (pair.elements != 1) return {};
  const Fact<TensorData> a = run.read(*pair.a, pair.row, 1);
  const Fact<TensorData> b = run.read(*pair.b, pair.row, 1);
  if (!a || !b) return {};
  const std::uint32_t bits = a->code(0, pair.channel) ^ b->code(0, pair.channel);
  if (!std::has_single_bit(bits)) return {};
  return fmt::format(", in bit {} of [{},{}] alone", std::countr_zero(bits), pair.row, pair.channel);
}

/// The weight whose gradient a tensor of the optimizer's step is; empty where it is none.
std::string weight_of_gradient(RunView& run, const Tensor& gradient) {
  for (const Op& op : run.content(gradient.step).ops) {
    const Tensor* read = op.kind == OpKind::adamw ? run.input(op, "gradient") : nullptr;
    if (read == nullptr || read->id != gradient.id) continue;
    for (const Input& input : op.inputs) {
      if (!input.weight.empty()) return std::string(weight_of_version(input.weight));
    }
  }
  return {};
}

/// Which of the parts a sum has, where that is not all of them.
void tell_parts(Survey& survey, const Tensor& sum, Finding& finding) {
  const auto found = std::find_if(survey.deviations.begin(), survey.deviations.end(),
                                  [&](const Deviation& one) { return one.tensor == sum.id; });
  const Recomputed* best = found != survey.deviations.end() ? found->explanation() : nullptr;
  if (best == nullptr || !best->form.fault) return;
  finding.fault.evidence.push_back({"explained_by", best->form.text});
  finding.fault.summary += fmt::format(": this rank has the sum with {}", best->form.text);
}

/// A rank that steps with another gradient than the others has other weights from then on.
void tell_weight(Survey& survey, const Tensor& sum, Finding& finding) {
  const std::string weight = weight_of_gradient(survey.run(), sum);
  if (weight.empty()) return;
  finding.fault.evidence.push_back({"weight", weight});
  finding.fault.summary += fmt::format("; its optimizer changes {} by it, and the ranks' replicas part", weight);
  finding.fault.fix =
      "let the optimizer wait for the sums of all gradients over ranks, and look for weights that none of them covers";
}

/// Sums over ranks that this rank alone has otherwise than their parts give, and NaN that is born in them: one fault,
/// however many layers it shows in.
void explain_sums(Survey& survey, std::int64_t rank, Finding& finding) {
  std::vector<OpId>& ops = finding.fault.ops;
  const auto take = [&](OpId id, Symptom symptom) {
    const Op* op = survey.run().op(id);
    if (op == nullptr || op->kind != OpKind::all_reduce || rank_of(survey.run(), op->step) != rank) return false;
    finding.explains.push_back(symptom);
    if (std::find(ops.begin(), ops.end(), id) == ops.end()) ops.push_back(id);
    return true;
  };
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    take(survey.deviations[i].op, {Symptom::Kind::deviation, i});
  }
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    if (take(survey.births[i].op, {Symptom::Kind::birth, i})) finding.fault.breaks = true;
  }
  if (ops.size() > 1) finding.fault.evidence.push_back({"more_places", std::ssize(ops) - 1});
}

/// The fault of a pair whose rows differ.
Finding finding_of(Survey& survey, std::span<const Pair> pairs, const Pair& pair) {
  const Tensor& wrong = culprit(survey, pairs, pair);
  const Tensor& other = &wrong == pair.a ? *pair.b : *pair.a;
  Finding finding = finding_at(survey, wrong, pair.rows);
  finding.rank = Rank::ranks_differ;
  finding.fault.certainty = Certainty::shown;
  finding.fault.where.rank = rank_of(survey.run(), wrong.step);
  finding.fault.evidence = {{"rows", static_cast<std::int64_t>(pair.rows.size())},
                            {"first_row", pair.rows.front()},
                            {"other", survey.facts.name_of(other)},
                            {"other_rank", rank_of(survey.run(), other.step)}};
  if (pair.elements == 1) {
    finding.fault.where.channels = Range{pair.channel, pair.channel};
    finding.fault.evidence.push_back({"elements", pair.elements});
  }
  finding.fault.summary = fmt::format(
      "{} of {} {} from {}, which ranks should share{}", counted(pair.rows.size(), "row"), finding.fault.tensor,
      pair.rows.size() == 1 ? "differs" : "differ", survey.facts.name_of(other), flipped_bit(survey.run(), pair));
  finding.fault.fix = "compare what goes into this op on both ranks: the all-reduce before it, its weight, its seed";
  if (pair.gradient) {
    finding.fault.where.tokens.reset();
    finding.fault.summary += "; the weights of the ranks differ as well, so that they stepped with different gradients";
    finding.fault.fix = "reduce this gradient over the ranks before the optimizer steps, or look for what skips it";
  }
  if (pair.op->kind == OpKind::all_reduce) {
    finding.fault.fix = "look for a faulty link or memory of this rank, or a kernel that sums otherwise there";
    finding.fault.ops = {wrong.op};
    tell_parts(survey, wrong, finding);
    tell_weight(survey, wrong, finding);
    explain_sums(survey, finding.fault.where.rank, finding);
  }
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const TensorId at = survey.deviations[i].tensor;
    if (at == pair.a->id || at == pair.b->id) finding.explains.push_back({Symptom::Kind::deviation, i});
  }
  return finding;
}

/// Ranks that hold different values of what they should share: the first op whose inputs agreed.
Findings detect_rank_divergence(Survey& survey) {
  Findings out;
  Comparer comparer(survey);
  const std::vector<Pair> pairs = comparer.pairs();
  std::map<std::string, int> agreed;
  for (const Pair& pair : pairs) {
    if (pair.rows.empty() && pair.a->health.absmax > 0) ++agreed[pair.op->name + '|' + pair.a->role];
  }
  const auto shared_by_ranks = [&](const Pair& pair) {
    return always_shared(*pair.op, *pair.a) || agreed[pair.op->name + '|' + pair.a->role] > 0;
  };
  // Gradients of a part of a batch differ by right; where the weights part, they were what they were stepped with.
  const bool weights_part = std::any_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
    return !pair.gradient && pair.op->kind == OpKind::parameter && !pair.rows.empty() && shared_by_ranks(pair);
  });
  std::int64_t shared = 0;
  for (const Pair& pair : pairs) {
    const bool is_shared = pair.gradient ? weights_part : shared_by_ranks(pair);
    shared += is_shared ? 1 : 0;
    if (!is_shared || pair.rows.empty() || !out.found.empty()) continue;
    out.found.push_back(finding_of(survey, pairs, pair));
  }
  if (pairs.empty() && comparer.of_other_tokens() > 0) {
    out.not_in_dump("its ranks read different tokens, as in data parallelism, and no gradient of them was dumped");
  } else if (pairs.empty()) {
    out.not_in_dump("one rank was dumped");
  } else {
    out.excluded(fmt::format("{} that ranks share are the same on all of them", counted(shared, "tensor")));
  }
  return out;
}

}  // namespace nanscope
