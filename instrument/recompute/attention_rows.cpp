#include "instrument/recompute/attention_rows.h"

#include <algorithm>
#include <cmath>

#include "instrument/recompute/bounds.h"

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
  constexpr std::int64_t kNarrowest = 8;
  constexpr std::int64_t kWidest = 256;
  std::vector<std::int64_t> possible;
  for (std::int64_t width = kNarrowest; width <= std::min(kWidest, query_channels); width += 4) {
    const bool fits = query_channels % width == 0 && key_channels % width == 0;
    if (fits && query_channels / width % std::max<std::int64_t>(1, key_channels / width) == 0)
      possible.push_back(query_channels / width);
  }
  return possible;
}

void measure_keys(KeyMatrix& keys, std::int64_t width) {
  const std::int64_t groups = width > 0 ? keys.block.columns / width : 0;
  keys.norms.resize(static_cast<std::size_t>(keys.block.rows * groups));
  keys.off_norms.resize(keys.norms.size());
  for (std::int64_t row = 0; row < keys.block.rows; ++row) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto at = static_cast<std::size_t>(row * groups + group);
      keys.norms[at] = norm(keys.block.row(row) + group * width, width);
      keys.off_norms[at] = off_norm(keys.block, row, group * width, width);
    }
  }
}

void score_line(const Block& q, std::int64_t row, const KeyMatrix& keys, const Heads& heads, std::int64_t head,
                const OpForm& form, Line& into) {
  const auto columns = static_cast<std::int64_t>(keys.there.size());
  into.resize(columns);
  const float* left = q.row(row) + head * heads.width;
  const double left_norm = norm(left, heads.width);
  const double left_off = off_norm(q, row, head * heads.width, heads.width);
  const std::int64_t group = heads.group_of(head, form.shift == kTiled) * heads.width;
  const double sums = sum_error(heads.width, kF32);
  const std::int64_t groups = keys.block.columns / heads.width;
  for (std::int64_t column = 0; column < columns; ++column) {
    const auto at = static_cast<std::size_t>(column);
    if (!keys.there[at]) continue;
    const float* right = keys.block.row(column) + group;
    const auto measured = static_cast<std::size_t>(column * groups + group / heads.width);
    const double right_norm = keys.norms[measured];
    const double score = form.number * dot(left, right, heads.width);
    into.value[at] = form.cap > 0 ? form.cap * std::tanh(score / form.cap) : score;
    const double inherited = left_off * right_norm + left_norm * keys.off_norms[measured];
    into.error[at] = std::abs(form.number) * (left_norm * right_norm * sums + inherited);
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
  constexpr double kMostOff = 20;
  const std::size_t columns = scores.value.size();
  into.resize(static_cast<std::int64_t>(columns));
  const auto score = [&](std::size_t c) {
    return scores.value[c] + (mask.added.empty() ? 0.0 : double{mask.added[c]});
  };
  double largest = -INFINITY;
  for (std::size_t c = 0; c < columns; ++c) {
    if (!mask.visible[c]) continue;
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
  for (std::size_t c = 0; c < columns; ++c) {
    if (!mask.visible[c]) {
      into.value[c] = 0;
      into.error[c] = 1;
      continue;
    }
    into.value[c] = std::exp(score(c) - largest);
    into.error[c] = std::exp(std::min(scores.error[c] + rounded * std::abs(score(c)), kMostOff));
    sum += into.value[c];
    least += into.value[c] / into.error[c];
    most += into.value[c] * into.error[c];
  }
  const double in_f32 = 64 * kF32 + 8 * kF32 * std::abs(largest);
  for (std::size_t c = 0; c < columns; ++c) {
    const double up = into.value[c] * into.error[c];
    const double down = into.value[c] / into.error[c];
    const double p = into.value[c] / sum;
    into.value[c] = p;
    into.error[c] = p * in_f32;
    if (up <= 0) continue;
    const double highest = up / (up + std::max(0.0, least - down));
    const double lowest = down / (down + std::max(0.0, most - up));
    into.error[c] += std::max({0.0, highest - p, p - lowest});
  }
  return true;
}

bool mix_line(const Line& p, const KeyMatrix& values, std::int64_t group, std::int64_t width, double rounded,
              bool sums_to_one, Line& into, std::int64_t first) {
  const auto columns = static_cast<std::int64_t>(p.value.size());
  into.resize(width);
  std::vector<double> magnitude(static_cast<std::size_t>(width), 0.0);
  bool there = true;
  const auto each_key = [&](const auto& visit) {
    for (std::int64_t key = 0; key < columns; ++key) {
      const double weight = p.value[static_cast<std::size_t>(key)];
      const double slack = p.error[static_cast<std::size_t>(key)];
      if (weight == 0 && slack == 0) continue;
      there = there && values.there[static_cast<std::size_t>(first + key)];
      const float* row = values.block.row(first + key) + group;
      for (std::int64_t c = 0; c < width; ++c)
        visit(static_cast<std::size_t>(c), double{row[c]}, weight, slack, first + key);
    }
  };
  each_key([&](std::size_t c, double term, double weight, double, std::int64_t key) {
    into.value[c] += weight * term;
    magnitude[c] += std::abs(weight * term);
    into.error[c] += std::abs(weight) * double{values.block.off(key, group + static_cast<std::int64_t>(c))};
  });
  each_key([&](std::size_t c, double term, double, double slack, std::int64_t) {
    into.error[c] += slack * std::abs(sums_to_one ? term - into.value[c] : term);
  });
  const double sums = sum_error(columns, kF32) + rounded;
  for (std::size_t c = 0; c < into.value.size(); ++c) into.error[c] += sums * magnitude[c];
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
