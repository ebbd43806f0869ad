#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/background.h"
#include "gui/bars.h"
#include "gui/model_check.h"
#include "gui/prepare/beside.h"
#include "gui/prepare/run_difference.h"
#include "gui/store.h"

namespace nanscope::gui {

/// What the user did on the bar.
struct BesideClicks {
  std::optional<Selection> go;  ///< to where the runs part
};

/// The run that stands beside the recording: opens it, or makes it by running the recording with settings
/// changed, and says in a bar what stands there and where the two part. Beside a dump, its model may stand: then it is
/// checked.
class Beside {
 public:
  explicit Beside(std::filesystem::path recording) : recording_(std::move(recording)) {}

  /// What is opened or run replaces what stands beside once it is there. A checkpoint's folder is the model's.
  void open(Store& store, const std::filesystem::path& path);
  /// Puts a model beside; `options.dump` is left out.
  void check(Store& store, ModelCheckOptions options);
  void try_settings(std::vector<std::string> settings);
  void remove(Store& store);
  /// Keeps a run that was made here, in a file beside the recording.
  void save(Store& store);

  /// Once a frame, before answers are taken: hands on what was run.
  void update(Store& store);
  /// Takes the answer if it is about what stands beside. Answers whether it was.
  bool take(Store& store, const Answer& answer);
  /// A sentence for the status line, once.
  std::optional<StatusText> take_words();

  const BesideRunPtr& run() const { return run_; }
  /// Where the runs part, once it is known.
  std::shared_ptr<const Divergence> divergence() const { return divergence_; }
  /// How the cells of the front differ, once it is known.
  std::shared_ptr<const RunDifference> difference() const { return difference_; }
  /// What the check of a model found, once some of it is known.
  std::shared_ptr<const ErrorMap> errors() const { return errors_; }
  bool running() const { return job_.running() || checking(); }
  /// Why the check of a model failed; empty: it did not.
  std::string problem() const { return errors_ ? errors_->findings->problem : std::string(); }
  /// Nothing stands or comes there: no bar is to be drawn.
  bool empty() const { return !run_ && !job_.running(); }
  static float height(float scale);
  BesideClicks draw(const Look& look, Store& store, Area area);

 private:
  void draw_run(const Look& look, Store& store, Area area, BesideClicks& clicks);
  void take_errors(const Answer& answer);
  /// Asks for the map of what a check found since the last time.
  void follow_check(Store& store);
  /// A check is under way, or not all that it found is on the map.
  bool checking() const;
  /// The words behind what stands beside.
  std::string words() const;

  std::filesystem::path recording_;
  BesideRunPtr run_;     ///< that stands there
  BesideRunPtr coming_;  ///< that is being opened
  std::shared_ptr<const Divergence> divergence_;
  std::shared_ptr<const RunDifference> difference_;
  std::shared_ptr<const ErrorMap> errors_;
  std::size_t findings_ = 0;  ///< that were asked for, as Findings::count() counts them
  bool mapping_ = false;      ///< the store was asked for the map of them
  std::chrono::steady_clock::time_point mapped_at_;
  std::optional<StatusText> words_;
  bool saved_ = false;
  std::optional<std::vector<std::string>> next_;  ///< to be tried once the cancelled run has ended
  Background<BesideRunPtr> job_;                  ///< last: it is stopped first
};

}  // namespace nanscope::gui
