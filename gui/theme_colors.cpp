#include "gui/theme.h"

namespace nanscope::gui {
namespace {

/// The ramp through `from`, `middle` and `to`, then the special kinds.
void set_cells(Theme& theme, Color from, Color middle, Color to) {
  for (Cell cell = kHealthyFirst; cell <= kHealthyLast; ++cell) {
    const float t = static_cast<float>(cell - kHealthyFirst) / static_cast<float>(kHealthySteps - 1);
    theme.cells[cell] = t < 0.5F ? mix(from, middle, t * 2) : mix(middle, to, t * 2 - 1);
  }
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
  theme.series = {Color::hex(0x97A1B0), Color::hex(0xF0E442), Color::hex(0xA89A2A),
                  Color::hex(0xD78FC0), Color::hex(0x56B4E9), Color::hex(0x3FC49A)};
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
  theme.series = {Color::hex(0x5B6675), Color::hex(0xA08A00), Color::hex(0x6E6200),
                  Color::hex(0xA0478A), Color::hex(0x0B63C5), Color::hex(0x0E7C5A)};
  return theme;
}

std::optional<Theme> find_theme(std::string_view name) {
  for (const Theme& theme : {dark_theme(), light_theme()}) {
    if (theme.name == name) return theme;
  }
  return std::nullopt;
}

}  // namespace nanscope::gui
