#include "scenarios/analysis.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "core/run/recording_view.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/verify/model_forms.h"
#include "instrument/verify/tables.h"
#include "scenarios/open_scan.h"

namespace nanscope::scenarios {

namespace {

/// Whether the row that a step's token was taken from holds a NaN.
bool last_row_nan(RunView& run, const Op* op, std::string_view role, const Span& span) {
  const Tensor* tensor = op != nullptr ? run.output(*op, role) : nullptr;
  if (tensor == nullptr) tensor = op != nullptr ? run.result(*op) : nullptr;
  if (tensor == nullptr || tensor->health.nan == 0) return false;
  const std::vector<Health>& rows = run.rows(*tensor);
  if (rows.empty()) return true;
  const auto row = run.row_at(*tensor, span, span.context - 1);
  return row && rows[static_cast<std::size_t>(*row)].nan > 0;
}

/// Whether the logits that the step's token was taken from, or a grammar's probabilities of them, hold a NaN.
bool emits_nan(RunView& run, const Step& step, const Span& span) {
  return last_row_nan(run, run.find_op(step.id, {}, "lm_head"), "logits", span) ||
         last_row_nan(run, run.find_op(step.id, {}, "token_softmax"), "probs", span);
}

/// The step to draw: where the first fault breaks something that was asked for, else where the cause is.
std::optional<Front> front_of(RunView& run, const Diagnosis& diagnosis) {
  const Fault* shown = nullptr;
  for (const Fault& fault : diagnosis.faults) {
    if (fault.breaks && fault.where.request.value_or(-1) >= 0 && fault.where.step) {
      shown = &fault;
      break;
    }
  }
  if (!shown && diagnosis.root_cause) shown = &diagnosis.faults.at(*diagnosis.root_cause);
  if (!shown || !shown->where.request) return std::nullopt;
  auto map = front(run, *shown->where.request, shown->where.step.value_or(0), shown->where.rank);
  return map ? std::optional(std::move(*map)) : std::nullopt;
}

/// What could not be read limits every verdict: it is told with it.
void add_unread(std::span<const RunNote> unread, std::vector<RunNote>& notes) {
  std::set<std::pair<std::string, std::string>> told;
  for (const RunNote& one : notes) told.emplace(one.tensor, one.text);
  for (const RunNote& note : unread) {
    std::string text = "not read: " + note.text;
    if (told.emplace(note.tensor, text).second) notes.push_back({note.tensor, std::move(text)});
  }
}

/// Tensors without facts, where nothing else was to be used.
void add_not_looked_at(std::span<const std::string> tensors, Diagnosis& diagnosis) {
  diagnosis.coverage.not_looked_at = static_cast<std::int64_t>(tensors.size());
  if (tensors.empty()) return;
  diagnosis.notes.push_back({tensors.front(), tensors.size() == 1
                                                  ? std::string("was not looked at: it is not among the facts")
                                                  : fmt::format("and {} more tensors were not looked at: they are not "
                                                                "among the facts",
                                                                tensors.size() - 1)});
}

}  // namespace

Result<std::vector<RequestOutcome>> request_outcomes(RunView& run) {
  std::vector<RequestOutcome> outcomes;
  for (const RequestRow& row : run.requests()) {
    RequestOutcome outcome;
    outcome.row = row;
    outcome.prompt_tokens = static_cast<std::int64_t>(row.prompt_tokens.size());
    outcome.image_tokens = std::count(row.prompt_tokens.begin(), row.prompt_tokens.end(), -1);
    outcome.all_bang = !row.output_tokens.empty() && std::all_of(row.output_tokens.begin(), row.output_tokens.end(),
                                                                 [](std::int32_t token) { return token == 0; });
    for (const Step& step : run.steps()) {
      for (const Span& span : step.spans) {
        if (span.request != row.id || outcome.nan_logits) continue;
        outcome.nan_logits = emits_nan(run, step, span);
      }
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

Result<Analysis> analyse(RunView& run, const DiagnoseOptions& options) {
  Analysis analysis;
  analysis.target = options.target;
  analysis.info = run.info();
  analysis.counts = run.counts();
  auto requests = request_outcomes(run);
  if (!requests) return tl::unexpected(requests.error());
  analysis.requests = std::move(*requests);
  KernelArithmetic arithmetic;
  auto diagnosis = diagnose(run, arithmetic, options);
  if (!diagnosis) return tl::unexpected(diagnosis.error());
  analysis.diagnosis = std::move(*diagnosis);
  analysis.front = front_of(run, analysis.diagnosis);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return analysis;
}

KnownModel known_model(OpenRun& run) {
  KnownModel known;
  if (run.model() != nullptr) {
    const auto model = std::make_shared<const ModelForms>(*run.model());
    known.forms = [model](Values& values, const Op& op, const Tensor& out) { return model->of(values, op, out); };
    known.decides = [](OpKind kind) { return ModelForms::decides(kind); };
    known.tables = [model](Recomputer& recomputer, const Step& step) { return judge_tables(recomputer, *model, step); };
  }
  known.norm_eps.assign(run.norm_eps().begin(), run.norm_eps().end());
  return known;
}

Result<Analysis> analyse(OpenRun& run, const DiagnoseOptions& options) {
  DiagnoseOptions known = options;
  known.model = known_model(run);
  std::optional<FactJudgements> judgements;
  if (run.facts() != nullptr) known.judgements = &judgements.emplace(run, *run.facts());
  auto analysis = analyse(run.view(), known);
  if (Status same = run.check(); !same) return tl::unexpected(same.error());
  if (!analysis) return fail(run.target() + ": " + analysis.error().message);
  add_unread(run.unread(), analysis->diagnosis.notes);
  if (run.dump() != nullptr) add_not_looked_at(run.dump()->not_looked_at(), analysis->diagnosis);
  if (!run.model_note().empty()) analysis->diagnosis.notes.push_back({"", run.model_note()});
  if (run.recording() != nullptr) {
    const auto digest = digest_of(*run.recording());
    if (!digest) return tl::unexpected(digest.error());
    analysis->digest = *digest;
  }
  return analysis;
}

Result<Analysis> analyse(const Recording& recording, TensorSource& tensors, std::string target) {
  RecordingRun rows(recording);
  RecordingView run(rows, tensors);
  DiagnoseOptions options;
  options.target = std::move(target);
  auto analysis = analyse(run, options);
  if (!analysis) return analysis;
  const auto digest = digest_of(recording);
  if (!digest) return tl::unexpected(digest.error());
  analysis->digest = *digest;
  return analysis;
}

}  // namespace nanscope::scenarios
