#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gui/bars.h"
#include "gui/palette_items.h"

namespace nanscope::gui {

/// Finds a command or a place by a few letters of it. Lies above everything else while it is open.
class Palette {
 public:
  bool is_open() const { return open_; }
  /// `typed`: what the query begins with.
  void open(std::vector<PaletteItem> items, std::string typed = {});
  void close() { open_ = false; }
  const std::string& query() const { return query_; }
  /// Answers what was chosen, once, and is closed then.
  std::optional<PaletteItem> draw(const Look& look, Area window);

 private:
  void find();
  void take_early_keys();
  void field(const Look& look, Area area);
  void list(const Look& look, Area area, float row);
  void draw_line(const Look& look, const PaletteLine& line, Area area, bool current) const;
  void arrows();

  bool open_ = false;
  bool focus_ = false;   ///< the field, in the next frame
  bool active_ = false;  ///< the field took what was typed in the last frame
  bool to_end_ = false;  ///< the cursor, once the field has the focus
  bool moved_ = false;   ///< by a key, so that the list has to follow
  std::vector<PaletteItem> items_;
  std::string query_;
  std::string found_for_;
  std::vector<PaletteLine> lines_;
  std::size_t current_ = 0;
  bool chosen_ = false;
};

}  // namespace nanscope::gui
