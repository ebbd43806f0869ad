#pragma once
#include <filesystem>
#include <string>

#include "gui/platform/platform.h"
#include "gui/preferences.h"
#include "gui/window_layout.h"

namespace nanscope::gui {

/// How a window was left, for the next one.
struct SavedLayout {
  Shares shares;
  std::string tab;  ///< name of a view; empty: the first
  std::string theme = "dark";
  Extent size{1600, 1000};        ///< at scale 1
  Vision vision = Vision::usual;  ///< that the colours are for
  int zoom = 100;                 ///< percent
  NumberStyle numbers = {};
  bool operator==(const SavedLayout&) const = default;
};

/// Empty when there is no home.
std::filesystem::path layout_path();

/// A line a property. What is missing, unknown or makes no sense is as it would be without a file.
SavedLayout read_layout(const std::filesystem::path& file);
void write_layout(const std::filesystem::path& file, const SavedLayout& layout);

}  // namespace nanscope::gui
