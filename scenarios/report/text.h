#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/safe_text.h"

/// Text for a terminal: widths as a terminal counts them, colour, tables. Pure functions from data
/// to text; only the command prints.
namespace nanscope::report {

/// Whom a text is for. The defaults are a file or a pipe.
struct Terminal {
  int width = 100;
  bool utf8 = true;                  ///< else plain ASCII
  bool color = false;                ///< ANSI escapes
  std::string program = "nanscope";  ///< as commands to type next name it

  Charset charset() const { return utf8 ? Charset::utf8 : Charset::ascii; }
};

enum class Ink : std::uint8_t { plain, bold, dim, red, green, yellow, blue, magenta, cyan };

/// `text` between the escapes of an ink, or unchanged without colour.
std::string paint(const Terminal& terminal, Ink ink, std::string_view text);

/// Columns that UTF-8 text takes in a terminal: wide characters two, combining marks none.
/// ANSI escapes made by paint() take none.
int display_width(std::string_view text);

/// Any bytes as a part of one line: one_line(), at most kLongestField characters. What is recorded is not trusted to be
/// harmless for a terminal.
std::string printable(std::string_view bytes, const Terminal& terminal);

/// safe_lines() with the colours of paint(): what goes out is this, whatever was forgotten before.
std::string safe_lines(std::string_view text, const Terminal& terminal);

/// The first `columns` columns of `text`, the last of them an ellipsis when something is cut. Escapes are not
/// understood.
std::string elide(std::string_view text, int columns, const Terminal& terminal);

enum class Align : std::uint8_t { left, right };
/// Spaces added to reach `columns`; longer text stays as it is.
std::string pad(std::string_view text, int columns, Align align = Align::left);

/// Lines of at most `columns` columns, broken at spaces; a longer word stands alone. Line breaks of
/// the text are kept.
std::vector<std::string> wrap(std::string_view text, int columns);
/// wrap() with every line after the first indented by `indent`, each ended by a newline; the first starts with `lead`.
std::string paragraph(std::string_view lead, std::string_view text, const Terminal& terminal);

/// paragraph() where the line is too wide; else as it is, with the spaces within it.
std::string folded(std::string_view lead, std::string_view text, const Terminal& terminal);

/// Aligned columns, two spaces apart. Cells may hold paint().
class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Columns are at least so wide: for rows that are written one by one.
  void reserve(std::vector<int> widths) { least_ = std::move(widths); }
  /// Each line starts with `indent` and ends with a newline, without spaces at its end. Rows that are wider than
  /// `width` are folded: the last column within itself where that leaves it room, others go on in lines below, each
  /// under its title; 0: there is no limit.
  std::string text(std::string_view indent, int width = 0) const;

 private:
  std::vector<int> widths() const;

  std::vector<Align> columns_;
  std::vector<int> least_;
  std::vector<std::vector<std::string>> rows_;
};

/// A title line: its text, then a rule to the terminal's width. One that is wider is folded.
std::string heading(std::string_view title, const Terminal& terminal);

/// 12345678 as "12.3 MB" (powers of 1000).
std::string bytes_text(double bytes);
/// Shortest decimal that a person reads well: 4 significant digits, "nan", "inf".
std::string number_text(double value);

}  // namespace nanscope::report
