#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/counted.h"
#include "core/run/mask.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/detectors/deviations_of_kind.h"
#include "instrument/diagnosis/detectors/leaking_blocks.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/keys.h"

namespace nanscope {
namespace {

/// Keys that stand behind a row's own token and are seen all the same.
struct Leak {
  const Op* op = nullptr;
  const Tensor* tensor = nullptr;
  std::vector<std::int64_t> rows;
  std::int64_t could = 0;  ///< rows that have later keys
  std::int64_t seen = 0;   ///< later keys with a probability, over all rows and heads
  std::int64_t row = -1;   ///< of the largest
  std::int64_t head = -1;
  std::int64_t key = -1;
  double value = 0;
  std::int64_t behind = 0;  ///< how far back a row sees, the largest over all rows
  /// Of rows that have later keys: own position, the last key that is seen, and the last there is.
  struct End {
    std::int64_t own, seen, last;
  };
  std::vector<End> ends = {};

  double share() const { return could > 0 ? static_cast<double>(rows.size()) / static_cast<double>(could) : 0; }
};

/// Of probabilities, or of scores where later keys are hidden from some row at least.
Leak leak_of(Survey& survey, const Op& op, const Tensor& tensor, bool scores) {
  Leak leak;
  leak.op = &op;
  leak.tensor = &tensor;
  RunView& run = survey.run();
  const Step* step = run.step(tensor.step);
  const std::int64_t keys = keys_of(tensor);
  if (step == nullptr || keys <= 1) return leak;
  std::int64_t hidden = 0;
  for (std::int64_t row = 0; row < tensor.tokens; ++row) {
    const RowToken token = run.token_of(tensor, row);
    if (token.span == nullptr) continue;
    const auto positions = column_positions(*step, *token.span, keys);
    const auto values = run.row_values(tensor, row);
    if (!values) return leak;
    bool later = false;
    std::int64_t seen = 0;
    Leak::End end{token.position, token.position, token.span->context - 1};
    for (std::size_t c = 0, key = 0; c < values->size(); ++c, ++key) {
      if (key == positions.size()) key = 0;
      const std::int64_t position = positions[key];
      if (position < 0 || position == token.position || position >= token.span->context) continue;
      // A NaN says neither that a key is seen nor that it is not.
      const float value = (*values)[c];
      if (std::isnan(value)) continue;
      const bool visible = scores ? !hidden_by_mask(double{value}) : value > 0;
      if (position < token.position) {
        if (visible) leak.behind = std::max(leak.behind, token.position - position);
        continue;
      }
      later = true;
      hidden += visible ? 0 : 1;
      if (!visible) continue;
      ++seen;
      end.seen = std::max(end.seen, position);
      if (leak.row >= 0 && double{value} <= leak.value) continue;
      leak.row = row;
      leak.head = static_cast<std::int64_t>(c) / keys;
      leak.key = position;
      leak.value = double{value};
    }
    leak.could += later ? 1 : 0;
    leak.seen += seen;
    if (later) leak.ends.push_back(end);
    if (seen > 0) leak.rows.push_back(row);
  }
  // Scores that hide nothing are not masked yet, and say neither that later keys are seen nor that they are not.
  if (scores && hidden == 0) {
    leak.rows.clear();
    leak.could = 0;
  }
  return leak;
}

/// Whether most rows see as far ahead as the mask lets rows see behind: to the end of the sequence, or as far as a
/// window about each token. A causal mask that ends too late sees less ahead than behind. Sharp probabilities are zero
/// for some keys without any mask, so not every row need agree.
bool as_far_ahead_as_behind(const Leak& leak) {
  const std::int64_t agree = std::count_if(leak.ends.begin(), leak.ends.end(), [&](const Leak::End& end) {
    return end.seen >= std::min(end.own + leak.behind, end.last);
  });
  return 2 * agree > std::ssize(leak.ends);
}

/// Whether a token may see later ones here: an encoder, or a tower that looks at images.
bool bidirectional(Survey& survey, const std::vector<Leak>& leaks) {
  const bool everywhere = std::all_of(leaks.begin(), leaks.end(), as_far_ahead_as_behind);
  if (!everywhere) return false;
  for (const Step& step : survey.run().steps()) {
    if (step.kind != StepKind::prefill) return false;
    const std::vector<Op>& ops = survey.run().content(step.id).ops;
    const auto any = [&](const auto& is) { return std::any_of(ops.begin(), ops.end(), is); };
    // The largest logit of a pass over an image alone is its class, and no token that follows.
    const bool of_image = any([](const Op& op) { return op.name == "patch_embed"; }) &&
                          !any([](const Op& op) { return op.name == "embed" || op.name == "tokens"; });
    if (any([&](const Op& op) { return op.kind == OpKind::kv_store || (op.kind == OpKind::argmax && !of_image); }))
      return false;
  }
  return true;
}

/// How the mask is wrong, where all rows agree on it: "1 key too late", "at whole blocks of 32 keys"; else empty.
std::string mask_end(const Leak& leak) {
  const auto all = [&](const auto& end_of) {
    return std::all_of(leak.ends.begin(), leak.ends.end(),
                       [&](const Leak::End& end) { return end.seen == std::min(end_of(end.own), end.last); });
  };
  if (leak.ends.size() < 2) return {};
  constexpr std::int64_t kMostShift = 8;
  for (std::int64_t shift = 1; shift <= kMostShift; ++shift) {
    if (leak.ends.front().own + shift > leak.ends.front().last) break;
    if (all([shift](std::int64_t own) { return own + shift; })) return counted(shift, "key") + " too late";
  }
  // Of a block that holds everything nothing says where it ends.
  for (std::int64_t block = 4; block <= leak.ends.front().last; block *= 2) {
    if (all([block](std::int64_t own) { return (own / block + 1) * block - 1; }))
      return fmt::format("at whole blocks of {} keys", block);
  }
  return {};
}

/// Whether every attention op sees its whole block of one size: a mask by frames, as models of video and worlds have
/// it, or the same wrong mask everywhere. Nothing in the numbers tells one from the other, but a model that decodes a
/// token at a time has no frames.
bool in_frames(Survey& survey, const std::vector<Leak>& leaks) {
  const std::span<const Step> steps = survey.run().steps();
  const bool decodes =
      std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.kind == StepKind::decode; });
  if (leaks.size() < 2 || decodes) return false;
  const std::string end = mask_end(leaks.front());
  return end.starts_with("at whole blocks") &&
         std::all_of(leaks.begin(), leaks.end(), [&](const Leak& leak) { return mask_end(leak) == end; });
}

Finding finding_of(Survey& survey, const Leak& leak) {
  Finding finding = finding_at(survey, *leak.tensor, leak.rows);
  finding.rank = Rank::recomputed;
  finding.fault.certainty = Certainty::proved;
  const std::int64_t own = survey.run().token_of(*leak.tensor, leak.row).position;
  finding.fault.evidence = {{"rows", static_cast<std::int64_t>(leak.rows.size())},
                            {"wrong_rows", ranges_text(leak.rows)},
                            {"later_keys_seen", leak.seen},
                            {"token", own},
                            {"key", leak.key},
                            {"head", leak.head},
                            {"value", leak.value}};
  finding.fault.summary = fmt::format(
      "{} of {} {} later tokens: token {} sees key {} in head {} with {:.3g}", counted(leak.rows.size(), "token"),
      finding.fault.tensor, leak.rows.size() == 1 ? "attends to" : "attend to", own, leak.key, leak.head, leak.value);
  if (const std::string ends = mask_end(leak); !ends.empty()) {
    finding.fault.evidence.push_back({"mask_ends", ends});
    finding.fault.summary += "; the mask ends " + ends;
  }
  finding.fault.fix = "let the causal mask end at each token's own position, in every chunk and tile";
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    if (survey.deviations[i].tensor == leak.tensor->id) finding.explains.push_back({Symptom::Kind::deviation, i});
  }
  return finding;
}

/// Image tokens see each other in prefix models: the same rows in every layer that can be looked at.
bool as_everywhere(const Leak& leak, const std::vector<Leak>& all) {
  std::int64_t alike = 0;
  for (const Leak& other : all)
    alike += other.tensor->step == leak.tensor->step && other.rows == leak.rows && other.seen == leak.seen ? 1 : 0;
  std::int64_t of_step = 0;
  for (const Leak& other : all) of_step += other.tensor->step == leak.tensor->step ? 1 : 0;
  return of_step > 1 && alike == of_step && leak.share() < 0.9;
}

/// Whether the probabilities that scores became were dumped and hide later keys: the mask came behind the scores.
bool hidden_behind(Survey& survey, const Leak& leak) {
  for (const Op* reader : survey.run().readers(*leak.tensor)) {
    const bool weighs = reader->kind == OpKind::softmax || reader->kind == OpKind::tile_softmax;
    const Tensor* probs = weighs ? survey.run().result(*reader) : nullptr;
    if (probs == nullptr || !probs->known || probs->stated || probs->heads <= 0) continue;
    return leak_of(survey, *reader, *probs, false).rows.empty();
  }
  return false;
}

void look_at_attention(Survey& survey, Findings& out, std::int64_t& looked_at, std::int64_t& frames) {
  std::map<bool, std::vector<Leak>> leaks;  // of towers apart
  for (const OpKind kind : {OpKind::softmax, OpKind::tile_softmax, OpKind::attention_scores}) {
    for (const Op* op : survey.ops(kind)) {
      const Tensor* tensor = survey.run().result(*op);
      if (tensor == nullptr || !tensor->known || tensor->stated || tensor->heads <= 0) continue;
      Leak leak = leak_of(survey, *op, *tensor, kind == OpKind::attention_scores);
      if (leak.could == 0) continue;
      constexpr std::string_view kTowers[] = {"vision_", "audio_", "encoder_", "cross_"};
      const bool tower = std::any_of(std::begin(kTowers), std::end(kTowers),
                                     [&](std::string_view one) { return op->name.starts_with(one); });
      leaks[tower].push_back(std::move(leak));
    }
  }
  for (auto& [tower, all] : leaks) {
    if (tower || bidirectional(survey, all)) continue;
    if (in_frames(survey, all)) {
      ++frames;
      continue;
    }
    looked_at += static_cast<std::int64_t>(all.size());
    std::vector<const Leak*> real;
    for (const Leak& leak : all) {
      if (leak.rows.empty() || as_everywhere(leak, all)) continue;
      if (leak.op->kind != OpKind::attention_scores || !hidden_behind(survey, leak)) real.push_back(&leak);
    }
    std::sort(real.begin(), real.end(), [](const Leak* a, const Leak* b) { return a->op->id < b->op->id; });
    for (const Leak* leak : real) out.found.push_back(finding_of(survey, *leak));
  }
}

void look_at_deviations(Survey& survey, Findings& out) {
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const Deviation& deviation = survey.deviations[i];
    const Recomputed* best = deviation.explanation();
    if (best == nullptr || best->form.about != About::mask) continue;
    if (best->form.shift < 0) continue;  // a token that does not see itself
    Finding finding = finding_at(survey, deviation, i, region_of(survey, deviation));
    finding.rank = Rank::counted;
    finding.fault.certainty = Certainty::shown;
    finding.fault.summary =
        fmt::format("{} comes out of its inputs only with {}: {:.3g} % of the elements that are off otherwise",
                    finding.fault.tensor, best->form.text, 100 * best->share());
    finding.fault.fix = "let the causal mask end at each token's own position, in every chunk and tile";
    out.found.push_back(std::move(finding));
  }
}

/// Outputs of attention that their inputs gave or did not give.
std::int64_t attention_done_again(Survey& survey) {
  const std::span<const Recomputed> results = survey.recomputer.results();
  return std::count_if(results.begin(), results.end(), [&](const Recomputed& one) {
    const OpKind kind = survey.run().op(one.op)->kind;
    return kind == OpKind::attention || kind == OpKind::softmax;
  });
}

/// Two runs whose inputs agree up to a token: rows before it that differ know of it.
class Twins {
 public:
  explicit Twins(Survey& survey) : survey_(survey), run_(survey.run()) {}

  void look(Findings& out, std::int64_t& looked_at) {
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::vector<const Step*>> alike;
    for (const Step& step : run_.steps()) {
      if (step.rows > 1) alike[{step.rank, step.index(), step.rows}].push_back(&step);
    }
    for (const Step& a : run_.steps()) {
      if (a.rows <= 1) continue;
      for (const Step* b : alike[{a.rank, a.index(), a.rows}]) {
        if (a.id >= b->id || a.run == b->run) continue;
        ++looked_at;
        compare(a, *b, out);
      }
    }
  }

 private:
  void compare(const Step& a, const Step& b, Findings& out) {
    const std::set<std::int64_t> changed = changed_rows(a, b);
    if (changed.empty() || *changed.begin() == 0) return;
    std::int64_t depth = 0;
    for (const Op& op : run_.content(b.id).ops) {
      const Op* other = run_.find_op(a.id, op.layer, op.name);
      if (op.kind != OpKind::parameter) ++depth;
      if (other == nullptr || op.kind == OpKind::parameter || other->outputs.size() != op.outputs.size()) continue;
      for (std::size_t i = 0; i < op.outputs.size(); ++i) {
        const Tensor* x = run_.tensor(other->outputs[i]);
        const Tensor* y = run_.tensor(op.outputs[i]);
        if (x == nullptr || y == nullptr || x->axis == Axis::none || y->axis != x->axis) continue;
        const std::vector<std::int64_t> rows = x->axis == Axis::slots
                                                   ? differing_slots({a, *x}, {b, *y}, *changed.begin(), depth)
                                                   : differing(*x, *y, *changed.begin(), depth);
        if (rows.empty()) continue;
        Finding finding = finding_of(op, *x, *y, rows, *changed.begin());
        // What leaks here is no other thing in the layers behind.
        for (std::size_t d = 0; d < survey_.deviations.size(); ++d) {
          if (run_.op(survey_.deviations[d].op)->name == op.name)
            finding.explains.push_back({Symptom::Kind::deviation, d});
        }
        out.found.push_back(std::move(finding));
        return;
      }
    }
  }

  Finding finding_of(const Op& op, const Tensor& x, const Tensor& y, const std::vector<std::int64_t>& rows,
                     std::int64_t first_changed) {
    Finding finding = finding_at(survey_, y, rows);
    const std::string name = finding.fault.tensor;
    finding.rank = Rank::runs_differ;
    finding.fault.certainty = Certainty::proved;
    finding.fault.ops = {op.id};
    finding.fault.evidence = {{"rows", static_cast<std::int64_t>(rows.size())},
                              {"first_row", rows.front()},
                              {"first_changed", first_changed},
                              {"other", survey_.facts.name_of(x)}};
    finding.fault.summary =
        fmt::format("{} of {} {} from {}, and {} before token {}, the first that was changed between the runs",
                    counted(rows.size(), "row"), name, rows.size() == 1 ? "differs" : "differ",
                    survey_.facts.name_of(x), rows.size() == 1 ? "it stands" : "they stand", first_changed);
    finding.fault.fix =
        "look for what mixes tokens here: a mask that ends too late, a scale or a block over several tokens";
    const Tensor* shared = shared_scale(x, y);
    if (shared == nullptr) return finding;
    finding.shows_in = y.id;
    finding.fault.tensor = survey_.facts.name_of(*shared);
    finding.fault.evidence.push_back({"shows_in", name});
    finding.fault.summary += fmt::format("; {}, by which all of them were cast, differs too", finding.fault.tensor);
    finding.fault.fix = "give each token, or each block of tokens that are done, a scale of its own";
    return finding;
  }

  /// The scale of codes, where it is one for more than a token and not the same in both runs.
  const Tensor* shared_scale(const Tensor& x, const Tensor& y) {
    const auto cast_of = [&](const Tensor& codes) {
      return std::find_if(survey_.casts.begin(), survey_.casts.end(),
                          [&](const Cast& cast) { return cast.codes == codes.id && cast.scale != 0; });
    };
    const auto a = cast_of(x);
    const auto b = cast_of(y);
    if (a == survey_.casts.end() || b == survey_.casts.end()) return nullptr;
    const Tensor* left = run_.tensor(a->scale);
    const Tensor* right = run_.tensor(b->scale);
    if (left == nullptr || right == nullptr || right->count() >= y.tokens) return nullptr;
    const auto p = run_.values(*left);
    const auto q = run_.values(*right);
    return p && q && *p != *q ? right : nullptr;
  }

  struct Pool {
    const Step& step;
    const Tensor& tensor;
  };

  /// The same of a cache: slots of b's positions before the change.
  std::vector<std::int64_t> differing_slots(const Pool& a, const Pool& b, std::int64_t end, std::int64_t depth) {
    std::vector<std::int64_t> slots;
    if (!a.tensor.known || !b.tensor.known || a.tensor.stated || b.tensor.stated) return slots;
    if (a.tensor.channels != b.tensor.channels || a.step.spans.size() != b.step.spans.size()) return slots;
    for (std::size_t s = 0; s < b.step.spans.size(); ++s) {
      const Span& span = b.step.spans[s];
      for (std::int64_t row = span.row; row < std::min(end, span.row + span.rows); ++row) {
        const std::int64_t position = span.first_token + row - span.row;
        const auto left = survey_.facts.cache.row_of(a.tensor, a.step, a.step.spans[s], position);
        const auto right = survey_.facts.cache.row_of(b.tensor, b.step, span, position);
        if (!left || !right) continue;
        const auto p = run_.row_values(a.tensor, *left);
        const auto q = run_.row_values(b.tensor, *right);
        if (!p || !q) return {};
        if (differ(*p, *q, b.tensor, depth)) slots.push_back(*right);
      }
    }
    return slots;
  }

  /// Rows whose tokens differ, by their ids, else by what is embedded of them.
  std::set<std::int64_t> changed_rows(const Step& a, const Step& b) {
    std::set<std::int64_t> changed;
    const auto compare_rows = [&](const Tensor& x, const Tensor& y) {
      for (std::int64_t row = 0; row < std::min(x.tokens, y.tokens); ++row) {
        const auto left = run_.row_values(x, row);
        const auto right = run_.row_values(y, row);
        if (left && right && *left != *right) changed.insert(row);
      }
    };
    for (const Op& op : run_.content(b.id).ops) {
      const Op* other = run_.find_op(a.id, op.layer, op.name);
      const Tensor* y = run_.result(op);
      const Tensor* x = other != nullptr ? run_.result(*other) : nullptr;
      const bool rows = x != nullptr && x->known && y->known && x->axis == Axis::rows;
      if (!rows || !(op.name == "tokens" || op.kind != OpKind::parameter)) continue;
      if (x->tokens != y->tokens || x->channels != y->channels) continue;
      compare_rows(*x, *y);
      return changed;  // the first that both have: ids, or the embedding, or the first norm
    }
    return changed;
  }

  std::vector<std::int64_t> differing(const Tensor& x, const Tensor& y, std::int64_t end, std::int64_t depth) {
    std::vector<std::int64_t> rows;
    if (!x.known || !y.known || x.stated || y.stated || x.tokens != y.tokens || x.channels != y.channels) return rows;
    for (std::int64_t row = 0; row < x.tokens; ++row) {
      const RowToken token = run_.token_of(y, row);
      if (token.span == nullptr || token.span->row + token.position - token.span->first_token >= end) continue;
      const auto left = run_.row_values(x, row);
      const auto right = run_.row_values(y, row);
      if (!left || !right) return {};
      if (differ(*left, *right, y, depth)) rows.push_back(row);
    }
    return rows;
  }

  /// By more than another order of summing does, in a tensor that `depth` ops lead to.
  bool differ(std::span<const float> left, std::span<const float> right, const Tensor& tensor, std::int64_t depth) {
    const bool exact = info(tensor.format).bits <= 8 || tensor.format == Format::i32;
    const double allowed =
        exact ? 0 : rounding_between_runs(roundoff(survey_.values().precision(tensor)), depth, std::ssize(left));
    double largest = 0;
    double off = 0;
    for (std::size_t c = 0; c < left.size(); ++c) {
      const double p = double{left[c]};
      const double q = double{right[c]};
      if (p == q || (std::isnan(p) && std::isnan(q))) continue;
      off = std::isfinite(p - q) ? std::max(off, std::abs(p - q)) : INFINITY;
      largest = std::max({largest, std::abs(p), std::abs(q)});
    }
    return off > allowed * largest;
  }

  Survey& survey_;
  RunView& run_;
};

}  // namespace

/// A token that depends on a later one: by a probability or a score that should be hidden, by an output that only a
/// leaking mask gives, or by two runs that differ before the token in which they differ.
Findings detect_future_leakage(Survey& survey) {
  Findings out;
  std::int64_t looked_at = 0;
  std::int64_t twins = 0;
  Twins(survey).look(out, twins);
  std::int64_t frames = 0;
  look_at_attention(survey, out, looked_at, frames);
  look_at_deviations(survey, out);
  std::int64_t blocks = 0;
  look_at_blocks(survey, out, blocks);
  merge_alike(out.found);
  const std::int64_t done_again = attention_done_again(survey);
  if (frames > 0 && out.found.empty()) {
    out.not_in_dump(
        "every attention op sees whole blocks of keys, as a mask by frames has it: whether the model means it was not "
        "dumped");
  } else if (looked_at + twins + done_again + blocks == 0) {
    out.not_in_dump(
        "no probabilities, scores or attention outputs of tokens that come one after the other were dumped");
  } else {
    out.excluded(fmt::format(
        "no key behind its token is seen in {}, {} recomputed{}{}", counted(looked_at, "attention op"), done_again,
        blocks > 0 ? fmt::format(", no scale is a later token's in {} over tokens", counted(blocks, "quantization"))
                   : "",
        twins > 0 ? fmt::format(", {} compared", counted(twins, "pair of runs")) : ""));
  }
  return out;
}

}  // namespace nanscope
