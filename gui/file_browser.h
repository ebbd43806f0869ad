#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gui/background.h"
#include "gui/bars.h"
#include "gui/file_list.h"
#include "gui/text_field.h"

namespace nanscope::gui {

/// Chooses a file or a folder. Lies above everything else while it is open. Folders are read on a thread of their own.
class FileBrowser {
 public:
  bool is_open() const { return open_; }
  bool settled() const { return !reading_.running(); }
  /// Shows `folder`; `title` says what is chosen. The folders of recent files are among the shortcuts.
  /// `folder_words`: the button that chooses the folder itself.
  void open(std::string title, std::string folder_words, const std::filesystem::path& folder,
            std::span<const std::filesystem::path> recent);
  void close() { open_ = false; }
  /// Answers what was chosen, once, and is closed then.
  std::optional<std::filesystem::path> draw(const Look& look, Area window);

 private:
  void read(const std::filesystem::path& folder);
  void take();
  void understand();
  void enter(const std::filesystem::path& folder);
  /// Goes into a folder, or chooses a file.
  void take_entry(std::size_t line);
  void keys();
  void head(const Look& look, Area area);
  void side(const Look& look, Area area);
  void list(const Look& look, Area area);
  void row(const Look& look, std::size_t line, Area area);
  void foot(const Look& look, Area area);
  std::string note() const;

  bool open_ = false;
  std::string title_;
  std::string folder_words_;
  TextField typed_;
  std::string understood_;  ///< the text that the list shows
  std::vector<Shortcut> shortcuts_;
  FileList shown_;                      ///< of wanted_, once it is read
  std::filesystem::path wanted_;        ///< the folder that is to be shown
  std::vector<std::size_t> lines_;      ///< entries that match what is typed
  std::optional<std::size_t> current_;  ///< a line
  bool hidden_ = false;                 ///< names that begin with a dot are listed
  bool moved_ = false;                  ///< by a key, so that the list has to follow
  std::filesystem::path base_;          ///< what a relative path is typed from
  std::optional<std::filesystem::path> chosen_;
  Background<FileList> reading_;  ///< last: it is stopped first
};

}  // namespace nanscope::gui
