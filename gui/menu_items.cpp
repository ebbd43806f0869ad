#include "gui/menu_items.h"

#include <fmt/format.h>

#include "gui/place_link.h"

namespace nanscope::gui {
namespace {

constexpr std::size_t kShown = 24;  ///< bytes of what is copied, in the menu

/// "Copy the value" with the value, unless it is long.
std::string copy_words(std::string_view what, const std::string& text) {
  if (text.size() > kShown) return fmt::format("Copy the {}", what);
  return fmt::format("Copy the {}   {}", what, text);
}

void add_texts(std::vector<MenuItem>& items, const MenuTarget& target) {
  if (!target.value.empty()) {
    const bool words = target.value.find(' ') != std::string::npos;
    items.push_back({MenuAct::copy, copy_words(words ? "text" : "value", target.value), target.value});
  }
  if (!target.bits.empty()) items.push_back({MenuAct::copy, copy_words("bits", target.bits), target.bits});
  if (!target.row.empty()) items.push_back({MenuAct::copy, "Copy the row", target.row});
}

void add_commands(std::vector<MenuItem>& items, const MenuTarget& target, const std::filesystem::path& run) {
  const Place& place = target.selection.place;
  const std::string file = shell_file(run);
  if (!target.settings.empty()) {
    std::string command = "nanscope replay " + file;
    for (const std::string& one : target.settings) command += " --set " + shell_word(one);
    items.push_back({MenuAct::copy, "Copy the command that tries it", std::move(command)});
  }
  if (place.op.empty()) return;
  items.push_back({MenuAct::copy, copy_words("place", to_string(place)), to_string(place)});
  items.push_back({MenuAct::copy, "Copy the command that opens it", link_to(run, place)});
  items.push_back({MenuAct::copy, "Copy the command that explains it",
                   fmt::format("nanscope why {} {}", file, shell_word(to_string(place)))});
}

void add_filters(std::vector<MenuItem>& items, const Place& place) {
  if (place.layer && *place.layer >= 0) {
    items.push_back({MenuAct::list, fmt::format("List the tensors of layer {}", *place.layer),
                     fmt::format("layer:{}", *place.layer), true});
  }
  items.push_back({MenuAct::list, fmt::format("List the tensors of {}", place.op), place.op});
  if (place.request) {
    items.push_back({MenuAct::list, fmt::format("List the tensors of request {}", *place.request),
                     fmt::format("request:{}", *place.request)});
  }
  if (place.token) {
    items.push_back({MenuAct::zoom_token, fmt::format("Zoom the front to token {}", *place.token)});
  }
}

}  // namespace

std::vector<MenuItem> menu_items(const MenuTarget& target, const MenuSetting& setting) {
  std::vector<MenuItem> items;
  const Place& place = target.selection.place;
  add_texts(items, target);
  add_commands(items, target, setting.run);
  if (!place.op.empty()) {
    items.push_back({MenuAct::show, "Show why", "why", true});
    items.push_back({MenuAct::show, "Show the tensor", "tensor"});
    items.push_back({MenuAct::show, "Show the bits", "bits"});
    items.push_back({MenuAct::pin, setting.pinned ? "Take the pin away" : "Pin"});
    items.push_back(
        {MenuAct::compare, setting.beside ? "Compare with the run beside" : "Compare with another run\u2026"});
    add_filters(items, place);
  }
  if (setting.has_table) items.push_back({MenuAct::save_table, "Save the table as CSV", {}, true});
  return items;
}

}  // namespace nanscope::gui
