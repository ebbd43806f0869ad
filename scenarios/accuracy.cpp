#include "scenarios/accuracy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nanscope::scenarios {

namespace {

bool finite(std::span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
}

std::ptrdiff_t top(std::span<const float> row) { return std::max_element(row.begin(), row.end()) - row.begin(); }

/// Sums over all compared rows.
struct Sums {
  std::int64_t requests = 0;
  std::int64_t tokens = 0;
  std::int64_t agreeing = 0;
  std::int64_t elements = 0;
  double max_error = 0;
  double squares = 0;
};

void compare_last(std::span<const float> a, std::span<const float> b, Sums& sums) {
  ++sums.requests;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    sums.max_error = std::max(sums.max_error, error);
    sums.squares += error * error;
    ++sums.elements;
  }
}

void compare_request(const PromptLogits& a, const PromptLogits& b, Sums& sums) {
  if (a.vocabulary != b.vocabulary || a.first_token + a.tokens != b.first_token + b.tokens) return;
  const std::int64_t end = a.first_token + a.tokens;
  for (std::int64_t token = std::max(a.first_token, b.first_token); token < end; ++token) {
    const auto x = a.row(token);
    const auto y = b.row(token);
    if (!finite(x) || !finite(y)) continue;
    ++sums.tokens;
    sums.agreeing += top(x) == top(y) ? 1 : 0;
    if (token == end - 1) compare_last(x, y, sums);
  }
}

}  // namespace

std::span<const float> PromptLogits::row(std::int64_t token) const {
  const auto width = static_cast<std::size_t>(vocabulary);
  return std::span(values).subspan(static_cast<std::size_t>(token - first_token) * width, width);
}

namespace {

/// The step that works on the last token of a request's prompt, which chunks of it may come before.
const Step* step_of_prompt(RunView& run, const RequestRow& request) {
  const std::int64_t last = std::ssize(request.prompt_tokens) - 1;
  for (const Step& step : run.steps()) {
    for (const Span& span : step.spans) {
      if (span.request == request.id && span.first_token <= last && last < span.context) return &step;
    }
  }
  return run.find_step(request.id, 0);
}

/// Of a step's logits the rows of one request.
PromptLogits own_rows(RunView& run, const Tensor& logits, std::span<const float> values, std::int64_t request) {
  PromptLogits own{request, 0, 0, logits.channels, {}};
  const auto width = static_cast<std::size_t>(logits.channels);
  for (std::int64_t row = 0; row < logits.tokens; ++row) {
    const RowToken token = run.token_of(logits, row);
    if (token.span == nullptr || token.span->request != request) continue;
    if (own.tokens++ == 0) own.first_token = token.position;
    const auto from = values.subspan(static_cast<std::size_t>(row) * width, width);
    own.values.insert(own.values.end(), from.begin(), from.end());
  }
  return own;
}

}  // namespace

Result<std::vector<PromptLogits>> prompt_logits(RunView& run) {
  std::vector<PromptLogits> all;
  for (const RequestRow& request : run.requests()) {
    const Step* step = step_of_prompt(run, request);
    const Op* head = step != nullptr ? run.find_op(step->id, {}, "lm_head") : nullptr;
    const Tensor* logits = head != nullptr ? run.output(*head, "logits") : nullptr;
    const auto values = logits != nullptr ? run.values(*logits) : nullptr;
    if (values) all.push_back(own_rows(run, *logits, *values, request.id));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return all;
}

std::optional<Accuracy> accuracy(std::span<const PromptLogits> run, std::span<const PromptLogits> reference,
                                 std::span<const std::int64_t> request_ids) {
  Sums sums;
  for (const PromptLogits& a : run) {
    if (std::find(request_ids.begin(), request_ids.end(), a.request) == request_ids.end()) continue;
    for (const PromptLogits& b : reference) {
      if (b.request == a.request) compare_request(a, b, sums);
    }
  }
  if (sums.tokens == 0) return std::nullopt;
  Accuracy result;
  result.requests = sums.requests;
  result.tokens = sums.tokens;
  result.max_error = sums.max_error;
  result.rms_error = sums.elements > 0 ? std::sqrt(sums.squares / static_cast<double>(sums.elements)) : 0;
  result.top1_agreement = static_cast<double>(sums.agreeing) / static_cast<double>(sums.tokens);
  return result;
}

}  // namespace nanscope::scenarios
