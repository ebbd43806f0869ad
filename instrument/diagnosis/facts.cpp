#include "instrument/diagnosis/facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/run/scales.h"

namespace nanscope {

std::string code_text(Format format, std::uint32_t code) {
  return fmt::format("0x{:0{}X}", code, 2 * info(format).storage_bytes());
}

std::optional<Range> range_of(const std::vector<std::int64_t>& rows) {
  if (rows.empty()) return std::nullopt;
  return Range{rows.front(), rows.back()};
}

std::string request_text(const Span& span) {
  if (span.request == kDummyRequest) return fmt::format("the dummy batch step {}", span.index);
  if (span.request < 0) return fmt::format("the warm-up step {}", span.index);
  return fmt::format("request {} step {}", span.request, span.index);
}

std::string request_text(const Step& step) {
  if (step.spans.size() == 1) return request_text(step.spans.front());
  return step.spans.empty() ? fmt::format("step {}", step.id)
                            : fmt::format("step {} of {} requests", step.spans.front().index, step.spans.size());
}

Where Facts::where(const Op& op) {
  Where place;
  place.op = op.name;
  place.op_id = op.id;
  place.layer = op.layer;
  if (const Step* step = run.step(op.step); step != nullptr && !step->spans.empty()) {
    place.request = step->request();
    place.step = step->index();
    place.rank = step->rank;
  }
  return place;
}

Where Facts::where(const Tensor& tensor, std::optional<Range> rows, std::optional<Range> channels) {
  const Op* op = run.maker(tensor);
  Where place = op != nullptr ? where(*op) : Where{};
  place.role = tensor.role;
  place.tensor_id = tensor.id;
  place.channels = channels;
  if (!rows || tensor.stated) return place;
  const RowToken first = run.token_of(tensor, rows->first);
  const RowToken last = run.token_of(tensor, rows->last);
  if (first.span != nullptr) {
    place.request = first.span->request;
    place.step = first.span->index;
  }
  if (first.span != nullptr && last.span != nullptr && first.span->request == last.span->request) {
    place.tokens = Range{first.position, last.position};
  } else if (first.span != nullptr && last.span == nullptr) {
    place.tokens = Range{first.position, first.position};
  } else {
    place.tokens = rows;
  }
  return place;
}

Where Facts::where(const Tensor& tensor, const std::vector<std::int64_t>& rows) {
  return where(tensor, range_of(rows));
}

std::string Facts::name_of(const Tensor& tensor) {
  return tensor.name.empty() ? tensor_text(where(tensor)) : tensor.name;
}

bool Facts::row_bad(const Tensor& tensor, std::int64_t row) {
  if (!RunView::symptomatic(tensor)) return false;
  const std::vector<Health>& detail = run.rows(tensor);
  if (detail.empty() || row < 0 || row >= tensor.tokens) return true;
  return RunView::symptomatic(tensor, detail[static_cast<std::size_t>(row)]);
}

std::vector<std::int64_t> Facts::constant_rows(const Tensor& tensor) {
  std::vector<std::int64_t> found;
  if (tensor.channels < 2 || !tensor.known) return found;
  const std::vector<Health>& detail = run.rows(tensor);
  for (std::size_t i = 0; i < detail.size(); ++i) {
    if (detail[i].bad() == 0 && detail[i].count > 1 && detail[i].min == detail[i].max) {
      found.push_back(static_cast<std::int64_t>(i));
    }
  }
  return found;
}

bool scale_by_row(std::string_view policy, const Step& step) {
  return policy == "per_token" || (policy == "per_request" && step.spans.size() > 1);
}

bool Facts::scale_by_row(const ScaleRow& entry) {
  const Step* step = run.step(entry.step);
  const Op* op = run.op(entry.op);
  const Tensor* made = op != nullptr ? run.output(*op, entry.target + "_scales") : nullptr;
  if (made != nullptr) return made->count() > 1;
  return step != nullptr && nanscope::scale_by_row(entry.policy, *step);
}

const ScaleRow* Facts::scale_of(OpId op, std::string_view target, std::int64_t head) {
  if (scales_.empty()) {
    for (const ScaleRow& row : run.scales()) scales_.emplace(row.op, &row);
  }
  const auto [first, last] = scales_.equal_range(op);
  const ScaleRow* tightest = nullptr;
  for (auto entry = first; entry != last; ++entry) {
    const ScaleRow& row = *entry->second;
    if (row.target == target) return &row;
    if (target_without_head(row.target) != target) continue;
    if (head_of_target(row.target) == head) return &row;
    // NaN is below all.
    if (tightest == nullptr || !(row.headroom >= tightest->headroom)) tightest = &row;
  }
  return tightest;
}

const Health* Facts::parameter_health(const Input& input) {
  if (const Tensor* tensor = run.tensor(input.tensor)) {
    const Op* op = run.maker(*tensor);
    return op != nullptr && op->kind == OpKind::parameter ? &tensor->health : nullptr;
  }
  const WeightRow* weight = input.weight.empty() ? nullptr : run.weight(input.weight);
  return weight != nullptr ? &weight->health : nullptr;
}

std::string Facts::parameter_name(const Input& input) {
  const Tensor* tensor = run.tensor(input.tensor);
  return tensor != nullptr ? name_of(*tensor) : input.weight;
}

}  // namespace nanscope
