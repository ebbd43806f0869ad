#include "gui/palette.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/platform/keys.h"

namespace nanscope::gui {
namespace {

constexpr float kWidth = 640;
constexpr float kTop = 60;
constexpr float kField = 48;
constexpr float kPaletteRow = 30;
constexpr std::size_t kRowsShown = 12;
constexpr std::size_t kMostPaletteLines = 400;
constexpr float kPalettePad = 16;
constexpr int kPaletteShade = 120;  ///< of what is behind, 0 to 255
constexpr ImGuiWindowFlags kFlags = ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove |
                                    ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBackground |
                                    ImGuiWindowFlags_NoScrollWithMouse;

/// As UTF-8; ImGui takes letters of 16 bits.
void append_letter(std::string& text, unsigned letter) {
  const auto more = [&](unsigned bits) { text += static_cast<char>(0x80U | (bits & 0x3FU)); };
  if (letter < 0x80) {
    text += static_cast<char>(letter);
  } else if (letter < 0x800) {
    text += static_cast<char>(0xC0U | (letter >> 6U));
    more(letter);
  } else {
    text += static_cast<char>(0xE0U | (letter >> 12U));
    more(letter >> 6U);
    more(letter);
  }
}

/// A line's title, the letters that were typed in the accent's colour.
void marked(const Look& look, Area area, const std::string& words, const std::vector<std::size_t>& bytes, Color ink) {
  if (text_size(look.fonts.text, words).x > area.width) {
    label(look.fonts.text, area, ink, words);
    return;
  }
  float x = area.x;
  const float y = area.y + (area.height - look.fonts.text->FontSize) / 2;
  for (std::size_t begin = 0; begin < words.size();) {
    const auto typed = [&](std::size_t at) { return std::binary_search(bytes.begin(), bytes.end(), at); };
    std::size_t end = begin + 1;
    while (end < words.size() && typed(end) == typed(begin)) ++end;
    const std::string_view part = std::string_view(words).substr(begin, end - begin);
    text(look.fonts.text, {x, y}, typed(begin) ? look.theme.accent : ink, part);
    x += text_size(look.fonts.text, part).x;
    begin = end;
  }
}

}  // namespace

void Palette::open(std::vector<PaletteItem> items, std::string typed) {
  items_ = std::move(items);
  query_ = std::move(typed);
  open_ = true;
  focus_ = true;
  to_end_ = true;
  active_ = false;
  chosen_ = false;
  find();
}

void Palette::find() {
  lines_ = palette_lines(items_, query_, kMostPaletteLines);
  found_for_ = query_;
  current_ = 0;
  moved_ = true;
}

void Palette::arrows() {
  if (lines_.empty()) return;
  const std::size_t count = lines_.size();
  const std::size_t before = current_;
  if (key_pressed(GLFW_KEY_DOWN)) current_ = (current_ + 1) % count;
  if (key_pressed(GLFW_KEY_UP)) current_ = (current_ + count - 1) % count;
  if (key_pressed(GLFW_KEY_PAGE_DOWN)) current_ = std::min(current_ + kRowsShown, count - 1);
  if (key_pressed(GLFW_KEY_PAGE_UP)) current_ -= std::min(current_, kRowsShown);
  moved_ = moved_ || current_ != before;
}

/// The field gets the keyboard a frame or two after the palette is opened, and a busy window draws few frames: what is
/// typed until then is not lost.
void Palette::take_early_keys() {
  ImVector<ImWchar>& typed = ImGui::GetIO().InputQueueCharacters;
  for (const ImWchar letter : std::exchange(typed, {})) {
    if (letter >= ' ') append_letter(query_, letter);
  }
}

void Palette::field(const Look& look, Area area) {
  if (!active_) take_early_keys();
  ImGui::SetCursorScreenPos(area.min());
  ImGui::PushFont(look.fonts.text);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(look.px(12), (area.height - look.fonts.text->FontSize) / 2));
  ImGui::SetNextItemWidth(area.width);
  if (focus_) ImGui::SetKeyboardFocusHere();
  // The field takes the focus with all of its text selected: what was typed for the user would be typed over.
  const auto to_end = [](ImGuiInputTextCallbackData* data) {
    bool& wanted = *static_cast<bool*>(data->UserData);
    if (std::exchange(wanted, false)) {
      data->CursorPos = data->BufTextLen;
      data->ClearSelection();
    }
    return 0;
  };
  if (ImGui::InputTextWithHint("##query", "a command, an op, a request, a link, or a place such as 2/0/1/kv_store",
                               &query_, ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_CallbackAlways,
                               to_end, &to_end_) &&
      !focus_) {
    chosen_ = !lines_.empty();
    focus_ = true;  // Enter takes the focus away: an empty list keeps it
  } else {
    focus_ = false;
  }
  active_ = ImGui::IsItemActive();
  ImGui::PopStyleVar();
  ImGui::PopFont();
}

void Palette::draw_line(const Look& look, const PaletteLine& line, Area area, bool current) const {
  if (current) fill(area.inset(look.px(6), 0), look.theme.hovered, look.px(5));
  Area words = area.inset(look.px(kPalettePad + 4), 0);
  const std::string& beside = line.item.keys.empty() ? line.item.detail : line.item.keys;
  const bool keys = !line.item.keys.empty();
  const ImFont* font = keys ? look.fonts.mono_small : look.fonts.small;
  const float room = words.width * 0.45F;
  const float taken = std::min(text_size(font, beside).x + 1, room);
  label(font, {words.right() - taken, words.y, taken, words.height}, keys ? look.theme.text : look.theme.muted,
        printable(beside), 1);
  words.width -= taken + look.px(14);
  marked(look, words, printable(line.item.title), line.bytes, look.theme.text);
}

void Palette::list(const Look& look, Area area, float row) {
  ImGui::SetCursorScreenPos(area.min());
  ImGui::BeginChild("lines", {area.width, area.height}, false, ImGuiWindowFlags_NoBackground);
  const ImVec2 start = ImGui::GetCursorScreenPos();
  const ImGuiIO& io = ImGui::GetIO();
  const bool pointing = io.MouseDelta.x != 0 || io.MouseDelta.y != 0;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const Area box{start.x, start.y + static_cast<float>(i) * row, area.width, row};
    ImGui::SetCursorScreenPos(box.min());
    ImGui::PushID(static_cast<int>(i));
    if (ImGui::InvisibleButton("line", {box.width, box.height})) {
      current_ = i;
      chosen_ = true;
    }
    // A pointer that rests does not take the line from the arrow keys.
    if (pointing && ImGui::IsItemHovered()) current_ = i;
    ImGui::PopID();
    if (i == current_ && moved_) ImGui::SetScrollHereY();
    if (ImGui::IsRectVisible(box.min(), box.max())) draw_line(look, lines_[i], box, i == current_);
  }
  moved_ = false;
  ImGui::EndChild();
}

std::optional<PaletteItem> Palette::draw(const Look& look, Area window) {
  if (!open_) return std::nullopt;
  ImGui::SetNextWindowPos(window.min());
  ImGui::SetNextWindowSize({window.width, window.height});
  if (focus_) ImGui::SetNextWindowFocus();
  ImGui::Begin("palette", nullptr, kFlags);
  fill(window, Color::hex(0x000000).alpha(kPaletteShade));
  const float row = look.px(kPaletteRow);
  const float top = window.y + std::min(look.px(kTop), window.height * 0.1F);
  const float most = std::max(window.bottom() - top - look.px(kField + kPalettePad + 12), row);
  const auto rows = static_cast<float>(std::clamp<std::size_t>(lines_.size(), 1, kRowsShown));
  const float listed = std::min(rows * row, std::floor(most / row) * row);
  const float width = std::min(look.px(kWidth), window.width - look.px(40));
  const Area card{window.x + (window.width - width) / 2, top, width, look.px(kField + 12) + listed};
  fill(card, look.theme.panel, look.px(10));
  outline(card, look.theme.line, 1, look.px(10));
  field(look, Area{card.x, card.y, card.width, look.px(kField)}.inset(look.px(8)));
  if (query_ != found_for_) find();
  arrows();
  const Area below{card.x, card.y + look.px(kField + 4), card.width, listed};
  if (lines_.empty()) {
    label(look.fonts.small, below.inset(look.px(kPalettePad + 4), 0), look.theme.muted, "Nothing here is called that.");
  } else {
    list(look, below, row);
  }
  const bool beside = ImGui::IsMouseClicked(ImGuiMouseButton_Left) && !card.holds(ImGui::GetIO().MousePos);
  ImGui::End();
  if (chosen_ && current_ < lines_.size()) {
    open_ = false;
    return std::move(lines_[current_].item);
  }
  if (beside || key_pressed(GLFW_KEY_ESCAPE)) open_ = false;
  return std::nullopt;
}

}  // namespace nanscope::gui
