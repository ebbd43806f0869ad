/// Attention by blocks of keys, as recordings have it: a softmax's statistics of each block, and the sum of what the
/// blocks of a mix gave.
#include <algorithm>
#include <cmath>

#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"

namespace nanscope {

// softmax_partials

std::vector<OpForm> forms_softmax_partials(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the maximum and the sum of the scores of each block";
  return forms;
}
std::vector<OpForm> faults_softmax_partials(Values&, const Op&, const Tensor&) { return {}; }
std::int64_t cost_softmax_partials(Values&, const Op& op, const Tensor&) {
  return std::max<std::int64_t>(1, split_of<SoftmaxAttributes>(op)) * 8;
}

namespace {

/// Scores of a block of one head, and of what keys it is.
struct ScoreBlock {
  const float* scores = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_visible = 0;
  std::int64_t last_visible = 0;
  bool hidden_count = false;  ///< for the maximum: the mask multiplies

  bool sees(std::int64_t key) const { return key >= first_visible && key <= last_visible; }
};

/// Maximum and sum, and how far the sum may be off: a difference of scores by a rounding of itself, exp by one more,
/// what is summed by all of theirs. False where a score is not finite, whose way is the mask's own.
bool statistics_of(const ScoreBlock& block, double& max, double& sum, double& off) {
  max = -HUGE_VAL;
  for (std::int64_t key = block.begin; key < block.end; ++key) {
    const double score = double{block.scores[key]};
    if (!std::isfinite(score)) return false;
    if (block.hidden_count || block.sees(key)) max = std::max(max, score);
  }
  sum = 0;
  off = 0;
  for (std::int64_t key = block.begin; key < block.end; ++key) {
    if (!block.sees(key)) continue;
    const double below = max - double{block.scores[key]};
    sum += std::exp(-below);
    off += std::exp(-below) * kF32 * (below + 4);
  }
  off += sum * sum_error(block.end - block.begin, kF32);
  return true;
}

}  // namespace

bool predict_softmax_partials(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                              std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const auto* form = op.get<SoftmaxAttributes>();
  const Tensor* in = run.input(op, "scores");
  Block scores;
  if (!input_rows(values, op, "scores", out, first, count, scores, why)) return false;
  const std::int64_t split = split_of<SoftmaxAttributes>(op);
  const std::int64_t heads = in->heads;
  const std::int64_t keys = heads > 0 ? scores.columns / heads : 0;
  const std::int64_t blocks = split > 0 ? (keys + split - 1) / split : 0;
  if (form == nullptr || !form->first_position || blocks == 0 || out.channels != heads * blocks) {
    why = "its blocks of keys are not stated";
    return false;
  }
  into.resize(count, out.channels);
  for (std::int64_t t = 0; t < count; ++t) {
    ScoreBlock block;
    block.last_visible = *form->first_position + first + t;
    const std::int64_t behind = form->window ? block.last_visible - *form->window + 1 : 0;
    block.first_visible = std::max<std::int64_t>(form->first_key.value_or(0), behind);
    block.hidden_count = form->mask.value_or("") == "multiply";
    for (std::int64_t c = 0; c < out.channels; ++c) {
      block.scores = scores.row(t) + c / blocks * keys;
      block.begin = c % blocks * split;
      block.end = std::min(keys, block.begin + split);
      double max = 0;
      double sum = 0;
      double off = 0;
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      if (!statistics_of(block, max, sum, off)) {
        into.bound[at] = -1;
        continue;
      }
      into.value[at] = static_cast<float>(out.role == "max" ? max : sum);
      if (out.role != "max") into.bound[at] = static_cast<float>(1.01 * off + 1e-12);
    }
  }
  return true;
}

// combine_partials

std::vector<OpForm> forms_combine_partials(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the sum of what each block gave";
  return forms;
}
std::vector<OpForm> faults_combine_partials(Values&, const Op&, const Tensor&) { return {}; }
std::int64_t cost_combine_partials(Values& values, const Op& op, const Tensor& out) {
  const Tensor* in = values.run().input(op, "partials");
  return in != nullptr ? std::max<std::int64_t>(1, in->channels / std::max<std::int64_t>(1, out.channels)) : 1;
}

bool predict_combine_partials(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                              std::int64_t count, Prediction& into, std::string& why) {
  const auto* form = op.get<MixAttributes>();
  const std::int64_t heads = form != nullptr ? form->heads.value_or(0) : 0;
  if (heads <= 0 || out.channels % heads != 0) {
    why = "how many heads it has is not stated";
    return false;
  }
  const std::int64_t width = out.channels / heads;
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  into.resize(count, out.channels);
  std::fill(into.bound.begin(), into.bound.end(), -1.0F);
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    if (span == nullptr) return true;
    const Tensor* in = values.run().input(op, "partials", *span);
    Block parts;
    if (in == nullptr || !rows_like(values, *in, out, begin, end - begin, parts) || parts.columns % out.channels != 0) {
      why = "what it reads as partials was not dumped";
      return false;
    }
    const std::int64_t blocks = parts.columns / out.channels;
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t c = 0; c < out.channels; ++c) {
        double sum = 0;
        double size = 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          const double part = double{parts.row(row - begin)[(c / width * blocks + block) * width + c % width]};
          sum += part;
          size += std::abs(part);
        }
        if (!std::isfinite(sum)) continue;
        const auto at = static_cast<std::size_t>((row - first) * out.channels + c);
        into.value[at] = static_cast<float>(sum);
        into.bound[at] =
            static_cast<float>(1.01 * u * std::abs(sum) + sum_error(blocks, kF32) * size + least_error(kept));
      }
    }
    return true;
  });
}

}  // namespace nanscope
