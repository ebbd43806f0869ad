#pragma once
#include <memory>
#include <optional>

#include "gui/prepare/run_map.h"
#include "gui/prepare/story.h"
#include "gui/selection.h"

namespace nanscope::gui {

/// Moves the selection: by hand, op by op, to events, and by itself while the run is played. Knows no
/// screen and no clock.
class Navigator {
 public:
  /// The whole run plays in so many seconds.
  static constexpr double kPlaySeconds = 16;

  void set_map(std::shared_ptr<const RunMap> map);
  /// Goes to the origin unless something is selected already; where there is none, to what happened first, else to
  /// the first op.
  void set_story(std::shared_ptr<const Story> story);
  const std::shared_ptr<const RunMap>& map() const { return map_; }
  const std::shared_ptr<const Story>& story() const { return story_; }

  const Selection& selection() const { return history_.current(); }
  const SelectionHistory& history() const { return history_; }
  void choose(Selection selection);
  /// To a step, at the op that is selected now when the step has it.
  void choose_step(const MapStep& step);
  void back();
  void forward();

  std::size_t ops() const { return map_ ? map_->ops.size() : 0; }
  /// Index of the selected op in RunMap::ops, 0 when none is.
  std::size_t position() const;
  /// Selects an op without a stop in the history, as scrubbing does, and shows the run up to it.
  void seek(std::size_t op);
  void step(int by);
  /// To the event after the selected op, from the last one to the first.
  void next_event();
  void go_to_origin();

  bool playing() const { return playing_; }
  /// From where it was stopped, else from the start.
  void play(bool on);
  void advance(double seconds);
  /// Up to which op the run is shown; nothing when it is shown whole.
  std::optional<std::size_t> playhead() const { return playhead_; }

 private:
  void begin();
  void stop();

  std::shared_ptr<const RunMap> map_;
  std::shared_ptr<const Story> story_;
  SelectionHistory history_;
  std::optional<std::size_t> playhead_;
  bool playing_ = false;
  double fraction_ = 0;  ///< of an op, while playing
};

}  // namespace nanscope::gui
