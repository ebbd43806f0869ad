#include "scenarios/counterfactuals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/run/recording_view.h"
#include "core/threads/parallel.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/engine/cost.h"
#include "instrument/engine/knobs.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "scenarios/analysis.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"

namespace nanscope::scenarios {

namespace {

constexpr std::int64_t kCaptureAllBytes = std::int64_t{256} << 20;
constexpr std::size_t kPairCandidates = 12;

/// A run that was looked at: what it says, and its prompt logits for the comparison.
struct Looked {
  Outcome outcome;
  std::vector<PromptLogits> logits;
  std::string root_class;
};

/// NaN rows among the logits of the prompts.
std::int64_t nan_prompt_tokens(RunView& run) {
  std::int64_t tokens = 0;
  for (const RequestRow& request : run.requests()) {
    const Step* step = run.find_step(request.id, 0);
    const Op* head = step != nullptr ? run.find_op(step->id, {}, "lm_head") : nullptr;
    const Tensor* logits = head != nullptr ? run.output(*head, "logits") : nullptr;
    if (logits == nullptr || logits->health.nan == 0) continue;
    for (const Health& row : run.rows(*logits)) tokens += row.nan > 0 ? 1 : 0;
  }
  return tokens;
}

void add_new(std::vector<std::string>& list, const std::string& word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
}

Status look_at(const Recording& recording, TensorSource& tensors, bool recompute, const std::stop_token& stop,
               Looked& looked) {
  RecordingRun rows(recording);
  RecordingView run(rows, tensors);
  Outcome& outcome = looked.outcome;
  const auto requests = request_outcomes(run);
  if (!requests) return tl::unexpected(requests.error());
  for (const RequestOutcome& request : *requests) {
    if (request.nan_logits && request.row.id >= 0) outcome.faulty_requests.push_back(request.row.id);
    if (request.row.id >= 0) outcome.outputs.push_back(request.row.output_text);
  }
  KernelArithmetic arithmetic;
  DiagnoseOptions diagnosing;
  diagnosing.recompute = recompute;
  diagnosing.stop = stop;
  const auto diagnosis = diagnose(run, arithmetic, diagnosing);
  if (!diagnosis) return tl::unexpected(diagnosis.error());
  for (const Fault& fault : diagnosis->faults) add_new(outcome.faults, fault.fault_class);
  for (const Event& event : diagnosis->chain) add_new(outcome.chain, event.kind);
  if (diagnosis->root_cause) looked.root_class = diagnosis->faults.at(*diagnosis->root_cause).fault_class;
  outcome.tokens = diagnosis->spread.tokens;
  outcome.bad_prompt_tokens = nan_prompt_tokens(run);
  auto logits = prompt_logits(run);
  if (!logits) return tl::unexpected(logits.error());
  looked.logits = std::move(*logits);
  return run.status();
}

double bytes_per_token(const EngineConfig& config, std::uint64_t kv_bytes) {
  return static_cast<double>(kv_bytes) / static_cast<double>(config.kv.blocks * config.kv.block_size);
}

/// One investigation: its runs count against one progress display.
class Investigation {
 public:
  Investigation(const RunSpec& spec, const CounterfactualOptions& options, std::string capture)
      : spec_(spec), options_(options), capture_(std::move(capture)) {}

  /// Several threads may call it, each with a workbench of its own, after the first run has ended.
  Result<Looked> run(Workbench& workbench, const Change& change) {
    tell(change);
    RunSpec spec = spec_;
    Looked looked;
    looked.outcome.change = change;
    if (Status done = apply_settings(spec.config, change.settings); !done) {
      looked.outcome.error = done.error().message;
      return ended(std::move(looked));
    }
    RecordOptions options;
    options.capture = capture_;
    options.control.stop = options_.stop;
    auto recorded = record(workbench, spec, options);
    if (options_.stop.stop_requested()) return fail("stopped");
    if (!recorded) {
      looked.outcome.error = recorded.error().message;
      return ended(std::move(looked));
    }
    looked.outcome.kv_bytes_per_token = bytes_per_token(spec.config, recorded->result.kv_bytes);
    looked.outcome.activation_bits = info(spec.config.activation_format).bits;
    StoredTensors tensors(recorded->recording);
    if (Status done = look_at(recorded->recording, tensors, recompute_, options_.stop, looked); !done) {
      return tl::unexpected(done.error());
    }
    if (change.settings.empty()) spare_recomputing(recorded->recording, tensors, looked.outcome);
    return ended(std::move(looked));
  }

  std::int64_t runs = 0;  ///< that have ended
  std::int64_t planned = 0;

 private:
  void tell(const Change& change) {
    const std::lock_guard lock(mutex_);
    if (options_.progress) options_.progress(runs, planned, change.text());
  }
  Looked ended(Looked looked) {
    const std::lock_guard lock(mutex_);
    ++runs;
    return looked;
  }

  /// What shows in the run as it was without doing its ops again is looked for without it in all others.
  void spare_recomputing(const Recording& recording, TensorSource& tensors, const Outcome& baseline) {
    Looked plain;
    if (baseline.faults.empty() || !look_at(recording, tensors, false, options_.stop, plain)) return;
    recompute_ = plain.outcome.faults != baseline.faults || plain.outcome.chain != baseline.chain;
  }

  std::mutex mutex_;
  const RunSpec& spec_;
  const CounterfactualOptions& options_;
  std::string capture_;
  bool recompute_ = true;
};

/// The first kind of event that `baseline` has and `changed` lacks.
std::string first_missing(const std::vector<std::string>& baseline, const std::vector<std::string>& changed) {
  for (const std::string& kind : baseline) {
    if (std::find(changed.begin(), changed.end(), kind) == changed.end()) return kind;
  }
  return {};
}

std::vector<std::int64_t> healthy_requests(const RunSpec& spec, const Outcome& outcome) {
  std::vector<std::int64_t> healthy;
  for (std::size_t i = 0; i < spec.requests.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    const auto& faulty = outcome.faulty_requests;
    if (std::find(faulty.begin(), faulty.end(), id) == faulty.end()) healthy.push_back(id);
  }
  return healthy;
}

/// Whether the fault is prevented: nobody answers from NaN, or, when nobody did, the cause is gone.
bool prevents(const Outcome& baseline, const Outcome& changed) {
  if (!changed.error.empty()) return false;
  if (baseline.faulty_requests.empty()) return changed.effect == Effect::removes_cause;
  return changed.faulty_requests.empty();
}

/// Whether what all runs are compared with is as wrong as the recorded one, which nobody's NaN shows.
bool is_wrong_too(const Looked& baseline, const Looked& unquantized) {
  const std::vector<std::string>& faults = unquantized.outcome.faults;
  return baseline.outcome.faulty_requests.empty() && !baseline.root_class.empty() &&
         std::find(faults.begin(), faults.end(), baseline.root_class) != faults.end();
}

void finish_outcome(const RunSpec& spec, const Looked& baseline, const Looked& unquantized, Looked& looked) {
  Outcome& outcome = looked.outcome;
  if (!outcome.error.empty()) return;
  outcome.breaks_at = first_missing(baseline.outcome.chain, outcome.chain);
  outcome.effect = effect_of(baseline.outcome, outcome, baseline.root_class);
  const std::vector<std::int64_t> healthy = healthy_requests(spec, outcome);
  const std::vector<std::int64_t> recorded = healthy_requests(spec, baseline.outcome);
  std::vector<std::int64_t> both;
  std::set_intersection(healthy.begin(), healthy.end(), recorded.begin(), recorded.end(), std::back_inserter(both));
  outcome.accuracy = accuracy(looked.logits, unquantized.logits, healthy);
  if (!is_wrong_too(baseline, unquantized))
    outcome.recorded_accuracy = accuracy(looked.logits, unquantized.logits, both);
}

/// The bytes of all tensors, to decide how much a run in memory may keep.
Result<std::string> affordable_capture(const Recording& recording) {
  std::int64_t bytes = 0;
  const Status visited = recording.for_each_tensor({}, [&](const TensorRow& row) {
    bytes += row.tokens * row.channels * static_cast<std::int64_t>(info(row.format).storage_bytes());
    return bytes <= kCaptureAllBytes;
  });
  if (!visited) return tl::unexpected(visited.error());
  return std::string(bytes <= kCaptureAllBytes ? "all" : "named:lm_head.logits");
}

bool by_effect(const Outcome& a, const Outcome& b) {
  if (a.error.empty() != b.error.empty()) return a.error.empty();
  if (a.effect != b.effect) return a.effect < b.effect;
  return a.error.empty() && a.effect <= Effect::removes_nan && cheaper(a, b);
}

/// Pairs of the changes that did something without preventing the fault.
std::vector<Change> pair_changes(const std::vector<Outcome>& singles) {
  std::vector<const Change*> partial;
  for (const Outcome& outcome : singles) {
    const bool some = outcome.effect == Effect::limits_spread || outcome.effect == Effect::changes_symptom;
    if (outcome.error.empty() && some && partial.size() < kPairCandidates) partial.push_back(&outcome.change);
  }
  std::vector<Change> pairs;
  for (std::size_t i = 0; i < partial.size(); ++i) {
    for (std::size_t j = i + 1; j < partial.size(); ++j) {
      const auto knob = [](const std::string& setting) { return setting.substr(0, setting.find('=')); };
      if (knob(partial[i]->settings.front()) == knob(partial[j]->settings.front())) continue;
      Change pair = *partial[i];
      pair.settings.insert(pair.settings.end(), partial[j]->settings.begin(), partial[j]->settings.end());
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

}  // namespace

std::string Change::text() const { return fmt::format("{}", fmt::join(settings, " ")); }

std::string_view to_string(Effect effect) {
  constexpr std::array<std::string_view, 6> words = {"removes the cause", "removes only the NaN",
                                                     "limits the spread", "changes only the symptom",
                                                     "no effect",         "makes it worse"};
  return words.at(static_cast<std::size_t>(effect));
}

Effect effect_of(const Outcome& baseline, const Outcome& changed, const std::string& root_class) {
  const bool cause_left = std::find(changed.faults.begin(), changed.faults.end(), root_class) != changed.faults.end();
  const std::size_t before = baseline.faulty_requests.size();
  const std::size_t after = changed.faulty_requests.size();
  if (after > before || (baseline.faults.empty() && !changed.faults.empty())) return Effect::worse;
  if (after == 0 && !cause_left && !root_class.empty()) return Effect::removes_cause;
  if (after == 0 && before > 0) return Effect::removes_nan;
  if (after < before || changed.bad_prompt_tokens < baseline.bad_prompt_tokens) return Effect::limits_spread;
  return changed.outputs == baseline.outputs ? Effect::no_effect : Effect::changes_symptom;
}

bool cheaper(const Outcome& a, const Outcome& b) {
  const auto cost = [](const Outcome& outcome) {
    const double error = outcome.accuracy ? outcome.accuracy->rms_error : std::numeric_limits<double>::infinity();
    // To serve requests one after another is what nobody can afford.
    const auto& settings = outcome.change.settings;
    const bool alone = std::find(settings.begin(), settings.end(), "engine.batch=1") != settings.end();
    return std::tuple(alone, outcome.kv_bytes_per_token, outcome.activation_bits, outcome.tokens,
                      outcome.change.settings.size(), error);
  };
  return cost(a) < cost(b);
}

namespace {

/// How many runs may go on at once: those of a GPU share it, changed weights are kept in one place, and each run on a
/// CPU has a copy of the model.
int runs_at_once(const Workbench& workbench, const RunSpec& spec, const CounterfactualOptions& options) {
  const EngineConfig& config = spec.config;
  if (!config.device.starts_with("cpu") || config.train.steps > 0 || !spec.transients.empty()) return 1;
  const int wanted = options.threads > 0 ? options.threads : config.threads > 0 ? config.threads : usable_cpus();
  const RunCost cost = cost_of_model(config, config.model.vocabulary);
  const double affordable = cost.bytes > 0 ? workbench.limits().bytes / cost.bytes : wanted;
  return std::max(1, static_cast<int>(std::min<double>(wanted, affordable)));
}

/// Runs a list of changes and keeps what came of them, also where it is stopped on the way.
class Comparison {
 public:
  Comparison(Workbench& workbench, Investigation& investigation, const RunSpec& spec,
             const CounterfactualOptions& options, Looked baseline, Looked unquantized)
      : workbench_(workbench),
        investigation_(investigation),
        spec_(spec),
        options_(options),
        baseline_(std::move(baseline)),
        unquantized_(std::move(unquantized)) {
    finish_outcome(spec_, baseline_, unquantized_, baseline_);
    result.baseline = baseline_.outcome;
    result.root_class = baseline_.root_class;
    result.reference_faulty = is_wrong_too(baseline_, unquantized_);
    if (options_.ended) options_.ended(baseline_.outcome);
  }

  Status run(const std::vector<Change>& changes, std::vector<Outcome>& outcomes) {
    found_.assign(changes.size(), std::nullopt);
    told_ = 0;
    const int threads = runs_at_once(workbench_, spec_, options_);
    const Status ran = for_each_part<std::unique_ptr<Workbench>>(
        std::ssize(changes), threads, options_.stop, [&](std::int64_t part, std::unique_ptr<Workbench>& own) -> Status {
          if (threads > 1 && own == nullptr) {
            auto bench = Workbench::open(spec_.config.device, 1, workbench_.limits());
            if (!bench) return tl::unexpected(bench.error());
            own = std::move(*bench);
          }
          return run_one(own != nullptr ? *own : workbench_, changes, static_cast<std::size_t>(part));
        });
    result.stopped = options_.stop.stop_requested();
    if (!ran && !result.stopped) return ran;
    for (std::optional<Outcome>& one : found_) {
      if (one) outcomes.push_back(std::move(*one));
    }
    std::stable_sort(outcomes.begin(), outcomes.end(), by_effect);
    for (const Outcome& outcome : outcomes) {
      if (prevents(baseline_.outcome, outcome)) result.minimal.push_back(outcome.change);
    }
    return {};
  }

  Counterfactuals result;

 private:
  Status run_one(Workbench& workbench, const std::vector<Change>& changes, std::size_t part) {
    auto looked = investigation_.run(workbench, changes[part]);
    if (!looked) return tl::unexpected(looked.error());
    finish_outcome(spec_, baseline_, unquantized_, *looked);
    const std::lock_guard lock(mutex_);
    found_[part] = std::move(looked->outcome);
    for (; told_ < found_.size() && found_[told_]; ++told_) {
      if (options_.ended) options_.ended(*found_[told_]);
    }
    return {};
  }

  Workbench& workbench_;
  Investigation& investigation_;
  const RunSpec& spec_;
  const CounterfactualOptions& options_;
  Looked baseline_;
  Looked unquantized_;
  std::mutex mutex_;                           ///< of the two below
  std::vector<std::optional<Outcome>> found_;  ///< by change
  std::size_t told_ = 0;                       ///< changes that were handed to options_.ended
};

}  // namespace

Result<Counterfactuals> counterfactuals(Workbench& workbench, const Recording& recording,
                                        const CounterfactualOptions& options) {
  const auto spec = run_spec_of(recording);
  if (!spec) return tl::unexpected(spec.error());
  const auto capture = affordable_capture(recording);
  if (!capture) return tl::unexpected(capture.error());
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Change> candidates = candidate_changes(*spec, recording);
  Investigation investigation(*spec, options, *capture);
  investigation.planned = static_cast<std::int64_t>(candidates.size()) + 2;
  auto baseline = investigation.run(workbench, {});
  if (!baseline) return tl::unexpected(baseline.error());
  if (!baseline->outcome.error.empty()) return fail(baseline->outcome.error);
  Change plain{{"kv.format=f32", "kv.policy=unit_scale"}};
  for (const std::string_view knob : {"kv.scheme", "kv.scheme_k", "kv.scheme_v", "attention.blocks_q",
                                      "attention.blocks_k", "attention.blocks_v", "attention.blocks_p"}) {
    if (!get_knob(spec->config, knob).empty()) plain.settings.push_back(std::string(knob) + '=');
  }
  if (spec->config.attention.blocks.any()) plain.settings.emplace_back("attention.diagonal=quantized");
  auto unquantized = investigation.run(workbench, plain);
  if (!unquantized) return tl::unexpected(unquantized.error());

  Comparison comparison(workbench, investigation, *spec, options, std::move(*baseline), std::move(*unquantized));
  Counterfactuals& result = comparison.result;
  if (Status done = comparison.run(candidates, result.singles); !done) return tl::unexpected(done.error());
  if (!result.stopped && result.minimal.empty() && !result.baseline.faults.empty()) {
    const std::vector<Change> pairs = pair_changes(result.singles);
    investigation.planned += static_cast<std::int64_t>(pairs.size());
    if (Status done = comparison.run(pairs, result.pairs); !done) return tl::unexpected(done.error());
  }
  result.runs = investigation.runs;
  result.planned = investigation.planned;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(result);
}

}  // namespace nanscope::scenarios
