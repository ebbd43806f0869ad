#include "core/run/run_view.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/numbers/codec.h"
#include "core/run/by_id.h"

namespace nanscope {
namespace {

constexpr std::size_t kHeldBytes = std::size_t{192} << 20;
constexpr std::size_t kHeldRowBytes = std::size_t{64} << 20;
constexpr std::int64_t kBlockElements = std::int64_t{1} << 20;

std::size_t bytes_of(const std::shared_ptr<const std::vector<float>>& values) {
  return values ? values->size() * sizeof(float) : 0;
}

}  // namespace

const Span* Step::span_at(std::int64_t row) const {
  for (const Span& span : spans) {
    if (span.has(row)) return &span;
  }
  return nullptr;
}

std::int64_t Step::tokens() const {
  std::int64_t count = 0;
  for (const Span& span : spans) count += span.rows;
  return count;
}

TensorId Op::input(std::string_view role) const {
  for (const Input& one : inputs) {
    if (one.role == role) return one.tensor;
  }
  return 0;
}

bool may_hide(std::string_view role) {
  constexpr std::string_view kHiding[] = {"scores", "logits",        "router_scores",   "router_logits",
                                          "mask",   "scaled_logits", "row_max",         "lse",
                                          "max",    "scores_raw",    "processed_logits"};
  return std::find(std::begin(kHiding), std::end(kHiding), role) != std::end(kHiding);
}

const std::vector<Health>& RunView::rows(const Tensor& tensor) {
  const auto known = rows_.find(tensor.id);
  if (known != rows_.end()) return known->second;
  std::vector<Health> health;
  if (tensor.known && !tensor.stated) {
    if (tensor.tokens == 1) {
      health.push_back(tensor.health);
    } else {
      health = read_rows(tensor);
    }
  }
  if (static_cast<std::int64_t>(health.size()) != tensor.tokens) health.clear();
  return rows_.emplace(tensor.id, std::move(health)).first->second;
}

Fact<TensorData> RunView::read(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  if (!tensor.known || tensor.stated) return absent(tensor.name + ": its elements are not there");
  if (first < 0 || count < 0 || first + count > tensor.tokens) return absent("rows outside of the tensor");
  Fact<TensorData> data = read_elements(tensor, first, count);
  if (!data) note(tensor, data.error());
  return data;
}

void RunView::note(const Tensor& tensor, const NotKnown& reason) {
  if (reason.why != Unknown::unreadable) return;
  if (unread_ids_.insert(tensor.id).second) unread_.push_back({tensor.id, reason.text});
}

std::shared_ptr<const std::vector<float>> RunView::values(const Tensor& tensor) {
  const auto known = values_.find(tensor.id);
  if (known != values_.end()) {
    known->second.used = ++uses_;
    return known->second.values;
  }
  std::shared_ptr<const std::vector<float>> made;
  if (tensor.count() <= kMostValues) {
    std::vector<float> all;
    all.reserve(static_cast<std::size_t>(tensor.count()));
    const bool whole = each_block(tensor, [&](std::int64_t, std::span<const float> block) {
      all.insert(all.end(), block.begin(), block.end());
      return true;
    });
    if (whole) made = std::make_shared<const std::vector<float>>(std::move(all));
  }
  held_bytes_ += bytes_of(made);
  values_[tensor.id] = {made, ++uses_};
  drop_old_values();
  return made;
}

std::shared_ptr<const std::vector<float>> RunView::row_values(const Tensor& tensor, std::int64_t row) {
  constexpr std::size_t kMostRows = 4096;
  const auto [known, is_new] = row_values_.emplace(std::pair(tensor.id, row), nullptr);
  if (!is_new) return known->second;
  std::shared_ptr<const std::vector<float>> made;
  if (const Fact<TensorData> data = read(tensor, row, 1)) {
    std::vector<float> values;
    data->decode_into(values);
    made = std::make_shared<const std::vector<float>>(std::move(values));
  }
  known->second = made;
  row_bytes_ += bytes_of(made);
  if (row_values_.size() > kMostRows || row_bytes_ > kHeldRowBytes) {
    row_values_.clear();
    row_bytes_ = 0;
  }
  return made;
}

void RunView::drop_old_values() {
  while (held_bytes_ > kHeldBytes && values_.size() > 1) {
    const auto oldest = std::min_element(values_.begin(), values_.end(), [](const auto& a, const auto& b) {
      const auto age = [](const auto& held) { return held.second.values ? held.second.used : ~std::uint64_t{0}; };
      return age(a) < age(b);
    });
    if (!oldest->second.values) return;
    held_bytes_ -= bytes_of(oldest->second.values);
    values_.erase(oldest);
  }
}

bool RunView::each_block(const Tensor& tensor, const std::function<bool(std::int64_t, std::span<const float>)>& visit) {
  const std::int64_t at_once = std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, tensor.channels));
  // Without channels, rows are only said to be there, and may be as many as the name of an extent holds.
  const std::int64_t rows = tensor.channels > 0 ? tensor.tokens : 0;
  std::vector<float> block;
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const Fact<TensorData> data = read(tensor, first, std::min(at_once, rows - first));
    if (!data) return false;
    data->decode_into(block);
    if (!visit(first, block)) return true;
  }
  return tensor.known && !tensor.stated;
}

const Step* RunView::step(StepId id) { return by_id(steps(), id); }
RecordingCounts RunView::counts() {
  RecordingCounts counts;
  counts.requests = static_cast<std::int64_t>(requests().size());
  counts.steps = static_cast<std::int64_t>(steps().size());
  counts.expected_ops = info().expected_ops;
  const auto add = [&](const StepContent& content) {
    counts.ops += static_cast<std::int64_t>(content.ops.size());
    counts.tensors += std::count_if(content.tensors.begin(), content.tensors.end(),
                                    [](const Tensor& tensor) { return tensor.known; });
    counts.stored_tensors += std::count_if(content.tensors.begin(), content.tensors.end(), [](const Tensor& tensor) {
      return tensor.known && !tensor.stated && tensor.count() > 0;
    });
  };
  add(content(kBeforeSteps));
  for (const Step& step : steps()) add(content(step.id));
  return counts;
}

const RequestRow* RunView::request(std::int64_t id) { return by_id(requests(), id); }

const WeightRow* RunView::weight(std::string_view name) {
  for (const WeightRow& row : weights()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const Step* RunView::find_step(std::int64_t request, std::int64_t index, std::optional<std::int64_t> rank) {
  for (const Step& one : steps()) {
    if (rank && one.rank != *rank) continue;
    for (const Span& span : one.spans) {
      if (span.request == request && span.index == index) return &one;
    }
  }
  return nullptr;
}

const Op* RunView::op(OpId id) {
  if (id == 0) return nullptr;
  return by_id(std::span<const Op>(content(step_of_op(id)).ops), id);
}

const Tensor* RunView::tensor(TensorId id) {
  if (id == 0) return nullptr;
  return by_id(std::span<const Tensor>(content(step_of_tensor(id)).tensors), id);
}

void RunView::read_as(TensorId tensor, Format format) {
  change_format(tensor, format);
  rows_.erase(tensor);
  if (const auto held = values_.find(tensor); held != values_.end()) {
    held_bytes_ -= bytes_of(held->second.values);
    values_.erase(held);
  }
  std::erase_if(row_values_, [&](const auto& held) {
    if (held.first.first != tensor) return false;
    row_bytes_ -= bytes_of(held.second);
    return true;
  });
}

const Tensor* RunView::input(const Op& op, std::string_view role, const Span& span) {
  const Step* at = step(op.step);
  for (const Input& one : op.inputs) {
    const Tensor* in = one.role == role ? tensor(one.tensor) : nullptr;
    if (in == nullptr || at == nullptr) continue;
    const auto which = static_cast<std::size_t>(std::max<std::int64_t>(0, in->sequence));
    if (in->sequence < 0 || (which < at->spans.size() && at->spans[which].row == span.row)) return in;
  }
  return nullptr;
}

const Tensor* RunView::output(const Op& op, std::string_view role) {
  for (const TensorId id : op.outputs) {
    const Tensor* one = tensor(id);
    if (one != nullptr && one->role == role) return one;
  }
  return nullptr;
}

const Tensor* RunView::result(const Op& op) {
  const Tensor* out = output(op, "out");
  return out != nullptr || op.outputs.empty() ? out : tensor(op.outputs.front());
}

const Op* RunView::find_op(StepId step, std::optional<std::int64_t> layer, std::string_view name) {
  for (const Op& one : content(step).ops) {
    if (one.layer == layer && one.name == name) return &one;
  }
  return nullptr;
}

std::vector<const Op*> RunView::readers(const Tensor& tensor) {
  std::vector<const Op*> found;
  for (const Op& one : content(tensor.step).ops) {
    const bool reads =
        std::any_of(one.inputs.begin(), one.inputs.end(), [&](const Input& in) { return in.tensor == tensor.id; });
    if (reads) found.push_back(&one);
  }
  return found;
}

RowToken RunView::token_of(const Tensor& tensor, std::int64_t row) {
  const Step* at = step(tensor.step);
  if (at == nullptr || at->spans.empty()) return {};
  switch (tensor.axis) {
    case Axis::rows: {
      const Span* span = at->span_at(row);
      return span == nullptr ? RowToken{} : RowToken{span, span->position(row)};
    }
    case Axis::live: {
      for (const Span& span : at->spans) {
        if (row < span.rows) return {&span, span.first_token + row};
        row -= span.rows;
      }
      return {};
    }
    case Axis::ends: {
      if (row < 0 || row >= static_cast<std::int64_t>(at->spans.size())) return {};
      const Span& span = at->spans[static_cast<std::size_t>(row)];
      return {&span, span.context - 1};
    }
    case Axis::keys: {
      if (tensor.sequence >= 0) {
        if (tensor.sequence >= static_cast<std::int64_t>(at->spans.size())) return {};
        const Span& span = at->spans[static_cast<std::size_t>(tensor.sequence)];
        const std::int64_t position = tensor.first_token + row;
        return position < span.context ? RowToken{&span, position} : RowToken{};
      }
      const std::int64_t frame = std::max<std::int64_t>(1, tensor.tokens / at->batch);
      const auto which = static_cast<std::size_t>(at->batch > 1 ? row / frame : 0);
      if (which >= at->spans.size()) return {};
      const Span& span = at->spans[which];
      // Left padding pushes a sequence to the end of its frame.
      const std::int64_t pad = at->batch > 1 ? span.row - row / frame * (at->rows / at->batch) : 0;
      const std::int64_t position = tensor.first_token + (at->batch > 1 ? row % frame : row) - pad;
      return position >= 0 && position < span.context ? RowToken{&span, position} : RowToken{};
    }
    case Axis::part: {
      const auto which = static_cast<std::size_t>(std::max<std::int64_t>(0, tensor.sequence));
      return which < at->spans.size() ? RowToken{&at->spans[which], tensor.first_token + row} : RowToken{};
    }
    case Axis::slots:
    case Axis::none:
      return {};
  }
  return {};
}

std::optional<std::int64_t> RunView::row_at(const Tensor& tensor, const Span& span, std::int64_t position) {
  const Step* at = step(tensor.step);
  if (at == nullptr) return std::nullopt;
  const auto inside = [&](std::int64_t row) {
    return row >= 0 && row < tensor.tokens ? std::optional(row) : std::nullopt;
  };
  const std::int64_t row = span.row + position - span.first_token;
  std::int64_t before = 0;
  std::int64_t which = 0;
  for (const Span& one : at->spans) {
    if (one.row == span.row) break;
    before += one.rows;
    ++which;
  }
  if (tensor.sequence >= 0 && tensor.sequence != which) return std::nullopt;
  switch (tensor.axis) {
    case Axis::rows:
      return span.has(row) ? inside(row) : std::nullopt;
    case Axis::live:
      return span.has(row) ? inside(before + row - span.row) : std::nullopt;
    case Axis::ends:
      return position == span.context - 1 ? inside(which) : std::nullopt;
    case Axis::part:
      return inside(position - tensor.first_token);
    case Axis::keys:
      return at->batch <= 1 || tensor.sequence >= 0 ? inside(position - tensor.first_token) : std::nullopt;
    case Axis::slots:
    case Axis::none:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::int64_t> RunView::same_row(const Tensor& from, std::int64_t row, const Tensor& to) {
  const bool alike = from.axis == to.axis && from.tokens == to.tokens && from.sequence == to.sequence;
  if (alike && from.first_token == to.first_token) return row;
  const RowToken token = token_of(from, row);
  if (token.span == nullptr) return std::nullopt;
  return row_at(to, *token.span, token.position);
}

bool RunView::symptomatic(const Tensor& tensor, const Health& row) {
  return tensor.hides || may_hide(tensor.role) ? row.nan + row.pos_inf > 0 : row.bad() > 0;
}

bool RunView::symptomatic(const Tensor& tensor) { return symptomatic(tensor, tensor.health); }

std::vector<std::int64_t> RunView::bad_rows(const Tensor& tensor) {
  std::vector<std::int64_t> bad;
  if (!symptomatic(tensor)) return bad;
  const std::vector<Health>& health = rows(tensor);
  for (std::size_t row = 0; row < health.size(); ++row) {
    if (symptomatic(tensor, health[row])) bad.push_back(static_cast<std::int64_t>(row));
  }
  return bad;
}

}  // namespace nanscope
