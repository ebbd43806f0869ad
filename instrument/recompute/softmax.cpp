/// The softmax of scores over the keys that a mask leaves.
#include <algorithm>
#include <cmath>

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
  // The width of a window shows in the zeros of the last row.
  const std::int64_t columns = keys_of(out);
  if (!out.known || out.tokens == 0) return forms;
  const auto last = values.run().row_values(out, out.tokens - 1);
  if (!last) return forms;
  const std::int64_t seen = std::count_if(last->begin(), last->begin() + columns, [](float p) { return p > 0; });
  if (seen > 0 && seen < columns)
    add(kWindow, static_cast<double>(seen), "softmax of the scores behind a sliding window");
  return forms;
}

std::vector<OpForm> faults_softmax(Values& values, const Op& op, const Tensor& out) {
  return wrong_masks(values.recomputer().form_of(op, out));
}

std::int64_t cost_softmax(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out) * 8; }

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
  const std::int64_t columns = s.columns / heads;
  into.resize(count, s.columns);
  std::fill(into.bound.begin(), into.bound.end(), -1.0F);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  const double inner = in->known ? 0 : roundoff(values.activation_format(out.step));
  std::shared_ptr<const std::vector<float>> sinks;
  if (!read_sinks(values, op, form, heads, sinks, why)) return false;
  Line scores;
  Line line;
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end && span != nullptr; ++row) {
      const auto positions = column_positions(*step, *span, columns);
      auto mask = row_mask(values, op, *step, *span, step_row(run, out, row, *span), positions, form);
      if (!mask) {
        why = "its mask fits no rows";
        return false;
      }
      for (std::int64_t head = 0; head < heads; ++head) {
        scores.resize(columns);
        for (std::int64_t c = 0; c < columns; ++c) {
          scores.value[static_cast<std::size_t>(c)] = double{s.row(row - first)[head * columns + c]};
          scores.error[static_cast<std::size_t>(c)] = double{s.off(row - first, head * columns + c)};
        }
        const auto sink = sinks ? std::optional(double{(*sinks)[static_cast<std::size_t>(head)]}) : std::nullopt;
        if (!softmax_line(scores, *mask, inner, sink, line)) continue;
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto from = static_cast<std::size_t>(c);
          const auto at = static_cast<std::size_t>((row - first) * s.columns + head * columns + c);
          into.value[at] = static_cast<float>(line.value[from]);
          into.bound[at] =
              static_cast<float>(1.01 * u * line.value[from] + line.error[from] + least_error(kept) + 1e-12);
        }
      }
    }
    return true;
  });
}

}  // namespace nanscope
