#pragma once
#include <memory>
#include <stop_token>

#include "core/recording/reader.h"
#include "core/result.h"
#include "gui/opened_run.h"
#include "gui/prepare/beside.h"
#include "gui/prepare/error_map.h"
#include "gui/prepare/run_difference.h"
#include "gui/prepare/run_map.h"
#include "gui/prepare/story.h"
#include "gui/prepare/tensor_index.h"

namespace nanscope::gui {

/// A recording or a dump and what was found out about it, for the one thread that owns it. What is expensive is
/// made when it is first asked for, and kept.
class RunFacts {
 public:
  /// Bytes of elements that a run holds to use them again: what its last replay made, and what the question that
  /// is answered looked at. Two runs side by side, one question at a time: 144 MiB, whatever they recorded.
  static constexpr std::size_t kReplayBudget = std::size_t{48} << 20;
  static constexpr std::size_t kCacheBudget = std::size_t{48} << 20;

  explicit RunFacts(OpenedRun run);

  RunView& view() { return run_.run->view(); }
  RunData& rows() { return run_.run->rows(); }
  /// Elements: stored ones, else by replay. Refuses once the window closes, so that no diagnosis
  /// keeps it waiting.
  TensorSource& tensors() { return run_.run->tensors(); }
  const Recording* recording() const { return run_.run->recording(); }  ///< null for a dump
  scenarios::OpenRun& run() { return *run_.run; }
  const std::filesystem::path& path() const { return run_.path; }
  std::stop_token stop() const { return run_.stop.get_token(); }

  /// Answers soon: with a map that is not exact while there is more to read, which each call goes on with.
  Result<std::shared_ptr<const RunMap>> map();
  Result<std::shared_ptr<const Story>> story();
  /// Every tensor. What casts of a dump clipped is in it once the map is exact.
  Result<std::shared_ptr<const TensorIndex>> tensor_index();
  /// As of the command that diagnoses.
  DiagnoseOptions diagnosis_options() const;

  /// The run that stands beside, with what was found out about it; null when there is none.
  RunFacts* beside() { return beside_.get(); }
  /// Replaces it; null takes it away. Errors: as of open_run(); what stood there stays.
  Status put_beside(BesideRunPtr run);
  /// The model that it is checked against; null when none stands beside.
  ReferenceSource* model() const;
  /// What a check found, on the map. Answers soon: null while the map is not exact.
  Result<std::shared_ptr<const ErrorMap>> errors(const std::shared_ptr<const Findings>& findings);
  /// The map against that of the run beside. Answers soon: null while there is more to compare, which each call goes
  /// on with, and when nothing stands beside.
  Result<std::shared_ptr<const RunDifference>> difference();

 private:
  OpenedRun run_;
  std::unique_ptr<RunMapMaker> map_maker_;  ///< until the map is exact
  std::shared_ptr<const RunMap> map_;
  std::shared_ptr<const Story> story_;
  std::shared_ptr<const TensorIndex> index_;
  bool index_clips_ = false;  ///< it knows what casts clipped
  BesideRunPtr beside_run_;   ///< before the recording that is open in its folder
  std::unique_ptr<RunFacts> beside_;
  std::unique_ptr<RunDifferenceMaker> difference_maker_;  ///< refers to the one beside
  std::shared_ptr<const RunDifference> difference_;
  std::unique_ptr<ErrorMapMaker> error_maker_;  ///< of what stands beside
};

}  // namespace nanscope::gui
