#include "gui/theme.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "gui/marks.h"
#include "gui/prepare/error_map.h"
#include "gui/prepare/run_difference.h"
#include "gui/prepare/tensor_pair.h"
#include "gui/views/front_errors.h"
#include "gui/views/front_twin.h"
#include "gui/views/ramp_choice.h"
#include "gui/views/tensor_twin.h"
#include "tests/unit/gui/color_vision.h"

/// Whoever looks can read the words and tell the kinds of cells apart.
namespace nanscope::gui {
namespace {

constexpr double kLeastDistance = 15;  ///< CIEDE2000, of cells that have the same pattern

struct Pair {
  Lab one;
  Lab other;
  double distance;
};

/// Table 1 of Sharma, Wu, Dalal (2005).
constexpr Pair kPublished[] = {
    {{50, 2.6772, -79.7751}, {50, 0, -82.7485}, 2.0425},
    {{50, 3.1571, -77.2803}, {50, 0, -82.7485}, 2.8615},
    {{50, 2.8361, -74.0200}, {50, 0, -82.7485}, 3.4412},
    {{50, -1.3802, -84.2814}, {50, 0, -82.7485}, 1.0000},
    {{50, -1.1848, -84.8006}, {50, 0, -82.7485}, 1.0000},
    {{50, -0.9009, -85.5211}, {50, 0, -82.7485}, 1.0000},
    {{50, 0, 0}, {50, -1, 2}, 2.3669},
    {{50, -1, 2}, {50, 0, 0}, 2.3669},
    {{50, 2.49, -0.001}, {50, -2.49, 0.0009}, 7.1792},
    {{50, 2.49, -0.001}, {50, -2.49, 0.0010}, 7.1792},
    {{50, 2.49, -0.001}, {50, -2.49, 0.0011}, 7.2195},
    {{50, 2.49, -0.001}, {50, -2.49, 0.0012}, 7.2195},
    {{50, -0.001, 2.49}, {50, 0.0009, -2.49}, 4.8045},
    {{50, -0.001, 2.49}, {50, 0.0010, -2.49}, 4.8045},
    {{50, -0.001, 2.49}, {50, 0.0011, -2.49}, 4.7461},
    {{50, 2.5, 0}, {50, 0, -2.5}, 4.3065},
    {{50, 2.5, 0}, {73, 25, -18}, 27.1492},
    {{50, 2.5, 0}, {61, -5, 29}, 22.8977},
    {{50, 2.5, 0}, {56, -27, -3}, 31.9030},
    {{50, 2.5, 0}, {58, 24, 15}, 19.4535},
    {{50, 2.5, 0}, {50, 3.1736, 0.5854}, 1.0000},
    {{50, 2.5, 0}, {50, 3.2972, 0}, 1.0000},
    {{50, 2.5, 0}, {50, 1.8634, 0.5757}, 1.0000},
    {{50, 2.5, 0}, {50, 3.2592, 0.3350}, 1.0000},
    {{60.2574, -34.0099, 36.2677}, {60.4626, -34.1751, 39.4387}, 1.2644},
    {{63.0109, -31.0961, -5.8663}, {62.8187, -29.7946, -4.0864}, 1.2630},
    {{61.2901, 3.7196, -5.3901}, {61.4292, 2.2480, -4.9620}, 1.8731},
    {{35.0831, -44.1164, 3.7933}, {35.0232, -40.0716, 1.5901}, 1.8645},
    {{22.7233, 20.0904, -46.6940}, {23.0331, 14.9730, -42.5619}, 2.0373},
    {{36.4612, 47.8580, 18.3852}, {36.2715, 50.5065, 21.2231}, 1.4146},
    {{90.8027, -2.0831, 1.4410}, {91.1528, -1.6435, 0.0447}, 1.4441},
    {{90.9257, -0.5406, -0.9208}, {88.6381, -0.8985, -0.7239}, 1.5381},
    {{6.7747, -0.2908, -2.4247}, {5.8714, -0.0985, -2.2286}, 0.6377},
    {{2.0776, 0.0795, -1.1350}, {0.9033, -0.0636, -0.5514}, 0.9082},
};

TEST(ColorVision, MeasuresAsPublished) {
  for (const Pair& pair : kPublished) {
    // Pair 14 lies where the hue's mean jumps: either side is right.
    const bool jumps = pair.other.a == 0.001 && pair.other.b == -2.49;
    EXPECT_NEAR(color_distance(pair.one, pair.other), pair.distance, jumps ? 0.06 : 1e-4) << pair.one.a;
  }
}

TEST(ColorVision, KnowsWhiteAndWhatIsConfused) {
  EXPECT_NEAR(seen(Color::hex(0xFFFFFF), Vision::usual).l, 100, 0.01);
  const auto apart = [](Vision vision) {
    return color_distance(seen(Color::hex(0xD4604D), vision), seen(Color::hex(0x8A9A3B), vision));
  };
  EXPECT_LT(apart(Vision::deutan), apart(Vision::usual) / 2);
}

std::vector<Theme> all_themes() {
  std::vector<Theme> themes;
  for (const Vision vision : kVisions) {
    themes.push_back(dark_theme(vision));
    themes.push_back(light_theme(vision));
  }
  return themes;
}

struct Kind {
  Cell cell;
  const char* name;
};

/// The least distance among kinds of the same pattern, as somebody sees them.
double least_distance(const Theme& theme, const std::vector<Kind>& kinds, Vision vision, std::string& which) {
  double least = 1e9;
  for (const Kind& one : kinds) {
    for (const Kind& other : kinds) {
      if (one.cell >= other.cell || theme.pattern(one.cell) != theme.pattern(other.cell)) continue;
      const double distance = color_distance(seen(theme.cell(one.cell), vision), seen(theme.cell(other.cell), vision));
      if (distance >= least) continue;
      least = distance;
      which = fmt::format("{} and {}", one.name, other.name);
    }
  }
  return least;
}

void expect_apart(const std::string& where, const Theme& theme, const std::vector<Kind>& kinds) {
  for (const Vision vision : kVisions) {
    std::string which;
    const double least = least_distance(theme, kinds, vision, which);
    EXPECT_GE(least, kLeastDistance) << where << ", seen as " << name(vision) << ": " << which;
  }
}

TEST(Theme, TellsTheKindsOfCellsApartForEveryEye) {
  const std::vector<Kind> kinds = {{kAbsent, "none"},
                                   {kZero, "zero"},
                                   {kHealthyFirst, "small"},
                                   {kLowHeadroom, "low headroom"},
                                   {kClipped, "clipped"},
                                   {kInf, "Inf"},
                                   {kNan, "NaN"}};
  for (const Theme& theme : all_themes()) {
    expect_apart(fmt::format("{} {}", theme.name, name(theme.vision)), theme, kinds);
    std::vector<Kind> large = kinds;
    large[2] = {kHealthyLast, "large"};
    expect_apart(fmt::format("{} {}", theme.name, name(theme.vision)), theme, large);
  }
}

/// Where no pattern is large enough to be seen, the palette made for an eye does by its colours alone.
TEST(Theme, TellsWhatIsBadByColorAloneWithThePaletteForTheEye) {
  constexpr Kind kBad[] = {{kLowHeadroom, "low headroom"}, {kClipped, "clipped"}, {kInf, "Inf"}, {kNan, "NaN"}};
  for (Theme theme : all_themes()) {
    theme.patterns.fill(Pattern::none);
    double least = 1e9;
    std::string which;
    for (Cell healthy = kHealthyFirst; healthy <= kHealthyLast; ++healthy) {
      std::vector<Kind> kinds(std::begin(kBad), std::end(kBad));
      kinds.push_back({healthy, "healthy"});
      std::string closest;
      const double distance = least_distance(theme, kinds, theme.vision, closest);
      if (distance < least) which = closest;
      least = std::min(least, distance);
    }
    std::cout << fmt::format("  {} {}: colours {:.1f} apart at least ({})\n", theme.name, name(theme.vision), least,
                             which);
    EXPECT_GE(least, kLeastDistance) << theme.name << " " << name(theme.vision) << ": " << which;
  }
}

TEST(Theme, TellsTheKindsApartInDifferencesErrorsAndSigns) {
  for (const Theme& theme : all_themes()) {
    const std::string where = fmt::format("{} {}", theme.name, name(theme.vision));
    expect_apart(where + " differences", difference_theme(theme),
                 {{kDiffAbsent, "none"},
                  {kDiffEqual, "equal"},
                  {kDiffBits, "bits"},
                  {kDiffLast, "larger"},
                  {kDiffLast - 1, "smaller"},
                  {kDiffInf, "Inf"},
                  {kDiffNanThere, "NaN there"},
                  {kDiffNanHere, "NaN here"}});
    expect_apart(where + " front differences", front_difference_theme(theme),
                 {{kCellNowhere, "none"},
                  {kCellEqual, "equal"},
                  {kCellOnlyHere, "only here"},
                  {kCellOnlyThere, "only there"},
                  {kCellOtherBits, "other bits"},
                  {kCellWorseThere, "worse there"},
                  {kLowHeadroom, "low headroom"},
                  {kClipped, "clipped"},
                  {kInf, "Inf"},
                  {kNan, "NaN"}});
    expect_apart(where + " errors", error_theme(theme),
                 {{kErrorAbsent, "none"},
                  {kErrorWaits, "waits"},
                  {kErrorNotSeen, "left out"},
                  {kErrorWithin, "within"},
                  {kErrorBeyond, "beyond"},
                  {kErrorNotFinite, "NaN"}});
    expect_apart(
        where + " signs", signed_theme(theme),
        {{signed_cell(kSignedSteps - 1, true), "negative"}, {signed_cell(kSignedSteps - 1, false), "positive"}});
  }
}

TEST(Theme, InksPatternsThatCanBeSeen) {
  double least = 1e9;
  for (const Theme& theme : all_themes()) {
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      const Pattern pattern = theme.patterns[cell];
      if (pattern == Pattern::none) continue;
      const Color ground = theme.cells[cell];
      const Color ink = pattern_ink(pattern, ground);
      const Color drawn = mix(ground, ink.alpha(255), static_cast<float>(ink.a) / 255);
      for (const Vision vision : kVisions) {
        const double distance = color_distance(seen(ground, vision), seen(drawn, vision));
        least = std::min(least, distance);
        EXPECT_GE(distance, kLeastDistance)
            << theme.name << " " << name(theme.vision) << ", " << cell_name(static_cast<Cell>(cell));
      }
    }
  }
  std::cout << fmt::format("  patterns: {:.1f} from their ground at least\n", least);
}

struct Words {
  Color ink;
  Color ground;
  std::string what;
};

/// Every text on every ground that it is written on.
std::vector<Words> all_words(const Theme& theme) {
  std::vector<Words> all;
  const std::pair<Color, const char*> grounds[] = {
      {theme.background, "background"}, {theme.panel, "panel"}, {theme.raised, "raised"}, {theme.hovered, "hovered"}};
  for (const auto& [ground, on] : grounds) {
    all.push_back({theme.text, ground, fmt::format("text on {}", on)});
    all.push_back({theme.muted, ground, fmt::format("muted on {}", on)});
    all.push_back({theme.accent, ground, fmt::format("accent on {}", on)});
    for (const Cell cell : {kHealthyLast, kLowHeadroom, kClipped, kInf, kNan}) {
      all.push_back({theme.ink(cell), ground, fmt::format("{} on {}", cell_name(cell), on)});
    }
  }
  for (const Cell cell : {kLowHeadroom, kClipped, kInf, kNan}) {
    all.push_back({ink_on(theme, cell), theme.cell(cell), fmt::format("words on {}", cell_name(cell))});
  }
  for (const Cell cell : {kInf, kNan}) {
    all.push_back({theme.on_bad, theme.cell(cell), fmt::format("on_bad on {}", cell_name(cell))});
  }
  all.push_back({theme.panel, theme.accent, "panel on accent"});
  all.push_back({ink_over(theme, theme.accent), theme.accent, "number on accent"});
  for (const char letter : {'S', 'E', 'M'}) {
    all.push_back({theme.text, theme.field(letter), fmt::format("text on field {}", letter)});
  }
  return all;
}

TEST(Theme, WritesWordsThatCanBeRead) {
  for (const Theme& theme : all_themes()) {
    double least = 21;
    std::string which;
    for (const Words& words : all_words(theme)) {
      const double found = contrast(words.ink, words.ground);
      EXPECT_GE(found, kLeastContrast) << theme.name << " " << name(theme.vision) << ": " << words.what;
      if (found >= least) continue;
      least = found;
      which = words.what;
    }
    std::cout << fmt::format("  {} {}: contrast {:.2f} at least ({})\n", theme.name, name(theme.vision), least, which);
  }
}

TEST(Theme, MeasuresContrastAsWcagDoes) {
  EXPECT_DOUBLE_EQ(contrast(Color::hex(0x000000), Color::hex(0xFFFFFF)), 21);
  EXPECT_NEAR(contrast(Color::hex(0x767676), Color::hex(0xFFFFFF)), 4.54, 0.005);
  EXPECT_NEAR(contrast(Color::hex(0xFFFFFF), Color::hex(0x777777)), 4.48, 0.005);
}

TEST(Theme, FindsPalettesByTheirNames) {
  for (const Vision vision : kVisions) EXPECT_EQ(find_vision(name(vision)), vision);
  EXPECT_FALSE(find_vision("pink"));
  EXPECT_EQ(find_theme("light", Vision::tritan)->vision, Vision::tritan);
}

}  // namespace
}  // namespace nanscope::gui
