#include "instrument/diagnosis/survey.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "instrument/diagnosis/region.h"
#include "instrument/recompute/beams.h"
#include "instrument/recompute/formats.h"

namespace nanscope {
namespace {

constexpr int kMostTried = 64;  ///< outputs that alternatives are tried on
constexpr int kDeepest = 6;     ///< ops between one and a rotation that it rests on

/// Attention of a step whose rows nothing places, or whose sequences may be beams: which keys of steps before it reads
/// is not known. Where rows stand is known where another layer's comes out as they are taken to stand.
bool unplaced(Facts& facts, const Recomputer& recomputer, const Op& op) {
  const Step* step = facts.run.step(op.step);
  if (step == nullptr || !(over_keys(op.kind) || op.kind == OpKind::rope)) return false;
  if (over_keys(op.kind) && may_be_beams(facts.run, *step)) return true;
  if (step->placed) return false;
  return std::none_of(recomputer.results().begin(), recomputer.results().end(), [&](const Recomputed& one) {
    return one.step == op.step && facts.run.op(one.op)->kind == op.kind && !deviates(one);
  });
}

/// A rotation, and what it put out.
using Rotation = std::pair<const Op*, const Tensor*>;

/// The rotations that were not dumped and that an op rests on, by inputs that were not dumped either, each once: those
/// whose angles are the ones that the numbers of the run fit best.
void gather_searched(RunView& run, const Op& op, std::vector<Rotation>& found, int depth = 0) {
  if (depth >= kDeepest) return;
  for (const Input& input : op.inputs) {
    const Tensor* in = run.tensor(input.tensor);
    const Op* maker = in != nullptr && !in->known ? run.maker(*in) : nullptr;
    if (maker == nullptr) continue;
    if (maker->kind != OpKind::rope) {
      gather_searched(run, *maker, found, depth + 1);
    } else if (const Rotation one{maker, in};
               maker->input("cos") == 0 && std::find(found.begin(), found.end(), one) == found.end()) {
      found.push_back(one);
    }
  }
}

/// Whether an op is such a rotation, or rests on one.
bool rests_on_searched_rotation(RunView& run, const Op& op) {
  if (op.kind == OpKind::rope) return op.input("cos") == 0;
  std::vector<Rotation> found;
  gather_searched(run, op, found);
  return !found.empty();
}

/// Whether an output comes out under another base than the usual one that fits the run best, or without a rotation, and
/// the layer's others do too: models have bases such as 11158840, and short prompts in bf16 leave little room between
/// two.
class OtherBases {
 public:
  OtherBases(Facts& facts, Recomputer& recomputer) : facts_(facts), recomputer_(recomputer) {}

  bool give(const Op& op, const Tensor& out, const std::vector<std::int64_t>& bad_rows) {
    constexpr int kMostInVain = 4;  // they share a rotation: what no base gives here, none gives elsewhere
    if (recomputer_.model().decides || in_vain_ >= kMostInVain) return false;
    ropes_.clear();
    gather_searched(facts_.run, op, ropes_);
    if (ropes_.empty()) return false;
    std::vector<OpForm> own;
    for (const auto& [rope, made] : ropes_) own.push_back(recomputer_.form_of(*rope, *made));
    const bool by_base = std::all_of(own.begin(), own.end(), [](const OpForm& form) { return form.number > 0; });
    const bool given = by_base && search(own, op, out, bad_rows);
    for (std::size_t i = 0; i < ropes_.size(); ++i) recomputer_.assume(*ropes_[i].first, *ropes_[i].second, own[i]);
    in_vain_ += given ? 0 : 1;
    return given;
  }

 private:
  /// Without a rotation, as layers of some models are; then from 10^3 to 10^8, and ever nearer to the best.
  bool search(const std::vector<OpForm>& own, const Op& op, const Tensor& out, const std::vector<std::int64_t>& rows) {
    double best = 0;
    double least = std::numeric_limits<double>::infinity();
    const auto try_base = [&](std::optional<double> exponent) {
      for (std::size_t i = 0; i < ropes_.size(); ++i) {
        OpForm form = own[i];
        if (exponent) form.number = std::pow(10.0, *exponent);
        if (!exponent) form.variant = kNone;
        recomputer_.assume(*ropes_[i].first, *ropes_[i].second, form);
      }
      const auto judged = recomputer_.judge(op, out, recomputer_.form_of(op, out), rows);
      if (!judged || judged->elements == 0) return false;
      if (exponent && judged->squares < least) least = judged->squares, best = *exponent;
      return !deviates(*judged) && others_come_out(op);
    };
    if (try_base(std::nullopt)) return true;
    for (int i = 0; i <= 40; ++i) {
      if (try_base(3 + i / 8.0)) return true;
    }
    for (double step = 1.0 / 16; step > 1e-8; step /= 2) {
      const double around = best;
      if (try_base(around - step) || try_base(around + step)) return true;
    }
    return false;
  }

  bool others_come_out(const Op& op) {
    constexpr int kMostOthers = 4;
    int looked_at = 0;
    for (const Step& step : facts_.run.steps()) {
      const Op* other = step.id != op.step ? facts_.run.find_op(step.id, op.layer, op.name) : nullptr;
      const Tensor* made = other != nullptr ? facts_.run.result(*other) : nullptr;
      if (made == nullptr || !made->known) continue;
      const auto judged = recomputer_.judge(*other, *made, recomputer_.form_of(*other, *made));
      if (judged && deviates(*judged)) return false;
      if (++looked_at >= kMostOthers) break;
    }
    return true;
  }

  Facts& facts_;
  Recomputer& recomputer_;
  std::vector<Rotation> ropes_;
  int in_vain_ = 0;
};

/// Whether a layer rotates in a way of its own for all that is known: what rests on its rotation comes out in no step,
/// and in other layers it does. Models have layers without a rotation, or with another base, and no table says so.
bool rotates_in_its_own_way(Facts& facts, const Recomputer& recomputer, const Op& op) {
  if (recomputer.model().decides || !op.layer || !rests_on_searched_rotation(facts.run, op)) return false;
  return std::none_of(recomputer.results().begin(), recomputer.results().end(), [&](const Recomputed& one) {
    const Op& other = *facts.run.op(one.op);
    return other.layer == op.layer && other.name == op.name && !deviates(one);
  });
}

/// A norm that is given the embedding for all that was dumped: what stands between the two in the model, such as a norm
/// of the embedding or a factor, would not show.
bool behind_the_embedding(RunView& run, const Op& op) {
  const Tensor* x = op.kind == OpKind::layer_norm ? run.input(op, "x") : nullptr;
  const Op* maker = x != nullptr ? run.maker(*x) : nullptr;
  return maker != nullptr && maker->kind == OpKind::embedding;
}

/// Whether a layer has a norm, or a module of an unknown name, on rows of the stream's width that no other layer has:
/// what it does to the stream before this sum is not known.
bool beside_unknown(RunView& run, const Op& op, const Tensor& out) {
  if (op.kind != OpKind::residual_add || !op.layer) return false;
  const auto modules = [&](std::optional<std::int64_t> layer, bool own) {
    std::set<std::string> names;
    for (const Op& other : run.content(op.step).ops) {
      const Tensor* made = run.result(other);
      const bool apart = !other.by_name || other.kind == OpKind::layer_norm;
      const bool counts = apart && made != nullptr && made->channels == out.channels && other.layer;
      if (counts && (other.layer == layer) == own) names.insert(other.name);
    }
    return names;
  };
  const std::set<std::string> others = modules(op.layer, false);
  const std::set<std::string> own = modules(op.layer, true);
  return std::any_of(own.begin(), own.end(), [&](const std::string& name) { return !others.contains(name); });
}

/// It accuses only with what the rows hold instead.
bool added_on_the_way(Survey& survey, const Op& op, const Deviation& found) {
  const Tensor& out = *survey.run().tensor(found.tensor);
  if (found.explanation() != nullptr || !may_be_added_to(op, out, found.result)) return false;
  return region_of(survey, found).content.empty();
}

/// Tables that steps were given, where the model is known.
void judge_tables(Survey& survey) {
  const KnownModel& model = survey.recomputer.model();
  if (!model.tables) return;
  for (const Step& step : survey.run().steps()) {
    for (Recomputed& result : model.tables(survey.recomputer, step)) {
      if (deviates(result))
        survey.deviations.push_back({result.op, result.step, result.tensor, result, result.bad_rows, {}});
      survey.tables.push_back(std::move(result));
    }
  }
}

}  // namespace

bool is_guessed(RunView& run, const Op& op) { return !op.by_name && run.input(op, "weight") == nullptr; }

bool may_be_added_to(const Op& op, const Tensor& out, const Recomputed& result) {
  const auto bad = static_cast<std::int64_t>(result.bad_rows.size()) * out.channels;
  return op.kind == OpKind::copy && 2 * (result.elements - result.explained) > bad;
}

const Recomputed* Deviation::explanation() const {
  const auto shown = [](const Recomputed& one) {
    return one.share() >= kComesOut && one.log10_chance <= kShownByChance;
  };
  const auto found = std::find_if(alternatives.begin(), alternatives.end(), shown);
  return found == alternatives.end() ? nullptr : &*found;
}

const Recomputed* Deviation::rival() const {
  const Recomputed* best = explanation();
  if (best == nullptr) return nullptr;
  const auto found = std::find_if(alternatives.begin(), alternatives.end(), [&](const Recomputed& other) {
    return &other != best && other.share() >= best->share() - 0.002 && other.form.text != best->form.text;
  });
  return found == alternatives.end() ? nullptr : &*found;
}

std::vector<const Op*> Survey::ops(OpKind kind) {
  std::vector<const Op*> found;
  for (const Step& step : run().steps()) {
    for (const Op& op : run().content(step.id).ops) {
      if (op.kind == kind) found.push_back(&op);
    }
  }
  return found;
}

Survey survey_of(Facts& facts, Recomputer& recomputer, bool recompute) {
  settle_formats(recomputer);
  Survey survey{.facts = facts, .recomputer = recomputer, .recomputing = recompute};
  Births births = births_of(facts);
  survey.births = std::move(births.all);
  survey.birth_steps = std::move(births.steps);
  survey.births_cut = births.cut;
  std::erase_if(survey.births, [](const Birth& birth) { return !birth.matters; });
  survey.casts = casts_of(recomputer.values());
  if (!recompute) return survey;
  std::vector<StepId> steps;
  for (const Step& step : facts.run.steps()) steps.push_back(step.id);
  recomputer.run(steps);
  judge_tables(survey);
  // What no recipe read is read here: damage shows by its hash.
  for (const NotRecomputed& one : recomputer.not_recomputed()) {
    if (const Tensor* tensor = facts.run.tensor(one.tensor)) facts.run.stored(*tensor);
  }
  survey.recomputed = recomputer.results().size() + survey.tables.size();
  OtherBases other_bases(facts, recomputer);
  int tried = 0;
  int tried_in_vain = 0;  // of ops that are not understood, which may be most of a dump
  for (const Recomputed& result : recomputer.results()) {
    if (!deviates(result)) continue;
    const Op& op = *facts.run.op(result.op);
    const Tensor& tensor = *facts.run.tensor(result.tensor);
    Deviation found{op.id, op.step, result.tensor, result, live_rows(facts, tensor, result.bad_rows), {}};
    if (found.rows.empty()) continue;
    const bool understood = recomputer.understood(op);
    int& of_its_kind = understood ? tried : tried_in_vain;
    if (of_its_kind++ < kMostTried) found.alternatives = recomputer.alternatives(op, tensor, found.rows);
    // An op that comes out nowhere is not understood: only what explains it can accuse it.
    const Recomputed* best = found.explanation();
    // In bf16 the bound of attention is as wide as what it mixes, so that other arithmetic fits most of it.
    const bool apart = !Recomputer::of_attention(op.kind) || stands_out(result);
    const bool known = understood && apart && !is_guessed(facts.run, op) && !unplaced(facts, recomputer, op) &&
                       !beside_unknown(facts.run, op, tensor) && !added_on_the_way(survey, op, found) &&
                       !rotates_in_its_own_way(facts, recomputer, op) &&
                       (recomputer.model().decides || !behind_the_embedding(facts.run, op));
    const bool by_a_base =
        known && best == nullptr && Recomputer::of_attention(op.kind) && other_bases.give(op, tensor, result.bad_rows);
    if ((!known && (best == nullptr || !best->form.fault)) || by_a_base) {
      survey.not_understood.push_back(result.tensor);
      continue;
    }
    survey.deviations.push_back(std::move(found));
  }
  return survey;
}

}  // namespace nanscope
