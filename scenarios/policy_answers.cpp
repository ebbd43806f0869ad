#include "scenarios/policy_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "core/counted.h"
#include "core/run/recording_view.h"
#include "instrument/policies/claims.h"
#include "scenarios/accuracy.h"
#include "scenarios/record.h"
#include "scenarios/workbench.h"

namespace nanscope::scenarios {
namespace {

/// What the requests of a run answered, and the logits of their prompts.
struct Answered {
  std::vector<RequestRow> requests;
  std::vector<PromptLogits> logits;
};

class PolicyRuns {
 public:
  PolicyRuns(const RunSpec& spec, const PolicyAnswerOptions& options) : spec_(spec), options_(options) {}

  Status open(std::size_t runs) {
    total_ = static_cast<std::int64_t>(runs);
    RunLimits each = options_.limits;
    each.work /= static_cast<double>(runs);
    auto opened = Workbench::open(spec_.config, each);
    if (!opened) return tl::unexpected(opened.error());
    workbench_ = std::move(*opened);
    if (options_.recording != nullptr) {
      Status same = workbench_->load_recorded(spec_.config, *options_.recording, options_.stop);
      if (!same) return same;
    }
    auto reference = answers(kept(), kept(), "f32");
    if (!reference) return tl::unexpected(reference.error());
    reference_ = std::move(*reference);
    return {};
  }

  Result<PolicyAnswer> compare(const KvScheme& k, const KvScheme& v, const std::string& name) {
    auto run = answers(k, v, name);
    if (!run && options_.stop.stop_requested()) return tl::unexpected(run.error());
    PolicyAnswer answer;
    if (!run) {
      answer.problem = run.error().message;
      return answer;
    }
    std::vector<std::int64_t> ids;
    for (const RequestRow& expected : reference_.requests) {
      const auto made = std::find_if(run->requests.begin(), run->requests.end(),
                                     [&](const RequestRow& one) { return one.id == expected.id; });
      if (expected.id < 0 || made == run->requests.end()) continue;
      ids.push_back(expected.id);
      add_tokens(expected, *made, answer);
    }
    if (const auto found = accuracy(run->logits, reference_.logits, ids)) {
      answer.logits_compared = true;
      answer.top1 = found->top1_agreement;
      answer.logit_error = found->rms_error;
    }
    return answer;
  }

 private:
  static KvScheme kept() {
    KvScheme scheme;
    scheme.format = Format::f32;
    return scheme;
  }

  /// Where an answer leaves the other, all behind it is another answer.
  static void add_tokens(const RequestRow& expected, const RequestRow& made, PolicyAnswer& into) {
    const auto& a = expected.output_tokens;
    const auto& b = made.output_tokens;
    const auto [left, right] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    into.tokens += std::ssize(a);
    into.same_tokens += left - a.begin();
    ++into.answers;
    into.same_answers += left == a.end() && right == b.end() ? 1 : 0;
  }

  Result<Answered> answers(const KvScheme& k, const KvScheme& v, const std::string& name) {
    if (options_.progress) options_.progress(done_, total_, name);
    ++done_;
    RunSpec spec = spec_;
    const std::vector<std::string> settings{"kv.scheme_k=" + to_text(k), "kv.scheme_v=" + to_text(v)};
    if (Status set = apply_settings(spec.config, settings); !set) return tl::unexpected(set.error());
    RecordOptions recording;
    recording.capture = "named:lm_head.logits";
    recording.control.stop = options_.stop;
    auto recorded = record(*workbench_, spec, recording);
    if (!recorded) return tl::unexpected(recorded.error());
    RecordingRun rows(recorded->recording);
    StoredTensors tensors(recorded->recording);
    RecordingView view(rows, tensors);
    Answered answered;
    answered.requests.assign(view.requests().begin(), view.requests().end());
    auto logits = prompt_logits(view);
    if (!logits) return tl::unexpected(logits.error());
    answered.logits = std::move(*logits);
    return answered;
  }

  const RunSpec& spec_;
  const PolicyAnswerOptions& options_;
  std::unique_ptr<Workbench> workbench_;
  Answered reference_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

/// The claim with what no attention of a single layer shows: how an early error goes on through the layers behind it.
Status claim_by_layers(PolicyRuns& runs, PolicyReport& report) {
  const auto claim = std::find_if(report.claims.begin(), report.claims.end(),
                                  [](const PolicyClaim& one) { return one.name == kLateLayersClaim; });
  if (claim == report.claims.end()) return {};
  double errors[2] = {};
  for (const bool late : {false, true}) {
    KvScheme k;
    k.format = Format::e4m3;
    k.axis = KvAxis::token_head;
    k.layers = late ? KvLayers::late : KvLayers::early;
    KvScheme v;
    v.format = Format::f32;
    const auto answer = runs.compare(k, v, late ? "K e4m3 in late layers" : "K e4m3 in early layers");
    if (!answer) return tl::unexpected(answer.error());
    if (!answer->problem.empty() || !answer->logits_compared) return {};
    errors[late ? 1 : 0] = answer->logit_error;
  }
  tell_late_layers(errors[0], errors[1], *claim);
  return {};
}

}  // namespace

Status run_policies(const RunSpec& spec, PolicyReport& report, const PolicyAnswerOptions& options) {
  const auto tried = [](const PolicyResult& one) { return one.problem.empty() && !one.layers.empty(); };
  const auto count = std::count_if(report.policies.begin(), report.policies.end(), tried);
  PolicyRuns runs(spec, options);
  if (Status opened = runs.open(static_cast<std::size_t>(count) + 3); !opened) return opened;
  for (PolicyResult& policy : report.policies) {
    if (!tried(policy)) continue;
    auto answer = runs.compare(policy.candidate.k, policy.candidate.v, policy.candidate.name);
    if (!answer) return tl::unexpected(answer.error());
    policy.answer = std::move(*answer);
  }
  return claim_by_layers(runs, report);
}

}  // namespace nanscope::scenarios
