#include "scenarios/report/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace nanscope::report {

namespace {

constexpr char kEscape = '\x1b';

int columns_of(const Character& character) {
  return character.codepoint < 0 ? 1 : utf8proc_charwidth(character.codepoint);
}

std::string_view ink_code(Ink ink) {
  constexpr std::array<std::string_view, 9> codes = {"0", "1", "2", "31", "32", "33", "34", "35", "36"};
  return codes.at(static_cast<std::size_t>(ink));
}

}  // namespace

std::string paint(const Terminal& terminal, Ink ink, std::string_view text) {
  if (!terminal.color || ink == Ink::plain || text.empty()) return std::string(text);
  return fmt::format("{}[{}m{}{}[0m", kEscape, ink_code(ink), text, kEscape);
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == kEscape) {
      const std::size_t end = text.find('m', at);
      at = end == std::string_view::npos ? text.size() : end + 1;
      continue;
    }
    const Character character = character_at(text, at);
    width += columns_of(character);
    at += character.length;
  }
  return width;
}

std::string printable(std::string_view bytes, const Terminal& terminal) {
  return shortened(one_line(bytes, terminal.charset()), kLongestField, terminal.charset());
}

std::string safe_lines(std::string_view text, const Terminal& terminal) {
  return nanscope::safe_lines(text, terminal.charset(), terminal.color);
}

std::string elide(std::string_view text, int columns, const Terminal& terminal) {
  if (display_width(text) <= columns) return std::string(text);
  const std::string_view ellipsis = terminal.utf8 ? "…" : "~";
  std::string kept;
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    width += columns_of(character);
    if (width > columns - 1) break;
    kept += text.substr(at, character.length);
    at += character.length;
  }
  return kept + std::string(ellipsis);
}

std::string pad(std::string_view text, int columns, Align align) {
  const std::string space(static_cast<std::size_t>(std::max(0, columns - display_width(text))), ' ');
  return align == Align::left ? std::string(text) + space : space + std::string(text);
}

namespace {

void wrap_line(std::string_view text, int columns, std::vector<std::string>& lines) {
  std::string line;
  int width = 0;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
    if (word.empty()) continue;
    const int word_width = display_width(word);
    if (!line.empty() && width + 1 + word_width > columns) {
      lines.push_back(std::exchange(line, {}));
      width = 0;
    }
    if (!line.empty()) {
      line += ' ';
      ++width;
    }
    line += word;
    width += word_width;
  }
  lines.push_back(std::move(line));
}

}  // namespace

std::vector<std::string> wrap(std::string_view text, int columns) {
  std::vector<std::string> lines;
  while (true) {
    const std::size_t end = text.find('\n');
    wrap_line(text.substr(0, end), columns, lines);
    if (end == std::string_view::npos) return lines;
    text = text.substr(end + 1);
  }
}

std::string paragraph(std::string_view lead, std::string_view text, const Terminal& terminal) {
  const int indent = display_width(lead);
  std::string block;
  for (const std::string& line : wrap(text, std::max(20, terminal.width - indent))) {
    const bool first = block.empty();
    if (line.empty() && !first) {
      block += '\n';
      continue;
    }
    block += (first ? std::string(lead) : std::string(static_cast<std::size_t>(indent), ' ')) + line + '\n';
  }
  return block;
}

std::string folded(std::string_view lead, std::string_view text, const Terminal& terminal) {
  if (display_width(lead) + display_width(text) > terminal.width) return paragraph(lead, text, terminal);
  return fmt::format("{}{}\n", lead, text);
}

std::vector<int> Table::widths() const {
  std::vector<int> widths = least_;
  widths.resize(columns_.size(), 0);
  for (const auto& cells : rows_) {
    for (std::size_t i = 0; i < cells.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(cells[i]));
    }
  }
  return widths;
}

namespace {

constexpr int kBetweenColumns = 2;
/// The last column is folded within itself where it has so much room, else it goes on below.
constexpr int kLeastColumn = 24;
/// What goes on in a line below is indented by so much more.
constexpr int kFolded = 4;

/// Columns that stand in one line.
struct Fold {
  std::size_t first = 0;
  std::size_t last = 0;  ///< one past
};

/// Divides columns into lines of at most `space`, 0: of any length. A column that is too wide for its line is narrowed.
std::vector<Fold> folds_of(std::vector<int>& widths, int space) {
  std::vector<Fold> folds = {{0, 0}};
  int used = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const int gap = folds.back().first == i ? 0 : kBetweenColumns;
    const int left = space - (folds.size() > 1 ? kFolded : 0) - used - gap;
    if (space > 0 && gap > 0 && widths[i] > left && (i + 1 < widths.size() || left < kLeastColumn)) {
      folds.push_back({i, i});
      used = 0;
      widths[i] = std::min(widths[i], std::max(kLeastColumn, space - kFolded));
    } else {
      if (space > 0) widths[i] = std::min(widths[i], std::max(kLeastColumn, left));
      used += gap;
    }
    used += widths[i];
    folds.back().last = i + 1;
  }
  return folds;
}

void add_line(std::string& block, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  block += line + '\n';
}

}  // namespace

std::string Table::text(std::string_view indent, int width) const {
  std::vector<int> columns = widths();
  const std::vector<Fold> folds = folds_of(columns, width > 0 ? std::max(1, width - display_width(indent)) : 0);
  std::string block;
  for (const auto& cells : rows_) {
    if (cells.empty()) add_line(block, "");
    for (std::size_t f = 0; f < folds.size() && folds[f].first < cells.size(); ++f) {
      std::string line = std::string(indent) + std::string(f > 0 ? kFolded : 0, ' ');
      const std::size_t end = std::min(folds[f].last, cells.size());
      for (std::size_t i = folds[f].first; i + 1 < end; ++i)
        line += pad(cells[i], columns[i], columns_[i]) + std::string(kBetweenColumns, ' ');
      const int hanging = display_width(line);
      const std::size_t last = end - 1;
      const bool fits = columns_[last] == Align::right || display_width(cells[last]) <= columns[last];
      const auto parts = fits ? std::vector{cells[last]} : wrap(cells[last], columns[last]);
      if (f > 0 && parts.front().empty() && line.find_first_not_of(' ') == std::string::npos) continue;
      add_line(block, line + pad(parts.front(), columns[last], columns_[last]));
      for (std::size_t i = 1; i < parts.size(); ++i)
        add_line(block, std::string(static_cast<std::size_t>(hanging), ' ') + parts[i]);
    }
  }
  return block;
}

std::string heading(std::string_view title, const Terminal& terminal) {
  if (display_width(title) >= terminal.width) {
    std::string block;
    for (const std::string& line : wrap(title, terminal.width)) block += paint(terminal, Ink::bold, line) + '\n';
    return block;
  }
  std::string line = paint(terminal, Ink::bold, title) + ' ';
  const int rule = std::max(0, terminal.width - display_width(line));
  std::string dashes;
  for (int i = 0; i < rule; ++i) dashes += terminal.utf8 ? "─" : "-";
  return line + paint(terminal, Ink::dim, dashes) + '\n';
}

std::string bytes_text(double bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.4g}", value);
}

}  // namespace nanscope::report
