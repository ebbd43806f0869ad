#include "gui/file_browser.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/counted.h"
#include "gui/controls.h"
#include "gui/drawn.h"
#include "gui/platform/keys.h"
#include "scenarios/report/text.h"

namespace nanscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr float kBrowserWidth = 880;
constexpr float kBrowserHeight = 560;
constexpr float kBrowserPad = 16;
constexpr float kBrowserHead = 92;
constexpr float kBrowserFoot = 58;
constexpr float kSideWidth = 176;
constexpr float kEntryRow = 26;
constexpr std::size_t kEntriesAPage = 14;
constexpr int kBrowserShade = 120;  ///< of what is behind, 0 to 255
constexpr ImGuiWindowFlags kBrowserFlags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                           ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBackground |
                                           ImGuiWindowFlags_NoScrollWithMouse;

std::string changed_text(std::time_t changed) {
  return changed == 0 ? std::string() : fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(changed));
}

}  // namespace

void FileBrowser::open(std::string title, std::string folder_words, const fs::path& folder,
                       std::span<const fs::path> recent) {
  title_ = std::move(title);
  folder_words_ = std::move(folder_words);
  shortcuts_ = shortcuts(home_folder(), recent);
  chosen_.reset();
  open_ = true;
  enter(folder.lexically_normal());
}

void FileBrowser::read(const fs::path& folder) {
  wanted_ = folder;
  reading_.start([folder, hidden = hidden_](const std::stop_token&, const Background<FileList>::Report&) {
    return Result<FileList>(list_folder(folder, hidden));
  });
}

void FileBrowser::enter(const fs::path& folder) {
  base_ = folder;
  typed_.text.clear();
  typed_.focus();
  understood_.clear();
  read(folder);
}

void FileBrowser::take() {
  std::optional<Result<FileList>> made = reading_.take();
  if (!made) return;
  shown_ = *made ? std::move(**made) : FileList{.folder = wanted_, .entries = {}, .problem = made->error().message};
  lines_.clear();  // they were of the folder before
  understand();
}

/// The lines for what is typed; reads the folder that it names, if that is another one.
void FileBrowser::understand() {
  understood_ = typed_.text;
  const TypedPath path = understand_path(base_, typed_.text, home_folder());
  if (path.folder != wanted_) return read(path.folder);
  lines_ = matching(shown_.entries, path.name);
  current_.reset();
  if (!path.name.empty() && !lines_.empty()) current_ = 0;
  moved_ = true;
}

void FileBrowser::take_entry(std::size_t line) {
  const FileEntry& entry = shown_.entries[lines_[line]];
  const fs::path path = shown_.folder / entry.name;
  if (entry.folder) return enter(path);
  chosen_ = path;
}

void FileBrowser::keys() {
  if (key_pressed(GLFW_KEY_BACKSPACE) && typed_.text.empty() && understood_.empty()) {
    if (shown_.folder.has_relative_path()) enter(shown_.folder.parent_path());
    return;
  }
  if (lines_.empty()) return;
  const std::size_t last = lines_.size() - 1;
  const auto move = [&](std::size_t to) {
    current_ = to;
    moved_ = true;
  };
  if (key_pressed(GLFW_KEY_DOWN)) move(current_ ? std::min(*current_ + 1, last) : 0);
  if (key_pressed(GLFW_KEY_UP)) move(current_.value_or(0) - (current_.value_or(0) > 0 ? 1 : 0));
  if (key_pressed(GLFW_KEY_PAGE_DOWN)) move(std::min(current_.value_or(0) + kEntriesAPage, last));
  if (key_pressed(GLFW_KEY_PAGE_UP)) move(current_.value_or(0) - std::min(current_.value_or(0), kEntriesAPage));
}

void FileBrowser::head(const Look& look, Area area) {
  label(look.fonts.title, {area.x, area.y, area.width, look.px(28)}, look.theme.text, title_);
  const float titled = text_size(look.fonts.title, title_).x + look.px(24);
  const std::string folder = printable(wanted_.string());
  label(look.fonts.mono_small, {area.x + titled, area.y, area.width - titled, look.px(28)}, look.theme.muted,
        shortened(look.fonts.mono_small, folder, area.width - titled), 1);
  const Area field{area.x, area.y + look.px(38), area.width, look.px(30)};
  if (!typed_.draw(look, "browse", "a name, or a path such as ../ or ~/dumps/", look.fonts.mono, field)) return;
  typed_.focus(false);  // Enter takes the focus away
  if (!reading_.running() && current_) return take_entry(*current_);
  const TypedPath path = understand_path(base_, typed_.text, home_folder());
  std::error_code error;
  if (path.name.empty()) {
    chosen_ = path.folder;
  } else if (fs::exists(path.folder / path.name, error)) {
    chosen_ = path.folder / path.name;
  } else {
    typed_.refuse(fmt::format("{}: there is no such file", (path.folder / path.name).string()));
  }
}

void FileBrowser::side(const Look& look, Area area) {
  float y = area.y;
  for (std::size_t i = 0; i < shortcuts_.size() && y + look.px(kEntryRow) <= area.bottom(); ++i) {
    const Area row{area.x, y, area.width, look.px(kEntryRow)};
    ImGui::SetCursorScreenPos(row.min());
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::InvisibleButton("shortcut", {row.width, row.height})) enter(shortcuts_[i].folder);
    const bool hovered = ImGui::IsItemHovered();
    ImGui::PopID();
    if (hovered) {
      ImGui::SetMouseCursor(ImGuiMouseCursor_Hand);
      fill(row, look.theme.hovered, look.px(5));
    }
    const bool here = shortcuts_[i].folder == wanted_;
    label(look.fonts.small, row.inset(look.px(8), 0), here ? look.theme.accent : look.theme.text,
          printable(shortcuts_[i].name));
    y += row.height;
  }
}

void FileBrowser::row(const Look& look, std::size_t line, Area area) {
  const FileEntry& entry = shown_.entries[lines_[line]];
  if (line == current_) fill(area, look.theme.hovered, look.px(5));
  const Area inner = area.inset(look.px(8), 0);
  const float time = look.px(130);
  const float size = look.px(84);
  const float name = inner.width - time - size - look.px(16);
  const ImFont* small = look.fonts.small;
  label(look.fonts.text, {inner.x, inner.y, name, inner.height}, entry.folder ? look.theme.accent : look.theme.text,
        shortened(look.fonts.text, printable(entry.name) + (entry.folder ? "/" : ""), name));
  label(small, {inner.x + name + look.px(8), inner.y, size, inner.height}, look.theme.muted,
        entry.folder ? std::string() : report::bytes_text(static_cast<double>(entry.bytes)), 1);
  label(small, {inner.right() - time, inner.y, time, inner.height}, look.theme.muted, changed_text(entry.changed), 1);
}

/// What stands in place of the list.
std::string FileBrowser::note() const {
  if (!shown_.problem.empty()) return shown_.problem;
  if (reading_.running()) return "reading";
  if (shown_.entries.empty()) return "This folder is empty.";
  return "Nothing here is called that.";
}

void FileBrowser::list(const Look& look, Area area) {
  if (lines_.empty() || !shown_.problem.empty()) {
    label(look.fonts.small, {area.x + look.px(8), area.y, area.width, look.px(kEntryRow)}, look.theme.muted, note());
    return;
  }
  ImGui::SetCursorScreenPos(area.min());
  ImGui::BeginChild("entries", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const float pitch = look.px(kEntryRow);
  std::optional<std::size_t> taken;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const Area box{start.x, start.y + static_cast<float>(i) * pitch, area.width - look.px(12), pitch};
    ImGui::SetCursorScreenPos(box.min());
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::InvisibleButton("entry", {box.width, box.height})) {
      // A folder opens with the first click; a file is marked by it, and chosen by the second or by the button.
      if (shown_.entries[lines_[i]].folder || current_ == i) taken = i;
      current_ = i;
    }
    ImGui::PopID();
    if (current_ == i && moved_) ImGui::SetScrollHereY();
    if (ImGui::IsRectVisible(box.min(), box.max())) row(look, i, box);
  }
  moved_ = false;
  ImGui::EndChild();
  if (taken) take_entry(*taken);
}

void FileBrowser::foot(const Look& look, Area area) {
  const float height = look.px(30);
  float right = area.right();
  const auto next = [&](const std::string& words) {
    const float width = button_width(look, words);
    right -= width + look.px(8);
    return Area{right + look.px(8), area.y, width, height};
  };
  const bool file = current_ && !shown_.entries[lines_[*current_]].folder;
  const std::string words = file ? "Open" : folder_words_;
  if (button(look, "open", words, next(words), true)) {
    chosen_ = file ? shown_.folder / shown_.entries[lines_[*current_]].name : wanted_;
  }
  if (button(look, "leave", "Cancel", next("Cancel"))) open_ = false;
  const std::string shows = hidden_ ? "Hide dotted names" : "Show dotted names";
  if (button(look, "hidden", shows, {area.x, area.y, button_width(look, shows), height})) {
    hidden_ = !hidden_;
    read(wanted_);
  }
  const float left = area.x + button_width(look, shows) + look.px(14);
  const std::string count =
      shown_.cut ? fmt::format("the first {} names", kMostListed) : counted(shown_.entries.size(), "name");
  label(look.fonts.small, {left, area.y, right - left, height}, look.theme.muted,
        count + "; Enter opens, Backspace goes up, Esc closes");
}

std::optional<fs::path> FileBrowser::draw(const Look& look, Area window) {
  if (!open_) return std::nullopt;
  take();
  ImGui::SetNextWindowPos(window.min());
  ImGui::SetNextWindowSize({window.width, window.height});
  ImGui::Begin("file browser", nullptr, kBrowserFlags);
  fill(window, Color::hex(0x000000).alpha(kBrowserShade));
  const float width = std::min(look.px(kBrowserWidth), window.width - look.px(32));
  const float height = std::min(look.px(kBrowserHeight), window.height - look.px(48));
  const Area card{std::floor(window.x + (window.width - width) / 2),
                  std::floor(window.y + (window.height - height) / 2), width, height};
  fill(card, look.theme.panel, look.px(10));
  outline(card, look.theme.line, 1, look.px(10));
  const Area inner = card.inset(look.px(kBrowserPad));
  keys();
  head(look, inner);
  if (open_ && !chosen_ && typed_.text != understood_) understand();
  const float top = inner.y + look.px(kBrowserHead);
  const float side_width = std::min(look.px(kSideWidth), inner.width * 0.28F);
  const float list_height = inner.bottom() - look.px(kBrowserFoot) + look.px(14) - top;
  side(look, {inner.x, top, side_width, list_height});
  list(look, {inner.x + side_width + look.px(14), top, inner.width - side_width - look.px(14), list_height});
  foot(look, {inner.x, inner.bottom() - look.px(30), inner.width, look.px(30)});
  ImGui::End();
  if (key_pressed(GLFW_KEY_ESCAPE, false)) open_ = false;
  if (!chosen_) return std::nullopt;
  open_ = false;
  return std::exchange(chosen_, std::nullopt);
}

}  // namespace nanscope::gui
