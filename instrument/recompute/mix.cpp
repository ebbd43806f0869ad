/// Probabilities times values.
#include <algorithm>
#include <cmath>

#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {

std::vector<OpForm> forms_attention_mix(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  if (reads_scaled_codes(values, op, "v")) {
    OpForm form = forms.front();
    form.rounded = kToActivations;
    form.text = "values rounded as they were read back";
    forms.push_back(std::move(form));
  }
  if (cached_unseen(values, op, "v"))
    add_cached(forms, OpForm(forms.front()), "values from a cache of 8 bits that was not dumped");
  add_own_keys(values, op, "v", forms);
  return forms;
}

std::vector<OpForm> faults_attention_mix(Values& values, const Op& op, const Tensor& out) {
  const OpForm chosen = values.recomputer().form_of(op, out);
  std::vector<OpForm> forms = wrong_reads(values, op, "v", chosen);
  const Tensor* probs = values.run().input(op, "probs");
  if (probs != nullptr && probs->heads > 0)
    add_rotated_alone(values, op, forms, chosen, "v", out.channels / probs->heads);
  return forms;
}

std::int64_t cost_attention_mix(Values& values, const Op& op, const Tensor&) {
  const Tensor* p = values.run().input(op, "probs");
  return p != nullptr ? std::max<std::int64_t>(1, keys_of(*p)) : 1;
}

namespace {

/// Probabilities of `size` keys of a head, from `key` on, as many as there are.
void gather_weights(const Block& p, std::int64_t row, std::int64_t head, std::int64_t columns, std::int64_t key,
                    std::int64_t size, Line& weights) {
  weights.resize(std::clamp<std::int64_t>(columns - key, 0, size));
  for (std::size_t c = 0; c < weights.value.size(); ++c) {
    const std::int64_t at = head * columns + key + static_cast<std::int64_t>(c);
    weights.value[c] = double{p.row(row)[at]};
    weights.error[c] = double{p.off(row, at)};
  }
}

/// From number `first` of the prediction on: sums that are rounded by `u` of themselves, or by `least`.
void put(const Line& sums, double u, double least, std::int64_t first, Prediction& into) {
  for (std::size_t c = 0; c < sums.value.size(); ++c) {
    const std::size_t at = static_cast<std::size_t>(first) + c;
    into.value[at] = static_cast<float>(sums.value[c]);
    into.bound[at] =
        static_cast<float>(u * std::abs(sums.value[c]) + sums.error[c] + kDeviations * sums.deviation[c] + least);
    if (!into.deviation.empty() && sums.error[c] == 0)
      into.deviation[at] = static_cast<float>(std::hypot(sums.deviation[c], u * sums.value[c]));
  }
}

/// Of both kinds of mix: `split` keys are a block, whose sum stands by itself; 0: all are one.
bool predict_mix(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t split,
                 std::int64_t first, std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const Step* step = run.step(out.step);
  const Tensor* probs = run.input(op, "probs");
  const Tensor* v = run.input(op, "v");
  if (step == nullptr || probs == nullptr || v == nullptr) {
    why = "its probabilities or its values were not dumped";
    return false;
  }
  if (split > 0 && keys_of(*probs) <= 0) {
    why = "its probabilities go over no key";
    return false;
  }
  const std::int64_t heads = std::max<std::int64_t>(1, probs->heads);
  const std::int64_t blocks = split > 0 ? (keys_of(*probs) + split - 1) / split : 1;
  const std::int64_t width = out.known ? out.channels / heads / blocks : v->heads > 0 ? v->width() : 0;
  if (width <= 0) {
    why = "how many heads its values have is not known";
    return false;
  }
  into.resize(count, heads * blocks * width, -1.0F);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  if (u <= kF32) into.deviation.assign(into.bound.size(), 0.0F);
  const double narrow = roundoff(values.activation_format(out.step));
  const double rounded = probs->known && roundoff(values.precision(*probs)) < narrow ? narrow : 0;
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    if (span == nullptr) return true;
    // One tensor of probabilities for all sequences, or one each.
    const Tensor* own = run.input(op, "probs", *span);
    Block p;
    if (own == nullptr || !rows_like(values, *own, out, begin, end - begin, p)) {
      why = "what it reads as probs was not dumped";
      return false;
    }
    const std::int64_t columns = p.columns / heads;
    const auto rows = gather_keys(values, op, "v", *step, *span, columns, form, why);
    if (!rows) return false;
    const auto shared = heads_of(heads * width, rows->block.columns, heads, why);
    if (!shared) return false;
    const std::int64_t size = split > 0 ? split : columns;
    values.in_rows(end - begin, heads * blocks * size * width / 16, [&](std::int64_t from, std::int64_t to) {
      Line weights;
      Line line;
      for (std::int64_t at = from * heads * blocks; at < to * heads * blocks; ++at) {
        const std::int64_t row = at / (heads * blocks);
        const std::int64_t part = at % (heads * blocks);
        const std::int64_t head = part / blocks;
        const std::int64_t key = part % blocks * size;
        gather_weights(p, row, head, columns, key, size, weights);
        const std::int64_t group = shared->group_of(head, form.shift == kTiled) * width;
        if (!mix_line(weights, *rows, group, width, rounded, false, line, key)) continue;
        put(line, 1.01 * u, least_error_of_sum(kept, columns), (begin - first + row) * into.columns + part * width,
            into);
      }
    });
    return true;
  });
}

}  // namespace

bool predict_attention_mix(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                           std::int64_t count, Prediction& into, std::string& why) {
  return predict_mix(values, op, out, form, 0, first, count, into, why);
}

// mix_partials

std::vector<OpForm> forms_mix_partials(Values& values, const Op& op, const Tensor& out) {
  return forms_attention_mix(values, op, out);
}
std::vector<OpForm> faults_mix_partials(Values& values, const Op& op, const Tensor& out) {
  return wrong_reads(values, op, "v", values.recomputer().form_of(op, out));
}
std::int64_t cost_mix_partials(Values& values, const Op& op, const Tensor& out) {
  return std::clamp<std::int64_t>(split_of<MixAttributes>(op), 1, cost_attention_mix(values, op, out));
}

bool predict_mix_partials(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                          std::int64_t count, Prediction& into, std::string& why) {
  const std::int64_t split = split_of<MixAttributes>(op);
  if (split > 0) return predict_mix(values, op, out, form, split, first, count, into, why);
  why = "how many keys a block has is not stated";
  return false;
}

}  // namespace nanscope
