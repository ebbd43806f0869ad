/// The softmax of scores over the keys that a mask leaves.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {

std::vector<OpForm> forms_softmax(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  const auto add = [&](int variant, double number, std::string text) {
    OpForm form;
    form.variant = variant;
    form.number = number;
    form.text = std::move(text);
    forms.push_back(std::move(form));
  };
  const auto* stated = op.get<SoftmaxAttributes>();
  if (stated != nullptr && stated->window) {
    add(kWindow, static_cast<double>(*stated->window), "softmax of the scores behind the stated window");
  }
  add(kNoMask, 0, "softmax of the scores");
  add(kCausal, 0, "softmax of the scores behind a causal mask");
  if (has_mask(values, op, keys_of(out))) {
    add(kGivenMask, 0, "softmax of the scores behind the dumped mask");
    add(kGivenCausal, 0, "softmax of the scores behind the dumped and a causal mask");
  }
  // The width of a window shows in the zeros of the last row, and of one on both sides in those of the first.
  const std::int64_t columns = keys_of(out);
  if (!out.known || out.tokens == 0) return forms;
  const auto seen_in = [&](std::int64_t row) {
    const auto p = values.run().row_values(out, row);
    return p ? std::count_if(p->begin(), p->begin() + columns, [](float one) { return one > 0; }) : 0;
  };
  const std::int64_t seen = seen_in(out.tokens - 1);
  if (seen > 0 && seen < columns)
    add(kWindow, static_cast<double>(seen), "softmax of the scores behind a sliding window");
  const RowToken first = values.run().token_of(out, 0);
  const std::int64_t ahead = first.span != nullptr && first.position == 0 ? seen_in(0) : 0;
  if (ahead > 1 && ahead < std::min(columns, first.span->context))
    add(kAround, static_cast<double>(ahead - 1), "softmax of the scores behind a window on both sides");
  return forms;
}

std::vector<OpForm> faults_softmax(Values& values, const Op& op, const Tensor& out) {
  return wrong_masks(values.recomputer().form_of(op, out));
}

std::int64_t cost_softmax(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 8; }

namespace {

/// What the softmax of rows of scores goes by.
struct SoftmaxRows {
  const Block& scores;
  std::int64_t columns = 0;  ///< of a head
  std::int64_t heads = 0;
  double rounded = 0;  ///< of the scores
  double u = 0;        ///< of what comes out
  double least = 0;
  std::shared_ptr<const std::vector<float>> sinks;
};

/// A row of all heads behind its mask.
void put_softmax(const SoftmaxRows& rows, const RowMask& mask, std::int64_t row, Line& scores, Line& line,
                 Prediction& into) {
  constexpr double kLeast = 0x1p-126;  // kernels may flush what is below the smallest normal number of f32 to 0
  for (std::int64_t head = 0; head < rows.heads; ++head) {
    const std::int64_t first = head * rows.columns;
    scores.resize(rows.columns);
    for (std::int64_t c = 0; c < rows.columns; ++c) {
      scores.value[static_cast<std::size_t>(c)] = double{rows.scores.row(row)[first + c]};
      scores.error[static_cast<std::size_t>(c)] = double{rows.scores.off(row, first + c)};
    }
    const auto sink = rows.sinks ? std::optional(double{(*rows.sinks)[static_cast<std::size_t>(head)]}) : std::nullopt;
    if (!softmax_line(scores, mask, rows.rounded, sink, line)) continue;
    float* value = into.value.data() + row * rows.scores.columns + first;
    float* bound = into.bound.data() + row * rows.scores.columns + first;
    for (std::size_t c = 0; c < line.value.size(); ++c) {
      value[c] = static_cast<float>(line.value[c]);
      bound[c] = static_cast<float>(1.01 * rows.u * line.value[c] + line.error[c] + kDeviations * line.deviation[c] +
                                    rows.least + kLeast);
    }
    // Stored and expected are rounded once each. The error of exp is taken whole, as it need not be random.
    for (std::size_t c = 0; !into.deviation.empty() && c < line.value.size(); ++c) {
      const double deviation = std::hypot(line.deviation[c], line.error[c], rows.u * line.value[c]);
      if (deviation > kLeast)
        into.deviation[static_cast<std::size_t>(row * rows.scores.columns + first) + c] = static_cast<float>(deviation);
    }
  }
}

/// Whether probabilities sum to less than 1, by more than rounding, in every row of some head, or in every head where a
/// token sees one key alone, whose probability is 1 whatever its score: a learned sink takes the rest, or the sum is a
/// wrong one.
bool sums_below_one(Values& values, const Tensor& out, std::int64_t heads) {
  const std::int64_t columns = out.channels / heads;
  // Each probability is rounded once, and the sum of n powers in f32 is off by n roundings at most.
  const double least = 1 - 1.01 * (stored_roundoff(values, out) + static_cast<double>(columns) * kF32);
  std::vector<char> all_rows(static_cast<std::size_t>(heads), 1);
  bool alone = false;
  bool all_alone = true;
  std::int64_t rows = 0;
  for (std::int64_t row = 0; row < out.tokens; ++row) {
    const bool open = all_alone || std::count(all_rows.begin(), all_rows.end(), 1) > 0;
    if (!open) return false;
    if (!values.facts().live(out, row)) continue;
    const auto probabilities = values.run().row_values(out, row);
    if (!probabilities) continue;
    ++rows;
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto first = probabilities->begin() + head * columns;
      const bool below = std::accumulate(first, first + columns, 0.0) < least;
      const bool one_key = std::count_if(first, first + columns, [](float p) { return p > 0; }) == 1;
      if (!below) all_rows[static_cast<std::size_t>(head)] = 0;
      alone = alone || one_key;
      all_alone = all_alone && (below || !one_key);
    }
  }
  return (alone && all_alone) || (rows > 1 && std::count(all_rows.begin(), all_rows.end(), 1) > 0);
}

}  // namespace

bool predict_softmax(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                     std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const Step* step = run.step(out.step);
  const Tensor* in = run.input(op, "scores");
  Block s;
  if (step == nullptr || in == nullptr || !input_rows(values, op, "scores", out, first, count, s, why)) return false;
  const std::int64_t heads = out.known ? out.heads : in->heads;
  if (heads <= 0 || s.columns % heads != 0 || (out.known && s.columns != out.channels)) {
    why = "scores and probabilities go over different keys";
    return false;
  }
  into.resize(count, s.columns, -1.0F);
  SoftmaxRows rows{s,
                   s.columns / heads,
                   heads,
                   in->known ? 0 : roundoff(values.activation_format(out.step)),
                   stored_roundoff(values, out),
                   least_error(stored_format(values, out)),
                   nullptr};
  if (in->known && rows.u <= kF32) into.deviation.assign(into.bound.size(), 0.0F);
  if (!read_sinks(values, op, form, heads, rows.sinks, why)) return false;
  if (!rows.sinks && !form.without_sinks && out.known && sums_below_one(values, out, heads)) {
    why = "its rows sum to less than 1, and no attention sinks were dumped";
    return false;
  }
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    if (span == nullptr) return true;
    const auto positions = column_positions(*step, *span, rows.columns);
    std::vector<RowMask> masks;
    for (std::int64_t row = begin; row < end; ++row) {
      auto mask = row_mask(values, op, *step, *span, step_row(run, out, row, *span), positions, form);
      if (!mask) {
        why = "its mask fits no rows";
        return false;
      }
      masks.push_back(std::move(*mask));
    }
    values.in_rows(end - begin, 8 * s.columns, [&](std::int64_t from, std::int64_t to) {
      Line scores;
      Line line;
      for (std::int64_t i = from; i < to; ++i)
        put_softmax(rows, masks[static_cast<std::size_t>(i)], begin - first + i, scores, line, into);
    });
    return true;
  });
}

}  // namespace nanscope
