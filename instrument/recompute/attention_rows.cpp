#include "instrument/recompute/attention_rows.h"

#include <algorithm>
#include <cmath>

#include "instrument/recompute/bounds.h"
#include "instrument/recompute/element_loops.h"

namespace nanscope {
namespace {

double dot(const float* a, const float* b, std::int64_t n) {
  // Four sums: one alone waits for itself.
  double sums[4] = {0, 0, 0, 0};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (std::int64_t lane = 0; lane < 4; ++lane) sums[lane] += double{a[i + lane]} * double{b[i + lane]};
  }
  for (; i < n; ++i) sums[0] += double{a[i]} * double{b[i]};
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double norm(const float* a, std::int64_t n) { return std::sqrt(dot(a, a, n)); }

double off_norm(const Block& block, std::int64_t row, std::int64_t first, std::int64_t n) {
  if (block.error.empty()) return 0;
  return norm(block.error.data() + row * block.columns + first, n);
}

/// The largest error of exp in f32, relative: the fast one of CUDA is off by at most 2 + 1.173 |x| units in the last
/// place (CUDA C++ Programming Guide, intrinsic functions).
double exp_error(double x) { return kF32 * (4 + 2.346 * std::abs(x)); }

}  // namespace

std::optional<Heads> heads_of(std::int64_t query_channels, std::int64_t key_channels, std::int64_t heads,
                              std::string& why) {
  Heads out;
  out.count = std::max<std::int64_t>(1, heads);
  if (query_channels <= 0 || query_channels % out.count != 0) {
    why = "how many heads its queries have is not known";
    return std::nullopt;
  }
  out.width = query_channels / out.count;
  if (key_channels % out.width != 0 || key_channels == 0 || out.count % (key_channels / out.width) != 0) {
    why = "the heads of its keys do not divide those of its queries";
    return std::nullopt;
  }
  out.groups = key_channels / out.width;
  return out;
}

std::vector<std::int64_t> possible_heads(std::int64_t query_channels, std::int64_t key_channels) {
  constexpr std::int64_t kNarrowest = 8;  // BLOOM's default
  constexpr std::int64_t kWidest = 512;   // Gemma 4's, of layers without a window
  std::vector<std::int64_t> possible;
  for (std::int64_t width = kNarrowest; width <= std::min(kWidest, query_channels); width += 4) {
    const bool fits = query_channels % width == 0 && key_channels % width == 0;
    if (fits && query_channels / width % std::max<std::int64_t>(1, key_channels / width) == 0)
      possible.push_back(query_channels / width);
  }
  return possible;
}

void measure_keys(KeyMatrix& keys, std::int64_t width, bool squared) {
  const std::int64_t groups = width > 0 ? keys.block.columns / width : 0;
  const std::int64_t rows = keys.block.rows;
  keys.norms.resize(static_cast<std::size_t>(rows * groups));
  keys.off_norms.resize(keys.norms.size());
  keys.stride = (rows + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
  keys.turned.assign(static_cast<std::size_t>(keys.stride * keys.block.columns), 0.0F);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto at = static_cast<std::size_t>(group * rows + row);
      keys.norms[at] = norm(keys.block.row(row) + group * width, width);
      keys.off_norms[at] = off_norm(keys.block, row, group * width, width);
    }
  }
  for (std::int64_t first = 0; first < rows; first += kKeysAtOnce) {
    const std::int64_t last = std::min(rows, first + kKeysAtOnce);
    for (std::int64_t c = 0; c < keys.block.columns; ++c) {
      float* to = keys.turned.data() + c * keys.stride;
      for (std::int64_t row = first; row < last; ++row) to[row] = keys.block.row(row)[c];
    }
  }
  keys.turned_squares.clear();
  if (!squared) return;
  keys.turned_squares.resize(keys.turned.size());
  std::transform(keys.turned.begin(), keys.turned.end(), keys.turned_squares.begin(),
                 [](float one) { return one * one; });
}

void score_products(const Block& q, std::int64_t row, const KeyMatrix& keys, const Heads& heads, bool tiled,
                    ScoreProducts& into) {
  const bool squared = !keys.turned_squares.empty();
  into.sums.resize(static_cast<std::size_t>(heads.count * keys.stride));
  into.squares.resize(squared ? into.sums.size() : 0);
  into.row_squares.assign(q.row(row), q.row(row) + (squared ? heads.count * heads.width : 0));
  for (float& one : into.row_squares) one *= one;
  // Heads that share keys lie beside each other, but for tiled ones.
  const std::int64_t together = tiled ? 1 : std::max<std::int64_t>(1, heads.count / heads.groups);
  for (std::int64_t head = 0; head < heads.count; head += together) {
    const std::int64_t numbers = heads.group_of(head, tiled) * heads.width * keys.stride;
    const std::int64_t count = std::min(together, heads.count - head);
    element_loops().dots(q.row(row) + head * heads.width, count,
                         {keys.turned.data() + numbers, heads.width, keys.stride},
                         into.sums.data() + head * keys.stride);
    if (!squared) continue;
    element_loops().dots(into.row_squares.data() + head * heads.width, count,
                         {keys.turned_squares.data() + numbers, heads.width, keys.stride},
                         into.squares.data() + head * keys.stride);
  }
}

void score_line(const Block& q, std::int64_t row, const KeyMatrix& keys, const Heads& heads, std::int64_t head,
                const OpForm& form, const ScoreProducts& products, Line& into) {
  const auto columns = static_cast<std::int64_t>(keys.there.size());
  into.value.resize(static_cast<std::size_t>(columns));
  into.error.resize(static_cast<std::size_t>(columns));
  into.deviation.assign(static_cast<std::size_t>(columns), 0.0);
  into.common = 0;
  const float* left = q.row(row) + head * heads.width;
  const double left_norm = norm(left, heads.width);
  const double left_off = off_norm(q, row, head * heads.width, heads.width);
  const std::int64_t group = heads.group_of(head, form.shift == kTiled) * heads.width;
  const bool squared = !products.squares.empty();
  const double sums = squared ? 0 : sum_error(heads.width, kF32);
  const double* norms = keys.norms.data() + group / heads.width * columns;
  const double* off_norms = keys.off_norms.data() + group / heads.width * columns;
  const double* product = products.sums.data() + head * keys.stride;
  const double* squares = squared ? products.squares.data() + head * keys.stride : nullptr;
  double* value = into.value.data();
  double* error = into.error.data();
  const double factor = form.number;
  for (std::int64_t column = 0; column < columns; ++column) {
    value[column] = factor * product[column];
    const double inherited = left_off * norms[column] + left_norm * off_norms[column];
    error[column] = std::abs(factor) * (left_norm * norms[column] * sums + inherited);
  }
  for (std::int64_t column = 0; squared && column < columns; ++column)
    into.deviation[static_cast<std::size_t>(column)] =
        std::abs(factor) * sum_deviation(heads.width, squares[column], product[column]);
  for (std::int64_t column = 0; form.cap > 0 && column < columns; ++column)
    value[column] = form.cap * std::tanh(value[column] / form.cap);
  for (std::int64_t column = 0; !keys.all_there && column < columns; ++column) {
    const auto at = static_cast<std::size_t>(column);
    if (!keys.there[at]) value[column] = error[column] = into.deviation[at] = 0;
  }
}

bool read_sinks(Values& values, const Op& op, const OpForm& form, std::int64_t heads,
                std::shared_ptr<const std::vector<float>>& into, std::string& why) {
  into = nullptr;
  const auto sinks =
      std::find_if(op.inputs.begin(), op.inputs.end(), [](const Input& input) { return input.role == "sinks"; });
  if (sinks == op.inputs.end() || form.without_sinks) return true;
  const Tensor* tensor = values.run().tensor(sinks->tensor);
  if (tensor != nullptr && tensor->known && tensor->count() >= heads) into = values.run().values(*tensor);
  if (into == nullptr) why = "its attention sinks were not dumped";
  return into != nullptr;
}

bool softmax_line(const Line& scores, const RowMask& mask, double rounded, std::optional<double> sink, Line& into) {
  // A probability that f32 holds is 2^-149 or more: e^(2 * 60) of it is beyond 2^24, and the bound covers all there is.
  constexpr double kMostOff = 60;
  const std::size_t columns = scores.value.size();
  std::vector<std::size_t> seen;
  seen.reserve(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    if (mask.visible[c]) seen.push_back(c);
  }
  const auto score = [&](std::size_t c) {
    return scores.value[c] + (mask.added.empty() ? 0.0 : double{mask.added[c]});
  };
  double largest = -INFINITY;
  for (const std::size_t c : seen) {
    if (!std::isfinite(scores.error[c])) return false;  // a score that is not known may be anything
    largest = std::max(largest, score(c));
  }
  if (sink) largest = std::max(largest, *sink);
  if (!std::isfinite(largest)) return false;
  const double taken = sink ? std::exp(*sink - largest) : 0;
  // The sink goes through the same subtraction and sum, in the format of the scores.
  const double apart = sink ? std::exp(std::min(rounded * std::abs(*sink), kMostOff)) : 1;
  double sum = taken;
  double least = taken / apart;
  double most = taken * apart;
  std::vector<double> up(seen.size());
  std::vector<double> down(seen.size());
  double squares = taken * taken;
  double exp_errors = 0;
  double variance = 0;
  into.value.resize(columns);
  into.error.resize(columns);
  into.deviation.resize(columns);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const std::size_t c = seen[i];
    const double below = largest - score(c);
    const double weight = std::exp(-below);
    const double off = std::exp(std::min(scores.error[c] + rounded * std::abs(score(c)), kMostOff));
    up[i] = weight * off;
    down[i] = weight / off;
    sum += weight;
    least += down[i];
    most += up[i];
    into.value[c] = weight;
    // The score, its distance from the largest, the power and the quotient are rounded once each.
    const double rounding = kF32 * kF32 * (score(c) * score(c) + below * below + 2) / 3;
    into.error[c] = exp_error(below);
    into.deviation[c] = scores.deviation[c] * scores.deviation[c] + rounding;
    squares += weight * weight;
    exp_errors += weight * exp_error(below);
    variance += weight * weight * into.deviation[c];
  }
  into.common = sum_deviation(static_cast<std::int64_t>(seen.size()), squares, sum) / sum;
  const double of_all = variance / (sum * sum) + into.common * into.common;
  const double hidden = 0 / sum;
  for (std::size_t c = 0, i = 0; c < columns; ++c) {
    if (i == seen.size() || seen[i] != c) {
      into.value[c] = hidden;
      into.error[c] = hidden;
      into.deviation[c] = 0;
      continue;
    }
    const double p = into.value[c] / sum;
    into.value[c] = p;
    // What raises a power raises the sum by its share: of one key alone nothing is left.
    into.error[c] = p * std::max(0.0, (1 - 2 * p) * into.error[c] + exp_errors / sum);
    into.deviation[c] = p * std::sqrt(std::max(0.0, (1 - 2 * p) * into.deviation[c] + of_all));
    if (up[i] > 0) {
      const double highest = up[i] / (up[i] + std::max(0.0, least - down[i]));
      const double lowest = down[i] / (down[i] + std::max(0.0, most - up[i]));
      into.error[c] += std::max({0.0, highest - p, p - lowest});
    }
    ++i;
  }
  return true;
}

bool mix_line(const Line& p, const KeyMatrix& values, std::int64_t group, std::int64_t width, double rounded,
              bool sums_to_one, Line& into, std::int64_t first) {
  const auto columns = static_cast<std::int64_t>(p.value.size());
  into.resize(width);
  const Block& block = values.block;
  std::vector<double> squares(static_cast<std::size_t>(width), 0.0);
  std::vector<double> variance(static_cast<std::size_t>(width), 0.0);
  bool there = true;
  bool exact = true;
  double nothing = 0;  // NaN with a weight that is not finite
  for (std::int64_t key = 0; key < columns; ++key) {
    const double weight = p.value[static_cast<std::size_t>(key)];
    const double slack = p.error[static_cast<std::size_t>(key)];
    exact = exact && slack == 0 && p.deviation[static_cast<std::size_t>(key)] == 0;
    if (weight == 0 && slack == 0) continue;
    nothing += std::abs(weight) * 0.0;
    there = there && (values.all_there || values.there[static_cast<std::size_t>(first + key)]);
  }
  const std::int64_t begin = first * block.columns + group;
  const WeightedRows rows{.weights = p.value.data(),
                          .slacks = p.error.data(),
                          .deviations = p.deviation.data(),
                          .rows = block.value.data() + begin,
                          .errors = block.error.empty() ? nullptr : block.error.data() + begin,
                          .keys = columns,
                          .stride = block.columns,
                          .width = width};
  const ElementLoops& loops = element_loops();
  loops.mix(rows, {into.value.data(), squares.data(), into.error.data(), nullptr});
  // Weights that are exact add nothing, but for rows that are not finite.
  const auto finite = [](double size) { return std::isfinite(size); };
  if (!exact || !std::all_of(squares.begin(), squares.end(), finite))
    loops.spread(rows, {sums_to_one ? into.value.data() : nullptr, nullptr, into.error.data(), variance.data()});
  if (!block.error.empty()) nothing = 0;
  for (std::size_t c = 0; c < into.value.size(); ++c) {
    into.error[c] += nothing;
    const double sums = sum_deviation(columns, squares[c], into.value[c]);
    const double common = p.common * into.value[c];
    into.deviation[c] = std::sqrt(variance[c] + sums * sums + common * common + rounded * rounded * squares[c] / 3);
  }
  return there;
}

std::int64_t step_row(RunView& run, const Tensor& out, std::int64_t row, const Span& span) {
  return span.row + run.token_of(out, row).position - span.first_token;
}

const Tensor* known_probs(RunView& run, const Op& scores) {
  for (const TensorId id : scores.outputs) {
    const Tensor* out = run.tensor(id);
    if (out == nullptr) continue;
    for (const Op* reader : run.readers(*out)) {
      const Tensor* probs = reader->kind == OpKind::softmax ? run.result(*reader) : nullptr;
      if (probs != nullptr && probs->known) return probs;
    }
  }
  return nullptr;
}

std::vector<OpForm> wrong_reads(Values& values, const Op& op, std::string_view role, const OpForm& chosen) {
  std::vector<OpForm> forms;
  const std::string what = role == "k" ? "keys" : "values";
  const auto add = [&](About about, auto change, std::string text) {
    OpForm form = chosen;
    change(form);
    form.text = std::move(text);
    form.fault = true;
    form.about = about;
    forms.push_back(std::move(form));
  };
  if (values.run().input(op, std::string(role) + "_scale") != nullptr) {
    add(
        About::scale, [](OpForm& form) { form.scale_power = 0; }, "the scale of the " + what + " left out");
    add(
        About::scale, [](OpForm& form) { form.scale_power = 2; }, "the scale of the " + what + " applied twice");
    add(
        About::scale, [](OpForm& form) { form.scale_power = -1; }, "the scale of the " + what + " inverted");
  }
  const Tensor* in = values.run().input(op, role);
  if (in != nullptr && info(in->format).bits == 8 && info(in->format).exponent_bits > 0) {
    for (const Format as : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz}) {
      if (as != in->format)
        add(
            About::format, [&](OpForm& form) { form.as = as; }, "the " + what + " read as " + std::string(name(as)));
    }
  }
  add(
      About::arithmetic, [](OpForm& form) { form.shift = kTiled; }, "heads of " + what + " shared in the wrong order");
  return forms;
}

}  // namespace nanscope
