#include "core/diagnosis/detectors/logits.h"

#include <algorithm>
#include <set>

namespace nanscope {
namespace {

bool all_nan(const Health& row) { return row.count > 0 && row.nan == row.count; }

/// The token of a NaN row: from the argmax op's elements, else from the tokens that the request generated.
void add_token(Facts& facts, NanChoice& choice) {
  const std::int64_t position = choice.step.first_token + choice.step.tokens;
  bool known = false;
  if (const std::optional<OpRow> argmax = facts.run.find_op(choice.step.id, choice.argmax.layer, "argmax")) {
    choice.argmax = *argmax;
    const std::optional<TensorRow> token = facts.run.output(argmax->id, "token");
    const std::shared_ptr<const TensorData> data = token ? facts.elements(*token) : nullptr;
    if (data && choice.row < data->tokens && data->channels > 0) {
      choice.token = static_cast<std::int32_t>(data->code(choice.row, 0));
      known = true;
    }
  }
  for (const TokenRow& token : facts.run.tokens(choice.step.request)) {
    if (token.position != position || token.source != TokenSource::generated) continue;
    if (!known) choice.token = token.token;
    choice.text = token.text;
    known = true;
  }
  if (!known) choice.token = -1;
  if (const RequestRow* request = facts.run.request(choice.step.request)) {
    choice.repeated = std::count(request->output_tokens.begin(), request->output_tokens.end(), choice.token);
  }
}

}  // namespace

std::vector<NanChoice> nan_choices(Facts& facts) {
  std::vector<NanChoice> found;
  std::set<std::int64_t> requests;
  for (const SickOp& sick : facts.sick_ops()) {
    const TensorRow* logits = sick.output(sick.op.kind == "token_softmax" ? "probs" : "logits");
    if (logits == nullptr || logits->tokens == 0 || requests.contains(sick.step.request)) continue;
    if (sick.step.request < 0) continue;  // nobody gets its token
    const std::vector<Health>& rows = facts.rows(*logits);
    NanChoice choice;
    choice.rows = std::count_if(rows.begin(), rows.end(), all_nan);
    const bool last = rows.empty() ? all_nan(logits->health) : all_nan(rows.back());
    if (!last) continue;
    requests.insert(sick.step.request);
    choice.step = sick.step;
    choice.logits = *logits;
    choice.argmax = sick.op;
    choice.row = logits->tokens - 1;
    add_token(facts, choice);
    found.push_back(std::move(choice));
  }
  return found;
}

}  // namespace nanscope
