#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace nanscope::gui {

/// What a view shows, as rows of text under a header.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

/// Makes a table on another thread: it may use what it captured by value, nothing else.
using TableMaker = std::function<Table()>;

/// RFC 4180: lines end with CRLF; a cell with a comma, a quotation mark or a line break stands between quotation
/// marks. Text that a spreadsheet would run as a formula gets an apostrophe before it; numbers are left alone.
std::string to_csv(const Table& table);

}  // namespace nanscope::gui
