#pragma once
#include <memory>
#include <optional>
#include <string>

#include "gui/prepare/run_map.h"
#include "gui/prepare/story.h"
#include "gui/selection.h"

namespace nanscope::gui {

/// Moves the selection: by hand, op by op, to events, and by itself while the run is played. Knows no
/// screen and no clock.
class Navigator {
 public:
  /// The whole run plays in so many seconds at speed 1.
  static constexpr double kPlaySeconds = 16;
  static constexpr int kMostDoublings = 4;

  void set_map(std::shared_ptr<const RunMap> map);
  /// Goes to the origin unless something is selected already; where there is none, to what happened first, else to
  /// the first op.
  void set_story(std::shared_ptr<const Story> story);
  const std::shared_ptr<const RunMap>& map() const { return map_; }
  const std::shared_ptr<const Story>& story() const { return story_; }

  const Selection& selection() const { return history_.current(); }
  const SelectionHistory& history() const { return history_; }
  void choose(Selection selection);
  /// Goes there unless somebody has selected something.
  void prefer(const Selection& selection);
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
  /// From event to event in the order of the story, from the last one to the first; from elsewhere to the first one
  /// after the selected op.
  void next_event();
  /// The other way round.
  void last_event();
  void go_to_origin();

  bool playing() const { return playing_; }
  /// From the selected op; from the last one, from the start.
  void play(bool on);
  /// Doubles the speed so many times, halves it when negative; 16 times and a 16th are the ends.
  void change_speed(int doublings);
  double speed() const;
  void advance(double seconds);
  /// Up to which op the run is shown; nothing when it is shown whole.
  std::optional<std::size_t> playhead() const { return playhead_; }

 private:
  void begin();
  void stop();
  /// Of the story's events, the one that is selected.
  std::optional<std::size_t> event() const;

  std::shared_ptr<const RunMap> map_;
  std::shared_ptr<const Story> story_;
  SelectionHistory history_;
  bool by_itself_ = false;  ///< what is selected was chosen by nobody
  std::optional<std::size_t> playhead_;
  bool playing_ = false;
  double fraction_ = 0;  ///< of an op, while playing
  int doublings_ = 0;    ///< of the speed
};

/// "× 2", "× 1/4"
std::string speed_text(double speed);

}  // namespace nanscope::gui
