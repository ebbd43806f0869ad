#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "scenarios/accuracy.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

/// "But for which setting?": the run again with one knob changed at a time. What a change does is
/// read off the numbers of its run, never off the knob's name.
namespace nanscope::scenarios {

/// One or more knobs changed together.
struct Change {
  std::vector<std::string> settings;  ///< "kv.format=bf16"
  std::string text() const;           ///< joined by spaces
};

/// What a change did to the fault, from the strongest effect to none.
enum class Effect : std::uint8_t {
  removes_cause,    ///< no request is faulty and the root cause's own fault is gone
  removes_nan,      ///< no request answers from NaN logits, but the root cause is still there
  limits_spread,    ///< fewer requests, or fewer tokens, hold NaN
  changes_symptom,  ///< the same requests are faulty, and answer something else
  no_effect,        ///< the same requests are faulty, and answer the same
  worse,            ///< more requests are faulty
};
std::string_view to_string(Effect effect);

struct Outcome {
  Change change;
  std::string error;  ///< why it could not be run; the rest is then empty
  Effect effect = Effect::no_effect;
  std::vector<std::string> chain;             ///< kinds of the diagnosis' events, in order, without repetition
  std::string breaks_at;                      ///< the first kind of the baseline's that this run lacks; empty: none
  std::vector<std::string> faults;            ///< classes found, without repetition
  std::vector<std::int64_t> faulty_requests;  ///< ids: they answer from NaN logits
  std::int64_t bad_prompt_tokens = 0;         ///< prompt tokens whose logits hold a NaN
  std::vector<std::string> outputs;           ///< by request, the warm-up's left out
  double kv_bytes_per_token = 0;
  std::int64_t activation_bits = 0;           ///< of what ops store between them
  std::int64_t tokens = 0;                    ///< that were processed, over all steps
  std::optional<Accuracy> accuracy;           ///< against a cache in f32, over this run's healthy requests
  std::optional<Accuracy> recorded_accuracy;  ///< the same over those of them that were healthy as recorded
};

struct Counterfactuals {
  Outcome baseline;               ///< nothing changed
  std::string root_class;         ///< of the baseline's root cause; empty: it has none
  bool reference_faulty = false;  ///< the run with a cache in f32 has a wrong result too: no error is measured by it
  std::vector<Outcome> singles;  ///< strongest effect first; those that prevent the fault cheapest first, see cheaper()
  std::vector<Outcome> pairs;    ///< run only when no single change leaves no request faulty
  std::vector<Change> minimal;   ///< the smallest sets after which no request is faulty
  std::int64_t runs = 0;
  std::int64_t planned = 0;  ///< runs, more than `runs` when it was stopped
  bool stopped = false;      ///< before its end: what had been run is here
  double seconds = 0;
};

struct CounterfactualOptions {
  /// Both are called from one thread at a time, which need not be the caller's.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& change)> progress;
  /// Called with the run as recorded, then with each change in order, once its run and those before it have ended.
  std::function<void(const Outcome&)> ended;
  int threads = 0;  ///< runs at once on a CPU, each on one thread; 0: as the recorded run, or one for each CPU
  std::stop_token stop;
};

/// The changes worth trying alone: every other value of the listed knobs of the norms, the cache,
/// attention and the engine that this configuration uses, and static scales wide enough for all
/// that the recording saw.
std::vector<Change> candidate_changes(const RunSpec& spec, const Recording& recording);

/// Whether a change asks for less than another: KV memory, then activation memory, then tokens to process, then
/// settings, then error.
bool cheaper(const Outcome& a, const Outcome& b);

/// Runs of a model on a CPU go on at once, each with a copy of the model, as far as the workbench's limit of memory
/// allows. Errors: the recording cannot be replayed; stopped before there was anything to compare with. A change that
/// cannot be run is an Outcome.
Result<Counterfactuals> counterfactuals(Workbench& workbench, const Recording& recording,
                                        const CounterfactualOptions& options = {});

/// What the change did, from the two runs' numbers. `root_class` is the class of the baseline's root cause.
Effect effect_of(const Outcome& baseline, const Outcome& changed, const std::string& root_class);

}  // namespace nanscope::scenarios
