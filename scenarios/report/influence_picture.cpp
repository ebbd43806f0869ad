#include "scenarios/report/influence_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/image/pixel_text.h"

namespace nanscope::report {
namespace {

constexpr Rgb kPaper{0xFB, 0xFC, 0xFD};
constexpr Rgb kWords{0x1A, 0x20, 0x29};
constexpr Rgb kUnchanged{0xFF, 0xFF, 0xFF};
constexpr Rgb kUnmoved{0xE9, 0xEB, 0xED};
constexpr Rgb kLeastMoved{0xD3, 0xE2, 0xEE};
constexpr Rgb kMostMoved{0x1F, 0x5E, 0x8C};
constexpr Rgb kLeastLeak{0xFF, 0xD5, 0x9B};
constexpr Rgb kMostLeak{0xCC, 0x0B, 0x3C};
constexpr double kDecades = 6;
constexpr int kMostSide = 640;  ///< pixels of a side, unless there are more tokens
constexpr int kMostCell = 12;
constexpr int kEdge = 36;
constexpr int kHead = 44;
constexpr int kNumberRoom = 26;  ///< between numbers of an axis

Rgb between(Rgb from, Rgb to, double t) {
  Rgb made{};
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<std::uint8_t>(std::lround(from[i] + t * (to[i] - from[i])));
  }
  return made;
}

Rgb color_of(double moved, bool later, double largest) {
  if (std::isnan(moved)) return kUnchanged;
  if (moved <= 0) return kUnmoved;
  double t = 1;
  if (std::isfinite(moved)) t = std::clamp(1 + std::log10(moved / largest) / kDecades, 0.0, 1.0);
  return later ? between(kLeastLeak, kMostLeak, t) : between(kLeastMoved, kMostMoved, t);
}

}  // namespace

std::string influence_csv(const scenarios::InfluenceMap& map) {
  std::string text = "token";
  for (std::int64_t column = 0; column < map.tokens; ++column) text += fmt::format(",{}", column);
  text += '\n';
  for (std::int64_t row = 0; row < map.tokens; ++row) {
    text += fmt::format("{}", row);
    for (std::int64_t column = 0; column < map.tokens; ++column) {
      const float moved = map.at(row, column);
      text += std::isnan(moved) ? "," : fmt::format(",{}", moved);
    }
    text += '\n';
  }
  return text;
}

Image influence_picture(const scenarios::InfluenceMap& map, const std::string& title) {
  const auto tokens = static_cast<int>(map.tokens);
  const int cell = std::clamp(kMostSide / std::max(tokens, 1), 1, kMostCell);
  double largest = 0;
  for (const float moved : map.moved) {
    if (std::isfinite(moved)) largest = std::max(largest, double{moved});
  }
  const std::string said =
      fmt::format("{} of a token and a later one leak; row: whose logits, column: which token is changed",
                  counted(map.leaks(), "pair"));
  Image image;
  image.width = std::max({kEdge + tokens * cell + 12, 24 + text_width(title, 1), 24 + text_width(said, 1)});
  image.height = kHead + tokens * cell + 12;
  image.rgb.resize(static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) * 3);
  fill_rectangle(image, 0, 0, image.width, image.height, kPaper);
  draw_text(image, 12, 6, 1, kWords, title);
  draw_text(image, 12, 18, 1, map.leaks() > 0 ? kMostLeak : kWords, said);
  for (int row = 0; row < tokens; ++row) {
    for (int column = 0; column < tokens; ++column) {
      fill_rectangle(image, kEdge + column * cell, kHead + row * cell, cell, cell,
                     color_of(double{map.at(row, column)}, column > row, largest));
    }
  }
  int pitch = 1;
  while (pitch * cell < kNumberRoom) pitch *= 2;
  for (int at = 0; at < tokens; at += pitch) {
    const std::string number = std::to_string(at);
    draw_text(image, kEdge + at * cell, kHead - kGlyphHeight - 1, 1, kWords, number);
    draw_text(image, kEdge - 3 - text_width(number, 1), kHead + at * cell, 1, kWords, number);
  }
  return image;
}

}  // namespace nanscope::report
