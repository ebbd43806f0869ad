#pragma once
#include <functional>
#include <string>

#include "gui/navigator.h"
#include "gui/paint.h"
#include "gui/store.h"
#include "gui/theme.h"
#include "gui/top_bar_layout.h"

namespace nanscope::gui {

/// What is around the views looks like this.
struct Look {
  const Theme& theme;
  const Fonts& fonts;
  float scale = 1;
  float px(float pixels) const { return pixels * scale; }
};

/// What the top bar asks of the window.
struct TopBarActions {
  std::function<void(std::string)> go;    ///< to what was typed
  std::function<void(std::string)> copy;  ///< the place
  std::function<void()> find;             ///< opens the palette
  std::function<void()> home;             ///< to the start screen
};

/// File, back and forward, the place as text, play and scrubber, jumps.
class TopBar {
 public:
  explicit TopBar(std::string file) : file_(std::move(file)) {}
  void draw(const Look& look, Navigator& navigator, Area area, const TopBarActions& actions);
  void focus_place() { focus_ = true; }

 private:
  void jumps(const Look& look, Navigator& navigator, const TopBarAreas& areas) const;
  void place_field(const Look& look, const Navigator& navigator, Area area, const std::function<void(std::string)>& go);

  std::string file_;
  std::string typed_;
  bool editing_ = false;
  bool focus_ = false;
};

/// The requests with their answers, and their steps as squares coloured by health.
void draw_requests(const Look& look, Navigator& navigator, Area area, const std::function<void(std::string)>& hint);

struct StatusText {
  std::string text;
  bool error = false;
  std::string brief = {};  ///< where there is no room for the text; empty: the text is cut
};
/// What is pointed at or went wrong, to the right what the store is at and how much was captured.
void draw_status(const Look& look, const StatusText& status, const std::optional<Activity>& activity, const RunMap* map,
                 Area area);

}  // namespace nanscope::gui
