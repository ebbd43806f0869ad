#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gui/background.h"
#include "gui/bars.h"
#include "gui/file_browser.h"
#include "gui/platform/platform.h"
#include "gui/scenario_cards.h"
#include "gui/text_field.h"

namespace nanscope::gui {

/// What is on screen before there is a recording or a dump: open one, or make one by running a scenario.
class StartScreen {
 public:
  /// `open`: the recording that waits behind it; empty when there is none.
  StartScreen(const Theme& theme, const Fonts& fonts, float scale, std::string open = {});
  StartScreen(const StartScreen&) = delete;
  StartScreen& operator=(const StartScreen&) = delete;

  void frame(Platform& platform);
  /// The recording to open, once.
  std::optional<std::filesystem::path> take_choice();
  /// How far what is being opened is; nothing when nothing is.
  void show_opening(std::optional<JobProgress> progress, bool cancelled) {
    opening_ = std::move(progress);
    cancelled_ = cancelled;
  }
  /// What is being opened is no longer wanted, once.
  bool take_cancel() { return std::exchange(cancel_, false); }
  /// Back to what waits behind, once.
  bool take_back() { return std::exchange(back_, false); }
  bool busy() const { return job_.running() || !browser_.settled(); }
  /// What was chosen cannot be opened.
  void say_error(std::string message);

 private:
  void take_run();
  void start(const ScenarioCard& card);
  void browse_files();
  void keys();
  /// The keys and the file browser, above everything else.
  void draw_above(Area window);
  void draw_back(Area head);
  void draw_open(Area area);
  void draw_recent(Area area);
  void draw_library(Area area);
  void draw_search(Area area);
  void draw_cards(Area area);
  void draw_card(const ScenarioCard& card, Area box);
  void draw_card_words(const ScenarioCard& card, Area words);

  Theme theme_;
  Fonts fonts_;
  Look look_;  ///< refers to both
  std::vector<ScenarioCard> scenarios_;
  std::vector<std::size_t> found_;  ///< those of the scenarios that are searched for, the best first
  std::string found_for_;
  std::vector<std::filesystem::path> recent_;
  TextField path_;
  FileBrowser browser_;
  bool listing_keys_ = false;
  TextField search_;
  bool typed_ = false;   ///< what was chosen last is the path that was typed
  std::string running_;  ///< name of the scenario that runs
  std::string error_;
  std::string open_;
  bool back_ = false;
  std::optional<std::filesystem::path> choice_;
  std::optional<JobProgress> opening_;
  bool cancelled_ = false;
  bool cancel_ = false;
  Background<std::filesystem::path> job_;  ///< last: it is stopped first
};

}  // namespace nanscope::gui
