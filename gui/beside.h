#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/background.h"
#include "gui/bars.h"
#include "gui/prepare/beside.h"
#include "gui/prepare/run_difference.h"
#include "gui/store.h"

namespace nanscope::gui {

/// What the user did on the bar.
struct BesideClicks {
  std::optional<Selection> go;  ///< to where the runs part
};

/// The run that stands beside the recording: opens it, or makes it by running the recording with settings
/// changed, and says in a bar what stands there and where the two part.
class Beside {
 public:
  explicit Beside(std::filesystem::path recording) : recording_(std::move(recording)) {}

  /// What is opened or run replaces what stands beside once it is there.
  void open(Store& store, const std::filesystem::path& path);
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
  bool running() const { return job_.running(); }
  /// Nothing stands or comes there: no bar is to be drawn.
  bool empty() const { return !run_ && !job_.running(); }
  static float height(float scale);
  BesideClicks draw(const Look& look, Store& store, Area area);

 private:
  void draw_run(const Look& look, Store& store, Area area, BesideClicks& clicks);

  std::filesystem::path recording_;
  BesideRunPtr run_;     ///< that stands there
  BesideRunPtr coming_;  ///< that is being opened
  std::shared_ptr<const Divergence> divergence_;
  std::shared_ptr<const RunDifference> difference_;
  std::optional<StatusText> words_;
  bool saved_ = false;
  std::optional<std::vector<std::string>> next_;  ///< to be tried once the cancelled run has ended
  Background<BesideRunPtr> job_;                  ///< last: it is stopped first
};

}  // namespace nanscope::gui
