#include "instrument/diagnosis/provenance/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace nanscope {
namespace {

/// A tensor of keys or values that was not dumped: the row of the sequence behind which something is bad.
void add_not_dumped(const Subject& subject, const Tensor& kv, const Span& span, std::vector<KeyAt>& found) {
  const std::int64_t own = position_of(subject);
  const auto row_at = [&](std::int64_t position) { return span.row + position - span.first_token; };
  const auto look = [&](std::int64_t first, std::int64_t last) {
    const auto row = bad_row_behind(subject.facts, kv, row_at(first), row_at(last));
    if (row) found.push_back({span.position(*row), *row});
  };
  look(own, own);
  if (found.empty()) look(span.first_token, span.first_token + span.rows - 1);
}

void add_slots(const Subject& subject, const Tensor& kv, const Span& span, std::vector<KeyAt>& found) {
  const std::int64_t block = std::clamp<std::int64_t>(subject.facts.cache.block_size(subject.step, subject.op.layer), 1,
                                                      std::max<std::int64_t>(kv.tokens, 1));
  const std::int64_t context = std::clamp<std::int64_t>(span.context, 0, kv.tokens);
  const std::int64_t end = std::min(kv.tokens, (context + block - 1) / block * block);
  for (std::int64_t position = 0; position < end; ++position) {
    const auto row = subject.facts.cache.row_of(kv, subject.step, span, position);
    if (row && subject.facts.row_bad(kv, *row)) found.push_back({position, *row});
  }
}

/// Of a batch, the frame that the sequence stands in, its padding with it.
void add_frame(const Subject& subject, const Tensor& kv, const std::vector<std::int64_t>& bad,
               std::vector<KeyAt>& found) {
  const std::int64_t length = subject.step.rows / subject.step.batch;
  const std::int64_t frame = kv.tokens / subject.step.batch;
  if (length <= 0 || frame <= 0 || subject.tensor.axis != Axis::rows) return;
  for (const std::int64_t row : bad) {
    if (row / frame != subject.element.row / length) continue;
    const RowToken token = subject.facts.run.token_of(kv, row);
    const bool padding = token.span == nullptr;
    found.push_back({padding ? row % frame : token.position, row, padding});
  }
}

}  // namespace

bool is_gathered(Facts& facts, const Tensor& kv) {
  const Op* op = facts.run.maker(kv);
  if (kv.axis != Axis::slots || op == nullptr || op->kind != OpKind::kv_read) return false;
  for (const Input& input : op->inputs) {
    const Tensor* cache = facts.run.tensor(input.tensor);
    if (cache != nullptr && cache->axis == Axis::slots) return cache->tokens != kv.tokens;
  }
  return true;
}

std::optional<Gathered> gathered_at(const Step& step, const Tensor& kv, std::int64_t row) {
  const auto sequences = static_cast<std::int64_t>(step.spans.size());
  if (sequences == 0 || kv.tokens == 0 || kv.tokens % sequences != 0) return std::nullopt;
  const std::int64_t frame = kv.tokens / sequences;
  return Gathered{&step.spans[static_cast<std::size_t>(row / frame)], row % frame};
}

HeadPlace head_place(const Subject& subject, std::int64_t heads, const std::optional<std::int64_t>& kv_heads,
                     const Tensor& kv, std::int64_t head, std::int64_t width) {
  HeadPlace at;
  at.head = head;
  at.width = std::max<std::int64_t>(width, 1);
  const bool whole = kv.channels >= at.width && kv.channels % at.width == 0;
  const std::int64_t groups = kv_heads ? count(kv_heads, 1) : whole ? kv.channels / at.width : heads;
  at.kv_head = head / std::max<std::int64_t>(heads / std::max<std::int64_t>(groups, 1), 1);
  at.inside = subject.element.channel % at.width;
  return at;
}

bool whole_heads(std::int64_t channels, std::int64_t heads, std::int64_t kv_channels,
                 const std::optional<std::int64_t>& kv_heads) {
  if (heads <= 0 || channels < heads || channels % heads != 0) return false;
  const std::int64_t width = channels / heads;
  return kv_channels % width == 0 && (!kv_heads || kv_channels / width == *kv_heads);
}

std::optional<std::int64_t> row_of_key(const Subject& subject, const Tensor& kv, std::int64_t key, std::int64_t keys) {
  const Step& step = subject.step;
  if (key < 0 || key >= keys) return std::nullopt;
  if (kv.axis != Axis::slots || is_gathered(subject.facts, kv)) {
    if (kv.tokens == keys) return key;
    const std::int64_t length = step.batch > 1 ? step.rows / step.batch : 0;
    if (length > 0 && subject.tensor.axis == Axis::rows && kv.tokens == step.batch * keys)
      return subject.element.row / length * keys + key;
  }
  const Span* span = reader_of(subject);
  if (span == nullptr) return std::nullopt;
  if (is_gathered(subject.facts, kv)) {
    const auto sequences = static_cast<std::int64_t>(step.spans.size());
    if (kv.tokens != sequences * keys) return std::nullopt;
    return (span - step.spans.data()) * keys + key;
  }
  // Scores over what this step computed alone count its rows.
  const bool fresh = (kv.axis == Axis::rows || kv.axis == Axis::live) && keys == span->rows;
  return subject.facts.cache.row_of(kv, step, *span, fresh ? span->first_token + key : key);
}

std::int64_t SharedScales::owner(Facts& facts, std::int64_t row, std::int64_t channel) const {
  const std::int64_t first = row / block * block;
  std::int64_t found = first;
  float largest = -1;
  for (std::int64_t at = first; at < std::min(first + block, source->tokens); ++at) {
    const std::optional<float> value = value_at(facts, *source, at, channel);
    if (!value || !(std::abs(*value) > largest)) continue;
    largest = std::abs(*value);
    found = at;
  }
  return found;
}

std::optional<SharedScales> shared_scales(Facts& facts, const Tensor& kv) {
  const Op* back = facts.run.maker(kv);
  const Tensor* codes = back != nullptr ? facts.run.input(*back, "codes") : nullptr;
  const Op* made = codes != nullptr ? facts.run.maker(*codes) : nullptr;
  if (made == nullptr || made->kind != OpKind::quantise_columns) return std::nullopt;
  const Tensor* x = facts.run.input(*made, "x");
  if (x == nullptr || !x->known) return std::nullopt;
  return SharedScales{x, std::max<std::int64_t>(count(attributes<BlockAttributes>(*made).block, 32), 1)};
}

std::vector<KeyAt> bad_keys(const Subject& subject, const Tensor& kv) {
  std::vector<KeyAt> found;
  const Span* span = reader_of(subject);
  if (!kv.known) {
    if (span != nullptr) add_not_dumped(subject, kv, *span, found);
  } else if (!RunView::symptomatic(kv)) {
    return found;
  } else if (is_gathered(subject.facts, kv)) {
    for (const std::int64_t row : subject.facts.run.bad_rows(kv)) {
      const std::optional<Gathered> at = gathered_at(subject.step, kv, row);
      if (at && at->span == span) found.push_back({at->position, row});
    }
  } else if (kv.axis == Axis::slots) {
    if (span != nullptr) add_slots(subject, kv, *span, found);
  } else if (subject.step.batch > 1) {
    add_frame(subject, kv, subject.facts.run.bad_rows(kv), found);
  } else {
    for (const std::int64_t row : subject.facts.run.bad_rows(kv)) {
      const RowToken token = subject.facts.run.token_of(kv, row);
      const bool own = token.span != nullptr && span != nullptr && token.span->request == span->request;
      if (own) found.push_back({token.position, row});
    }
  }
  const std::int64_t own = position_of(subject);
  const auto order = [&](const KeyAt& key) { return std::tuple(key.padding, key.position > own, key.position); };
  std::stable_sort(found.begin(), found.end(), [&](const KeyAt& a, const KeyAt& b) { return order(a) < order(b); });
  return found;
}

std::optional<Element> bad_beside(const Subject& subject, const Tensor& tensor, std::int64_t row) {
  if (!of_dump(subject.tensor) || !subject.bad) return std::nullopt;
  const auto bad = bad_channel(subject.facts, tensor, row, 0, kWholeRow);
  return bad ? std::optional(Element{tensor.id, row, *bad}) : std::nullopt;
}

std::string hidden_text(const Subject& subject, const KeyAt& key) {
  const Span* span = reader_of(subject);
  if (key.padding) return ", in the padding of the batch";
  if (span == nullptr) return {};
  if (key.position >= span->context) return fmt::format(", beyond the context of {}", span->context);
  return key.position > position_of(subject) ? ", later than the row's own" : "";
}

}  // namespace nanscope
