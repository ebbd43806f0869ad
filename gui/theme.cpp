#include "gui/theme.h"

#include <imgui.h>
#include <imgui_freetype.h>

#include <filesystem>

namespace nanscope::gui {
namespace {

/// The ramp through `from`, `middle` and `to`, then the special kinds.
void set_cells(Theme& theme, Color from, Color middle, Color to) {
  for (Cell cell = kHealthyFirst; cell <= kHealthyLast; ++cell) {
    const float t = static_cast<float>(cell - kHealthyFirst) / static_cast<float>(kHealthySteps - 1);
    theme.cells[cell] = t < 0.5F ? mix(from, middle, t * 2) : mix(middle, to, t * 2 - 1);
  }
}

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

}  // namespace

Theme dark_theme() {
  Theme theme;
  theme.name = "dark";
  theme.background = Color::hex(0x0F1216);
  theme.panel = Color::hex(0x171B21);
  theme.raised = Color::hex(0x222831);
  theme.hovered = Color::hex(0x2D3540);
  theme.line = Color::hex(0x2B323C);
  theme.text = Color::hex(0xE7EBF0);
  theme.muted = Color::hex(0x97A1B0);
  theme.accent = Color::hex(0x5AB0FF);
  theme.on_bad = Color::hex(0x14060A);
  theme.sign_bit = Color::hex(0x5B6675);
  theme.exponent_bits = Color::hex(0x1F66A8);
  theme.mantissa_bits = Color::hex(0x1F7A63);
  set_cells(theme, Color::hex(0x1C2A3A), Color::hex(0x2F5470), Color::hex(0x7FB4C8));
  theme.cells[kAbsent] = Color::hex(0x12161B);
  theme.cells[kZero] = Color::hex(0x1E2227);
  theme.cells[kLowHeadroom] = Color::hex(0xF3E08A);
  theme.cells[kClipped] = Color::hex(0xFF9D2E);
  theme.cells[kInf] = Color::hex(0xC08BFF);
  theme.cells[kNan] = Color::hex(0xFF4A6E);
  return theme;
}

Theme light_theme() {
  Theme theme;
  theme.name = "light";
  theme.dark = false;
  theme.background = Color::hex(0xE4E8ED);
  theme.panel = Color::hex(0xFBFCFD);
  theme.raised = Color::hex(0xECEFF3);
  theme.hovered = Color::hex(0xDDE3EA);
  theme.line = Color::hex(0xD3D9E1);
  theme.text = Color::hex(0x1A2029);
  theme.muted = Color::hex(0x5B6675);
  theme.accent = Color::hex(0x0B63C5);
  theme.on_bad = Color::hex(0xFFFFFF);
  theme.sign_bit = Color::hex(0xB9C2CE);
  theme.exponent_bits = Color::hex(0x96C3F0);
  theme.mantissa_bits = Color::hex(0x93D6C0);
  set_cells(theme, Color::hex(0xE2EBF2), Color::hex(0xB0CBDD), Color::hex(0x5E93B3));
  theme.cells[kAbsent] = Color::hex(0xF4F6F8);
  theme.cells[kZero] = Color::hex(0xE9EBED);
  theme.cells[kLowHeadroom] = Color::hex(0xF2D544);
  theme.cells[kClipped] = Color::hex(0xE8850C);
  theme.cells[kInf] = Color::hex(0x7238C4);
  theme.cells[kNan] = Color::hex(0xCC0B3C);
  return theme;
}

std::optional<Theme> find_theme(std::string_view name) {
  for (const Theme& theme : {dark_theme(), light_theme()}) {
    if (theme.name == name) return theme;
  }
  return std::nullopt;
}

Fonts load_fonts(float scale) {
  constexpr const char* kSans = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
  constexpr const char* kBold = "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf";
  constexpr const char* kMono = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf";
  constexpr const char* kOtherMono = "/usr/share/fonts/truetype/noto/NotoSansMono-Regular.ttf";
  ImGui::GetIO().Fonts->FontBuilderIO = ImGuiFreeType::GetBuilderForFreeType();
  Fonts fonts;
  fonts.text = load_face({kSans, kMono, kOtherMono}, 14 * scale);
  fonts.small = load_face({kSans, kMono, kOtherMono}, 12 * scale);
  fonts.title = load_face({kBold, kSans, kMono, kOtherMono}, 14 * scale);
  fonts.mono = load_face({kMono, kOtherMono}, 13 * scale);
  fonts.mono_small = load_face({kMono, kOtherMono}, 11 * scale);
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
