#include "gui/export/table.h"

#include <charconv>

namespace nanscope::gui {
namespace {

bool is_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec != std::errc::invalid_argument && read.ptr == text.data() + text.size();
}

/// Spreadsheets look at the first character, some at the one after blanks; text of a recording is not trusted.
bool is_formula(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return false;
  return std::string_view("=+-@\t\r\n").find(text[first]) != std::string_view::npos && !is_number(text);
}

void add_cell(std::string& out, std::string_view text) {
  const bool formula = is_formula(text);
  const bool quoted = text.find_first_of(",\"\r\n") != std::string_view::npos;
  if (quoted) out += '"';
  if (formula) out += '\'';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  if (quoted) out += '"';
}

void add_row(std::string& out, const std::vector<std::string>& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i > 0) out += ',';
    add_cell(out, row[i]);
  }
  out += "\r\n";
}

}  // namespace

std::string to_csv(const Table& table) {
  std::string out;
  add_row(out, table.header);
  for (const std::vector<std::string>& row : table.rows) add_row(out, row);
  return out;
}

}  // namespace nanscope::gui
