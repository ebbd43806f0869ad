#include "instrument/recompute/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "core/run/mask.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/scaled.h"
#include "instrument/recompute/variants.h"

namespace nanscope {
namespace {

constexpr std::int64_t kSampleRows = 8;     ///< that choose a form
constexpr std::int64_t kVerifiedRows = 32;  ///< that a form is held to which explains all of those
constexpr std::size_t kSampleOps = 6;
constexpr int kSampleReaders = 3;  ///< of ops that were not dumped: one that goes wrong is outvoted
constexpr std::int64_t kChunk = std::int64_t{1} << 20;  ///< elements at a time

/// `count` of `rows`, evenly, the first and the last among them.
std::vector<std::int64_t> spread(std::int64_t rows, std::int64_t count) {
  std::vector<std::int64_t> chosen;
  if (count >= rows) {
    for (std::int64_t row = 0; row < rows; ++row) chosen.push_back(row);
    return chosen;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = count > 1 ? i * (rows - 1) / (count - 1) : rows - 1;
    if (chosen.empty() || chosen.back() != row) chosen.push_back(row);
  }
  return chosen;
}

/// Runs of consecutive rows.
template <class Visit>
void each_run(const std::vector<std::int64_t>& rows, std::int64_t at_once, const Visit& visit) {
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1 && static_cast<std::int64_t>(end - i) < at_once) ++end;
    if (!visit(rows[i], static_cast<std::int64_t>(end - i))) return;
    i = end;
  }
}

/// Whether roundings alone leave so many elements beyond their bounds, or one so far beyond, in more than one of 10^6
/// cases: of a few dozen elements one in a thousand is less than one. A sum is beyond r times its bound with a chance
/// of at most 2 e^(-8 r^2) (bounds.h, lambda = 4); of n sums k are with one of at most e^(-n D(k / n || p)) (Chernoff).
bool left_by_rounding(const Recomputed& result) {
  const double p = 2 * std::exp(-8.0);
  const auto n = static_cast<double>(result.elements);
  const double share = 1 - result.share();
  const double rest = share < 1 ? (1 - share) * std::log((1 - share) / (1 - p)) : 0;
  const double so_many = share > p ? -n * (share * std::log(share / p) + rest) : 0;
  const double so_far = std::log(2 * n) - 8 * result.worst.ratio * result.worst.ratio;
  return std::min(so_many, so_far) > kShownByChance * std::numbers::ln10;
}

/// A bound as large as the elements of its row are on average says nothing of its element: any other row would fit.
/// That happens where inputs were not dumped, and their roundings grow on the way through scores. Codes are no such
/// case: a scale may make all of them small.
void leave_open(Prediction& prediction) {
  for (std::int64_t row = 0; row < prediction.rows; ++row) {
    const auto begin = row * prediction.columns;
    double squares = 0;
    for (std::int64_t c = 0; c < prediction.columns; ++c) {
      const double value = double{prediction.value[static_cast<std::size_t>(begin + c)]};
      squares += value * value;
    }
    const double mean = std::sqrt(squares / static_cast<double>(prediction.columns));
    for (std::int64_t c = 0; mean > 0 && c < prediction.columns; ++c) {
      float& bound = prediction.bound[static_cast<std::size_t>(begin + c)];
      if (double{bound} >= mean) bound = -1;
    }
  }
}

}  // namespace

bool deviates(const Recomputed& result) {
  constexpr double kFar = 32;  ///< times the bound
  const std::int64_t off = result.elements - result.explained;
  if (!result.scattered.empty()) return true;
  if (off == 0) return false;
  if (result.share() < kExplained) return !left_by_rounding(result);
  return result.worst.ratio > kFar && (off > 2 || result.worst.ratio > kFar * kFar);
}

bool stands_out(const Recomputed& result) {
  if (result.explained == 0) return true;
  const double mean_square = result.squares_within / static_cast<double>(result.explained);
  // Of a normal distribution, more than z sigma on either side have a probability of at most 2 e^(-z^2 / 2).
  const double log_chance = kShownByChance * std::log(10.0) - std::log(2 * static_cast<double>(result.elements));
  return result.worst.ratio * result.worst.ratio > -2 * log_chance * mean_square;
}

std::vector<std::int64_t> live_rows(Facts& facts, const Tensor& tensor, const std::vector<std::int64_t>& rows) {
  const bool of_steps = tensor.axis == Axis::rows || tensor.axis == Axis::live || tensor.axis == Axis::ends;
  std::vector<std::int64_t> live;
  for (const std::int64_t row : rows) {
    if (!of_steps || facts.live(tensor, row)) live.push_back(row);
  }
  return live;
}

Recomputer::Recomputer(Facts& facts, Arithmetic& arithmetic, Options options)
    : facts_(facts), options_(std::move(options)), values_(facts, arithmetic, *this, options_.threads) {}

const Recomputed* Recomputer::result(TensorId tensor) const {
  const auto found = by_tensor_.find(tensor);
  return found == by_tensor_.end() ? nullptr : &results_[found->second];
}

const OpForm& Recomputer::form_of(const Op& op, const Tensor& out) {
  if (grouped_.insert(op.step).second) {
    for (const Op& one : facts_.run.content(op.step).ops) {
      for (const TensorId id : one.outputs) {
        const Tensor* made = facts_.run.tensor(id);
        if (made == nullptr || recipe_of(one.kind) == nullptr) continue;
        auto& [name, group] = *groups_.try_emplace(group_of(one, *made)).first;
        group.ops.emplace_back(one.id, id);
        auto& [first_name, first_group] = first_groups_[one.id];
        if (first_group == nullptr || name < first_name) first_name = name, first_group = &group;
      }
    }
  }
  const std::string key = group_of(op, out);
  const Group& group = groups_[key];
  if (!group.form || (group.open && choosing_ == 0 && shows_its_form(op, out))) choose_form(key, op, out);
  return *groups_[key].form;
}

/// A token at position 0 is not rotated, whatever the base.
bool Recomputer::shows_its_form(const Op& op, const Tensor& out) const {
  if (op.kind != OpKind::rope || op.input("cos") != 0) return true;
  bool first = false;
  for (std::int64_t row = 0; row < out.tokens; ++row) {
    const RowToken token = facts_.run.token_of(out, row);
    if (token.span == nullptr) continue;
    if (token.position != 0) return true;
    first = true;
  }
  return !first;
}

bool Recomputer::settled(const Op& op, const Tensor& out) {
  const Recipe* recipe = recipe_of(op.kind);
  if (recipe == nullptr || recipe->determined || decided(op.kind)) return recipe != nullptr;
  const Group& group = groups_[group_of(op, out)];
  return group.came_out > 0 || group.only_form || choosing_;
}

const StepsOfRanks& Recomputer::ranks() {
  if (!ranks_) ranks_.emplace(facts_.run);
  return *ranks_;
}

bool Recomputer::decided(OpKind kind) const {
  return options_.model.forms && (!options_.model.decides || options_.model.decides(kind));
}

bool Recomputer::understood(const Op& op) const {
  if (options_.model.decides && decided(op.kind)) return true;
  const auto found = first_groups_.find(op.id);
  if (found == first_groups_.end()) return false;
  const Group& group = *found->second.second;
  // A base of the rotary embedding that is not the model's turns the first positions nearly alike.
  const bool searched = op.kind == OpKind::rope && op.input("cos") == 0;
  // What attention mixes is small next to its bound in bf16: most of it fits other arithmetic too (DeBERTa's).
  const bool mostly = group.share > kMostly && !searched && !of_attention(op.kind);
  return group.came_out > 0 || mostly || plain_linear(op);
}

/// A module that was dumped with its own input, weight and output, where others like it come out: there is one way of
/// doing it. The outputs of those that ranks sum up are not theirs alone, and a router may put out what it makes of its
/// logits.
bool Recomputer::plain_linear(const Op& op) const {
  const Tensor* x = op.kind == OpKind::gemm && op.by_name && op.name != "router" ? facts_.run.input(op, "x") : nullptr;
  const Tensor* weight = facts_.run.input(op, "weight");
  const Op* given = x != nullptr && x->known ? facts_.run.maker(*x) : nullptr;
  const bool whole = given != nullptr && given->name == op.name + "_input" && weight != nullptr && weight->known;
  if (!whole || op.name.ends_with("o_proj") || op.name.ends_with("down_proj")) return false;
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group.first.starts_with("gemm|") && group.first.ends_with(kCastInputs) == casts_input(op) &&
           group.second.came_out > 0;
  });
}

/// Ops behind one that was not dumped whose outputs were: by them its form shows.
std::vector<std::pair<OpId, TensorId>> Recomputer::known_readers(const Tensor& out, int depth) {
  std::vector<std::pair<OpId, TensorId>> found;
  for (const Op* reader : facts_.run.readers(out)) {
    if (recipe_of(reader->kind) == nullptr) continue;
    for (const TensorId id : reader->outputs) {
      const Tensor* made = facts_.run.tensor(id);
      if (made == nullptr) continue;
      if (made->known) {
        found.emplace_back(reader->id, id);
      } else if (depth < 3) {
        for (const auto& one : known_readers(*made, depth + 1)) found.push_back(one);
      }
    }
  }
  return found;
}

/// A few rows let too much pass: where all of them come out, more are looked at. Of a short pass all rows at once:
/// a product reads its weight once a run of rows.
std::optional<Recomputed> Recomputer::judge_sample(const Op& op, const Tensor& out, const OpForm& form,
                                                   std::int64_t rows) {
  // What is computed of others may come out differently once their forms are known.
  const bool given = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
    const Tensor* in = facts_.run.tensor(input.tensor);
    return in != nullptr && in->known;
  });
  if (op.kind == OpKind::gemm && given && out.tokens <= kVerifiedRows) {
    auto all = judge(op, out, form);
    if (all) judged_whole_[out.id] = *all;
    return all;
  }
  auto judged = judge(op, out, form, {}, rows);
  const bool more = judged && judged->explained == judged->elements && out.tokens > rows;
  return more ? judge(op, out, form, {}, kVerifiedRows) : judged;
}

/// The best share that any form of an op explains.
double Recomputer::best_share(const Op& op, const Tensor& out) {
  double best = 0;
  for (const OpForm& form : forms_of(op, out)) {
    const auto judged = judge_sample(op, out, form, kSampleRows / 2);
    if (judged && judged->elements > 0) best = std::max(best, judged->share());
    if (best >= kExplained) break;
  }
  return best;
}

/// How a form does on the ops that choose it: those whose inputs and output are there, the first few.
Recomputer::Tried Recomputer::try_form(const OpForm& form, std::vector<std::pair<OpId, TensorId>>& sample,
                                       std::span<const std::pair<OpId, TensorId>> members) {
  Tried tried;
  const bool first = sample.empty();
  for (const auto& [id, tensor] : first ? members : std::span<const std::pair<OpId, TensorId>>(sample)) {
    const Op* one = facts_.run.op(id);
    const Tensor* made = facts_.run.tensor(tensor);
    if (one == nullptr || made == nullptr || !made->known || made->count() == 0 || !shows_its_form(*one, *made))
      continue;
    const auto judged = judge_sample(*one, *made, form, kSampleRows);
    if (!judged || judged->elements == 0) continue;
    // Of errors that are random, one in a thousand beyond the bound (kExplained) leaves a mean square of a tenth of it,
    // and where the bound is that of one rounding, of up to a third.
    const auto elements = static_cast<double>(judged->elements);
    const double left = judged->squares_left / elements * largest_mean_square(judged->elements);
    const bool near = judged->squares / elements < std::max(kLargestMeanSquare, left);
    const double zeros = static_cast<double>(made->health.zero) / static_cast<double>(made->count());
    // Of attention a form that is nearly right, as one without a cap on scores, comes within the bound in most places.
    tried.add(judged->share(), judged->squares, !of_attention(one->kind) || (near && !deviates(*judged)), zeros);
    if (first) sample.emplace_back(id, tensor);
    if (tried.ops >= static_cast<int>(kSampleOps)) break;
  }
  return tried;
}

/// Of the groups in chosen_ from `before` on, forms that were chosen by their readers were so under another one that
/// was only tried. Whether there were any.
bool Recomputer::forget_since(std::size_t before, bool settled_too) {
  bool any = false;
  for (std::size_t i = before; i < chosen_.size(); ++i) {
    Group& group = groups_[chosen_[i]];
    if (!group.form || !group.by_readers) continue;
    if (!settled_too && group.came_out > 0) continue;
    group.form.reset();
    any = true;
  }
  values_.forget();
  return any;
}

/// The same for an op that was not dumped, by what reads it.
Recomputer::Tried Recomputer::try_form_by_readers(const std::string& key, const OpForm& form) {
  Tried tried;
  const std::vector<std::pair<OpId, TensorId>> members = groups_[key].ops;
  groups_[key].form = form;
  values_.forget();
  const std::size_t before = chosen_.size();
  for (std::size_t m = 0; m < members.size() && tried.ops < static_cast<int>(kSampleOps); ++m) {
    if (tried.ops >= kSampleReaders && !tried.all()) break;
    const Tensor* made = facts_.run.tensor(members[m].second);
    const Op* one = facts_.run.op(members[m].first);
    if (one == nullptr || made == nullptr || made->known || !shows_its_form(*one, *made)) continue;
    const auto readers = known_readers(*made, 0);
    if (readers.empty()) continue;
    const Op* reader = facts_.run.op(readers.front().first);
    const Tensor* shown = facts_.run.tensor(readers.front().second);
    if (shown != nullptr && reader != nullptr) tried.add(best_share(*reader, *shown));
  }
  forget_since(before);
  return tried;
}

/// Queries and keys are rotated alike: where neither was dumped, the form of the one is that of the other.
std::optional<Recomputer::Group> Recomputer::twin_of(const Op& op, const Tensor& out) {
  if (op.kind != OpKind::rope || (out.role != "q_rot" && out.role != "k_rot")) return std::nullopt;
  const auto dumped = [&](const std::pair<OpId, TensorId>& one) {
    const Tensor* made = facts_.run.tensor(one.second);
    return made != nullptr && made->known;
  };
  const Group& own = groups_[group_of(op, out)];
  if (std::any_of(own.ops.begin(), own.ops.end(), dumped)) return std::nullopt;
  const Tensor* x = facts_.run.input(op, "x");
  for (const Op& other : facts_.run.content(op.step).ops) {
    if (other.kind != OpKind::rope || other.layer != op.layer || other.id == op.id || other.outputs.empty()) continue;
    const Tensor* made = facts_.run.tensor(other.outputs.front());
    if (made == nullptr || made->role == out.role) continue;
    const auto found = groups_.find(group_of(other, *made));
    if (found == groups_.end() || !found->second.form) continue;
    Group twin = found->second;
    twin.by_readers = true;
    const Tensor* other_x = facts_.run.input(other, "x");
    if (twin.form->heads > 0 && x != nullptr && other_x != nullptr && other_x->channels > 0)
      twin.form->heads = twin.form->heads * x->channels / other_x->channels;
    return twin;
  }
  return std::nullopt;
}

std::vector<OpForm> Recomputer::forms_of(const Op& op, const Tensor& out) {
  return options_.model.forms ? options_.model.forms(values_, op, out) : recipe_of(op.kind)->forms(values_, op, out);
}

void Recomputer::assume(const Op& op, const Tensor& out, const OpForm& form) {
  form_of(op, out);
  groups_[group_of(op, out)].form = form;
  values_.forget();
}

void Recomputer::release(const Op& op, const Tensor& out) {
  groups_[group_of(op, out)].form.reset();
  values_.forget();
}

void Recomputer::choose_form(const std::string& key, const Op& op, const Tensor& out) {
  const Recipe* recipe = recipe_of(op.kind);
  if (!groups_[key].form) chosen_.push_back(key);
  groups_[key].form = OpForm{};
  if (recipe == nullptr) return;
  const std::size_t before = chosen_.size();
  std::vector<OpForm> forms = forms_of(op, out);
  if (forms.empty()) forms.push_back({});
  groups_[key].form = forms.front();
  // Forms may be read off operands that were chosen on the way, under no form of this op at all.
  if (!out.known && forget_since(before)) forms = forms_of(op, out);
  if (forms.empty()) forms.push_back({});
  if (auto twin = decided(op.kind) ? std::nullopt : twin_of(op, out)) {
    Group& own = groups_[key];
    twin->ops = std::move(own.ops);
    own = std::move(*twin);
    return;
  }
  groups_[key].form = forms.front();
  groups_[key].only_form = forms.size() == 1;
  ++choosing_;
  const std::vector<std::pair<OpId, TensorId>> members = groups_[key].ops;
  std::vector<std::pair<OpId, TensorId>> sample;
  std::size_t best = 0;
  Tried most;
  // The first that explains everything is as good as any: later ones are less usual. Norms differ by a number.
  for (std::size_t i = 0; i < forms.size() && (!most.all() || op.kind == OpKind::layer_norm); ++i) {
    const Tried tried = try_form(forms[i], sample, members);
    if (forms[i].only_whole && !tried.all()) continue;
    // Over an unrounded sum a norm is nearly what it is over the rounded one.
    const bool near = op.kind == OpKind::layer_norm && forms[i].rounded == kOfUnroundedSum;
    const bool better = tried.better_than(most) && (!near || tried.nowhere_worse_than(most));
    if (i == 0 || better || tried.nearer_than(most)) best = i, most = tried;
  }
  const bool shown = !sample.empty();
  groups_[key].by_readers = !shown;
  for (std::size_t i = 0; !shown && forms.size() > 1 && i < forms.size() && !most.all(); ++i) {
    const Tried tried = try_form_by_readers(key, forms[i]);
    if (forms[i].only_whole && !tried.all()) continue;
    if (i == 0 || tried.better_than(most)) best = i, most = tried;
  }
  --choosing_;
  groups_[key].form = forms[best];
  groups_[key].came_out = most.came_out;
  groups_[key].open = most.ops == 0 && !shows_its_form(op, out);
  groups_[key].share = shown && most.ops > 0 ? most.telling / most.ops : 0;
  // What it is made of came out under none of the forms that were tried first: under this one it may.
  if (!shown && most.came_out > 0) forget_since(before, false);
}

std::optional<Prediction> Recomputer::predict(const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                                              std::int64_t count, std::string* why) {
  const Recipe* recipe = recipe_of(op.kind);
  if (recipe == nullptr) return std::nullopt;
  Prediction made;
  std::string reason;
  if (recipe->predict(values_, op, out, form, first, count, made, reason)) return made;
  if (why != nullptr) *why = reason.empty() ? "its inputs were not dumped" : reason;
  return std::nullopt;
}

std::int64_t Recomputer::rows_allowed(const Op& op, const Tensor& out) {
  const Recipe* recipe = recipe_of(op.kind);
  const std::int64_t each =
      std::max<std::int64_t>(1, recipe->cost(values_, op, out)) * std::max<std::int64_t>(1, out.channels);
  return std::clamp<std::int64_t>(kOpCost / each, 16, std::max<std::int64_t>(16, out.tokens));
}

/// Of a pool, the slots that the step wrote, and those that it reads.
std::vector<std::int64_t> Recomputer::own_slot_rows(const Tensor& pool) {
  std::set<std::int64_t> rows;
  const Step* step = facts_.run.step(pool.step);
  if (step == nullptr) return {};
  const Op* maker = facts_.run.maker(pool);
  const bool written = maker != nullptr && maker->kind == OpKind::kv_store;
  for (const Span& span : step->spans) {
    const std::int64_t end = std::min(span.context, KvCache::end_in(pool));
    for (std::int64_t position = written ? span.first_token : 0; position < end; ++position) {
      if (const auto row = facts_.cache.row_of(pool, *step, span, position)) rows.insert(*row);
    }
  }
  return {rows.begin(), rows.end()};
}

std::vector<std::int64_t> Recomputer::rows_to_judge(const Tensor& out) {
  return out.axis == Axis::slots ? own_slot_rows(out) : spread(out.tokens, out.tokens);
}

std::optional<Recomputed> Recomputer::judge(const Op& op, const Tensor& out, const OpForm& form,
                                            std::optional<std::vector<std::int64_t>> rows, std::int64_t most_rows,
                                            std::string* why) {
  const Recipe* recipe = recipe_of(op.kind);
  if (recipe == nullptr || !out.known || out.stated || lacks_weight(op, out, why)) return std::nullopt;
  const auto key = !rows && most_rows == 0 ? key_of(op, out, form) : std::nullopt;
  const Recomputed* known = key ? options_.judgements->find(*key) : nullptr;
  Recomputed made = known != nullptr && fits(*known, out) ? *known : Recomputed{};
  made.op = op.id;
  made.step = op.step;
  made.tensor = out.id;
  made.form = form;
  if (made.rows_in_all > 0) return made;
  made.rows_in_all = out.tokens;
  if (!rows && out.axis == Axis::slots) rows = own_slot_rows(out);
  if (!rows) {
    const std::int64_t allowed = rows_allowed(op, out);
    rows = spread(out.tokens, most_rows > 0 ? std::min(most_rows, allowed) : allowed);
    made.open = (out.tokens - static_cast<std::int64_t>(rows->size())) * out.channels;
  }
  // Before anything of its size is made: what a recording says of a shape that nothing bears out may be any number.
  if (!rows->empty() && !facts_.run.read(out, rows->front(), 1)) return std::nullopt;
  const std::int64_t at_once = std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(1, out.channels));
  bool possible = true;
  const bool computed = std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
    const Tensor* in = facts_.run.tensor(input.tensor);
    return in != nullptr && !in->known;
  });
  each_run(*rows, at_once, [&](std::int64_t first, std::int64_t count) {
    auto prediction = predict(op, out, form, first, count, made.rows == 0 ? why : nullptr);
    possible = prediction.has_value() && prediction->columns == out.channels && !options_.stop.stop_requested();
    if (possible && computed && !holds_codes(out.format)) leave_open(*prediction);
    if (possible) compare(*prediction, out, first, made);
    if (possible && choosing_ > 0 && of_attention(op.kind)) made.squares_left += squares_left(*prediction, out.format);
    return possible;
  });
  if (!possible) return std::nullopt;
  if (key) options_.judgements->found(*key, made);
  return made;
}

std::vector<Recomputed> Recomputer::alternatives(const Op& op, const Tensor& out,
                                                 const std::vector<std::int64_t>& rows) {
  const Recipe* recipe = recipe_of(op.kind);
  std::vector<Recomputed> tried;
  if (recipe == nullptr) return tried;
  constexpr std::size_t kRows = 64;
  std::vector<std::int64_t> looked_at = rows;
  if (looked_at.size() > kRows) {
    looked_at.clear();
    for (const std::int64_t i : spread(static_cast<std::int64_t>(rows.size()), kRows))
      looked_at.push_back(rows[static_cast<std::size_t>(i)]);
  }
  const OpForm chosen = form_of(op, out);
  std::vector<OpForm> forms = recipe->faults(values_, op, out);
  for (OpForm& healthy : recipe->forms(values_, op, out)) {
    if (!(healthy == chosen)) forms.push_back(std::move(healthy));
  }
  for (const OpForm& form : forms) {
    if (auto judged = judge(op, out, form, looked_at)) tried.push_back(std::move(*judged));
  }
  if (const auto healthy = judge(op, out, chosen, looked_at)) {
    // An explanation has to give numbers for most elements that the chosen form judges.
    const double least = kMostly * static_cast<double>(healthy->elements);
    std::erase_if(tried, [&](const Recomputed& one) { return static_cast<double>(one.elements) < least; });
    measure_chances(*healthy, tried, tried.size());
  }
  std::stable_sort(tried.begin(), tried.end(),
                   [](const Recomputed& a, const Recomputed& b) { return a.share() > b.share(); });
  return tried;
}

void Recomputer::run_once(std::span<const StepId> steps) {
  std::size_t total = 0;
  std::size_t done = 0;
  for (const StepId step : steps) total += facts_.run.content(step).ops.size();
  for (const StepId step : steps) {
    for (const Op& op : facts_.run.content(step).ops) {
      if (options_.progress) options_.progress(done++, total);
      const Recipe* recipe = recipe_of(op.kind);
      for (const TensorId id : op.outputs) {
        const Tensor* out = facts_.run.tensor(id);
        if (options_.stop.stop_requested()) return;
        if (out == nullptr || !out->known || op.kind == OpKind::parameter || out->count() == 0) continue;
        if (recipe == nullptr) {
          not_recomputed_.push_back({id, std::string(kNoRecipe)});
          continue;
        }
        std::string why(kRowsMissing);
        const OpForm form = form_of(op, *out);
        const auto before = judged_whole_.find(id);
        const bool again = before != judged_whole_.end() && before->second.form == form;
        auto judged = again ? before->second : judge(op, *out, form, {}, 0, &why);
        if (options_.stop.stop_requested()) return;
        if (!judged || judged->elements == 0) {
          not_recomputed_.push_back({id, judged ? std::string(kNothingRecomputed) : why});
          continue;
        }
        by_tensor_[id] = results_.size();
        results_.push_back(std::move(*judged));
      }
    }
  }
}

}  // namespace nanscope
