#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gui/bars.h"
#include "gui/beside.h"
#include "gui/commands.h"
#include "gui/context_menu.h"
#include "gui/export/exporter.h"
#include "gui/file_browser.h"
#include "gui/navigator.h"
#include "gui/palette.h"
#include "gui/pane.h"
#include "gui/platform/platform.h"
#include "gui/settings_pane.h"
#include "gui/store.h"
#include "gui/undo.h"
#include "gui/window_layout.h"

namespace nanscope::gui {

struct WindowSetup {
  Theme theme;
  Fonts fonts;
  float scale = 1;
  std::string view;              ///< one view alone; empty: the whole window
  std::string tab;               ///< the view that is shown below the front; empty: the first
  Selection start;               ///< empty: the origin, once it is known
  std::filesystem::path beside;  ///< a recording to stand beside; empty: none
  ModelCheckOptions check = {};  ///< what a dump is checked against; without a model: nothing
  Shares shares;                 ///< of the panes
  int zoom = 100;                ///< percent, which is in the scale already
  NumberStyle numbers = {};
  bool unattended = false;  ///< for a picture
  bool printed = false;     ///< that goes into a page
};

/// All that is on screen for one recording or dump.
class Window {
 public:
  Window(OpenedRun run, WindowSetup setup);

  /// Draws one frame, between the platform's begin_frame() and end_frame().
  void frame(Platform& platform);
  /// The frame is on the platform, and its pixels can be read.
  void after_frame(Platform& platform);
  /// A recording to open instead, once.
  std::optional<std::filesystem::path> take_choice() { return std::exchange(choice_, std::nullopt); }
  /// The user wants the start screen, once.
  bool take_leave() { return std::exchange(leave_, false); }
  /// The first view shows something of the recording.
  bool has_content() const { return panes_.front().has_content(); }
  /// Of the front; 0 until it is read.
  std::int64_t cells() const { return navigator_.map() ? std::ssize(navigator_.map()->cells) : 0; }
  /// Everything asked for has been answered and drawn.
  bool settled() const;
  bool animates() const { return navigator_.playing(); }
  const Shares& shares() const { return shares_; }
  const Theme& theme() const { return setup_.theme; }
  const NumberStyle& numbers() const { return setup_.numbers; }
  /// The zoom that the user wants, once; for use_zoom(), between two frames.
  std::optional<int> take_zoom() { return std::exchange(wanted_zoom_, std::nullopt); }
  void use_zoom(int zoom, float scale, const Fonts& fonts);
  /// Name of the view below the front; empty when there is one view alone.
  std::string_view tab() const { return tabs_.empty() ? std::string_view() : shown_pane().view().name(); }
  /// Something changes without input.
  bool busy() const { return !settled() || navigator_.playing(); }
  void say_error(std::string message) { message_ = {std::move(message), true}; }
  /// For a moment it stands in place of what is pointed at.
  void say(std::string message);
  /// What was said last, if it went wrong.
  std::string error() const { return message_.error ? message_.text : std::string(); }

  /// Shows another recording beside this one.
  void open_beside(const std::filesystem::path& path) { beside_.open(store_, path); }

  /// Why the check of the model beside failed; empty: it did not.
  std::string check_problem() const { return beside_.problem(); }
  /// What stands beside, unless it was made here; empty when nothing does.
  std::filesystem::path beside_file() const;
  const Selection& selection() const { return navigator_.selection(); }
  /// Selects a place that somebody typed, once it is found.
  void go(const std::string& place);
  /// Brings a view to the front of its place. False when the window has none of that name.
  bool show_view(std::string_view name);
  bool shows(std::string_view name) const;
  /// Of what a view shows; nothing where it shows none.
  std::optional<TableMaker> table(std::string_view view) const;
  /// Where a view shows a place; nothing where it does not.
  std::optional<Area> where(std::string_view view, const Place& place) const;

 private:
  void take_answers();
  std::uint64_t ask_place(const std::string& place);
  void ask_map(Urgency urgency);
  /// All that can be done now.
  std::vector<Command> commands() const;
  void keys(Platform& platform);
  void run(const Command& command, Platform& platform);
  void open_palette(std::string typed);
  enum class Browsing : std::uint8_t { run, beside, model };
  void browse(Browsing what);
  void go_to_difference();
  void go_to_bad(bool forward);
  void change_speed(int doublings);
  void pin(const Place& place);
  void follow(const PaletteItem& item, Platform& platform);
  void follow(const MenuItem& item, Platform& platform);
  /// `pane`: the view that it was asked for in; null: none.
  void open_menu(MenuTarget target, const Pane* pane);
  /// What can be undone.
  struct Arrangement {
    std::vector<Pin> pins;
    Shares shares;
    bool enlarged = false;
    bool operator==(const Arrangement&) const = default;
  };
  Arrangement arrangement() const { return {pins_.all(), dragged_to_, enlarged_}; }
  void arrange(std::optional<Arrangement> wanted);
  /// The pane that keys are about: the one below the front.
  const Pane& shown_pane() const { return panes_[tabs_.empty() ? 0 : tabs_[tab_]]; }
  void show_pane(std::size_t pane);
  void use_theme(Theme theme);
  void zoom(int zoom);
  Preferences preferences() const;
  void prefer(const Preferences& wanted);
  /// Brings the view on screen; it is saved once it is there.
  void ask_to_save(const Command& command);
  void save_picture(Platform& platform, std::size_t view);
  void save_table(const Pane& pane);
  void save_diagnosis(const Answer& answer);
  void take_saved();
  void layout(Platform& platform, Area area);
  void draw_lower(const Look& look, Area area);
  void draw_splitters(const WindowAreas& areas, Area window);
  void draw_pane(Pane& pane, Area area, bool titled);
  /// A gap that can be dragged; answers by how many pixels.
  ImVec2 splitter(const char* id, Area area) const;
  /// Null when the window has none of that name.
  const Pane* pane_of(std::string_view view) const;
  ViewContext context() const;
  StatusText status() const;

  WindowSetup setup_;
  std::filesystem::path run_file_;
  Pins pins_;
  Navigator navigator_;
  TopBar top_bar_;
  std::vector<Pane> panes_;
  std::vector<std::size_t> tabs_;  ///< panes that share the place below the front
  std::size_t tab_ = 0;            ///< index in tabs_; the others prepare nothing
  bool enlarged_ = false;
  bool listing_keys_ = false;
  Shares shares_;
  Shares dragged_to_;  ///< the shares that the splitters left, whatever a small window made of them
  std::string hint_;
  StatusText message_;
  double said_until_ = 0;  ///< on ImGui's clock
  Palette palette_;
  ContextMenu menu_;
  SettingsPane settings_;
  std::optional<int> wanted_zoom_;
  std::optional<UndoStack<Arrangement>> undo_;  ///< from the first frame on
  FileBrowser browser_;
  Browsing browsing_ = Browsing::run;
  std::vector<std::filesystem::path> recent_;
  std::optional<std::filesystem::path> choice_;
  bool leave_ = false;              ///< for the start screen
  std::vector<Area> places_;        ///< of the panes in the last frame, of no width where they are not shown
  std::optional<Command> to_save_;  ///< once what it is about is on screen
  bool covered_ = false;            ///< something lay above the views in the last frame
  Exporter exporter_;
  Beside beside_;
  Store store_;
};

}  // namespace nanscope::gui
