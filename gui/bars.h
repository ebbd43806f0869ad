#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "gui/look.h"
#include "gui/menu_items.h"
#include "gui/navigator.h"
#include "gui/paint.h"
#include "gui/store.h"
#include "gui/text_field.h"
#include "gui/theme.h"
#include "gui/top_bar_layout.h"

namespace nanscope::gui {

/// What the top bar asks of the window.
struct TopBarActions {
  std::function<std::uint64_t(std::string)> go;  ///< to what was typed; answers the ticket
  std::function<void(std::string)> copy;         ///< the place
  std::function<void()> find;                    ///< opens the palette
  std::function<void()> home;                    ///< to the start screen
};

/// File, back and forward, the place as text, play and scrubber, jumps.
class TopBar {
 public:
  explicit TopBar(std::string file) : file_(std::move(file)) {}
  void draw(const Look& look, Navigator& navigator, Area area, const TopBarActions& actions);
  void focus_place() { place_.focus(); }
  /// The answer to what was typed: nothing when the place was found. False when it is not what the field waits for.
  bool take_answer(std::uint64_t ticket, const std::string& error);
  void stop_waiting() { asked_ = 0; }

 private:
  void jumps(const Look& look, Navigator& navigator, const TopBarAreas& areas) const;
  void place_field(const Look& look, const Navigator& navigator, Area area, const TopBarActions& actions);

  std::string file_;
  TextField place_;
  std::uint64_t asked_ = 0;  ///< ticket of what was typed, 0: nothing is looked for
};

/// The requests with their answers, and their steps as squares coloured by health.
struct RequestActions {
  std::function<void(std::string)> hint;
  std::function<void(MenuTarget)> menu;
};
void draw_requests(const Look& look, Navigator& navigator, Area area, const RequestActions& actions);

struct StatusText {
  std::string text;
  bool error = false;
  std::string brief = {};  ///< where there is no room for the text; empty: the text is cut
};
/// What is pointed at or went wrong, to the right what the store is at and how much was captured.
void draw_status(const Look& look, const StatusText& status, const std::optional<Activity>& activity, const RunMap* map,
                 Area area);

}  // namespace nanscope::gui
