#include "gui/export/table.h"

#include "core/text/safe_text.h"

namespace nanscope::gui {
namespace {

void add_row(std::string& out, const std::vector<std::string>& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i > 0) out += ',';
    out += csv_cell(row[i]);
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
