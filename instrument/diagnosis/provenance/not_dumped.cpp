#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "instrument/diagnosis/provenance/cache.h"

namespace nanscope {
namespace {

bool is_parameter(Facts& facts, const Tensor& tensor) {
  const Op* op = facts.run.maker(tensor);
  return op == nullptr || op->kind == OpKind::parameter;
}

/// Kinds that make an element of the same element of each input, where it is as wide as the output.
bool by_element(OpKind kind) {
  return kind == OpKind::copy || kind == OpKind::residual_add || kind == OpKind::activation ||
         kind == OpKind::quantise || kind == OpKind::dequantise || kind == OpKind::split || kind == OpKind::all_reduce;
}

/// Modules whose inside is not known may hold an attention.
bool mixes_rows(OpKind kind) { return !by_row(kind) || kind == OpKind::block; }

/// Of what was not dumped, looks backwards for something bad. Each tensor and row is looked at once, and all of it ends
/// after so many that a person would have stopped asking.
class Behind {
 public:
  explicit Behind(Facts& facts) : facts_(facts) {}

  bool spent() const { return seen_.size() > kMost; }

  std::optional<Element> find(const Tensor& tensor, std::int64_t row, std::optional<std::int64_t> channel, int depth) {
    const Op* op = facts_.run.maker(tensor);
    if (op == nullptr || depth > kDeepest) return std::nullopt;
    for (const Input& input : op->inputs) {
      const Tensor* in = facts_.run.tensor(input.tensor);
      if (in == nullptr || is_parameter(facts_, *in)) continue;
      const std::optional<std::int64_t> at = row_in(facts_, tensor, row, *in);
      if (!at) continue;
      if (auto found = look(*in, *at, channel_in(*op, tensor, *in, channel), depth)) return found;
    }
    if (!mixes_rows(op->kind)) return std::nullopt;
    for (const Input& input : op->inputs) {
      const Tensor* in = facts_.run.tensor(input.tensor);
      if (in == nullptr || is_parameter(facts_, *in) || input.role == "q") continue;
      if (auto found = other_rows(*op, tensor, row, *in, depth)) return found;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kMost = 1 << 16;
  static constexpr int kDeepest = 1024;  ///< of the stack

  std::optional<Element> look(const Tensor& in, std::int64_t row, std::optional<std::int64_t> channel, int depth) {
    if (in.known) {
      const auto bad = bad_channel(facts_, in, row, channel.value_or(0), channel ? 1 : kWholeRow);
      return bad ? std::optional(Element{in.id, row, *bad}) : std::nullopt;
    }
    if (spent() || !seen_.insert({in.id, row, channel.value_or(-1)}).second) return std::nullopt;
    if (!find(in, row, channel, depth + 1)) return std::nullopt;
    return Element{in.id, row, channel.value_or(0)};
  }

  /// Nothing where the op does not keep elements apart.
  std::optional<std::int64_t> channel_in(const Op& op, const Tensor& out, const Tensor& in,
                                         const std::optional<std::int64_t>& channel) {
    if (!channel || !by_element(op.kind)) return std::nullopt;
    if (op.kind == OpKind::split) {
      const std::int64_t at = whole_channel(attributes<SplitAttributes>(op), *channel, out.channels, in.channels);
      return !in.known || at < in.channels ? std::optional(at) : std::nullopt;
    }
    const bool same = !in.known || in.channels == out.channels || out.channels == 0;
    return same && (!in.known || *channel < in.channels) ? channel : std::nullopt;
  }

  /// Rows of the same sequence, and of a pool the slots that it holds.
  std::optional<Element> other_rows(const Op& op, const Tensor& tensor, std::int64_t row, const Tensor& in, int depth) {
    const Span* span = facts_.run.token_of(tensor, row).span;
    const Step* step = facts_.run.step(tensor.step);
    if (span == nullptr || step == nullptr) return std::nullopt;
    if (in.known) {
      for (const std::int64_t bad : facts_.run.bad_rows(in)) {
        if (!reads(op, *step, *span, in, bad)) continue;
        return look(in, bad, std::nullopt, depth);
      }
      return std::nullopt;
    }
    for (std::int64_t other = span->row; other < span->row + span->rows && !spent(); ++other) {
      const std::optional<std::int64_t> at = row_in(facts_, tensor, other, in);
      if (!at) continue;
      if (auto found = look(in, *at, std::nullopt, depth)) return found;
    }
    return std::nullopt;
  }

  bool reads(const Op& op, const Step& step, const Span& span, const Tensor& in, std::int64_t row) {
    const Span* owner = facts_.run.token_of(in, row).span;
    if (owner != nullptr) return owner->request == span.request;
    if (in.axis != Axis::slots) return false;
    const auto holder = holder_of(facts_, step, op.layer, row);
    return holder && holder->span->request == span.request;
  }

  Facts& facts_;
  std::set<std::tuple<TensorId, std::int64_t, std::int64_t>> seen_;
};

}  // namespace

std::optional<Element> bad_behind(Facts& facts, const Tensor& not_dumped, std::int64_t row,
                                  std::optional<std::int64_t> channel) {
  return Behind(facts).find(not_dumped, row, channel, 0);
}

std::optional<std::int64_t> bad_row_behind(Facts& facts, const Tensor& not_dumped, std::int64_t first,
                                           std::int64_t last) {
  Behind behind(facts);
  const std::int64_t end = std::min(last, not_dumped.tokens - 1);
  for (std::int64_t row = std::max<std::int64_t>(first, 0); row <= end && !behind.spent(); ++row) {
    if (behind.find(not_dumped, row, std::nullopt, 0)) return row;
  }
  return std::nullopt;
}

Explanation explain_not_dumped(const Subject& subject) {
  Facts& facts = subject.facts;
  Explanation found;
  found.text = "not dumped";
  std::optional<Element> next = bad_behind(facts, subject.tensor, subject.element.row, subject.element.channel);
  if (!next) next = bad_behind(facts, subject.tensor, subject.element.row);
  if (next) {
    const Tensor* source = facts.run.tensor(next->tensor);
    found.element = next;
    found.text += fmt::format("; of what its {} read, {}", name(subject.op.kind),
                              said_of(facts, *source, next->row, next->channel));
    if (!source->known) found.text += " either";
    return found;
  }
  for (const Operand& input : operands(subject)) {
    if (!input.row) continue;
    const std::int64_t last = std::max<std::int64_t>(input.tensor->channels - 1, 0);
    const std::int64_t channel = std::min(subject.element.channel, last);
    found.element = Element{input.tensor->id, *input.row, channel};
    found.text += fmt::format("; of what its {} read, {}", name(subject.op.kind),
                              said_of(facts, *input.tensor, *input.row, channel));
    if (!input.tensor->known) found.text += " either";
    return found;
  }
  found.end = "what made it was not dumped";
  return found;
}

}  // namespace nanscope
