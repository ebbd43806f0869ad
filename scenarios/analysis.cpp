#include "scenarios/analysis.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/dump/recorded_dump.h"

namespace nanscope::scenarios {

namespace {

bool last_row_nan(RunData& run, const std::optional<OpRow>& op, const std::string& role) {
  const auto tensor = op ? run.output(op->id, role) : std::nullopt;
  if (!tensor || tensor->health.nan == 0) return false;
  const std::vector<Health> rows = run.token_health(tensor->id);
  return rows.empty() || rows.back().nan > 0;
}

/// Whether the logits that the step's token was taken from (its last row), or a grammar's probabilities of them, hold
/// a NaN.
bool emits_nan(RunData& run, const StepRow& step) {
  return last_row_nan(run, run.find_op(step.id, -1, "lm_head"), "logits") ||
         last_row_nan(run, run.find_op(step.id, -1, "token_softmax"), "probs");
}

/// The step to draw: where the first fault breaks something that was asked for, else where the cause is.
std::optional<Front> front_of(RunData& run, const Diagnosis& diagnosis) {
  const Fault* shown = nullptr;
  for (const Fault& fault : diagnosis.faults) {
    if (fault.breaks && fault.where.request.value_or(-1) >= 0 && fault.where.step) {
      shown = &fault;
      break;
    }
  }
  if (!shown && diagnosis.root_cause) shown = &diagnosis.faults.at(*diagnosis.root_cause);
  if (!shown || !shown->where.request) return std::nullopt;
  auto map = front(run, *shown->where.request, shown->where.step.value_or(0));
  return map ? std::optional(std::move(*map)) : std::nullopt;
}

}  // namespace

Result<std::vector<RequestOutcome>> request_outcomes(RunData& run) {
  std::vector<RequestOutcome> outcomes;
  for (const RequestRow& row : run.requests()) {
    RequestOutcome outcome;
    outcome.row = row;
    outcome.prompt_tokens = static_cast<std::int64_t>(row.prompt_tokens.size());
    outcome.image_tokens = std::count(row.prompt_tokens.begin(), row.prompt_tokens.end(), -1);
    outcome.all_bang = !row.output_tokens.empty() && std::all_of(row.output_tokens.begin(), row.output_tokens.end(),
                                                                 [](std::int32_t token) { return token == 0; });
    for (const StepRow& step : run.steps()) {
      if (step.request != row.id || outcome.nan_logits) continue;
      outcome.nan_logits = emits_nan(run, step);
    }
    outcomes.push_back(std::move(outcome));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return outcomes;
}

Result<std::uint64_t> digest_of(const Recording& recording) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state || XXH3_64bits_reset(state.get()) != XXH_OK) return fail("digest: out of memory");
  const auto add = [&](std::uint64_t value) {
    unsigned char bytes[8];
    for (unsigned i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    XXH3_64bits_update(state.get(), bytes, sizeof bytes);
  };
  const Status visited = recording.for_each_tensor({}, [&](const TensorRow& tensor) {
    add(static_cast<std::uint64_t>(tensor.id));
    add(tensor.hash);
    return true;
  });
  if (!visited) return tl::unexpected(visited.error());
  return XXH3_64bits_digest(state.get());
}

Result<Analysis> analyse(const Recording& recording, TensorSource& tensors, std::string target) {
  RecordingRun run(recording);
  Analysis analysis;
  analysis.target = std::move(target);
  analysis.info = run.info();
  analysis.counts = run.counts();
  auto requests = request_outcomes(run);
  if (!requests) return tl::unexpected(requests.error());
  analysis.requests = std::move(*requests);
  auto diagnosis = diagnose_recorded(run, tensors, analysis.target);
  if (!diagnosis) return tl::unexpected(diagnosis.error());
  analysis.diagnosis = std::move(*diagnosis);
  auto links = cascade(run, tensors);
  if (!links) return tl::unexpected(links.error());
  analysis.cascade = std::move(*links);
  analysis.front = front_of(run, analysis.diagnosis);
  const auto digest = digest_of(recording);
  if (!digest) return tl::unexpected(digest.error());
  analysis.digest = *digest;
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return analysis;
}

}  // namespace nanscope::scenarios
