/// Scores, their softmax and the mix of values in one, as fused kernels do it.
#include <algorithm>
#include <cmath>

#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

std::int64_t columns_of(const Step& step) {
  return step.first_token() + step.rows / std::max<std::int64_t>(1, step.batch);
}

/// Heads that queries were rotated as; 0 where they were not, or it is not known.
std::int64_t heads_rotated(Values& values, const Tensor& q) {
  const Op* rope = values.run().maker(q);
  if (rope == nullptr || rope->kind != OpKind::rope) return 0;
  const OpForm form = values.recomputer().form_of(*rope, q);
  return values.recomputer().settled(*rope, q) ? form.heads : 0;
}

/// Where no shape states the heads, the numbers do, or the rotation that they came out of.
std::vector<std::int64_t> heads_to_try(Values& values, const Tensor& q, const Tensor& k) {
  if (q.heads > 1) return {q.heads};
  const std::int64_t rotated = heads_rotated(values, q);
  if (rotated > 0) return {rotated};
  return possible_heads(q.channels, k.heads > 1 ? k.width() : k.channels);
}

/// How many rows of each sequence come out, where all behind them are off: a window is as wide as the rows before its
/// first one that leaves a key out. 0: it shows in none, or not in all alike.
std::int64_t window_shown(const Step& step, const Recomputed& judged) {
  if (judged.rows != judged.rows_in_all) return 0;
  std::int64_t window = 0;
  for (const Span& span : step.spans) {
    const auto begin = std::lower_bound(judged.bad_rows.begin(), judged.bad_rows.end(), span.row);
    const auto end = std::lower_bound(begin, judged.bad_rows.end(), span.row + span.rows);
    if (span.first_token != 0) return 0;
    if (begin == end) continue;
    const std::int64_t right = *begin - span.row;
    if (end - begin != span.rows - right || (window != 0 && window != right)) return 0;
    window = right;
  }
  // A sequence that is longer has to show it.
  const bool all = std::all_of(step.spans.begin(), step.spans.end(), [&](const Span& span) {
    return span.rows <= window || std::binary_search(judged.bad_rows.begin(), judged.bad_rows.end(), span.row + window);
  });
  return all ? window : 0;
}

/// The window that gives what a row holds: in a short sequence of all that are narrower than what stands before it, in
/// a long one of powers of two and their neighbours (Phi-3 has 2047).
std::int64_t window_found(Values& values, const Op& op, const Tensor& out, const Step& step, OpForm form) {
  constexpr std::int64_t kShort = 1024;  ///< tokens, for each of which the row is computed
  const std::vector<std::int64_t> row = {step.spans.back().row + step.spans.back().rows - 1};
  const std::int64_t context = step.spans.back().context;
  const auto gives = [&](std::int64_t window) {
    form.window = window;
    const auto judged = values.recomputer().judge(op, out, form, row);
    return judged && judged->elements > 0 && judged->explained == judged->elements;
  };
  for (std::int64_t window = 1; window < context; window = context <= kShort ? window + 1 : 2 * window) {
    if (gives(window)) return window;
    for (const std::int64_t other : {window - 1, window + 1}) {
      if (context > kShort && window > 2 && other < context && gives(other)) return other;
    }
  }
  return 0;
}

/// Forms behind a causal mask, where no mask was dumped, and where it does not come out over all keys: over a window.
void add_windows(Values& values, const Op& op, const Tensor& out, const Step& step, std::vector<OpForm>& forms) {
  if (!out.known || step.spans.empty() || op.input("mask") != 0) return;
  const std::size_t plain = forms.size();
  for (std::size_t i = 0; i < plain; ++i) {
    OpForm form = forms[i];
    if (form.variant != kCausal) continue;
    const auto sample = values.recomputer().judge(op, out, form, {}, 8);
    if (!sample || sample->bad_rows.empty()) continue;
    const auto all = step.spans.front().rows > 1 ? values.recomputer().judge(op, out, form) : std::nullopt;
    form.window = all ? window_shown(step, *all) : window_found(values, op, out, step, form);
    if (form.window == 0) continue;
    form.text += ", over a window of " + std::to_string(form.window) + " keys";
    forms.push_back(std::move(form));
  }
}

/// The same with capped scores.
void add_capped(std::vector<OpForm>& forms) {
  const std::size_t plain = forms.size();
  for (const double cap : kCaps) {
    for (std::size_t i = 0; i < plain; ++i) {
      OpForm form = forms[i];
      form.cap = cap;
      form.text += ", scores capped";
      forms.push_back(std::move(form));
    }
  }
}

/// Whether a bound covers whatever any probabilities would give: scores so large that their rounding alone decides. A
/// form that is far off has such bounds, too, and is not shown by what keeps to them.
bool says_nothing(const KeyMatrix& values, const RowMask& mask, std::int64_t channel, double value, double error) {
  double least = INFINITY;
  double most = -INFINITY;
  for (std::int64_t key = 0; key < values.block.rows; ++key) {
    if (!mask.visible[static_cast<std::size_t>(key)]) continue;
    const double one = double{values.block.row(key)[channel]};
    if (!(one >= value - error && one <= value + error)) return false;
    least = std::min(least, one);
    most = std::max(most, one);
  }
  return least < most;
}

}  // namespace

std::vector<OpForm> forms_attention(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  const Tensor* q = values.run().input(op, "q");
  const Tensor* k = values.run().input(op, "k");
  const Step* step = values.run().step(out.step);
  if (q == nullptr || k == nullptr || step == nullptr) return forms;
  const auto add = [&](std::int64_t heads, int variant, const std::string& text) {
    // In f32 throughout, as fused kernels do, or with scores and probabilities rounded on the way.
    for (const int rounded : {kUnrounded, kToActivations}) {
      OpForm form;
      form.variant = variant;
      form.heads = heads;
      form.number = 1 / std::sqrt(static_cast<double>(q->channels) / static_cast<double>(heads));
      form.rounded = rounded;
      form.text = text + (rounded == kToActivations ? ", rounded on the way" : "");
      forms.push_back(std::move(form));
    }
  };
  const auto masks = [&](std::int64_t heads) {
    if (!step->spans.empty() && has_mask(values, op, key_columns(values, op, *step, step->spans.front()))) {
      add(heads, kGivenMask, "attention behind the dumped mask");
      add(heads, kGivenCausal, "attention behind the dumped and a causal mask");
    }
    add(heads, kCausal, "attention behind a causal mask");
    add(heads, kNoMask, "attention to all keys");
  };
  const std::vector<std::int64_t> possible = heads_to_try(values, *q, *k);
  double best = -1;
  std::int64_t chosen = possible.size() == 1 ? possible.front() : std::max<std::int64_t>(1, q->heads);
  for (const std::int64_t heads : possible) {
    if (possible.size() == 1) break;
    forms.clear();
    masks(heads);
    for (const OpForm& form : forms) {
      const auto judged = values.recomputer().judge(op, out, form, {}, 4);
      if (judged && judged->share() > best) best = judged->share(), chosen = heads;
    }
  }
  forms.clear();
  masks(chosen);
  const std::size_t plain = forms.size();
  add_capped(forms);
  add_windows(values, op, out, *step, forms);
  add_own_keys(values, op, "k", forms);
  if (!cached_unseen(values, op, "k")) return forms;
  for (std::size_t i = 0; i < plain; ++i) {
    if (forms[i].rounded == kToActivations)
      add_cached(forms, OpForm(forms[i]), " and in a cache of 8 bits that was not dumped");
  }
  return forms;
}

std::vector<OpForm> faults_attention(Values& values, const Op& op, const Tensor& out) {
  const OpForm chosen = values.recomputer().form_of(op, out);
  std::vector<OpForm> forms = wrong_masks(chosen);
  const auto add = [&](auto change, std::string text) {
    OpForm form = chosen;
    change(form);
    form.text = std::move(text);
    form.fault = true;
    forms.push_back(std::move(form));
  };
  add([](OpForm& form) { form.number = 1; }, "the factor of the scores left out");
  if (chosen.cap > 0) add([](OpForm& form) { form.cap = 0; }, "the cap of the scores left out");
  const Tensor* q = values.run().input(op, "q");
  const std::int64_t heads = std::max<std::int64_t>(1, chosen.heads);
  for (const char* role : {"k", "v"}) {
    if (q != nullptr) add_rotated_alone(values, op, forms, chosen, role, q->channels / heads);
  }
  return forms;
}

std::int64_t cost_attention(Values& values, const Op&, const Tensor& out) {
  const Step* step = values.run().step(out.step);
  return step != nullptr ? 4 * std::max<std::int64_t>(1, columns_of(*step)) : 1;
}

namespace {

/// What fused attention of the rows of a sequence goes by.
struct FusedRows {
  const Block& q;
  const KeyMatrix& k;
  const KeyMatrix& v;
  const Heads& heads;
  const OpForm& scoring;
  std::shared_ptr<const std::vector<float>> sinks;
  std::int64_t width = 0;  ///< of a head of values
  double rounded = 0;      ///< of scores; half of it of probabilities
  double u = 0;            ///< of what comes out
  double least = 0;
};

/// A row of all heads behind its mask.
void put_attention(const FusedRows& rows, const RowMask& mask, std::int64_t row, Prediction& into) {
  for (std::size_t key = 0; key < mask.visible.size(); ++key) {
    if (mask.visible[key] && !rows.k.there[key]) return;
  }
  Line scores;
  Line probs;
  Line line;
  ScoreProducts products;
  score_products(rows.q, row, rows.k, rows.heads, rows.scoring.shift == kTiled, products);
  for (std::int64_t head = 0; head < rows.heads.count; ++head) {
    score_line(rows.q, row, rows.k, rows.heads, head, rows.scoring, products, scores);
    const auto sink = rows.sinks ? std::optional(double{(*rows.sinks)[static_cast<std::size_t>(head)]}) : std::nullopt;
    if (!softmax_line(scores, mask, rows.rounded, sink, probs)) continue;
    const std::int64_t group = rows.heads.group_of(head, rows.scoring.shift == kTiled) * rows.width;
    if (!mix_line(probs, rows.v, group, rows.width, rows.rounded / 2, !sink, line)) continue;
    for (std::int64_t c = 0; c < rows.width; ++c) {
      const auto from = static_cast<std::size_t>(c);
      const auto at = static_cast<std::size_t>(row * into.columns + head * rows.width + c);
      into.value[at] = static_cast<float>(line.value[from]);
      const double off = line.error[from] + kDeviations * line.deviation[from];
      if (says_nothing(rows.v, mask, group + c, line.value[from], off)) continue;
      into.bound[at] = static_cast<float>(rows.u * std::abs(line.value[from]) + off + rows.least);
    }
  }
}

}  // namespace

bool predict_attention(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                       std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const Step* step = run.step(out.step);
  Block q;
  if (step == nullptr || form.number == 0) {
    why = "how many heads it has is not known";
    return false;
  }
  if (!input_rows(values, op, "q", out, first, count, q, why)) return false;
  into.resize(count, out.known ? out.channels : q.columns, -1.0F);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  const double inner = form.rounded != kUnrounded ? roundoff(values.activation_format(out.step)) : 0;
  OpForm reading;
  reading.rounded = form.rounded;
  OpForm reading_values = reading;
  (form.hadamard_of_values ? reading_values : reading).hadamard = form.hadamard;
  OpForm scoring = form;
  scoring.shift = form.tiled ? kTiled : kInTurn;  // that of the form is the mask's
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    if (span == nullptr) return true;
    const std::int64_t columns = key_columns(values, op, *step, *span);
    auto k = gather_keys(values, op, "k", *step, *span, columns, reading, why);
    const auto v = gather_keys(values, op, "v", *step, *span, columns, reading_values, why);
    if (!k || !v) return false;
    const auto heads = heads_of(q.columns, k->block.columns, form.heads, why);
    if (!heads || v->block.columns % heads->groups != 0) return false;
    measure_keys(*k, heads->width, u <= kF32);
    std::shared_ptr<const std::vector<float>> sinks;
    if (!read_sinks(values, op, form, heads->count, sinks, why)) return false;
    const std::int64_t width = v->block.columns / heads->groups;
    if (heads->count * width != into.columns) return false;
    const FusedRows rows{q, *k, *v, *heads, scoring, sinks, width, 2 * inner, 1.01 * u, least_error(kept)};
    std::vector<RowMask> masks;
    for (std::int64_t row = begin; row < end; ++row) {
      auto mask = row_mask(values, op, *step, *span, step_row(run, out, row, *span), k->position, form);
      if (!mask) {
        why = "its mask fits no rows";
        return false;
      }
      masks.push_back(std::move(*mask));
    }
    values.in_rows(end - begin, heads->count * columns * (heads->width + width) / 8,
                   [&](std::int64_t from, std::int64_t to) {
                     for (std::int64_t i = from; i < to; ++i)
                       put_attention(rows, masks[static_cast<std::size_t>(i)], begin - first + i, into);
                   });
    return true;
  });
}

}  // namespace nanscope
