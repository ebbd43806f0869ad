#include "gui/theme.h"

#include <imgui.h>
#include <imgui_freetype.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>

namespace nanscope::gui {
namespace {

ImVec4 vec(Color color) { return ImGui::ColorConvertU32ToFloat4(color.packed()); }

ImFont* load_face(std::initializer_list<const char*> candidates, float pixels) {
  // Latin, Greek, Cyrillic; punctuation, sub- and superscripts, arrows, operators, box drawing, shapes.
  static const ImWchar ranges[] = {0x0020, 0x024F, 0x0370, 0x03FF, 0x0400, 0x04FF, 0x2000, 0x20CF, 0x2100, 0x22FF,
                                   0x2500, 0x25FF, 0x2600, 0x266F, 0x2713, 0x2717, 0xFFFD, 0xFFFD, 0};
  ImGuiIO& io = ImGui::GetIO();
  for (const char* path : candidates) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    ImFontConfig config;
    config.FontBuilderFlags = ImGuiFreeTypeBuilderFlags_LightHinting;
    if (ImFont* font = io.Fonts->AddFontFromFileTTF(path, pixels, &config, ranges)) return font;
  }
  ImFontConfig config;
  config.SizePixels = pixels;
  return io.Fonts->AddFontDefault(&config);
}

/// Rooms for the patterns beside the letters, so that both are drawn at once.
void reserve_patterns(Fonts& fonts, int dot) {
  constexpr int kMostSide = 240;
  const int period = kPatternPeriod * dot;
  fonts.pattern_side = period * std::max(1, kMostSide / period);
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  for (int pattern = 1; pattern < kPatterns; ++pattern) {
    fonts.patterns[static_cast<std::size_t>(pattern)] =
        atlas.AddCustomRectRegular(fonts.pattern_side, fonts.pattern_side);
  }
}

/// White where a pattern is inked.
void draw_patterns(const Fonts& fonts, int dot) {
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  unsigned char* pixels = nullptr;
  int width = 0;
  int height = 0;
  atlas.GetTexDataAsAlpha8(&pixels, &width, &height);
  for (int pattern = 1; pattern < kPatterns; ++pattern) {
    const ImFontAtlasCustomRect& rect = *atlas.GetCustomRectByIndex(fonts.patterns[static_cast<std::size_t>(pattern)]);
    for (int y = 0; y < rect.Height; ++y) {
      unsigned char* row = pixels + static_cast<std::ptrdiff_t>(rect.Y + y) * width + rect.X;
      for (int x = 0; x < rect.Width; ++x) {
        row[x] = inked(static_cast<Pattern>(pattern), x / dot, y / dot) ? 255 : 0;
      }
    }
  }
}

}  // namespace

int pattern_dot(float scale) { return std::clamp(static_cast<int>(std::lround(scale)), 1, 4); }

Fonts load_fonts(float scale) {
  constexpr const char* kSans = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
  constexpr const char* kBold = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf";
  constexpr const char* kMono = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf";
  constexpr const char* kOtherMono = "/usr/share/fonts/truetype/noto/NotoSansMono-Regular.ttf";
  ImGui::GetIO().Fonts->Clear();
  ImGui::GetIO().Fonts->FontBuilderIO = ImGuiFreeType::GetBuilderForFreeType();
  Fonts fonts;
  fonts.text = load_face({kSans, kMono, kOtherMono}, 14 * scale);
  fonts.small = load_face({kSans, kMono, kOtherMono}, 12 * scale);
  fonts.title = load_face({kBold, kSans, kMono, kOtherMono}, 14 * scale);
  fonts.mono = load_face({kMono, kOtherMono}, 13 * scale);
  fonts.mono_small = load_face({kMono, kOtherMono}, 11 * scale);
  const int dot = pattern_dot(scale);
  reserve_patterns(fonts, dot);
  draw_patterns(fonts, dot);
  return fonts;
}

void apply_style(const Theme& theme, float scale) {
  ImGuiStyle style;
  if (theme.dark) {
    ImGui::StyleColorsDark(&style);
  } else {
    ImGui::StyleColorsLight(&style);
  }
  style.WindowPadding = ImVec2(0, 0);
  style.FramePadding = ImVec2(10, 6);
  style.ItemSpacing = ImVec2(8, 6);
  style.WindowBorderSize = 0;
  style.ChildBorderSize = 0;
  style.PopupBorderSize = 1;
  style.WindowRounding = 0;
  style.ChildRounding = 0;
  style.FrameRounding = 5;
  style.PopupRounding = 6;
  style.GrabRounding = 5;
  style.ScrollbarSize = 10;
  style.ScrollbarRounding = 5;
  const auto set = [&style](ImGuiCol slot, Color color) { style.Colors[slot] = vec(color); };
  set(ImGuiCol_Text, theme.text);
  set(ImGuiCol_TextDisabled, theme.muted);
  set(ImGuiCol_WindowBg, theme.background);
  set(ImGuiCol_ChildBg, theme.panel);
  set(ImGuiCol_PopupBg, theme.raised);
  set(ImGuiCol_Border, theme.line);
  set(ImGuiCol_FrameBg, theme.raised);
  set(ImGuiCol_FrameBgHovered, theme.hovered);
  set(ImGuiCol_FrameBgActive, theme.hovered);
  set(ImGuiCol_Button, theme.raised);
  set(ImGuiCol_ButtonHovered, theme.hovered);
  set(ImGuiCol_ButtonActive, theme.line);
  set(ImGuiCol_Header, theme.raised);
  set(ImGuiCol_HeaderHovered, theme.hovered);
  set(ImGuiCol_HeaderActive, theme.hovered);
  set(ImGuiCol_ScrollbarBg, theme.panel.alpha(0));
  set(ImGuiCol_ScrollbarGrab, theme.hovered);
  set(ImGuiCol_ScrollbarGrabHovered, theme.muted);
  set(ImGuiCol_ScrollbarGrabActive, theme.muted);
  set(ImGuiCol_TextSelectedBg, theme.accent.alpha(90));
  set(ImGuiCol_NavHighlight, theme.accent);
  style.ScaleAllSizes(scale);
  ImGui::GetStyle() = style;
}

}  // namespace nanscope::gui
