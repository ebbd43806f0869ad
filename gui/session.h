#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/app.h"
#include "gui/background.h"
#include "gui/start_screen.h"
#include "gui/window.h"

namespace nanscope::gui {

/// Where frames are drawn, and what is in them: the window of a recording or a dump, or the start screen, behind which
/// a window may wait as it was left.
class Session {
 public:
  /// Errors: no display, no OpenGL.
  static Result<std::unique_ptr<Session>> open(const AppOptions& options, std::optional<OpenedRun> run,
                                               Selection start);

  /// Waits for input, at most so long, opens what was dropped or chosen, and draws. False when the
  /// window is to be closed.
  bool frame(double seconds);

  Platform& platform() { return *platform_; }
  Window* window() { return start_ ? nullptr : window_.get(); }  ///< null: there is the start screen
  bool had_input() const { return had_input_; }
  /// Opens it, as if it had been chosen: for what takes a while. `place`: what is selected then.
  void want(const std::filesystem::path& path, std::string place);
  /// Something was chosen that is not on screen yet.
  bool opening() const { return wanted_ || opens_; }
  bool settled() const { return !opening() && (start_ ? !start_->busy() : window_->settled()); }
  /// Something moves, and should do so smoothly.
  bool animates() const { return !start_ && window_->animates(); }
  /// Something changes without input.
  bool busy() const { return opening() || (start_ ? start_->busy() : window_->busy()); }

 private:
  Session() = default;
  void show(OpenedRun run);
  /// The next window begins as this one was left.
  void remember_layout();
  /// Between the window and the start screen.
  void change_places();
  void change_zoom();
  void choose_next(const std::vector<std::filesystem::path>& dropped, bool shift);
  void open_wanted();
  void tell_opening();
  void take_opened(Result<OpenedRun> run);
  void draw();

  // The window goes before what it is drawn with.
  std::unique_ptr<Platform> platform_;
  WindowSetup setup_;
  /// How a recording was left, to be shown so again.
  struct Left {
    Selection selection;
    std::filesystem::path beside;
  };
  std::map<std::filesystem::path, Left> left_;
  std::filesystem::path file_;  ///< of the window
  float scale_ = 1;             ///< without the user's zoom
  bool follow_links_ = false;
  bool traceless_ = false;
  bool had_input_ = false;
  std::unique_ptr<Window> window_;
  std::unique_ptr<StartScreen> start_;
  std::optional<std::filesystem::path> wanted_;  ///< to be opened next
  std::string wanted_place_;                     ///< in it, empty: none
  bool opens_ = false;                           ///< a file is being opened, or is open and not taken
  Background<OpenedRun> opening_;
};

}  // namespace nanscope::gui
