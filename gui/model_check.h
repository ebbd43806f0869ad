#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "gui/background.h"
#include "gui/model_check_options.h"
#include "gui/prepare/reference.h"
#include "instrument/verify/free_run.h"
#include "instrument/verify/verified_dump.h"
#include "instrument/verify/verify.h"

namespace nanscope::gui {

/// Whether a folder holds a checkpoint: config.json beside weights.
bool looks_like_checkpoint(const std::filesystem::path& folder);

/// A dump against its checkpoint, on a thread of its own that has the dump open for itself: it checks one output after
/// another, and in between and afterwards makes what single outputs should have been, for whoever looks at them.
/// Nothing here makes the caller wait but the destructor, for the moment that the thread takes to see that it is to
/// stop.
class ModelCheck final : public ReferenceSource {
 public:
  enum class Phase : std::uint8_t { opening, checking, done, stopped, failed };

  explicit ModelCheck(ModelCheckOptions options);
  ~ModelCheck() override;

  const ModelCheckOptions& options() const { return options_; }
  /// The check ends soon; outputs can be looked at all the same.
  void stop() { check_stop_.request_stop(); }
  bool stopping() const { return check_stop_.stop_requested(); }
  Phase phase() const;
  JobProgress progress() const;
  /// Something is under way.
  bool busy() const;
  /// What was found so far; null while that is not more than `known`, as counted by Findings::count().
  std::shared_ptr<const Findings> findings(std::size_t known) const;

  /// Runs the model over the dumped ids on another thread, once the check has ended and if it did not fail. To be
  /// called from one thread, with the two below; a second call does nothing.
  void run_freely();
  bool running_freely() const { return free_.running(); }
  /// Null until it is made. FreeRun::why says why there is none.
  std::shared_ptr<const FreeRun> free_run();

  AskedReference reference(const OutputName& output, const Tensor& served) override;
  std::uint64_t references() const override;

 private:
  struct Wanted {
    OutputName output;
    Format format = Format::f32;
    std::int64_t tokens = 0;
    std::int64_t channels = 0;
    std::uint64_t ticket = 0;
  };
  struct Kept {
    OutputName output;
    AskedReference answer;
  };
  void serve(const std::stop_token& stop);
  void check(const std::stop_token& stop);
  /// Makes what is wanted until nothing is.
  void make_wanted(const std::stop_token& stop);
  Result<std::shared_ptr<const Reference>> make(const Wanted& wanted, const std::stop_token& stop);
  bool superseded(std::uint64_t ticket, const std::stop_token& stop) const;
  void keep(const Wanted& wanted, Result<std::shared_ptr<const Reference>> made);
  void end(Phase phase, std::string problem = {});

  ModelCheckOptions options_;
  std::stop_source check_stop_;
  std::unique_ptr<VerifiedDump> opened_;  ///< the thread's
  std::unique_ptr<Arithmetic> arithmetic_;
  std::unique_ptr<Verifier> verifier_;

  mutable std::mutex mutex_;  ///< of all below
  std::condition_variable_any wake_;
  Phase phase_ = Phase::opening;
  JobProgress progress_;
  Findings found_;
  std::optional<Wanted> wanted_;  ///< the newest; it stays until it is made
  std::uint64_t tickets_ = 0;
  std::deque<Kept> kept_;  ///< the newest last
  std::uint64_t made_ = 0;

  bool freely_ = false;  ///< the free run was asked for
  std::shared_ptr<const FreeRun> free_run_;
  Background<FreeRun> free_;
  std::jthread thread_;  ///< last: it uses all of the above
};

}  // namespace nanscope::gui
