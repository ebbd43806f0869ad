#include "instrument/recompute/keys.h"

#include <algorithm>
#include <cmath>

#include "core/numbers/codec.h"
#include "core/run/mask.h"
#include "core/run/scale_grid.h"
#include "core/run/scales.h"
#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/bounds.h"

namespace nanscope {
namespace {

class KeyGatherer {
 public:
  KeyGatherer(Values& values, const Op& op, std::string_view role, const Span& span, const OpForm& form)
      : values_(values), run_(values.run()), form_(form), in_(run_.input(op, role, span)) {
    const Tensor* own = form.own_keys && span.first_token == 0 ? run_.input(op, std::string(role) + "_own") : nullptr;
    if (own != nullptr) in_ = own;
    const Tensor* scale = run_.input(op, std::string(role) + "_scale");
    const bool codes = in_ != nullptr && in_->known && info(in_->format).bits <= 8;
    if (scale != nullptr && codes) grid_ = ScaleGrid::of(run_, *scale, *in_);
    codes_ = codes;
    if (codes) kept_ = values.activation_format(op.step);
  }

  const Tensor* input() const { return in_; }

  /// A row with its error; false when it cannot be had.
  bool row(const Tensor& from, std::int64_t at, float* value, float* error, bool& any_error) {
    if (from.known) {
      const auto got = run_.row_values(from, at);
      if (!got) return false;
      std::copy(got->begin(), got->end(), value);
    } else {
      const auto whole = values_.all(from);
      if (!whole || at >= whole->rows) return false;
      std::copy_n(whole->row(at), whole->columns, value);
      for (std::int64_t c = 0; c < whole->columns; ++c) error[c] = whole->off(at, c);
      any_error = true;
    }
    if (codes_ && (grid_ || form_.as)) scale(from, at, value);
    return true;
  }

 private:
  void scale(const Tensor& from, std::int64_t at, float* value) {
    if (form_.as && *form_.as != from.format) {
      const Fact<TensorData> data = run_.read(from, at, 1);
      if (data && data->channels == from.channels) std::ranges::copy(data->values_as(*form_.as), value);
    }
    for (std::int64_t c = 0; grid_ && c < from.channels; ++c) {
      value[c] = static_cast<float>(double{value[c]} * powered(grid_->at(at, c), form_.scale_power));
      if (form_.rounded == kToActivations) value[c] = decode(kept_, encode(kept_, value[c], Overflow::overflow));
    }
  }

  Values& values_;
  RunView& run_;
  const OpForm& form_;
  const Tensor* in_;
  std::optional<ScaleGrid> grid_;
  bool codes_ = false;
  Format kept_ = Format::f32;  ///< of activations
};

/// Each `width` channels times H / sqrt(width), H the matrix of signs that multiplies by popcount of the indices' bits
/// in common (Sylvester's); by sums and differences, of which a stage is one rounding.
void rotate_by_signs(Block& block, std::int64_t width) {
  const auto size = static_cast<std::size_t>(width);
  const double root = std::sqrt(static_cast<double>(width));
  const double stages = std::log2(static_cast<double>(width)) + 2;
  std::vector<double> line(size);
  for (std::size_t first = 0; first + size <= block.value.size(); first += size) {
    double magnitudes = 0;
    double off = 0;
    for (std::size_t i = 0; i < size; ++i) {
      line[i] = double{block.value[first + i]};
      magnitudes += std::abs(line[i]);
      off += block.error.empty() ? 0.0 : double{block.error[first + i]};
    }
    for (std::size_t half = 1; half < size; half *= 2) {
      for (std::size_t i = 0; i < size; ++i) {
        if ((i & half) != 0) continue;
        const double a = line[i];
        const double b = line[i + half];
        line[i] = a + b;
        line[i + half] = a - b;
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      block.value[first + i] = static_cast<float>(line[i] / root);
      if (!block.error.empty()) block.error[first + i] = static_cast<float>((off + stages * kF32 * magnitudes) / root);
    }
  }
}

bool own_of_step(const Tensor* in) { return in != nullptr && in->axis == Axis::rows && info(in->format).bits > 8; }

/// Whether values of shared heads came out as they were (false) or as 8 bits leave them (true); nothing where neither.
std::optional<bool> moved_by_cast(const std::vector<float>& in, const std::vector<float>& made, std::int64_t heads,
                                  double stored) {
  const double coarse = 1.1 * roundoff(Format::e5m2);
  const auto width = static_cast<std::int64_t>(made.size()) / heads;
  const std::int64_t shared = std::max<std::int64_t>(1, static_cast<std::int64_t>(in.size()) / width);
  std::size_t moved = 0;
  for (std::size_t c = 0; c < made.size(); ++c) {
    const auto channel = static_cast<std::int64_t>(c);
    const std::int64_t from = channel / width * shared / heads * width + channel % width;
    const double value = double{in[static_cast<std::size_t>(from)]};
    const double off = std::abs(double{made[c]} - value);
    if (off > coarse * std::abs(value) + least_error(Format::e4m3)) return std::nullopt;
    moved += off > 4 * stored * std::abs(value) ? 1 : 0;
  }
  return 4 * moved > made.size();
}

/// A value of a first token, and what attention made of it.
struct FirstValue {
  std::vector<float> in;
  std::vector<float> made;
  double stored = 0;  ///< roundoff of the coarser of the two
};

std::optional<FirstValue> first_value(Values& values, const Op& mix, const Step& step) {
  const Tensor* v = values.run().input(mix, "v");
  const Tensor* out = values.run().result(mix);
  const bool there = own_of_step(v) && v->known && out != nullptr && out->known && !out->stated && !v->stated;
  if (!there || out->axis != Axis::rows || v->channels == 0 || out->channels % v->channels != 0) return std::nullopt;
  const auto first = std::find_if(step.spans.begin(), step.spans.end(),
                                  [](const Span& span) { return span.first_token == 0 && span.rows > 0; });
  if (first == step.spans.end()) return std::nullopt;
  const auto in = values.run().row_values(*v, first->row);
  const auto made = values.run().row_values(*out, first->row);
  if (!in || !made) return std::nullopt;
  return FirstValue{*in, *made, std::max(roundoff(v->format), roundoff(out->format))};
}

/// A causal mask leaves the first token its own value alone: whether that came out as it was (false), as 8 bits leave
/// it (true), or otherwise, or was not dumped (nothing).
std::optional<bool> first_value_cast(Values& values, const Op& mix, const Step& step) {
  const auto first = first_value(values, mix, step);
  if (!first) return std::nullopt;
  const Tensor& v = *values.run().input(mix, "v");
  const auto channels = static_cast<std::int64_t>(first->made.size());
  // Where no shape states the heads, any that fit may be theirs.
  const std::vector<std::int64_t> possible =
      v.heads > 1 ? std::vector{channels / v.width()} : possible_heads(channels, v.channels);
  for (const std::int64_t heads : possible) {
    if (const auto moved = moved_by_cast(first->in, first->made, heads, first->stored)) return moved;
  }
  return std::nullopt;
}

}  // namespace

namespace {

/// The row that a request wrote for a position before a step, in the tensor of the same op and role.
std::optional<std::pair<const Tensor*, std::int64_t>> row_of_request(RunView& run, const Tensor& now, const Step& step,
                                                                     std::int64_t request, std::int64_t position) {
  const Op* maker = run.maker(now);
  if (maker == nullptr) return std::nullopt;
  const std::span<const Step> steps = run.steps();
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Step& other = steps[i];
    if (other.id >= step.id || other.rank != step.rank || other.run != step.run) continue;
    for (const Span& before : other.spans) {
      if (before.request != request || position < before.first_token || position >= before.first_token + before.rows)
        continue;
      const Op* op = run.find_op(other.id, maker->layer, maker->name);
      const Tensor* tensor = op != nullptr ? run.output(*op, now.role) : nullptr;
      const auto row = tensor != nullptr ? run.row_at(*tensor, before, position) : std::nullopt;
      if (row) return std::pair(tensor, *row);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::pair<const Tensor*, std::int64_t>> row_before(RunView& run, const Tensor& now, const Step& step,
                                                                 const Span& span, std::int64_t position) {
  const auto own = row_of_request(run, now, step, span.request, position);
  // The other goes on with tokens of its own behind the prefix that both have.
  if (own || span.prefix_of < 0) return own;
  return row_of_request(run, now, step, span.prefix_of, position);
}

std::int64_t key_columns(Values& values, const Op& op, const Step& step, const Span& span) {
  const std::int64_t length = step.rows / std::max<std::int64_t>(1, step.batch);
  const std::int64_t columns = step.batch > 1 ? std::max(length, span.context) : span.context;
  const Tensor* mask = values.run().input(op, "mask");
  const Tensor* keys = values.run().input(op, "k");
  // A cache of a fixed length: its mask has a column a slot.
  const bool fixed = step.batch <= 1 && keys != nullptr && keys->known && mask != nullptr && mask->known &&
                     (keys->axis == Axis::keys || keys->axis == Axis::slots) && keys->tokens == mask->channels;
  if (fixed && mask->channels > columns) return mask->channels;
  // Sequences that were packed into one share a mask of all its rows.
  const bool packed = step.batch <= 1 && step.spans.size() > 1 && span.context == span.rows;
  if (packed && mask != nullptr && mask->known && mask->channels == step.rows) return step.rows;
  const bool narrower = mask != nullptr && mask->known && mask->channels >= length && mask->channels > 1;
  return narrower ? std::min(columns, mask->channels) : columns;
}

std::optional<KeyMatrix> gather_keys(Values& values, const Op& op, std::string_view role, const Step& step,
                                     const Span& span, std::int64_t columns, const OpForm& form, std::string& why) {
  RunView& run = values.run();
  KeyGatherer gatherer(values, op, role, span, form);
  const Tensor* in = gatherer.input();
  if (in == nullptr || !values.available(*in)) {
    why = std::string("what it reads as ") + std::string(role) + " was not dumped";
    return std::nullopt;
  }
  std::int64_t width = in->channels;
  if (!in->known) {
    const auto whole = values.all(*in);
    if (!whole) {
      why = std::string("what it reads as ") + std::string(role) + " cannot be computed";
      return std::nullopt;
    }
    width = whole->columns;
  }
  KeyMatrix out;
  out.position = column_positions(step, span, columns);
  out.block = {columns, width, std::vector<float>(static_cast<std::size_t>(columns * width), 0.0F),
               std::vector<float>(static_cast<std::size_t>(columns * width), 0.0F)};
  out.there.assign(static_cast<std::size_t>(columns), false);
  bool errors = false;
  for (std::int64_t column = 0; column < columns; ++column) {
    const std::int64_t position = out.position[static_cast<std::size_t>(column)];
    float* value = out.block.value.data() + column * width;
    float* error = out.block.error.data() + column * width;
    if (position < 0) continue;
    const auto row = values.facts().cache.row_of(*in, step, span, position);
    if (row) {
      out.there[static_cast<std::size_t>(column)] = gatherer.row(*in, *row, value, error, errors);
    } else if (const auto before = row_before(run, *in, step, span, position);
               before && before->first->channels == width) {
      out.there[static_cast<std::size_t>(column)] = gatherer.row(*before->first, before->second, value, error, errors);
    }
  }
  out.all_there = std::find(out.there.begin(), out.there.end(), false) == out.there.end();
  // Rotation goes before quantization.
  if (form.hadamard > 0 && width % form.hadamard == 0) rotate_by_signs(out.block, form.hadamard);
  if (form.rounded == kByCache || form.rounded == kByCoarseCache) {
    const Format cast = form.rounded == kByCache ? Format::e4m3 : Format::e5m2;
    const auto coarse = static_cast<float>(roundoff(cast));
    const auto least = static_cast<float>(least_error(cast));  // under a scale of 1; one from the values loses less
    for (std::size_t i = 0; i < out.block.value.size(); ++i)
      out.block.error[i] += coarse * std::abs(out.block.value[i]) + least;
    errors = true;
  }
  if (!errors) out.block.error.clear();
  return out;
}

std::vector<std::int64_t> heads_that_copy(Values& values, const Op& op, std::int64_t query_channels,
                                          std::int64_t key_channels) {
  std::vector<std::int64_t> possible = possible_heads(query_channels, key_channels);
  const Step* step = values.run().step(op.step);
  for (const Op& mix : values.run().content(op.step).ops) {
    if ((mix.kind != OpKind::attention && mix.kind != OpKind::attention_mix) || mix.layer != op.layer) continue;
    const auto first = step != nullptr ? first_value(values, mix, *step) : std::nullopt;
    const bool alike = first && static_cast<std::int64_t>(first->made.size()) == query_channels &&
                       static_cast<std::int64_t>(first->in.size()) == key_channels;
    std::vector<std::int64_t> heads;
    for (const std::int64_t one : possible) {
      if (alike && moved_by_cast(first->in, first->made, one, first->stored)) heads.push_back(one);
    }
    if (!heads.empty()) return heads;
  }
  return possible;
}

bool reads_scaled_codes(Values& values, const Op& op, std::string_view role) {
  const Tensor* in = values.run().input(op, role);
  return in != nullptr && in->known && info(in->format).bits <= 8 &&
         values.run().input(op, std::string(role) + "_scale") != nullptr;
}

void add_own_keys(Values& values, const Op& op, std::string_view role, std::vector<OpForm>& forms) {
  const Step* step = values.run().step(op.step);
  const Tensor* own = values.run().input(op, std::string(role) + "_own");
  if (own == nullptr || step == nullptr || !values.available(*own)) return;
  if (std::any_of(step->spans.begin(), step->spans.end(), [](const Span& span) { return span.first_token > 0; }))
    return;
  const std::size_t count = forms.size();
  for (std::size_t i = 0; i < count; ++i) {
    OpForm form = forms[i];
    form.own_keys = true;
    form.text += ", of keys and values before they were stored";
    forms.push_back(std::move(form));
  }
}

bool cached_unseen(Values& values, const Op& op, std::string_view role) {
  if (!own_of_step(values.run().input(op, role))) return false;
  const Step* now = values.run().step(op.step);
  for (const Step& step : values.run().steps()) {
    if (now == nullptr || step.id > now->id) break;
    if (step.rank != now->rank || step.run != now->run) continue;
    for (const Op& mix : values.run().content(step.id).ops) {
      const bool reads = mix.kind == OpKind::attention || mix.kind == OpKind::attention_mix;
      if (!reads || mix.layer != op.layer) continue;
      if (const auto shown = first_value_cast(values, mix, step)) return *shown;
    }
  }
  return false;
}

void add_cached(std::vector<OpForm>& forms, const OpForm& plain, std::string_view said) {
  for (const int rounded : {kByCache, kByCoarseCache}) {
    OpForm form = plain;
    form.rounded = rounded;
    form.only_whole = true;
    form.text += said;
    forms.push_back(std::move(form));
  }
}

void add_rotated_alone(Values& values, const Op& op, std::vector<OpForm>& forms, const OpForm& chosen,
                       std::string_view role, std::int64_t width) {
  const std::int64_t block = width > 0 ? width & -width : 0;
  if (block < 2) return;
  OpForm form = chosen;
  form.hadamard = block;
  form.hadamard_of_values = role == "v";
  form.fault = true;
  form.text = role == "v" ? "values rotated by a Hadamard matrix and the output not turned back (llama.cpp #25382)"
                          : "keys rotated by a Hadamard matrix and queries not (llama.cpp #25382)";
  forms.push_back(form);
  const Step* step = values.run().step(op.step);
  const bool cached =
      step != nullptr && own_of_step(values.run().input(op, role)) &&
      std::any_of(step->spans.begin(), step->spans.end(), [](const Span& span) { return span.first_token > 0; });
  if (!cached || form.rounded == kByCache || form.rounded == kByCoarseCache) return;
  form.rounded = kByCache;
  form.only_whole = true;
  form.text += ", in a cache of 8 bits";
  forms.push_back(std::move(form));
}

std::vector<OpForm> wrong_masks(const OpForm& chosen) {
  std::vector<OpForm> forms;
  for (const int shift : {1, 2, 8, -1}) {
    OpForm form = chosen;
    if (form.variant == kGivenMask) form.variant = kGivenCausal;
    if (form.variant == kNoMask) form.variant = kCausal;
    form.shift = shift;
    form.text = shift > 0 ? "a mask that lets " + std::to_string(shift) + " later keys in"
                          : "a mask that hides a token's own key";
    form.fault = true;
    form.about = About::mask;
    forms.push_back(std::move(form));
  }
  OpForm none = chosen;
  none.variant = kNoMask;
  none.text = "no mask";
  none.fault = true;
  none.about = About::mask;
  if (chosen.variant != kNoMask) forms.push_back(std::move(none));
  return forms;
}

bool has_mask(Values& values, const Op& op, std::int64_t columns) {
  const Tensor* mask = values.run().input(op, "mask");
  return mask != nullptr && mask->known && !mask->stated && columns > 0 && mask->channels >= columns &&
         mask->count() <= RunView::kMostValues;
}

std::optional<RowMask> row_mask(Values& values, const Op& op, const Step& step, const Span& span, std::int64_t row,
                                const std::vector<std::int64_t>& positions, const OpForm& form) {
  const auto columns = static_cast<std::int64_t>(positions.size());
  RowMask out;
  out.visible.assign(positions.size(), true);
  const std::int64_t own = span.position(row);
  const auto* stated = op.get<SoftmaxAttributes>();
  const std::int64_t first_key = stated != nullptr ? stated->first_key.value_or(0) : 0;
  const auto causal = form.variant == kCausal || form.variant == kGivenCausal || form.variant == kWindow;
  for (std::size_t column = 0; column < positions.size(); ++column) {
    const std::int64_t position = positions[column];
    const bool inside = position >= std::max<std::int64_t>(0, first_key) && position < span.context;
    const bool before = !causal || position <= own + form.shift;
    const bool near = (form.variant != kWindow || static_cast<double>(own - position) < form.number) &&
                      (form.variant != kAround || static_cast<double>(std::abs(own - position)) <= form.number) &&
                      (form.window == 0 || own - position < form.window);
    out.visible[column] = inside && before && near;
  }
  if (form.variant != kGivenMask && form.variant != kGivenCausal) return out;
  const Tensor* mask = values.run().input(op, "mask");
  if (!has_mask(values, op, columns)) return std::nullopt;
  const auto all = values.run().values(*mask);
  if (!all) return std::nullopt;
  const std::int64_t width = mask->channels;
  const std::int64_t rows = mask->count() / width;
  const std::int64_t length = std::max<std::int64_t>(1, step.rows / std::max<std::int64_t>(1, step.batch));
  const std::int64_t sequence = row / length;
  // (batch, keys), (queries, keys) or (batch, heads, queries, keys) with one head for all.
  std::int64_t at = 0;
  if (rows == step.rows || rows == length)
    at = rows == step.rows ? row : row % length;
  else if (rows == step.batch)
    at = sequence;
  else if (rows != 1)
    return std::nullopt;
  const float* line = all->data() + at * width + (width - columns);
  const bool binary = mask->format == Format::i32 || mask->format == Format::int8;
  const bool ones_hide = binary && rows % length == 0 && values.ones_hide(*mask, length);
  for (std::int64_t column = 0; column < columns; ++column) {
    const auto i = static_cast<std::size_t>(column);
    const bool hidden = binary ? (line[column] == 0) != ones_hide : hidden_by_mask(double{line[column]});
    out.visible[i] = (form.variant == kGivenMask ? true : out.visible[i]) && !hidden;
    if (!binary && line[column] != 0 && !hidden) {
      out.added.resize(positions.size(), 0.0F);
      out.added[i] = line[column];
    }
  }
  return out;
}

}  // namespace nanscope
