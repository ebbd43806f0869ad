#include "instrument/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "instrument/diagnosis/births.h"
#include "instrument/diagnosis/detectors/detector.h"
#include "instrument/diagnosis/survey.h"
#include "instrument/recompute/beams.h"
#include "instrument/recompute/variants.h"
#include "instrument/verify/explain.h"
#include "instrument/verify/tables.h"
#include "instrument/verify/weights.h"

namespace nanscope {
namespace {

constexpr std::size_t kMostExplained = 48;  ///< outputs that alternatives are tried on
constexpr std::string_view kArithmeticGuessed = "its name is unknown and it has no weight: its arithmetic is a guess";
constexpr std::string_view kMaybeAdded = "something that was not dumped may have been added before it";
constexpr std::string_view kInPairs =
    "it holds the model's numbers with the channels of each head in pairs, as llama.cpp orders them";

}  // namespace

class Verifier::Impl {
 public:
  Impl(OpenDump& dump, DumpRun& run, const ModelSpec& spec, Arithmetic& arithmetic, VerifyOptions options)
      : dump_(dump),
        run_(run),
        model_(spec),
        options_(std::move(options)),
        facts_(run),
        recomputer_(facts_, arithmetic, recomputer_options()) {}

  Result<Verification> check() {
    Verification made = all();
    if (const Status same = dump_.check(); !same) return tl::unexpected(same.error());
    if (const Status read = run_.status(); !read) return tl::unexpected(read.error());
    if (made.complete && made.checked.empty() && made.not_checked.empty())
      return fail(dump_.dump().target + ": " +
                  (options_.layers.empty() && options_.ops.empty() ? "nothing of it is an op of the model"
                                                                   : "no op of these layers and names is in it"));
    return made;
  }

  Result<std::vector<std::int64_t>> rows(const OutputName& output, std::int64_t tokens, std::int64_t channels) {
    if (const ReplacedWeight* weight = replaced(output)) {
      if (weight->own.rows() != tokens || weight->own.channels() != channels)
        return fail("its shape is not the file's");
      std::vector<std::int64_t> all(static_cast<std::size_t>(tokens));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    const auto found = find(output);
    if (!found) return tl::unexpected(found.error());
    const Tensor& out = **found;
    if (out.tokens != tokens || out.channels != channels) return fail("beside its model it has another shape");
    return recomputer_.rows_to_judge(out);
  }

  Result<Prediction> predict(const OutputName& output, std::int64_t first, std::int64_t count) {
    if (const ReplacedWeight* weight = replaced(output)) return weight_of_file(dump_, *weight, first, count);
    const auto found = find(output);
    if (!found) return tl::unexpected(found.error());
    const Tensor& out = **found;
    const Op* op = run_.maker(out);
    if (op == nullptr || recipe_of(op->kind) == nullptr) return fail(std::string(kNoRecipe));
    std::string why(kRowsMissing);
    const OpForm form = recomputer_.form_of(*op, out);
    auto made = recomputer_.predict(*op, out, form, first, count, &why);
    if (!made || made->columns != out.channels) return fail(std::move(why));
    return std::move(*made);
  }

 private:
  Verification all() {
    out_.target = dump_.dump().target;
    out_.model = model_.spec().model.weights;
    out_.family = model_.spec().model.family;
    for (VerifiedOutput& one : bad_weights()) add(std::move(one));
    note_state();
    for (VerifiedOutput& one : check_weights(dump_, run_)) {
      if (wanted(one.layer, one.op) && one.elements > 0) add(std::move(one));
    }
    for (const Step& step : run_.steps()) total_ += run_.content(step.id).ops.size();
    for (const Step& step : run_.steps()) {
      for (VerifiedOutput& one : check_tables(recomputer_, model_, step)) {
        if (wanted(one.layer, one.op)) add(std::move(one));
      }
      check_ids(step);
      for (const Op& op : run_.content(step.id).ops) {
        if (options_.stop.stop_requested() || (options_.go_on && !options_.go_on())) return stopped();
        if (options_.progress) options_.progress(done_++, total_);
        if (wanted(op.layer, op.name)) check(op, step);
      }
    }
    return std::move(out_);
  }

  Recomputer::Options recomputer_options() {
    Recomputer::Options made;
    made.stop = options_.stop;
    made.distances = options_.distances;
    made.model.forms = [this](Values& values, const Op& op, const Tensor& out) { return model_.of(values, op, out); };
    return made;
  }

  Verification stopped() {
    out_.complete = false;
    return std::move(out_);
  }

  bool wanted(std::optional<std::int64_t> layer, const std::string& op) const {
    if (!options_.layers.empty() && (!layer || !options_.layers.contains(*layer))) return false;
    return options_.ops.empty() || std::find(options_.ops.begin(), options_.ops.end(), op) != options_.ops.end();
  }

  void add(VerifiedOutput one) {
    if (one.off && !one.explanations.empty()) {
      const ExplainedBy& best = one.explanations.front();
      one.shared = !seen_.insert(best.op + '|' + best.alternative + '|' + best.text).second;
    }
    if (options_.found) options_.found(one);
    out_.checked.push_back(std::move(one));
  }

  void skip(NotChecked one) {
    if (options_.skipped) options_.skipped(one);
    out_.not_checked.push_back(std::move(one));
  }

  const ReplacedWeight* replaced(const OutputName& output) const {
    const auto all = dump_.replaced();
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.dumped.name == output.name; });
    return at == all.end() ? nullptr : &*at;
  }

  /// The run's tensor of that name; where a producer gave several outputs one name, op and role tell them apart.
  Result<const Tensor*> find(const OutputName& output) {
    if (by_name_.empty()) {
      for (const Step& step : run_.steps()) {
        for (const Tensor& tensor : run_.content(step.id).tensors) {
          if (tensor.known) by_name_.emplace(facts_.name_of(tensor), tensor.id);
        }
      }
    }
    const auto [begin, end] = by_name_.equal_range(output.name);
    for (auto at = begin; at != end; ++at) {
      const Tensor* tensor = run_.tensor(at->second);
      const Op* op = tensor != nullptr ? run_.maker(*tensor) : nullptr;
      const bool same = op != nullptr && op->name == output.op && tensor->role == output.role;
      if (same || (op != nullptr && std::next(begin) == end)) return tensor;
    }
    return fail("beside its model there is no such output");
  }

  void check(const Op& op, const Step& step) {
    if (op.kind == OpKind::parameter) return;
    for (const TensorId id : op.outputs) {
      const Tensor* out = run_.tensor(id);
      if (out == nullptr || !out->known || out->count() == 0) continue;
      const std::string name = facts_.name_of(*out);
      if (const auto known = options_.known ? options_.known(name) : std::nullopt) {
        add(*known);
        continue;
      }
      if (born_bad(*out)) {
        add(born(op, step, *out, name));
        continue;
      }
      if (recipe_of(op.kind) == nullptr) {
        skip({name, std::string(kNoRecipe), op.name, out->role, out->count(), op.layer});
        continue;
      }
      check(op, step, *out, name);
    }
  }

  /// Weights of the checkpoint that hold NaN or Inf themselves, of those that a dumped op reads: what is computed with
  /// them is theirs. Their elements are read here; a dump's scan leaves a checkpoint out.
  std::vector<VerifiedOutput> bad_weights() {
    std::vector<VerifiedOutput> found;
    std::set<TensorId> looked_at;
    for (const Step& step : run_.steps()) {
      for (const Op& op : run_.content(step.id).ops) {
        for (const Input& input : op.inputs) {
          const bool learned = input.role == "weight" || input.role == "bias";
          if (!learned || options_.stop.stop_requested() || !looked_at.insert(input.tensor).second) continue;
          const Tensor* weight = run_.tensor(input.tensor);
          if (weight == nullptr || !weight->known || !wanted(op.layer, op.name)) continue;
          if (auto one = bad_weight(op, *weight)) found.push_back(std::move(*one));
        }
      }
    }
    return found;
  }

  std::optional<VerifiedOutput> bad_weight(const Op& op, const Tensor& weight) {
    VerifiedOutput one;
    std::int64_t bad = 0;
    const std::int64_t width = std::max<std::int64_t>(1, weight.channels);
    run_.each_block(weight, [&](std::int64_t first, std::span<const float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isfinite(values[i])) continue;
        ++bad;
        const std::int64_t row = first + static_cast<std::int64_t>(i) / width;
        if (one.not_finite.empty() || one.not_finite.back() != row) one.not_finite.push_back(row);
      }
      return !options_.stop.stop_requested();
    });
    if (bad == 0) return std::nullopt;
    one.name = facts_.name_of(weight);
    one.op = op.name;
    one.role = weight.role;
    one.kind = "weight";
    one.layer = op.layer;
    one.elements = weight.count();
    one.explained = one.elements - bad;
    one.rows = weight.tokens;
    one.off = true;
    one.explanations.push_back({"bad-weight", "the checkpoint itself holds it", op.name, 1, 0});
    return one;
  }

  /// Whether NaN or Inf is born in an output: its inputs, as far as they were dumped, are finite in these rows.
  bool born_bad(const Tensor& out) {
    if (!births_) {
      births_.emplace();
      // NaN of padding rows is no birth, unless it reaches rows of a request.
      for (const Birth& birth : births_of(facts_).all) {
        const Tensor* made = run_.tensor(birth.tensor);
        const bool live = birth.rows.empty() || made == nullptr || !live_rows(facts_, *made, birth.rows).empty();
        if (live || birth.matters) births_->emplace(birth.tensor, birth.rows);
      }
    }
    return births_->contains(out.id);
  }

  /// What is known of an output before it is checked.
  static VerifiedOutput described(const Op& op, const Step& step, const Tensor& out, const std::string& name) {
    VerifiedOutput one;
    one.tensor = out.id;
    one.name = name;
    one.op = op.name;
    one.role = out.role;
    one.kind = std::string(nanscope::name(op.kind));
    one.layer = op.layer;
    one.step = step.id;
    one.pass = step.pass;
    return one;
  }

  VerifiedOutput born(const Op& op, const Step& step, const Tensor& out, const std::string& name) const {
    VerifiedOutput one = described(op, step, out, name);
    one.elements = out.count();
    one.explained = out.count() - static_cast<std::int64_t>(out.health.bad());
    one.rows = out.tokens;
    one.not_finite = births_->at(out.id);
    if (one.not_finite.empty()) one.not_finite.push_back(0);
    one.off = true;
    say_weight_in_memory(op, one);
    return one;
  }

  /// What is wrong between steps: slots of caches that changed unwritten, positions that jump.
  void note_state() {
    Survey survey{.facts = facts_, .recomputer = recomputer_, .recomputing = false};
    for (const std::string_view name : {"kv-slot-changed", "position-jump"}) {
      const Detector* detector = find_detector(name);
      if (detector == nullptr) continue;
      for (const Finding& finding : detector->detect(survey).found) out_.notes.push_back(finding.fault.summary);
    }
  }

  void check(const Op& op, const Step& step, const Tensor& out, const std::string& name) {
    std::string why(kRowsMissing);
    const OpForm form = recomputer_.form_of(op, out);
    auto judged = recomputer_.judge(op, out, form, {}, 0, &why);
    if (options_.stop.stop_requested()) return;
    if (!judged || (judged->elements == 0 && judged->not_finite.empty())) {
      skip({name, judged ? std::string(kNothingRecomputed) : why, op.name, out.role, out.count(), op.layer});
      return;
    }
    VerifiedOutput one = described(op, step, out, name);
    one.elements = judged->elements;
    one.explained = judged->explained;
    one.distance = judged->elements > 0 ? std::sqrt(judged->squares / static_cast<double>(judged->elements)) : 0;
    one.worst = judged->worst;
    one.rows = judged->rows;
    one.distances = std::move(judged->distances);
    one.scattered = std::move(judged->scattered);
    one.bad_rows = live_rows(facts_, out, judged->bad_rows);
    one.not_finite = live_rows(facts_, out, judged->not_finite);
    one.off = (deviates(*judged) && !one.bad_rows.empty()) || !one.not_finite.empty();
    if (one.off && one.not_finite.empty() && over_keys(op.kind) && may_be_beams(run_, step)) {
      skip({name, std::string(kMayBeBeams), op.name, out.role, out.count(), op.layer});
      return;
    }
    if (one.off && one.not_finite.empty() && of_a_ranks_experts(op, out, form) && !added_as_it_is(out)) {
      skip({name, "it is the sum over some of the experts, as a rank has them", op.name, out.role, out.count(),
            op.layer});
      return;
    }
    if (one.off && !one.bad_rows.empty() && explained_++ < kMostExplained)
      one.explanations = explain(recomputer_, model_, *judged);
    if (one.off && stands_in_pairs(op, out, form)) {
      skip({name, std::string(kInPairs), op.name, out.role, out.count(), op.layer});
      return;
    }
    if (const auto open = not_known(op, out, *judged, one)) {
      skip({name, std::string(*open), op.name, out.role, out.count(), op.layer});
      return;
    }
    if (one.off) say_weight_in_memory(op, one);
    add(std::move(one));
  }

  /// Why an output that differs is no fault all the same.
  std::optional<std::string_view> not_known(const Op& op, const Tensor& out, const Recomputed& judged,
                                            const VerifiedOutput& one) {
    if (!one.off || !one.explanations.empty()) return std::nullopt;
    if (is_guessed(run_, op)) return kArithmeticGuessed;
    // No family has anything between the block of a mixture and its experts.
    if (may_be_added_to(op, out, judged) && op.name != "experts_input") return kMaybeAdded;
    return std::nullopt;
  }

  /// Whether a mixture whose experts the logits choose is the sum over a part of them, one of 2 to 16 equal ones.
  bool of_a_ranks_experts(const Op& op, const Tensor& out, OpForm form) {
    const std::int64_t experts = model_.spec().model.experts;
    if (op.kind != OpKind::expert_mix || form.top == 0) return false;
    form.number = kSomeExperts;
    for (std::int64_t parts = 2; parts <= std::min<std::int64_t>(16, experts); parts *= 2) {
      if (experts % parts != 0) continue;
      const std::int64_t each = experts / parts;
      for (std::int64_t part = 0; part < parts; ++part) {
        form.heads = part * each;
        form.other = form.heads + each;
        const auto judged = recomputer_.judge(op, out, form);
        if (judged && judged->elements > 0 && judged->share() >= kExplained) return true;
      }
    }
    return false;
  }

  /// Whether the residual sum, or the sum with the shared expert, comes out of this output unchanged, in a dump without
  /// ranks: then no sum over ranks was made of it.
  bool added_as_it_is(const Tensor& out) {
    const std::vector<DumpTensor>& dumped = dump_.dump().tensors;
    if (std::any_of(dumped.begin(), dumped.end(), [](const DumpTensor& one) { return one.at.rank.has_value(); }))
      return false;
    for (const Op* reader : run_.readers(out)) {
      const Tensor* made =
          reader->kind == OpKind::residual_add || reader->kind == OpKind::gated_add ? run_.result(*reader) : nullptr;
      if (made == nullptr || !made->known) continue;
      const auto judged = recomputer_.judge(*reader, *made, recomputer_.form_of(*reader, *made));
      if (judged && judged->elements > 0 && !deviates(*judged)) return true;
    }
    return false;
  }

  /// Whether queries or keys are the predicted ones in llama.cpp's order: the channels of each head as 0, half, 1,
  /// half + 1 ... Its converter reorders the weights of Llamas so, and its rotation turns neighbours.
  bool stands_in_pairs(const Op& op, const Tensor& out, const OpForm& form) {
    const std::int64_t width = model_.spec().model.head_dim;
    const bool of_heads = op.name == "q_proj" || op.name == "k_proj";
    if (!of_heads || width < 2 || width % 2 != 0 || out.channels % width != 0) return false;
    const auto values = run_.values(out);
    const auto expected = recomputer_.predict(op, out, form, 0, out.tokens);
    if (!values || !expected || expected->value.size() != values->size()) return false;
    std::size_t within = 0;
    for (std::size_t i = 0; i < values->size(); ++i) {
      const auto channel = static_cast<std::int64_t>(i) % width;
      const std::int64_t other = channel % 2 * (width / 2) + channel / 2;
      const auto at = static_cast<std::size_t>(static_cast<std::int64_t>(i) - channel + other);
      if (std::abs((*values)[i] - expected->value[at]) <= expected->bound[at]) ++within;
    }
    return static_cast<double>(within) >= kExplained * static_cast<double>(values->size());
  }

  /// Where the weight that was dumped is not the file's, that is what explains the product.
  void say_weight_in_memory(const Op& op, VerifiedOutput& one) const {
    for (const VerifiedOutput& weight : out_.checked) {
      if (weight.kind != "weight" || !weight.off || weight.op != op.name || weight.layer != op.layer) continue;
      one.explanations.insert(one.explanations.begin(),
                              {"weight-in-memory", weight.name + " is not what the file holds", op.name, 1, 0});
      return;
    }
  }

  /// Ids that no token has.
  void check_ids(const Step& step) {
    const std::int64_t most = model_.spec().model.vocabulary;
    for (const Tensor& tensor : run_.content(step.id).tensors) {
      if (tensor.role != "tokens" || !tensor.known || most <= 0) continue;
      const auto ids = run_.values(tensor);
      const auto bad = [&](float id) { return id >= static_cast<float>(most); };
      const auto found = ids ? std::find_if(ids->begin(), ids->end(), bad) : std::vector<float>::const_iterator{};
      if (!ids || found == ids->end()) continue;
      out_.notes.push_back(fmt::format("{} holds the id {}, and the model has {} tokens", facts_.name_of(tensor),
                                       static_cast<std::int64_t>(*found), most));
      return;
    }
  }

  OpenDump& dump_;
  DumpRun& run_;
  ModelForms model_;
  VerifyOptions options_;
  Facts facts_;
  Recomputer recomputer_;
  Verification out_;
  std::optional<std::map<TensorId, std::vector<std::int64_t>>> births_;  ///< rows in which NaN or Inf is born
  std::set<std::string> seen_;                                           ///< changes that explain something
  std::size_t explained_ = 0;
  std::size_t total_ = 0;
  std::size_t done_ = 0;
  std::multimap<std::string, TensorId> by_name_;  ///< made when it is first asked for
};

Verifier::Verifier(OpenDump& dump, DumpRun& run, const ModelSpec& spec, Arithmetic& arithmetic, VerifyOptions options)
    : impl_(std::make_unique<Impl>(dump, run, spec, arithmetic, std::move(options))) {}
Verifier::~Verifier() = default;

Result<Verification> Verifier::check() { return impl_->check(); }

Result<std::vector<std::int64_t>> Verifier::rows(const OutputName& output, std::int64_t tokens, std::int64_t channels) {
  return impl_->rows(output, tokens, channels);
}

Result<Prediction> Verifier::predict(const OutputName& output, std::int64_t first, std::int64_t count) {
  return impl_->predict(output, first, count);
}

HowSure certainty(const VerifiedOutput& one) {
  if (one.explanations.empty()) return HowSure::none;
  const ExplainedBy& best = one.explanations[0];
  if (best.log10_chance > kShownByChance) return HowSure::possible;
  if (one.explanations.size() == 1) return HowSure::shown;
  const ExplainedBy& next = one.explanations[1];
  const bool apart = best.share > next.share + 0.002 || next.distance > 1.5 * best.distance + 0.1;
  return apart ? HowSure::shown : HowSure::possible;
}

std::size_t Verification::off() const {
  return static_cast<std::size_t>(
      std::count_if(checked.begin(), checked.end(), [](const VerifiedOutput& one) { return one.off; }));
}

double Verification::coverage() const {
  double done = 0;
  double left = 0;
  for (const VerifiedOutput& one : checked) done += one.kind == "weight" ? 0 : static_cast<double>(one.elements);
  for (const NotChecked& one : not_checked) left += static_cast<double>(one.elements);
  return done + left > 0 ? done / (done + left) : 1;
}

const VerifiedOutput* Verification::first() const {
  const auto found = std::find_if(checked.begin(), checked.end(), [](const VerifiedOutput& one) { return one.off; });
  return found == checked.end() ? nullptr : &*found;
}

Result<Verification> verify(OpenDump& dump, DumpRun& run, const ModelSpec& spec, Arithmetic& arithmetic,
                            const VerifyOptions& options) {
  return Verifier(dump, run, spec, arithmetic, options).check();
}

}  // namespace nanscope
