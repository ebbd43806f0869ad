#include <algorithm>

#include "gui/theme.h"

namespace nanscope::gui {
namespace {

/// The ramp through `from`, `middle` and `to`.
void set_cells(Theme& theme, Color from, Color middle, Color to) {
  for (Cell cell = kHealthyFirst; cell <= kHealthyLast; ++cell) {
    const float t = static_cast<float>(cell - kHealthyFirst) / static_cast<float>(kHealthySteps - 1);
    theme.cells[cell] = t < 0.5F ? mix(from, middle, t * 2) : mix(middle, to, t * 2 - 1);
  }
}

/// Colours of low headroom, of what is clipped, of Inf and of NaN. Those for a vision were searched for the largest
/// least distance (CIEDE2000) among each other and from the healthy ramp, as that vision is simulated (Machado et al.
/// 2009).
struct KindColors {
  Color low_headroom;
  Color clipped;
  Color inf;
  Color nan;
};

KindColors dark_kinds(Vision vision) {
  switch (vision) {
    case Vision::protan:
      return {Color::hex(0xA8AF76), Color::hex(0xD1672D), Color::hex(0xC262FC), Color::hex(0xF4E849)};
    case Vision::deutan:
      return {Color::hex(0x8E905A), Color::hex(0xEE9638), Color::hex(0xBC4AFD), Color::hex(0xFEF63B)};
    case Vision::tritan:
      return {Color::hex(0xFEF790), Color::hex(0xE3A631), Color::hex(0x01FFAC), Color::hex(0xFA355A)};
    case Vision::usual:
      break;
  }
  return {Color::hex(0xF3E08A), Color::hex(0xFF9D2E), Color::hex(0xC08BFF), Color::hex(0xFF4A6E)};
}

KindColors light_kinds(Vision vision) {
  switch (vision) {
    case Vision::protan:
      return {Color::hex(0xDBD116), Color::hex(0xCF640B), Color::hex(0x052390), Color::hex(0x6E1916)};
    case Vision::deutan:
      return {Color::hex(0xFCF91A), Color::hex(0xB9741B), Color::hex(0x281983), Color::hex(0x800429)};
    case Vision::tritan:
      return {Color::hex(0xF3CA2F), Color::hex(0xDD6308), Color::hex(0x0E4840), Color::hex(0x85080B)};
    case Vision::usual:
      break;
  }
  return {Color::hex(0xF2D544), Color::hex(0xE8850C), Color::hex(0x7238C4), Color::hex(0xCC0B3C)};
}

/// As much of the colour as can be read.
Color readable(Color color, const Theme& theme) {
  constexpr int kSteps = 16;
  const Color grounds[] = {theme.background, theme.panel, theme.raised, theme.hovered};
  for (int step = 0; step < kSteps; ++step) {
    const Color ink = mix(color, theme.text, static_cast<float>(step) / kSteps);
    const bool read = std::all_of(std::begin(grounds), std::end(grounds),
                                  [ink](Color ground) { return contrast(ink, ground) >= kLeastContrast; });
    if (read) return ink;
  }
  return theme.text;
}

void set_kinds(Theme& theme, const KindColors& kinds) {
  theme.cells[kLowHeadroom] = kinds.low_headroom;
  theme.cells[kClipped] = kinds.clipped;
  theme.cells[kInf] = kinds.inf;
  theme.cells[kNan] = kinds.nan;
  theme.patterns[kAbsent] = Pattern::sparse;
  theme.patterns[kZero] = Pattern::dashed;
  theme.patterns[kLowHeadroom] = Pattern::dotted;
  theme.patterns[kClipped] = Pattern::level;
  theme.patterns[kInf] = Pattern::slanted;
  theme.patterns[kNan] = Pattern::crossed;
  std::transform(theme.cells.begin(), theme.cells.end(), theme.inks.begin(),
                 [&theme](Color color) { return readable(color, theme); });
}

struct VisionNames {
  Vision vision;
  std::string_view name;
  std::string_view words;
};
constexpr VisionNames kVisionNames[] = {
    {Vision::usual, "usual", "The usual colours"},
    {Vision::protan, "protan", "Colours for protanopia"},
    {Vision::deutan, "deutan", "Colours for deuteranopia"},
    {Vision::tritan, "tritan", "Colours for tritanopia"},
};

}  // namespace

std::string_view name(Vision vision) { return kVisionNames[static_cast<std::size_t>(vision)].name; }
std::string_view words_of(Vision vision) { return kVisionNames[static_cast<std::size_t>(vision)].words; }

std::optional<Vision> find_vision(std::string_view name) {
  for (const VisionNames& one : kVisionNames) {
    if (one.name == name) return one.vision;
  }
  return std::nullopt;
}

Theme dark_theme(Vision vision) {
  Theme theme;
  theme.vision = vision;
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
  theme.mantissa_bits = Color::hex(0x1C7059);
  set_cells(theme, Color::hex(0x1C2A3A), Color::hex(0x2F5470), Color::hex(0x7FB4C8));
  theme.cells[kAbsent] = Color::hex(0x12161B);
  theme.cells[kZero] = Color::hex(0x1E2227);
  set_kinds(theme, dark_kinds(vision));
  theme.series = {Color::hex(0x97A1B0), Color::hex(0xF0E442), Color::hex(0xA89A2A),
                  Color::hex(0xD78FC0), Color::hex(0x56B4E9), Color::hex(0x3FC49A)};
  return theme;
}

Theme light_theme(Vision vision) {
  Theme theme;
  theme.vision = vision;
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
  set_kinds(theme, light_kinds(vision));
  theme.series = {Color::hex(0x5B6675), Color::hex(0xA08A00), Color::hex(0x6E6200),
                  Color::hex(0xA0478A), Color::hex(0x0B63C5), Color::hex(0x0E7C5A)};
  return theme;
}

std::optional<Theme> find_theme(std::string_view name, Vision vision) {
  for (const Theme& theme : {dark_theme(vision), light_theme(vision)}) {
    if (theme.name == name) return theme;
  }
  return std::nullopt;
}

}  // namespace nanscope::gui
