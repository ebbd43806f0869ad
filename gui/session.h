#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/app.h"
#include "gui/background.h"
#include "gui/start_screen.h"
#include "gui/window.h"

namespace nanscope::gui {

/// Where frames are drawn, and what is in them: a recording's window, or the start screen while there
/// is none.
class Session {
 public:
  /// Errors: no display, no OpenGL.
  static Result<std::unique_ptr<Session>> open(const AppOptions& options, std::optional<Recording> recording,
                                               Selection start);

  /// Waits for input, at most so long, opens what was dropped or chosen, and draws. False when the
  /// window is to be closed.
  bool frame(double seconds);

  Platform& platform() { return *platform_; }
  Window* window() { return window_.get(); }  ///< null: there is the start screen
  bool had_input() const { return had_input_; }
  /// A recording was chosen that is not on screen yet.
  bool opening() const { return wanted_ || opens_; }
  bool settled() const { return !opening() && (window_ ? window_->settled() : !start_->busy()); }
  /// Something moves, and should do so smoothly.
  bool animates() const { return window_ && window_->animates(); }
  /// Something changes without input.
  bool busy() const { return opening() || (window_ ? window_->busy() : start_->busy()); }

 private:
  Session() = default;
  void show(Recording recording);
  /// The next window begins as this one was left.
  void remember_layout();
  void choose_next(const std::vector<std::filesystem::path>& dropped);
  void open_wanted();
  void take_opened(Result<Recording> recording);
  void draw();

  // The window goes before what it is drawn with.
  std::unique_ptr<Platform> platform_;
  WindowSetup setup_;
  bool traceless_ = false;
  bool had_input_ = false;
  std::unique_ptr<Window> window_;
  std::unique_ptr<StartScreen> start_;
  std::optional<std::filesystem::path> wanted_;  ///< to be opened next
  bool opens_ = false;                           ///< a file is being opened, or is open and not taken
  Background<Recording> opening_;
};

}  // namespace nanscope::gui
