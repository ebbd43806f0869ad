#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/tensor_source.h"
#include "instrument/engine/engine.h"
#include "scenarios/paused_run.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

/// Runs a recording again from what it holds itself, and proves that the run is the same.
namespace nanscope::scenarios {

/// The run that a recording states. Errors: it holds no configuration (an import), or one of
/// another version.
Result<RunSpec> run_spec_of(const Recording& recording);

/// The first thing that is not as recorded.
struct Divergence {
  std::string place;     ///< of the tensor, or what else it is: "weight embed.weight", "output of request 2"
  std::string expected;  ///< the hash, shape or text of the recording
  std::string found;
};

struct ReplayReport {
  std::int64_t tensors = 0;   ///< in the recording
  std::int64_t verified = 0;  ///< with equal hashes, or bytes that have the recorded one, up to the divergence
  /// Products of tensor cores of another kind of device than recorded them, which differ in bits and are within the
  /// bound; up to the divergence.
  std::int64_t within = 0;
  double share = 0;          ///< the largest of their differences by its bound
  std::string recorded_on;   ///< where there may be such: what the recording was made by, such as sm_90
  std::int64_t weights = 0;  ///< with equal hashes
  std::optional<Divergence> divergence;
  bool whole = true;  ///< the recording is complete; else only what it has was compared
  double seconds = 0;
  bool same() const { return !divergence; }
};

/// Executes the run again and compares every weight and every tensor with its hash, stopping at the
/// first difference. Of engine.kernel_form=tensor_core on another kind of device than recorded it, products are
/// compared within the bound, by their recorded elements, and all else that is made of these by its hash as ever.
/// Errors: it cannot be run (see run_spec_of(), Workbench::engine()), the recording lacks such elements or they have
/// not the recorded hash, or was stopped.
Result<ReplayReport> replay(Workbench& workbench, const Recording& recording, const RunControl& control = {});

/// Elements that a recording does not hold, re-made by running it again. The run waits where the tensor asked for was
/// made, and goes on from there: a walk from the first tensor to the last costs one replay. It keeps what it made, up
/// to the budget, for walks back. A tensor whose hash is not the recorded one is refused.
class ReplayTensors final : public TensorSource {
 public:
  static constexpr std::size_t kBudget = std::size_t{512} << 20;

  /// Workbench and recording must outlive it. `stop` ends a replay that is under way, and what asked for it fails.
  ReplayTensors(Workbench& workbench, const Recording& recording, std::size_t budget = kBudget,
                std::stop_token stop = {})
      : workbench_(workbench), recording_(recording), budget_(budget), stop_(std::move(stop)) {}
  Fact<TensorData> fetch(std::int64_t tensor) override;
  int replays() const { return replays_; }

 private:
  /// A run that keeps the tensors from `first` on.
  Fact<void> start(std::int64_t first);
  Fact<const MadeTensor*> made(std::int64_t tensor);
  tl::unexpected<NotKnown> stopped_or_unreadable(const Error& error) const;

  Workbench& workbench_;
  const Recording& recording_;
  std::size_t budget_;
  std::stop_token stop_;
  int replays_ = 0;
  std::unique_ptr<PausedRun> run_;
  std::optional<NotKnown> failed_;  ///< why the run cannot be run, or was stopped
};

/// Stored bytes, else a replay on a workbench that is opened when it is first needed.
class RecordingTensors final : public TensorSource {
 public:
  static constexpr std::size_t kCacheBudget = std::size_t{256} << 20;

  /// `stop` and `budget`: as of ReplayTensors. `cache`: what may be kept of what it gave.
  /// A run that would take more than `limits` is not run again.
  explicit RecordingTensors(const Recording& recording, std::stop_token stop = {},
                            const RunLimits& limits = kReplayLimits, std::size_t budget = ReplayTensors::kBudget,
                            std::size_t cache = kCacheBudget)
      : recording_(recording),
        stored_(recording),
        stop_(std::move(stop)),
        limits_(limits),
        budget_(budget),
        cache_(cache) {}
  Fact<TensorData> fetch(std::int64_t tensor) override;
  Fact<TensorData> fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) override;
  std::size_t cache_budget() const override { return cache_; }

 private:
  const Recording& recording_;
  StoredTensors stored_;
  std::stop_token stop_;
  RunLimits limits_;
  std::size_t budget_;
  std::size_t cache_;
  std::unique_ptr<Workbench> workbench_;
  std::unique_ptr<ReplayTensors> replay_;
  std::optional<NotKnown> no_replay_;
};

}  // namespace nanscope::scenarios
