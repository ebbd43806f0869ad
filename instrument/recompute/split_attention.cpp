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
std::int64_t cost_softmax_partials(Values& values, const Op& op, const Tensor&) {
  const Tensor* scores = values.run().input(op, "scores");
  const std::int64_t keys = scores != nullptr ? scores->channels / std::max<std::int64_t>(1, scores->heads) : 1;
  return std::max<std::int64_t>(1, std::min(keys, split_of<SoftmaxAttributes>(op))) * 8;
}

namespace {

struct BlockStatistics {
  double value = 0;
  double off = 0;
};

/// Scores of a block of one head, and of what keys it is.
struct ScoreBlock {
  const Block* scores = nullptr;
  std::int64_t row = 0;
  std::int64_t column = 0;  ///< of the head's first key
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_visible = 0;
  std::int64_t last_visible = 0;
  bool hidden_count = false;  ///< for the maximum: the mask multiplies

  double score(std::int64_t key) const { return double{scores->row(row)[column + key]}; }
  double off(std::int64_t key) const { return double{scores->off(row, column + key)}; }
  bool sees(std::int64_t key) const { return key >= first_visible && key <= last_visible; }
};

/// Maximum and sum, and how far each may be off: the maximum by what the scores are, of the sum a difference of scores
/// by that on both sides and a rounding of itself, exp by one more, what is summed by all of theirs. False where a
/// score is not finite, whose way is the mask's own.
bool statistics_of(const ScoreBlock& block, BlockStatistics& max, BlockStatistics& sum) {
  max = {-HUGE_VAL, 0};
  for (std::int64_t key = block.begin; key < block.end; ++key) {
    const double score = block.score(key);
    if (!std::isfinite(score)) return false;
    max.off = std::max(max.off, block.off(key));
    if (block.hidden_count || block.sees(key)) max.value = std::max(max.value, score);
  }
  sum = {};
  for (std::int64_t key = block.begin; key < block.end; ++key) {
    if (!block.sees(key)) continue;
    const double below = max.value - block.score(key);
    sum.value += std::exp(-below);
    sum.off += std::exp(-below) * (kF32 * (below + 4) + std::expm1(max.off + block.off(key)));
  }
  sum.off += sum.value * sum_error(block.end - block.begin, kF32);
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
    block.scores = &scores;
    block.row = t;
    block.last_visible = tokens_of(form->first_position) + first + t;
    const std::int64_t behind = form->window ? block.last_visible - tokens_of(form->window) + 1 : 0;
    block.first_visible = std::max<std::int64_t>(form->first_key.value_or(0), behind);
    block.hidden_count = form->mask.value_or("") == "multiply";
    for (std::int64_t c = 0; c < out.channels; ++c) {
      block.column = c / blocks * keys;
      block.begin = c % blocks * split;
      block.end = std::min(keys, block.begin + split);
      BlockStatistics max;
      BlockStatistics sum;
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      if (!statistics_of(block, max, sum)) {
        into.bound[at] = -1;
        continue;
      }
      into.value[at] = static_cast<float>(out.role == "max" ? max.value : sum.value);
      into.bound[at] = static_cast<float>(out.role == "max" ? 1.01 * max.off : 1.01 * sum.off + 1e-12);
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
  into.resize(count, out.channels, -1.0F);
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
        double off = 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int64_t column = (c / width * blocks + block) * width + c % width;
          const double part = double{parts.row(row - begin)[column]};
          sum += part;
          size += std::abs(part);
          off += double{parts.off(row - begin, column)};
        }
        if (!std::isfinite(sum)) continue;
        const auto at = static_cast<std::size_t>((row - first) * out.channels + c);
        into.value[at] = static_cast<float>(sum);
        into.bound[at] =
            static_cast<float>(1.01 * (u * std::abs(sum) + off) + sum_error(blocks, kF32) * size + least_error(kept));
      }
    }
    return true;
  });
}

}  // namespace nanscope
