#include "instrument/recompute/beams.h"

#include <algorithm>

namespace nanscope {
namespace {

/// The span of a request in the step of its first token, if there are more in it.
const Span* first_of(const Step& step, std::int64_t request) {
  const auto found = std::find_if(step.spans.begin(), step.spans.end(),
                                  [&](const Span& span) { return span.request == request && span.first_token == 0; });
  return found != step.spans.end() ? &*found : nullptr;
}

/// Whether two spans of a step hold the same in the first tensor that has a row for each token.
bool begin_alike(RunView& run, const Step& step, const Span& a, const Span& b) {
  if (a.rows != b.rows) return false;
  const auto& tensors = run.content(step.id).tensors;
  const auto by_rows = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
    return tensor.known && !tensor.stated && tensor.axis == Axis::rows && tensor.tokens == step.rows &&
           tensor.channels > 1;
  });
  if (by_rows == tensors.end()) return false;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    const auto one = run.row_values(*by_rows, a.row + i);
    const auto other = run.row_values(*by_rows, b.row + i);
    if (!one || !other || *one != *other) return false;
  }
  return true;
}

}  // namespace

bool over_keys(OpKind kind) {
  return kind == OpKind::attention_scores || kind == OpKind::softmax || kind == OpKind::attention ||
         kind == OpKind::kv_read || kind == OpKind::attention_mix;
}

bool may_be_beams(RunView& run, const Step& step) {
  if (step.spans.size() < 2) return false;
  for (const Step& first : run.steps()) {
    if (first.rank != step.rank || first.run != step.run) continue;
    for (std::size_t i = 0; i < step.spans.size(); ++i) {
      const Span* one = first_of(first, step.spans[i].request);
      // Of the first token behind the prompt all caches are the same.
      if (one == nullptr || step.spans[i].first_token <= one->context) continue;
      for (std::size_t j = i + 1; j < step.spans.size(); ++j) {
        const Span* other = first_of(first, step.spans[j].request);
        if (other != nullptr && begin_alike(run, first, *one, *other)) return true;
      }
    }
  }
  return false;
}

}  // namespace nanscope
