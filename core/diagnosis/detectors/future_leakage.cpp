#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

/// Probabilities of keys that stand behind a row's own token, and how many of them are zero at least.
struct Leak {
  std::vector<std::int64_t> rows;
  std::uint64_t probabilities = 0;  ///< nonzero ones of keys that the row may not see: at least so many
};

/// A masked probability is exactly zero. A row with fewer zeros than it has later keys looks at one of them: a count
/// proves it, without any element.
Leak leak_of(Facts& facts, const TensorRow& probs) {
  Leak leak;
  const std::int64_t keys = probs.channels / probs.heads;
  const std::vector<Health>& rows = facts.rows(probs);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    // The last row has no later token: what lies behind it in its block is nobody's yet.
    if (row + 1 == probs.tokens || rows[i].bad() > 0) continue;
    const std::int64_t later = keys - 1 - (probs.first_token + row);
    if (later <= 0) continue;
    const auto hidden = static_cast<std::uint64_t>(later * probs.heads);
    if (rows[i].zero >= hidden) continue;
    leak.rows.push_back(row);
    leak.probabilities += hidden - rows[i].zero;
  }
  return leak;
}

/// The largest probability that a row gives to a later key.
struct Sight {
  std::int64_t head = 0;
  std::int64_t key = 0;
  float probability = 0;
};

std::optional<Sight> furthest_sight(Facts& facts, const TensorRow& probs, std::int64_t row) {
  const std::shared_ptr<const TensorData> data = facts.elements(probs);
  if (!data) return std::nullopt;
  const std::int64_t keys = probs.channels / probs.heads;
  Sight sight;
  for (std::int64_t head = 0; head < probs.heads; ++head) {
    for (std::int64_t key = probs.first_token + row + 1; key < keys; ++key) {
      const float probability = data->value(row, head * keys + key);
      if (probability > sight.probability) sight = {head, key, probability};
    }
  }
  return sight;
}

FoundFault fault_of(Facts& facts, const OpRow& op, const TensorRow& probs, const Leak& leak) {
  FoundFault found;
  found.ops = {op.id};
  found.fault.where = facts.where(probs, leak.rows);
  found.fault.evidence = {{"tokens", static_cast<std::int64_t>(leak.rows.size())},
                          {"first token", probs.first_token + leak.rows.front()},
                          {"nonzero probabilities of later keys", static_cast<std::int64_t>(leak.probabilities)}};
  std::string seen;
  if (const std::optional<Sight> sight = furthest_sight(facts, probs, leak.rows.front())) {
    found.fault.evidence.push_back({"head", sight->head});
    found.fault.evidence.push_back({"key", sight->key});
    found.fault.evidence.push_back({"probability", double{sight->probability}});
    seen = fmt::format("; token {} gives key {} the probability {:.3g} in head {}",
                       probs.first_token + leak.rows.front(), sight->key, sight->probability, sight->head);
  }
  found.fault.summary = fmt::format(
      "{} of {} attend to later tokens: their rows hold at least {} that ought to be zero{}",
      counted(leak.rows.size(), "token"), tensor_text(found.fault.where),
      leak.probabilities == 1 ? std::string("1 probability") : fmt::format("{} probabilities", leak.probabilities),
      seen);
  found.fault.fix = "let the causal mask end at each token's own position, in every chunk and tile";
  return found;
}

}  // namespace

/// A token whose attention gives a later token a probability above zero: its output depends on the future. One fault a
/// request, at the first op; decoding a token looks at none that is later.
FaultReport detect_future_leakage(Facts& facts) {
  FaultReport report;
  std::int64_t looked_at = 0;
  std::int64_t leaking = 0;
  for (const StepRow& step : facts.run.steps()) {
    if (step.tokens < 2) continue;
    OpFilter filter;
    filter.step = step.id;
    filter.name = "softmax";
    FoundFault* first = nullptr;
    for (const OpRow& op : facts.run.ops(filter)) {
      const std::optional<TensorRow> probs = facts.run.output(op.id, "probs");
      if (!probs || probs->heads <= 0 || probs->channels % probs->heads != 0) continue;
      ++looked_at;
      const Leak leak = leak_of(facts, *probs);
      if (leak.rows.empty()) continue;
      ++leaking;
      if (first != nullptr) {
        first->ops.push_back(op.id);
        continue;
      }
      report.faults.push_back(fault_of(facts, op, *probs, leak));
      first = &report.faults.back();
    }
  }
  report.figure =
      fmt::format("{} of {} causal softmax ops give a later token a probability above 0", leaking, looked_at);
  return report;
}

}  // namespace nanscope
