#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gui/export/table.h"
#include "gui/menu_items.h"
#include "gui/paint.h"
#include "gui/pins.h"
#include "gui/preferences.h"
#include "gui/prepare/beside.h"
#include "gui/prepare/error_map.h"
#include "gui/prepare/run_difference.h"
#include "gui/prepare/run_map.h"
#include "gui/prepare/story.h"
#include "gui/selection.h"
#include "gui/store.h"
#include "gui/theme.h"

/// A view shows one side of the recording. It has four hooks; docs of a hook say on which thread it
/// runs. To add a view: one file with a class, one line in registry.cpp.
namespace nanscope::gui {

/// Between what a view draws and its edges, in points.
inline constexpr float kMargin = 18;

/// What a view may look at.
struct ViewContext {
  const Theme& theme;
  const Fonts& fonts;
  float scale = 1;
  const Selection& selection;
  std::shared_ptr<const RunMap> map;                ///< null until it is read
  std::shared_ptr<const Story> story;               ///< null until the diagnosis is done
  std::optional<std::size_t> playhead;              ///< index in RunMap::ops while the run is played
  bool unattended = false;                          ///< a picture is taken: nobody is there to press a button
  BesideRunPtr beside;                              ///< the run that stands beside; null when there is none
  std::shared_ptr<const RunDifference> difference;  ///< from the run beside; null until it is known
  bool printed = false;                             ///< for a page: nothing looks as if it could be pressed
  const Pins* pins = nullptr;                       ///< null where nothing can be pinned
  std::shared_ptr<const ErrorMap> errors = {};      ///< from the model beside; null until some are known
  NumberStyle numbers = {};                         ///< how values are written
  bool checkable = false;                           ///< it is a dump, which a model can be checked against
};

/// What a view asks of the window.
struct ViewActions {
  std::function<void(Selection)> choose;  ///< selects for all views
  std::function<void(std::string)> hint;  ///< text for the status line, for this frame
  /// Runs the recording with these settings changed, and puts what comes of it beside.
  std::function<void(std::vector<std::string>)> try_beside = [](const auto&) {};
  /// Of ViewContext::pins, by index.
  std::function<void(const Place&)> pin = [](const Place&) {};
  std::function<void(std::size_t)> unpin = [](std::size_t) {};
  std::function<void(std::size_t, std::string)> note = [](std::size_t, const std::string&) {};
  /// Checks the dump against this checkpoint; without a path, lets the user choose one.
  std::function<void(std::filesystem::path)> check_model = [](const auto&) {};
  /// Selects an op of RunMap::ops as scrubbing does: without a stop in the history.
  std::function<void(std::size_t)> seek = [](std::size_t) {};
  /// Opens a context menu at the pointer.
  std::function<void(MenuTarget)> menu = [](const MenuTarget&) {};
};

/// What a view needs from the store's thread. An equal key is an equal answer: it is asked for once.
struct ViewRequest {
  std::string key;
  Preparation work;  ///< runs on the store's thread: it may use what it captured by value, nothing else
  Urgency urgency = Urgency::now;
};

class View {
 public:
  virtual ~View() = default;
  virtual std::string_view name() const = 0;     ///< as --view takes it
  virtual std::string_view title() const = 0;    ///< for people
  virtual std::string_view caption() const = 0;  ///< what is seen, in a line
  /// The view has work of its own under way; a picture waits for its end.
  virtual bool busy() const { return false; }
  /// Where the last frame showed a place that can be pressed, for scripts.
  virtual std::optional<Area> where(const Place&) const { return std::nullopt; }
  /// The next element of what is shown that is NaN, infinite or clipped, or the one before; nothing where there is
  /// none.
  virtual std::optional<Selection> next_bad(const Selection&, bool /*forward*/) const { return std::nullopt; }
  /// Shows what the words of a query find, where the view has a field for one.
  virtual void filter(const std::string& /*query*/) {}
  /// Zooms to the token of a place, where the view has tokens.
  virtual void zoom_to_token(const Place&) {}
  /// What is shown, as a table; nothing for what is none. `prepared`: the newest answer, which is not null.
  virtual std::optional<TableMaker> table(const PreparedPtr&) const { return std::nullopt; }
  /// Each frame, on the window's thread: cheap. Nothing while there is nothing to ask for.
  virtual std::optional<ViewRequest> prepare(const ViewContext& context, Area area) = 0;
  /// On the window's thread, with the newest answer, which may be one of an earlier request.
  virtual void draw(const ViewContext& context, const ViewActions& actions, Area area, const PreparedPtr& prepared) = 0;
};

}  // namespace nanscope::gui
