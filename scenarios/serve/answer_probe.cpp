#include "scenarios/serve/answer_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/numbers/decode_span.h"
#include "core/numbers/format_table.h"

namespace nanscope::serve {

Position position_of(std::span<const float> logits, std::int32_t token, int count, const Tokenizer& tokenizer) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float value : logits) largest = value > largest ? double{value} : largest;
  double sum = 0;
  for (const float value : logits) sum += std::exp(double{value} - largest);
  const double normalizer = largest + std::log(sum);
  const auto chance = [&](std::int32_t id) {
    const float value = logits[static_cast<std::size_t>(id)];
    const auto above = std::count_if(logits.begin(), logits.end(), [&](float other) { return other > value; });
    return Chance{id, double{value} - normalizer, above + 1, std::string(tokenizer.token_text(id))};
  };
  Position position{chance(token), {}};
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<std::ptrdiff_t>(count, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    const bool x_counts = !std::isnan(x);
    if (x_counts != !std::isnan(y)) return x_counts;
    return x_counts && x != y ? x > y : a < b;
  });
  std::for_each(ids.begin(), end, [&](std::int32_t id) { position.top.push_back(chance(id)); });
  return position;
}

void AnswerProbe::expect(std::int64_t request, const Question& question) {
  Asked& asked = asked_[request];
  asked.chances = question.chances.value_or(0);
  asked.prompt_chances = question.prompt_chances.value_or(0);
  asked.wants_prompt = question.prompt_chances.has_value();
}

void AnswerProbe::give(std::int64_t request, Answer& answer) {
  const auto found = asked_.find(request);
  if (found == asked_.end()) return;
  Asked& asked = found->second;
  answer.generated = std::move(asked.generated);
  answer.prompt.resize(asked.wants_prompt ? asked.prompt.size() : 0);
  for (auto& [at, position] : asked.of_prompt) answer.prompt[static_cast<std::size_t>(at)] = std::move(position);
  asked_.erase(found);
}

Status AnswerProbe::on_request_begin(const RequestRow& row) {
  if (const auto found = asked_.find(row.id); found != asked_.end()) found->second.prompt = row.prompt_tokens;
  return next_.on_request_begin(row);
}

Status AnswerProbe::on_step_begin(const StepRow& row) {
  step_ = row;
  return next_.on_step_begin(row);
}

Status AnswerProbe::on_op(const ProbeOp& op) {
  const bool head =
      step_.rank == 0 && (op.name == "lm_head" || op.name == "logits_scale" || op.name == "logits_softcap");
  for (std::size_t i = 0; head && i < op.outputs.size(); ++i) {
    if (op.outputs[i].role != "logits") continue;
    if (Status read = read_logits(op.outputs[i].view); !read) return read;
  }
  return next_.on_op(op);
}

Status AnswerProbe::on_token(const TokenRow& row) {
  const auto found = asked_.find(row.request);
  if (row.source == TokenSource::generated && found != asked_.end()) {
    Asked& asked = found->second;
    if (asked.last.empty()) return fail("the server saw no logits of a token");
    asked.generated.push_back(position_of(asked.last, row.token, asked.chances, tokenizer_));
    if (listener_) listener_(row.request, asked.generated.back());
  }
  return next_.on_token(row);
}

/// In a batch there is one row of logits for each span, else one for each token.
Status AnswerProbe::read_logits(const kernels::TensorView& view) {
  const std::vector<Span> spans = step_.all_spans();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto found = asked_.find(spans[i].request);
    if (found == asked_.end()) continue;
    Asked& asked = found->second;
    auto last = row_of(view, step_.spans ? static_cast<std::int64_t>(i) : view.rows - 1);
    if (!last) return tl::unexpected(last.error());
    asked.last = std::move(*last);
    if (!asked.wants_prompt) continue;
    if (step_.spans) {
      take_prompt(asked, spans[i].first_token + spans[i].rows, asked.last);
      continue;
    }
    for (std::int64_t row = 0; row < view.rows; ++row) {
      const auto logits = row_of(view, row);
      if (!logits) return tl::unexpected(logits.error());
      take_prompt(asked, spans[i].first_token + row + 1, *logits);
    }
  }
  return {};
}

void AnswerProbe::take_prompt(Asked& asked, std::int64_t at, std::span<const float> logits) const {
  if (at >= std::ssize(asked.prompt) || asked.prompt[static_cast<std::size_t>(at)] < 0) return;
  asked.of_prompt[at] =
      position_of(logits, asked.prompt[static_cast<std::size_t>(at)], asked.prompt_chances, tokenizer_);
}

Result<std::vector<float>> AnswerProbe::row_of(const kernels::TensorView& view, std::int64_t row) {
  const auto element = static_cast<std::size_t>(info(view.format).storage_bytes());
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.columns) * element);
  const auto* from = static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride) * element;
  if (Status read = device_.download(bytes, from); !read) return tl::unexpected(read.error());
  std::vector<float> values(static_cast<std::size_t>(view.columns));
  decode(view.format, bytes, values);
  return values;
}

}  // namespace nanscope::serve
