#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "gui/model_check_options.h"
#include "gui/platform/platform.h"

namespace nanscope::gui {

struct AppOptions {
  std::filesystem::path file;                       ///< a recording or a dump; empty: the start screen
  std::optional<std::filesystem::path> screenshot;  ///< draw once without a screen, into this PNG
  std::optional<std::filesystem::path> csv;         ///< the view's table, into this file; a view must be named
  std::string view;                                 ///< one view alone; empty: the whole window
  std::string tab;                                  ///< of the whole window: the view below the front
  std::string place;                                ///< what is selected at the start
  std::filesystem::path beside;                     ///< another run to show beside; empty: none
  ModelCheckOptions check = {};                     ///< what a dump is checked against; without a model: nothing
  Extent size;                                      ///< of no width: as the last window was left, at first 1600x1000
  float scale = 0;                                  ///< of everything that is drawn; 0: the screen's
  std::string theme;                                ///< empty: as in the last window, at first dark
  std::string palette = {};                         ///< name of a Vision; empty: as in the last window, at first usual
  std::optional<std::filesystem::path> script;      ///< steps to play, for run_script()
  bool follow_links = false;                        ///< of a dump, those that lead out of it
  bool on_screen = false;                           ///< the script is played in a real window
  bool force = false;                               ///< files that exist are replaced
  bool unseen = false;                              ///< for take_picture()
  bool printed = false;                             ///< the picture goes into a page, where nothing can be pressed
  std::stop_token stop;                             ///< ends it as a closed window does

  /// Pictures and scripts need none, unless it is asked for.
  bool needs_screen() const { return on_screen || !(unattended() || script); }
  /// Nobody is there to press a button.
  bool unattended() const { return screenshot || csv || unseen; }
};

/// Names of the views, as AppOptions::view takes them.
std::vector<std::string> all_views();

/// "1600x1000". Errors: not two numbers, or no sensible size.
Result<Extent> parse_size(const std::string& text);

/// A PNG of what run_app() would show. Errors: as of run_app().
Result<std::vector<std::byte>> take_picture(AppOptions options);

/// Shows a run until the window is closed, or takes its picture and writes its table. Errors, in one line: the
/// run, the place, the view or the theme is not there; the view has no table; a file exists; no display; no OpenGL.
Status run_app(const AppOptions& options);

/// How a script ended.
struct ScriptEnd {
  std::string failure;  ///< in one line, with file and line; empty: all of it was done and found as expected
};
/// Plays options.script and ends with it; `say` takes what its `where` steps find. Errors: as of run_app(), or
/// the script is wrong.
Result<ScriptEnd> run_script(const AppOptions& options, const std::function<void(std::string_view)>& say);

}  // namespace nanscope::gui
