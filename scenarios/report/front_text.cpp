#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scenarios/report/run_report.h"

namespace nanscope::report {

namespace {

struct CellLook {
  std::string_view unicode;
  std::string_view ascii;
  Ink ink;
  std::string_view word;
};

/// Indexed by CellHealth.
constexpr std::array<CellLook, 5> kLooks = {{
    {" ", " ", Ink::plain, "nothing recorded"},
    {"·", ".", Ink::dim, "healthy"},
    {"▒", "c", Ink::yellow, "clipped"},
    {"▓", "I", Ink::magenta, "Inf"},
    {"█", "N", Ink::red, "NaN"},
}};

const CellLook& look(CellHealth cell) { return kLooks.at(static_cast<std::size_t>(cell)); }

/// Cells painted in runs of one kind, so that escapes stay few.
std::string cells_text(const std::vector<CellHealth>& cells, std::size_t per_character, const Terminal& terminal) {
  std::string line;
  std::string run;
  CellHealth current = CellHealth::absent;
  const auto flush = [&] {
    line += paint(terminal, look(current).ink, run);
    run.clear();
  };
  for (std::size_t i = 0; i < cells.size(); i += per_character) {
    const auto first = cells.begin() + static_cast<std::ptrdiff_t>(i);
    const auto last = cells.begin() + static_cast<std::ptrdiff_t>(std::min(cells.size(), i + per_character));
    const CellHealth worst = *std::max_element(first, last);
    if (worst != current) flush();
    current = worst;
    run += terminal.utf8 ? look(worst).unicode : look(worst).ascii;
  }
  flush();
  return line;
}

/// Positions above the cells, one every ten characters.
std::string ruler(const Front& front, std::size_t columns, std::size_t per_character) {
  std::string line(columns, ' ');
  for (std::size_t column = 0; column < columns; column += 10) {
    const std::string label = std::to_string(front.first_token + static_cast<std::int64_t>(column * per_character));
    if (column + label.size() > columns && column > 0) break;
    line.resize(std::max(line.size(), column + label.size()), ' ');
    line.replace(column, label.size(), label);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string legend(std::size_t per_character, bool detailed, const std::string& margin, const Terminal& terminal) {
  std::string line = margin;
  for (std::size_t i = 1; i < kLooks.size(); ++i) {
    line += fmt::format("{}{} {}", i > 1 ? "   " : "",
                        paint(terminal, kLooks[i].ink, terminal.utf8 ? kLooks[i].unicode : kLooks[i].ascii),
                        kLooks[i].word);
  }
  line += '\n';
  if (per_character > 1) {
    line +=
        paragraph(margin, fmt::format("one character is {} tokens, the worst of them shows", per_character), terminal);
  }
  if (!detailed) line += margin + "~ known for the whole tensor only\n";
  return line;
}

}  // namespace

std::string front_text(const Front& front, const Terminal& terminal) {
  int label_width = 5;
  bool detailed = true;
  for (const FrontRow& row : front.rows) {
    label_width = std::max(label_width, display_width(printable(row.label, terminal)) + (row.detailed ? 0 : 1));
    detailed = detailed && row.detailed;
  }
  const auto tokens = static_cast<std::size_t>(std::max<std::int64_t>(front.tokens, 1));
  const auto space = static_cast<std::size_t>(std::max(10, terminal.width - label_width - 4));
  const std::size_t per_character = (tokens + space - 1) / space;
  const std::string margin(static_cast<std::size_t>(label_width) + 4, ' ');
  std::string block = margin + ruler(front, (tokens + per_character - 1) / per_character, per_character) + '\n';
  for (const FrontRow& row : front.rows) {
    const std::string label = printable(row.label, terminal) + (row.detailed ? "" : "~");
    block += "  " + pad(label, label_width) + "  " + cells_text(row.cells, per_character, terminal) + '\n';
  }
  return block + legend(per_character, detailed, margin, terminal);
}

}  // namespace nanscope::report
