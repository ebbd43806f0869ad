#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gui/selection.h"

namespace nanscope::gui {

/// What a context menu is about: a cell, a row of a list, a link of the chain, a step, a change to try.
struct MenuTarget {
  Selection selection;                     ///< empty: no place
  std::string value = {};                  ///< as exactly as it is known; empty: none
  std::string bits = {};                   ///< "0x7FFFFFFF"; empty: none
  std::string row = {};                    ///< all numbers of the row, separated by commas; empty: none
  std::vector<std::string> settings = {};  ///< of a change to try, as --set takes them
};

/// What a line of a context menu does.
enum class MenuAct : std::uint8_t {
  copy,        ///< MenuItem::text
  show,        ///< the view that MenuItem::text names, at the place
  pin,         ///< or takes the pin away
  compare,     ///< with the run that stands beside, or with one to be chosen
  list,        ///< the tensors that the query MenuItem::text finds
  zoom_token,  ///< the front, to the place's token
  save_table,  ///< of the view
};

struct MenuItem {
  MenuAct act = MenuAct::copy;
  std::string words;
  std::string text = {};
  bool divided = false;  ///< a line stands above
};

/// What the lines depend on besides their target.
struct MenuSetting {
  std::filesystem::path run;
  bool pinned = false;
  bool beside = false;    ///< a run stands beside
  bool has_table = true;  ///< the view can be saved as a table
};

std::vector<MenuItem> menu_items(const MenuTarget& target, const MenuSetting& setting);

}  // namespace nanscope::gui
