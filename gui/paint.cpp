#include "gui/paint.h"

#include <fmt/format.h>

#include <cmath>

#include "gui/drawn.h"
#include "scenarios/report/text.h"

namespace nanscope::gui {
namespace {

constexpr std::string_view kEllipsis = "\u2026";

/// Bytes of the first `count` bytes that are whole characters of UTF-8.
std::size_t whole(std::string_view text, std::size_t count) {
  while (count > 0 && count < text.size() && (static_cast<unsigned char>(text[count]) & 0xC0U) == 0x80U) --count;
  return count;
}

std::string elided(const ImFont* font, std::string_view text, float width) {
  if (text_size(font, text).x <= width) return std::string(text);
  std::size_t low = 0;
  std::size_t high = text.size();
  while (low < high) {  // the longest prefix that leaves room for the ellipsis
    const std::size_t middle = (low + high + 1) / 2;
    const std::string tried = std::string(text.substr(0, whole(text, middle))).append(kEllipsis);
    if (text_size(font, tried).x <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low == 0 ? std::string() : std::string(text.substr(0, whole(text, low))).append(kEllipsis);
}

}  // namespace

std::string shortened(const ImFont* font, std::string_view text, float width) {
  const auto kept = [&](std::size_t count) {
    std::size_t tail = text.size() - count / 2;
    while (tail < text.size() && (static_cast<unsigned char>(text[tail]) & 0xC0U) == 0x80U) ++tail;
    return std::string(text.substr(0, whole(text, count - count / 2))).append(kEllipsis).append(text.substr(tail));
  };
  if (text_size(font, text).x <= width) return std::string(text);
  std::size_t low = 0;
  std::size_t high = text.size();
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (text_size(font, kept(middle)).x <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low == 0 ? std::string() : kept(low);
}

void fill(Area area, Color color, float rounding) {
  ImGui::GetWindowDrawList()->AddRectFilled(area.min(), area.max(), color.packed(), rounding);
}

void outline(Area area, Color color, float thickness, float rounding) {
  ImGui::GetWindowDrawList()->AddRect(area.min(), area.max(), color.packed(), rounding, 0, thickness);
}

void line(ImVec2 from, ImVec2 to, Color color, float thickness) {
  ImGui::GetWindowDrawList()->AddLine(from, to, color.packed(), thickness);
}

ImVec2 text_size(const ImFont* font, std::string_view text) {
  return font->CalcTextSizeA(font->FontSize, 1e9F, 0, text.data(), text.data() + text.size());
}

void text(const ImFont* font, ImVec2 at, Color color, std::string_view text) {
  const ImVec2 snapped(std::floor(at.x), std::floor(at.y));
  ImGui::GetWindowDrawList()->AddText(font, font->FontSize, snapped, color.packed(), text.data(),
                                      text.data() + text.size());
  if (!listened_to()) return;
  const ImVec2 size = text_size(font, text);
  tell_text({snapped.x, snapped.y, size.x, size.y}, text);
}

void label(const ImFont* font, Area area, Color color, std::string_view words, float align) {
  const std::string shown = elided(font, words, area.width);
  const ImVec2 size = text_size(font, shown);
  text(font, {area.x + (area.width - size.x) * align, area.y + (area.height - size.y) / 2}, color, shown);
}

namespace {

/// Of a word that is wider than a line: as much as fits, up to what joins its parts where there is such.
std::size_t broken(const ImFont* font, std::string_view word, float width) {
  std::size_t low = whole(word, std::min<std::size_t>(word.size(), 1));
  std::size_t high = word.size();
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (text_size(font, word.substr(0, whole(word, middle))).x <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  low = std::max<std::size_t>(whole(word, low), 1);
  while (low < word.size() && (static_cast<unsigned char>(word[low]) & 0xC0U) == 0x80U) ++low;
  const std::size_t joint = word.substr(0, low).find_last_of("/._-,[(");
  return joint != std::string_view::npos && joint > low / 2 ? joint + 1 : low;
}

}  // namespace

std::vector<std::string> wrap(const ImFont* font, std::string_view text, float width, int max_lines) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    if (max_lines > 0 && static_cast<int>(lines.size()) + 1 == max_lines) {
      lines.push_back(elided(font, text, width));
      return lines;
    }
    std::size_t end = text.size();
    while (text_size(font, text.substr(0, end)).x > width) {
      const std::size_t space = text.rfind(' ', end - 1);
      if (space == std::string_view::npos || space == 0) {
        end = broken(font, text.substr(0, end), width);
        break;
      }
      end = space;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end < text.size() && text[end] == ' ' ? end + 1 : end);
  }
  return lines;
}

std::string printable(std::string_view bytes) { return report::printable(bytes, report::Terminal{}); }

std::string in_quotes(std::string_view bytes) { return fmt::format("\u201C{}\u201D", printable(bytes)); }

}  // namespace nanscope::gui
