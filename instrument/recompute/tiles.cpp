/// Attention over tiles of keys, and what block-scaled codes stand for, as recordings have them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/numbers/codec.h"
#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"

namespace nanscope {

std::vector<OpForm> forms_block_dequantise(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the code times its block's scale";
  return forms;
}
std::vector<OpForm> faults_block_dequantise(Values&, const Op&, const Tensor&) { return {}; }
std::int64_t cost_block_dequantise(Values& values, const Op& op, const Tensor& out) {
  return unit_cost(values, op, out);
}

bool predict_block_dequantise(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                              std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const Tensor* codes = run.input(op, "codes");
  const Tensor* scales = run.input(op, "scales");
  const auto* form = op.get<BlockAttributes>();
  const bool known = codes != nullptr && scales != nullptr && codes->known && scales->known;
  if (!known || form == nullptr || form->block.value_or(0) < 1 || codes->tokens != out.tokens) {
    why = "its codes or its scales were not dumped";
    return false;
  }
  const Op* maker = run.maker(*codes);
  const bool down = maker != nullptr && maker->kind == OpKind::quantise_columns;
  const std::int64_t size = *form->block;
  const Fact<TensorData> code = run.read(*codes, first, count);
  if (!code || code->channels != out.channels) {
    why = "its codes cannot be read";
    return false;
  }
  into.resize(count, out.channels);
  const double u = roundoff(values.precision(out)) + 2 * kF32;
  const Format kept = stored_format(values, out);
  for (std::int64_t t = 0; t < count; ++t) {
    const auto scale = run.row_values(*scales, down ? (first + t) / size : first + t);
    if (!scale) {
      why = "its scales cannot be read";
      return false;
    }
    for (std::int64_t c = 0; c < out.channels; ++c) {
      const auto of = static_cast<std::size_t>(down ? c : c / size);
      const auto at = static_cast<std::size_t>(t * out.channels + c);
      if (of >= scale->size()) {
        into.bound[at] = -1;
        continue;
      }
      const double value = double{decode(codes->format, code->code(t, c))} * double{(*scale)[of]};
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>(1.01 * u * std::abs(value) + least_error(kept));
    }
  }
  return true;
}

// tile_softmax

std::vector<OpForm> forms_tile_softmax(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the scores' softmax tile by tile";
  return forms;
}
std::vector<OpForm> faults_tile_softmax(Values&, const Op&, const Tensor&) { return {}; }
std::int64_t cost_tile_softmax(Values& values, const Op& op, const Tensor& out) {
  return unit_cost(values, op, out) * 8;
}

namespace {

/// The scores of one head of a row, and what it sees of them.
struct TileRow {
  std::vector<double> scores;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t tile = 32;

  std::int64_t tiles() const { return (static_cast<std::int64_t>(scores.size()) + tile - 1) / tile; }
  double max(std::int64_t from, std::int64_t to) const {
    double most = -HUGE_VAL;
    for (std::int64_t key = std::max(from, first); key <= std::min(to - 1, last); ++key)
      most = std::max(most, scores[static_cast<std::size_t>(key)]);
    return most;
  }
  double sum(std::int64_t from, std::int64_t to, double max) const {
    double all = 0;
    for (std::int64_t key = std::max(from, first); key <= std::min(to - 1, last); ++key)
      all += std::exp(scores[static_cast<std::size_t>(key)] - max);
    return all;
  }
};

/// Maximum and sum after each tile; without a running maximum those of the row, and 1.
void running(const TileRow& row, bool online, std::vector<double>& max, std::vector<double>& sum, double& divisor) {
  const auto keys = static_cast<std::int64_t>(row.scores.size());
  max.assign(static_cast<std::size_t>(row.tiles()), row.max(0, keys));
  sum.assign(static_cast<std::size_t>(row.tiles()), 1.0);
  divisor = online ? 1 : row.sum(0, keys, max.front());
  double top = -HUGE_VAL;
  double total = 0;
  for (std::int64_t n = 0; online && n < row.tiles(); ++n) {
    const double own = row.max(n * row.tile, (n + 1) * row.tile);
    if (own > -HUGE_VAL) {
      const double next = std::max(top, own);
      total = (top > -HUGE_VAL ? total * std::exp(top - next) : 0) + row.sum(n * row.tile, (n + 1) * row.tile, next);
      top = next;
    }
    max[static_cast<std::size_t>(n)] = top;
    sum[static_cast<std::size_t>(n)] = total;
  }
}

/// The scores of some rows of an op; of a row's own tile they may be others.
struct TileScores {
  Block all;
  Block own;
  bool has_own = false;

  const Block& of(std::int64_t tile, std::int64_t own_tile) const { return has_own && tile == own_tile ? own : all; }
};

bool read_scores(Values& values, const Op& op, const Tensor& out, std::int64_t first, std::int64_t count,
                 TileScores& into, std::string& why) {
  if (!input_rows(values, op, "scores", out, first, count, into.all, why)) return false;
  into.has_own = values.run().input(op, "exact_scores") != nullptr;
  return !into.has_own || input_rows(values, op, "exact_scores", out, first, count, into.own, why);
}

/// What one head of a row puts out: `role`, of which value and bound have a column each.
void predict_head(const TileRow& row, const SoftmaxAttributes& form, const std::string& role, double unit, Format kept,
                  std::span<float> value, std::span<float> bound) {
  const bool online = form.online.value_or(true);
  const auto keys = static_cast<std::int64_t>(row.scores.size());
  std::vector<double> max;
  std::vector<double> sum;
  double divisor = 1;
  running(row, online, max, sum, divisor);
  const double lowest = *std::min_element(row.scores.begin(), row.scores.end());
  for (std::size_t at = 0; at < value.size(); ++at) {
    const auto c = static_cast<std::int64_t>(at);
    const auto n = static_cast<std::size_t>(std::min(role == "probs" ? c / row.tile : c, row.tiles() - 1));
    if (role == "max") {
      value[at] = static_cast<float>(max[n]);
      continue;
    }
    // A difference of scores is off by a rounding of itself, exp by one more, and what is summed by all of theirs.
    const double spread = std::isfinite(max[n] - lowest) ? max[n] - lowest : 100;
    double exact = sum[n];
    double off = kF32 * (std::min(spread, 100.0) + 4) + sum_error(keys, kF32);
    if (role == "probs") {
      const bool seen = c >= row.first && c <= row.last && c < keys;
      const double below = seen ? max[n] - row.scores[at] : 0;
      exact = seen ? std::exp(-below) / divisor : 0;
      off = unit + kF32 * (std::min(below, 100.0) + 4) + (online ? 0 : off);
    }
    value[at] = static_cast<float>(exact);
    bound[at] =
        std::isfinite(exact) ? static_cast<float>(1.01 * off * std::abs(exact) + least_error(kept) + 1e-12) : -1.0F;
  }
}

}  // namespace

bool predict_tile_softmax(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                          std::int64_t count, Prediction& into, std::string& why) {
  RunView& run = values.run();
  const auto* form = op.get<SoftmaxAttributes>();
  TileScores scores;
  if (!read_scores(values, op, out, first, count, scores, why)) return false;
  const std::int64_t heads = run.input(op, "scores")->heads;
  const bool stated = form != nullptr && form->tile.value_or(0) > 0 && form->first_position;
  const bool sinks =
      std::any_of(op.inputs.begin(), op.inputs.end(), [](const Input& input) { return input.role == "sinks"; });
  if (!stated || sinks || heads <= 0 || scores.all.columns == 0 || scores.all.columns % heads != 0) {
    why = sinks ? "its sinks are not in the recording" : "its tiles are not stated";
    return false;
  }
  const std::int64_t keys = scores.all.columns / heads;
  const std::int64_t width = out.channels / heads;
  into.resize(count, out.channels);
  const double unit = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  TileRow row;
  row.tile = *form->tile;
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t own = run.token_of(out, first + t).position / row.tile;
    row.last = tokens_of(form->first_position) + first + t;
    const std::int64_t behind = form->window ? row.last - tokens_of(form->window) + 1 : 0;
    row.first = std::max<std::int64_t>(form->first_key.value_or(0), behind);
    for (std::int64_t head = 0; head < heads; ++head) {
      row.scores.clear();
      for (std::int64_t key = 0; key < keys; ++key) {
        row.scores.push_back(double{scores.of(key / row.tile, own).row(t)[head * keys + key]});
      }
      const auto at = static_cast<std::size_t>(t * out.channels + head * width);
      const auto columns = static_cast<std::size_t>(width);
      predict_head(row, *form, out.role, unit, kept, std::span(into.value).subspan(at, columns),
                   std::span(into.bound).subspan(at, columns));
    }
  }
  return true;
}

// tile_mix

std::vector<OpForm> forms_tile_mix(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = "the mix of its tiles over the last sum";
  return forms;
}
std::vector<OpForm> faults_tile_mix(Values&, const Op&, const Tensor&) { return {}; }
std::int64_t cost_tile_mix(Values& values, const Op& op, const Tensor&) {
  const Tensor* p = values.run().input(op, "probs");
  return p != nullptr ? std::max<std::int64_t>(1, p->channels / std::max<std::int64_t>(1, p->heads)) : 1;
}

namespace {

/// What a span's rows of a mix read.
struct MixRead {
  Block p, exact_p, max, sum;
  std::shared_ptr<const Block> v, exact_v;
};

bool read_mix(Values& values, const Op& op, const Tensor& out, const Span& span, std::int64_t first, std::int64_t count,
              bool exact, MixRead& into) {
  RunView& run = values.run();
  const auto like = [&](const char* role, Block& block) {
    const Tensor* in = run.input(op, role, span);
    return in != nullptr && rows_like(values, *in, out, first, count, block);
  };
  const auto whole = [&](const char* role, std::shared_ptr<const Block>& block) {
    const Tensor* in = run.input(op, role, span);
    if (in != nullptr && values.available(*in)) block = values.all(*in);
    return block != nullptr;
  };
  if (!like("probs", into.p) || !like("max", into.max) || !like("sum", into.sum) || !whole("v", into.v)) return false;
  return !exact || (like("exact_probs", into.exact_p) && whole("exact_v", into.exact_v));
}

struct MixHead {
  std::int64_t row, head, heads, width, kv_heads, tile, own;
};

/// One channel of one head of a row; false where a value that is not finite may have been read or not.
bool mix_channel(const MixRead& read, const MixHead& at, std::int64_t channel, double& value, double& bound) {
  const std::int64_t stride = read.p.columns / at.heads;
  const std::int64_t tiles = stride / at.tile;
  const std::int64_t column = at.head / std::max<std::int64_t>(1, at.heads / at.kv_heads) * at.width + channel;
  const float* max = read.max.row(at.row) + at.head * tiles;
  const double last = double{max[tiles - 1]};
  const double sum = double{read.sum.row(at.row)[(at.head + 1) * tiles - 1]};
  double mixed = 0;
  double size = 0;
  double spread = 0;
  for (std::int64_t key = 0; key < std::min(stride, read.v->rows); ++key) {
    const bool own = read.exact_v != nullptr && key / at.tile == at.own;
    const Block& weights = own ? read.exact_p : read.p;
    const double p = double{weights.row(at.row)[at.head * stride + key]};
    const double v = double{(own ? *read.exact_v : *read.v).row(key)[column]};
    if (p == 0 && std::isfinite(v)) continue;
    if (!std::isfinite(v)) return false;
    const double fade = last - double{max[key / at.tile]};
    mixed += p * v * std::exp(-fade);
    size += std::abs(p * v) * std::exp(-fade);
    spread = std::max(spread, fade);
  }
  value = mixed / sum;
  const double off = sum_error(stride, kF32) + kF32 * (std::min(spread, 100.0) + 4 * static_cast<double>(tiles) + 4);
  bound = off * size / std::abs(sum);
  return std::isfinite(value) && std::isfinite(bound);
}

}  // namespace

bool predict_tile_mix(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                      std::int64_t count, Prediction& into, std::string& why) {
  const auto* form = op.get<MixAttributes>();
  const std::string diagonal = form != nullptr ? form->diagonal.value_or("quantized") : "";
  const bool stated = form != nullptr && form->tile.value_or(0) > 0 && form->heads.value_or(0) > 0 &&
                      form->kv_heads.value_or(0) > 0 && out.channels % form->heads.value_or(1) == 0;
  if (!stated || diagonal == "past") {
    why = stated ? "values that are quantized again for each token are not computed again" : "its tiles are not stated";
    return false;
  }
  into.resize(count, out.channels, -1.0F);
  const double u = stored_roundoff(values, out);
  const Format kept = stored_format(values, out);
  const std::int64_t width = out.channels / *form->heads;
  return each_span(values, out, first, count, [&](const Span* span, std::int64_t begin, std::int64_t end) {
    if (span == nullptr) return true;
    MixRead read;
    if (!read_mix(values, op, out, *span, begin, end - begin, diagonal == "exact", read)) {
      why = "what it reads was not dumped";
      return false;
    }
    if (read.v->columns != *form->kv_heads * width || read.p.columns % (*form->heads * *form->tile) != 0) {
      why = "the shapes of what it reads do not fit";
      return false;
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t own = values.run().token_of(out, row).position / *form->tile;
      for (std::int64_t c = 0; c < out.channels; ++c) {
        double value = 0;
        double bound = 0;
        const MixHead at{row - begin, c / width, *form->heads, width, *form->kv_heads, *form->tile, own};
        if (!mix_channel(read, at, c % width, value, bound)) continue;
        const auto to = static_cast<std::size_t>((row - first) * out.channels + c);
        into.value[to] = static_cast<float>(value);
        into.bound[to] = static_cast<float>(1.01 * u * std::abs(value) + bound + least_error(kept));
      }
    }
    return true;
  });
}

}  // namespace nanscope
