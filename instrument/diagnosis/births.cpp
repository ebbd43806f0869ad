#include "instrument/diagnosis/births.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/recording/weight_version.h"
#include "core/run/key_columns.h"
#include "core/run/ranks.h"

namespace nanscope {
namespace {

// A run whose every step is bad in its own way is cut behind so many of them: the first births are what matters.
constexpr std::size_t kMostSteps = 64;

/// Which rows of a tensor are bad. One flag stands for all where rows are not known apart, however many a producer that
/// wrote statistics alone says that there are.
class Rows {
 public:
  Rows(std::int64_t count, bool apart)
      : apart_(apart), flags_(apart ? static_cast<std::size_t>(std::max<std::int64_t>(0, count)) : 1) {}

  bool apart() const { return apart_; }
  std::int64_t size() const { return static_cast<std::int64_t>(flags_.size()); }
  bool at(std::int64_t row) const { return row >= 0 && row < size() && flags_[static_cast<std::size_t>(row)] != 0; }
  void mark(std::int64_t row) {
    flags_[static_cast<std::size_t>(row)] = 1;
    any_ = true;
  }
  void mark_all() {
    flags_.assign(flags_.size(), 1);
    any_ = !flags_.empty();
  }
  bool any() const { return any_; }

 private:
  bool apart_;
  bool any_ = false;
  std::vector<std::uint8_t> flags_;  // of weights as many as they have rows, and asked for each: bits would be slow
};

/// Whether an op reads probabilities and the values of their keys.
bool mixes_values(OpKind kind) {
  return kind == OpKind::attention_mix || kind == OpKind::mix_partials || kind == OpKind::tile_mix;
}

/// The roles under which an op reads keys or values.
bool reads_keys(const Op& op, std::string_view role) {
  if (op.kind == OpKind::attention_scores) return role == "k";
  if (mixes_values(op.kind)) return role == "v";
  if (op.kind == OpKind::attention) return role == "k" || role == "v";
  return false;
}

/// One step, op by op: which rows are bad, of what, and since when.
class StepWalk {
 public:
  StepWalk(Facts& facts, StepId id)
      : facts_(facts), run_(facts.run), step_(*facts.run.step(id)), content_(facts.run.content(id)) {}

  std::vector<Birth> births() {
    for (const Op& op : content_.ops) look_at(op);
    mark_what_matters();
    return std::move(births_);
  }

 private:
  /// Of a row that something is made of; true where no others need to be visited.
  using Visit = std::function<bool(const Tensor&, std::int64_t)>;

  /// Calls `visit` with each input row that row `row` of an output is made of, as far as ops say. Whether it was
  /// stopped.
  bool each_source(const Op& op, const Tensor& out, std::int64_t row, const Visit& visit) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Input& input) {
      const Tensor* in = run_.tensor(input.tensor);
      if (in != nullptr && trains()) note_earlier(*in);
      return in != nullptr && bad_.contains(in->id) && each_source_in(op, input.role, *in, out, row, visit);
    });
  }

  /// The backward pass reads tensors of the forward pass, and the optimizer those of the backward pass.
  bool trains() const { return step_.kind == StepKind::backward || step_.kind == StepKind::optimizer; }
  void note_earlier(const Tensor& in) {
    if (in.step == step_.id || in.step == kBeforeSteps || !in.known || bad_.contains(in.id) ||
        !RunView::symptomatic(in))
      return;
    Rows bad(in.tokens, apart(in));
    const std::vector<std::int64_t> rows = run_.bad_rows(in);
    for (const std::int64_t row : rows) bad.mark(row);
    if (rows.empty()) bad.mark_all();
    bad_.emplace(in.id, std::move(bad));
  }

  bool each_source_in(const Op& op, std::string_view role, const Tensor& in, const Tensor& out, std::int64_t row,
                      const Visit& visit) {
    if (!apart(out) || !bad_.at(in.id).apart())
      return (op.kind != OpKind::kv_store || is_stored_as(in, out)) && each_bad(in, visit);
    // Which rows a module of an unknown name mixes is not known.
    if (!op.by_name && run_.input(op, "weight") == nullptr) return each_bad(in, visit);
    if (reads_keys(op, role)) {
      const RowToken token = run_.token_of(out, row);
      if (token.span == nullptr) return each_bad(in, visit);
      const std::vector<KeyRow>& keys = keys_read(op, in, *token.span);
      return std::any_of(keys.begin(), keys.end(), [&](const KeyRow& key) { return visit(in, key.row); });
    }
    if (op.kind == OpKind::kv_store) {
      const auto from = row_stored(out, row, in);
      return from && visit(in, *from);
    }
    if (op.kind == OpKind::kv_read && in.axis != out.axis) {
      const auto from = row_read(out, row, in);
      return from && visit(in, *from);
    }
    if (by_row(op.kind) || op.kind == OpKind::kv_read || op.kind == OpKind::attention_scores || mixes_values(op.kind) ||
        op.kind == OpKind::attention) {
      if (const auto from = run_.same_row(out, row, in)) return visit(in, *from);
      return (out.axis == Axis::none || in.axis == Axis::none) && each_bad(in, visit);
    }
    return each_bad(in, visit);
  }

  bool each_bad(const Tensor& in, const Visit& visit) {
    const Rows& rows = bad_.at(in.id);
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      if (rows.at(row) && visit(in, row)) return true;
    }
    return false;
  }

  /// Whether a tensor's rows are told apart: its health is known row by row, or it was not dumped and has the step's.
  bool apart(const Tensor& tensor) { return !tensor.known || !run_.rows(tensor).empty(); }

  /// Whether what a store writes as `out` is made of `in`: keys of keys, values of values.
  static bool is_stored_as(const Tensor& in, const Tensor& out) {
    return out.role.front() == in.role.front() || in.role == "out";
  }

  /// Keys that a span's rows go over, those behind its end among them where the scores say so.
  const std::vector<KeyRow>& keys_read(const Op& op, const Tensor& in, const Span& span) {
    const auto [known, is_new] = keys_.emplace(std::tuple(op.id, in.id, span.row), std::vector<KeyRow>{});
    if (!is_new) return known->second;
    std::int64_t keys = span.context;
    const bool mix = op.kind == OpKind::attention_mix || op.kind == OpKind::mix_partials;
    const Tensor* scores = mix ? run_.input(op, "probs") : run_.result(op);
    if (scores != nullptr && op.kind != OpKind::attention && scores->known) keys = std::max(keys, keys_of(*scores));
    if (in.axis == Axis::keys && step_.batch <= 1) keys = std::max(keys, in.tokens);
    known->second = facts_.cache.key_rows(in, step_, span, std::min(keys, span.context + in.tokens), op.layer);
    // In a frame, one of a batch or the only one, its padding is read as well.
    const bool framed = step_.batch > 1 || step_.spans.size() == 1;
    const std::int64_t frame = framed ? step_.rows / std::max<std::int64_t>(1, step_.batch) : 0;
    for (std::int64_t at = 0; in.axis == Axis::rows && at < frame; ++at) {
      const std::int64_t row = span.row / frame * frame + at;
      KeyRow padding;
      padding.row = row;
      padding.position = -1;
      if (!span.has(row)) known->second.push_back(padding);
    }
    return known->second;
  }

  /// The row of k or v that a store put into a row of the pool, or beside it in `codes`.
  std::optional<std::int64_t> row_stored(const Tensor& out, std::int64_t row, const Tensor& in) {
    if (!is_stored_as(in, out)) return std::nullopt;
    if (out.axis != Axis::slots) return run_.same_row(out, row, in);
    const auto [known, is_new] = stored_.emplace(out.id, std::unordered_map<std::int64_t, std::int64_t>{});
    if (is_new) {
      for (const Span& span : step_.spans) {
        for (std::int64_t at = 0; at < span.rows; ++at) {
          const auto slot = facts_.cache.row_of(out, step_, span, span.first_token + at);
          if (slot) known->second.emplace(*slot, span.row + at);
        }
      }
    }
    const auto found = known->second.find(row);
    return found == known->second.end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<std::int64_t> row_read(const Tensor& out, std::int64_t row, const Tensor& in) {
    const RowToken token = run_.token_of(out, row);
    if (token.span == nullptr) return std::nullopt;
    return facts_.cache.row_of(in, step_, *token.span, token.position);
  }

  void look_at(const Op& op) {
    for (const TensorId id : op.outputs) {
      const Tensor* out = run_.tensor(id);
      // What a norm noted of its rows is no value that anything reads.
      if (out == nullptr || op.kind == OpKind::parameter || out->role == "stats") continue;
      if (out->known && !RunView::symptomatic(*out)) continue;
      Rows inherited(out->tokens, apart(*out));
      for (std::int64_t row = 0; row < inherited.size(); ++row) {
        const bool any =
            each_source(op, *out, row, [&](const Tensor& in, std::int64_t from) { return bad_.at(in.id).at(from); });
        if (any) inherited.mark(row);
      }
      if (!out->known) {
        if (inherited.any()) bad_.emplace(id, std::move(inherited));
        continue;
      }
      Rows bad(out->tokens, apart(*out));
      const std::vector<std::int64_t> rows = facts_.run.bad_rows(*out);
      for (const std::int64_t row : rows) bad.mark(row);
      if (rows.empty()) bad.mark_all();  // it is bad, and which rows is not known
      bad_.emplace(id, bad);
      note_birth(op, *out, bad, inherited);
    }
    note_entry(op);
  }

  void note_birth(const Op& op, const Tensor& out, const Rows& bad, const Rows& inherited) {
    Birth birth;
    for (std::int64_t row = 0; row < bad.size(); ++row) {
      if (bad.at(row) && !inherited.at(row)) birth.rows.push_back(row);
    }
    if (op.kind == OpKind::all_reduce) erase_of_other_ranks(op, out, birth);
    if (birth.rows.empty()) return;
    if (bad.apart()) {
      keep_own(op, out, birth);
      if (birth.rows.empty()) return;
    } else {
      birth.rows.clear();
    }
    birth.op = op.id;
    birth.step = step_.id;
    birth.tensor = out.id;
    for (const Input& input : op.inputs) {
      const Health* health = facts_.parameter_health(input);
      if (health != nullptr && (health->nan + health->pos_inf > 0 || (health->neg_inf > 0 && input.role != "mask"))) {
        // What training made of a weight was born in the optimizer, or before it.
        if (is_later_version(input.weight)) return;
        birth.bad_parameters.push_back(input.role);
      }
      const Tensor* in = run_.tensor(input.tensor);
      if (in != nullptr && !in->known) birth.inputs_known = false;
      if (input.role == "before") birth.inputs_known = false;
    }
    if (op.kind == OpKind::attention && bad.apart()) enter_behind_end(op, out, birth);
    births_.push_back(std::move(birth));
  }

  /// Without rows that are bad in what another rank put into the sum.
  void erase_of_other_ranks(const Op& op, const Tensor& out, Birth& birth) {
    if (!ranks_) ranks_.emplace(run_);
    for (const Tensor* part : ranks_->other_parts(run_, op)) {
      std::erase_if(birth.rows, [&](std::int64_t row) {
        const auto same = run_.same_row(out, row, *part);
        return same && facts_.row_bad(*part, *same);
      });
    }
  }

  /// Without rows that somebody else may have filled.
  void keep_own(const Op& op, const Tensor& out, Birth& birth) {
    // Slots that this step did not write hold what somebody else left: bad once they are read, see note_entry().
    if (out.axis == Axis::slots && op.kind == OpKind::kv_store) {
      const Tensor* in = run_.input(op, out.role.substr(0, 1));
      std::erase_if(birth.rows, [&](std::int64_t row) { return in == nullptr || !row_stored(out, row, *in); });
    } else if (out.axis == Axis::keys && op.kind != OpKind::kv_read) {
      std::erase_if(birth.rows, [&](std::int64_t row) { return !facts_.live(out, row); });
    } else if (op.kind == OpKind::kv_read && (out.axis == Axis::keys || out.axis == Axis::slots)) {
      erase_foreign(out, birth);
    }
  }

  /// Of what was read back, rows that the sequence did not write are no births of the reading.
  void erase_foreign(const Tensor& out, Birth& birth) {
    if (step_.spans.empty()) return;
    std::set<std::int64_t> own;
    for (const Span& span : step_.spans) {
      const std::int64_t end = std::min(span.context, KvCache::end_in(out));
      for (std::int64_t position = 0; position < end; ++position) {
        const auto row = facts_.cache.row_of(out, step_, span, position);
        if (!row) continue;
        const KeyRow key = facts_.cache.key_row(out, step_, span, *row, run_.maker(out)->layer);
        if (key.own && !stored_bad(out, key)) own.insert(*row);
      }
    }
    std::erase_if(birth.rows, [&](std::int64_t row) { return !own.contains(row); });
  }

  /// Whether what the sequence stored there was bad already, in this step or an earlier one.
  bool stored_bad(const Tensor& out, const KeyRow& key) {
    if (key.writer == nullptr || !key.slot) return false;
    const auto stored = facts_.cache.stored_row(*key.writer, *key.slot, run_.maker(out)->layer, out.role.substr(0, 1));
    return stored && facts_.row_bad(*stored->codes, stored->row);
  }

  /// What was read back is where a cache enters: what goes over it inherits.
  bool entered_before(const Op& op, const Tensor& in) {
    const Op* maker = run_.maker(in);
    if (maker == nullptr || maker->id == op.id || maker->kind != OpKind::kv_read) return false;
    return entered_.contains(in.id) ||
           std::none_of(maker->inputs.begin(), maker->inputs.end(), [](const Input& one) { return one.tensor != 0; });
  }

  /// Bad keys or values that a reader takes from slots which its sequence did not write.
  void note_entry(const Op& op) {
    for (const Input& input : op.inputs) {
      const Tensor* in = run_.tensor(input.tensor);
      const bool reader = reads_keys(op, input.role) ||
                          (op.kind == OpKind::kv_read && input.role != "k_scale" && input.role != "v_scale");
      const Tensor* out = run_.result(op);
      if (!reader || in == nullptr || out == nullptr || !in->known || !RunView::symptomatic(*in)) continue;
      if (!apart(*in)) continue;  // whose rows are bad is not known
      if ((in->axis != Axis::slots && in->axis != Axis::keys) || entered_before(op, *in)) continue;
      if (out->known && !RunView::symptomatic(*out)) continue;
      // A copy of the pool, read whole: what of it matters shows behind it.
      if (op.kind == OpKind::kv_read && out->axis == Axis::slots) continue;
      enter(op, *in, *out, *in);
    }
    // In a recording what was read is an output of the read itself, and the pool is no tensor.
    if (op.kind != OpKind::kv_read) return;
    for (const TensorId id : op.outputs) {
      const Tensor* out = run_.tensor(id);
      if (out != nullptr && out->axis == Axis::keys && RunView::symptomatic(*out) && apart(*out))
        enter(op, *out, *out, *out);
    }
  }

  /// Attention in one op does not show how far it goes: where healthy keys, values and queries come out bad, bad slots
  /// of the sequence's blocks behind its end were read.
  void enter_behind_end(const Op& op, const Tensor& out, Birth& birth) {
    std::map<std::string_view, std::vector<KeyRow>> tails;
    for (const std::string_view role : {"k", "v"}) {
      const Tensor* in = run_.input(op, role);
      if (in == nullptr || in->axis != Axis::slots || !bad_.contains(in->id) || !apart(*in)) continue;
      for (const Span& span : step_.spans) {
        for (KeyRow& key : facts_.cache.key_rows(*in, step_, span, span.context + in->tokens, op.layer)) {
          if (!key.in_context && facts_.row_bad(*in, key.row)) tails[role].push_back(key);
        }
      }
    }
    if (tails.empty()) return;
    const std::string_view role = !tails.contains("k") || (tails.contains("v") && partly_bad(out, birth)) ? "v" : "k";
    birth.read = op.input(role);
    birth.keys = std::move(tails[role]);
  }

  /// Whether some channels of a head are bad and others are not: bad values do that, bad keys spoil a head as a whole.
  bool partly_bad(const Tensor& out, const Birth& birth) {
    const auto values = run_.row_values(out, birth.rows.front());
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(1, out.width()));
    for (std::size_t head = 0; values && head + width <= values->size(); head += width) {
      const auto begin = values->begin() + static_cast<std::ptrdiff_t>(head);
      const auto end = begin + static_cast<std::ptrdiff_t>(width);
      const auto bad = std::count_if(begin, end, [](float one) { return !std::isfinite(one); });
      if (bad > 0 && bad < end - begin) return true;
    }
    return false;
  }

  void enter(const Op& op, const Tensor& in, const Tensor& out, const Tensor& shown) {
    Birth birth;
    birth.op = op.id;
    birth.step = step_.id;
    birth.tensor = out.id;
    birth.read = in.id;
    for (const Span& span : step_.spans) {
      const std::vector<KeyRow> keys = op.kind == OpKind::kv_read
                                           ? facts_.cache.key_rows(in, step_, span, in.tokens + span.context, op.layer)
                                           : keys_read(op, in, span);
      for (const KeyRow& key : keys) {
        if (!key.own && facts_.row_bad(in, key.row)) birth.keys.push_back(key);
      }
    }
    if (birth.keys.empty()) return;
    entered_.insert(out.id);
    if (&shown == &in) {
      for (const KeyRow& key : birth.keys) {
        if (out.id == in.id) birth.rows.push_back(key.row);
      }
    }
    if (out.id != in.id) birth.rows = facts_.run.bad_rows(out);
    std::sort(birth.rows.begin(), birth.rows.end());
    birth.rows.erase(std::unique(birth.rows.begin(), birth.rows.end()), birth.rows.end());
    births_.push_back(std::move(birth));
  }

  bool is_sink(const Tensor& tensor, std::int64_t row) {
    // Gradients of weights, and weights: all later steps read them.
    if (tensor.axis == Axis::none && trains()) return true;
    // Where nothing says whose rows a step has, none can be told to be padding.
    if (step_.spans.empty()) return tensor.axis != Axis::slots;
    // Rows of a pooling or of patches are not rows of the step. Whether they are padding is not known.
    const Op* maker = run_.maker(tensor);
    const bool unplaced = tensor.axis == Axis::none && maker != nullptr && maker->kind != OpKind::parameter;
    if (unplaced || !apart(tensor)) {
      return std::any_of(step_.spans.begin(), step_.spans.end(), [](const Span& span) { return span.request >= 0; });
    }
    const RowToken token = run_.token_of(tensor, row);
    return token.span != nullptr && token.span->request >= 0;
  }

  /// Nobody gets the answer of a warm-up or a dummy batch: it matters by what it stores, where it stores.
  bool stores(const Op& op) const {
    const auto* store = op.get<KvStoreAttributes>();
    return store != nullptr && store->stored.value_or(true);
  }

  /// Backwards from every bad row that is somebody's to all that it is made of.
  void mark_what_matters() {
    std::map<TensorId, Rows> relevant;
    for (auto op = content_.ops.rbegin(); op != content_.ops.rend(); ++op) {
      for (const TensorId id : op->outputs) {
        const auto bad = bad_.find(id);
        if (bad == bad_.end()) continue;
        const Tensor& out = *run_.tensor(id);
        Rows& marks = relevant.try_emplace(id, out.tokens, bad->second.apart()).first->second;
        // A table of block scales has room for more blocks than there are: what is not read of it harms nobody.
        const bool table = op->kind == OpKind::block_quantise && out.role == "scales";
        const auto sink = [&](std::int64_t row) {
          return (out.known && !table && is_sink(out, row) && !bad_unseen(facts_, out, row)) ||
                 (stores(*op) && out.axis != Axis::slots);
        };
        for (std::int64_t row = 0; row < marks.size(); ++row) {
          if (!bad->second.at(row)) continue;
          if (!marks.at(row) && sink(row)) marks.mark(row);
          if (!marks.at(row)) continue;
          each_source(*op, out, row, [&](const Tensor& in, std::int64_t from) {
            const Rows& rows = bad_.at(in.id);
            if (rows.at(from)) relevant.try_emplace(in.id, in.tokens, rows.apart()).first->second.mark(from);
            return false;
          });
        }
      }
    }
    for (Birth& birth : births_) {
      const auto marks = relevant.find(birth.tensor);
      if (marks == relevant.end()) continue;
      birth.matters = marks->second.apart() ? std::any_of(birth.rows.begin(), birth.rows.end(),
                                                          [&](std::int64_t row) { return marks->second.at(row); })
                                            : marks->second.any();
    }
  }

  std::optional<StepsOfRanks> ranks_;  ///< made when a sum over ranks is met
  Facts& facts_;
  RunView& run_;
  const Step& step_;
  const StepContent& content_;
  std::unordered_map<TensorId, Rows> bad_;  ///< of tensors with any
  std::map<std::tuple<OpId, TensorId, std::int64_t>, std::vector<KeyRow>> keys_;
  std::map<TensorId, std::unordered_map<std::int64_t, std::int64_t>> stored_;
  std::set<TensorId> entered_;  ///< tensors in which bad keys or values entered
  std::vector<Birth> births_;
};

/// The module whose output or input a tensor is, by its name: "decoder.conv2" of "decoder.conv2.output".
std::string module_of(const std::string& name) {
  for (const std::string_view side : {".output", ".input"}) {
    const auto at = name.rfind(side);
    if (at != std::string::npos) return name.substr(0, at);
  }
  return name;
}

/// Without births that another one of the step accounts for. A tensor that nothing known is read for, such as the input
/// of a module of an unknown architecture, came from somewhere: where a module next to it is seen to make NaN or Inf of
/// finite inputs, that is not the module that reads it. And what a module inside of another makes is in the output of
/// the outer one.
void leave_out_derived(RunView& run, std::vector<Birth>& births) {
  const auto is_loose = [&](const Birth& birth) {
    const Op& op = *run.op(birth.op);
    return op.kind == OpKind::dumped &&
           std::all_of(op.inputs.begin(), op.inputs.end(), [](const Input& input) { return input.role == "before"; });
  };
  std::vector<std::string> made_in;
  bool seen = false;  // made of finite inputs
  OpId first_made = std::numeric_limits<OpId>::max();
  OpId first_loose = std::numeric_limits<OpId>::max();
  for (const Birth& birth : births) {
    if (!birth.matters) continue;
    if (is_loose(birth)) {
      first_loose = std::min(first_loose, birth.op);
      continue;
    }
    made_in.push_back(module_of(run.tensor(birth.tensor)->name));
    first_made = std::min(first_made, birth.op);
    seen = seen || birth.inputs_known;
  }
  if (made_in.empty()) return;
  std::erase_if(births, [&](const Birth& birth) {
    // Of two of which nobody knows what they were made of, the earlier one accounts for the later.
    if (is_loose(birth)) return seen || birth.op > first_made;
    const bool accounted = !seen && !birth.inputs_known && birth.op > first_loose;
    const std::string inside = module_of(run.tensor(birth.tensor)->name) + '.';
    return accounted || std::any_of(made_in.begin(), made_in.end(),
                                    [&](const std::string& inner) { return inner.starts_with(inside); });
  });
}

bool logits_bad(RunView& run, StepId step) {
  const StepContent& content = run.content(step);
  return std::any_of(content.tensors.begin(), content.tensors.end(), [](const Tensor& tensor) {
    return tensor.role == "logits" && tensor.known && RunView::symptomatic(tensor);
  });
}

}  // namespace

bool bad_unseen(Facts& facts, const Tensor& scores, std::int64_t row) {
  const RowToken token = facts.run.token_of(scores, row);
  const Step* step = facts.run.step(scores.step);
  const std::int64_t keys = keys_of(scores);
  const Op* maker = facts.run.maker(scores);
  const bool of_attention = scores.role == "scores" || (maker != nullptr && maker->kind == OpKind::attention_scores);
  if (!of_attention || token.span == nullptr || step == nullptr || keys <= 0) return false;
  const auto values = facts.run.row_values(scores, row);
  if (!values) return false;
  const std::vector<std::int64_t> positions = column_positions(*step, *token.span, keys);
  for (std::size_t c = 0; c < values->size(); ++c) {
    const float value = (*values)[c];
    if (!std::isnan(value) && !(std::isinf(value) && value > 0)) continue;
    const std::int64_t position = positions[c % positions.size()];
    if (position >= 0 && position <= token.position) return false;
  }
  return true;
}

namespace {

/// Steps that hold NaN or Inf and are none but consequences of logits that were bad before.
std::vector<StepId> steps_to_look_at(Facts& facts) {
  std::set<std::pair<std::int64_t, std::int64_t>> answered_bad;  // request, rank
  std::vector<StepId> found;
  for (const StepId id : facts.run.bad_steps()) {
    const Step* step = facts.run.step(id);
    if (step == nullptr) continue;
    const bool over =
        !step->spans.empty() && std::all_of(step->spans.begin(), step->spans.end(), [&](const Span& span) {
          return answered_bad.contains({span.request, step->rank});
        });
    if (over) continue;
    found.push_back(id);
    if (!logits_bad(facts.run, id)) continue;
    for (const Span& span : step->spans) answered_bad.insert({span.request, step->rank});
  }
  return found;
}

}  // namespace

Births births_of(Facts& facts) {
  Births found;
  std::size_t with_births = 0;
  for (const StepId id : steps_to_look_at(facts)) {
    // Steps in which nothing is born are many where a mask is dumped: its -Inf are no reason to stop.
    if (with_births >= kMostSteps) {
      found.cut = true;
      break;
    }
    found.steps.push_back(id);
    std::vector<Birth> births = StepWalk(facts, id).births();
    leave_out_derived(facts.run, births);
    with_births += std::any_of(births.begin(), births.end(), [](const Birth& birth) { return birth.matters; }) ? 1 : 0;
    std::move(births.begin(), births.end(), std::back_inserter(found.all));
  }
  return found;
}

}  // namespace nanscope
