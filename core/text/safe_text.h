#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Text that comes from a file is data, wherever it is shown: names, prompts and settings may hold any bytes. Each kind
/// of output has one function here that makes them harmless in it, and everybody who writes such output calls it.
namespace nanscope {

enum class Charset : std::uint8_t { utf8, ascii };

/// A character of a text: its bytes, at least 1, and -1 where no UTF-8 begins.
struct Character {
  std::size_t length = 1;
  std::int32_t codepoint = -1;
};
/// `at` must lie in the text.
Character character_at(std::string_view text, std::size_t at);

/// Whether a reader sees a character as what it is: no control (C0, DEL, C1), no format character (bidirectional
/// overrides, zero-width ones, byte order marks), no separator of lines or paragraphs, none that is private or
/// unassigned.
bool is_visible(std::int32_t codepoint);

/// One line of visible UTF-8 (or ASCII): what is not becomes \n, \t or \xNN, a byte each.
std::string one_line(std::string_view bytes, Charset charset = Charset::utf8);

/// The same with line breaks left alone, and with colours where a text was coloured by this program: the last thing
/// done to a whole text before a terminal sees it.
std::string safe_lines(std::string_view text, Charset charset = Charset::utf8, bool colored = false);

/// At most so many characters: the beginning, an ellipsis, the end, which of a path tells most. Of a text that is
/// UTF-8, and of one_line() of one that is not.
std::string shortened(std::string_view text, std::size_t characters, Charset charset = Charset::utf8);

/// The longest field of a line that people read; names of files and tensors have no limit of their own.
inline constexpr std::size_t kLongestField = 1000;
/// The longest error.
inline constexpr std::size_t kLongestError = 400;
/// An error as standard error gets it: one line of at most kLongestError characters.
std::string error_line(std::string_view message, Charset charset = Charset::utf8);

/// Text of an element or of an attribute in quotes, of XML and of HTML: one_line() but for line breaks, and references
/// for what is markup.
std::string xml_text(std::string_view bytes);

/// Text of a paragraph or of a table's cell in Markdown (GitHub's): one line, nothing in it is markup, HTML or a link.
std::string markdown_text(std::string_view bytes);
/// What stands in Markdown between backticks or in a fenced block, where nothing can be escaped: one_line() but for
/// line breaks, with \xNN for the characters that end it.
std::string markdown_code(std::string_view bytes);

/// A cell of CSV (RFC 4180), in quotes where it needs them: one line, and text that a spreadsheet would take for a
/// formula begins with an apostrophe.
std::string csv_cell(std::string_view bytes);

/// A whole JSON document that is valid UTF-8, with \u escapes for what is not visible in its strings.
std::string visible_json(std::string_view document);

}  // namespace nanscope
