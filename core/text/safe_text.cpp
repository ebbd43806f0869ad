#include "core/text/safe_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace nanscope {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kHexDigits = "0123456789abcdef";

void add_byte(std::string& text, char byte) {
  const auto value = static_cast<unsigned char>(byte);
  text += "\\x";
  text += kHexDigits[value >> 4U];
  text += kHexDigits[value & 15U];
}

bool is_shown(const Character& character, Charset charset) {
  const std::int32_t codepoint = character.codepoint;
  if (codepoint < 0x80) return codepoint >= 0x20 && codepoint < 0x7f;
  return charset == Charset::utf8 && is_visible(codepoint);
}

/// One character as one_line() has it.
void add_visible(std::string& text, std::string_view raw, const Character& character, Charset charset) {
  if (is_shown(character, charset)) {
    text += raw;
  } else if (raw == "\n") {
    text += "\\n";
  } else if (raw == "\t") {
    text += "\\t";
  } else {
    for (const char byte : raw) add_byte(text, byte);
  }
}

/// Calls `visit(raw bytes, character)` for each.
template <class Visit>
void each_character(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    visit(text.substr(at, character.length), character);
    at += character.length;
  }
}

/// The length of an escape that sets a colour, of those that this program writes: "\x1b[0m", "\x1b[31m". 0 for all
/// else.
std::size_t color_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  std::size_t end = 2;
  while (end < text.size() && end < 4 && text[end] >= '0' && text[end] <= '9') ++end;
  return end > 2 && end < text.size() && text[end] == 'm' ? end + 1 : 0;
}

bool is_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec != std::errc::invalid_argument && read.ptr == text.data() + text.size();
}

/// Spreadsheets look at the first character, some at the one after blanks, some take the wide forms as well.
bool is_formula(std::string_view text) {
  constexpr std::array<std::string_view, 8> kStarts = {
      "=", "+", "-", "@", "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0"};
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return false;
  for (const std::string_view start : kStarts) {
    if (text.substr(first).starts_with(start)) return !is_number(text);
  }
  return false;
}

void add_utf16(std::string& text, std::uint32_t unit) {
  text += "\\u";
  for (const unsigned shift : {12U, 8U, 4U, 0U}) text += kHexDigits[(unit >> shift) & 15U];
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {1, first};
  utf8proc_int32_t codepoint = -1;
  const auto rest = static_cast<utf8proc_ssize_t>(text.size() - at);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const utf8proc_ssize_t length = utf8proc_iterate(bytes, rest, &codepoint);
  if (length < 1) return {1, -1};
  return {static_cast<std::size_t>(length), codepoint};
}

bool is_visible(std::int32_t codepoint) {
  if (codepoint < 0) return false;
  switch (utf8proc_category(codepoint)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string one_line(std::string_view bytes, Charset charset) {
  std::string text;
  each_character(bytes,
                 [&](std::string_view raw, const Character& character) { add_visible(text, raw, character, charset); });
  return text;
}

std::string safe_lines(std::string_view text, Charset charset, bool colored) {
  std::string safe;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t color = colored && text[at] == kEscape ? color_length(text.substr(at)) : 0;
    const Character character = color > 0 ? Character{color, kEscape} : character_at(text, at);
    const std::string_view raw = text.substr(at, character.length);
    at += character.length;
    if (color > 0 || raw == "\n") {
      safe += raw;
    } else {
      add_visible(safe, raw, character, charset);
    }
  }
  return safe;
}

std::string shortened(std::string_view text, std::size_t characters, Charset charset) {
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80; };
  const auto count = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
  if (count <= characters) return std::string(text);
  const std::string_view ellipsis = charset == Charset::utf8 ? " \u2026 " : " ... ";
  const std::size_t kept = characters > ellipsis.size() ? characters - ellipsis.size() : 0;
  std::size_t head = 0;
  for (std::size_t left = kept - kept / 2 + 1; head < text.size(); ++head) {
    if (begins(text[head]) && --left == 0) break;
  }
  std::size_t tail = text.size();
  for (std::size_t left = kept / 2; left > 0 && tail > head; --tail) {
    if (begins(text[tail - 1])) --left;
  }
  std::string out(text.substr(0, head));
  out += ellipsis;
  out += text.substr(tail);
  return out;
}

std::string error_line(std::string_view message, Charset charset) {
  return shortened(one_line(message, charset), kLongestError, charset);
}

std::string xml_text(std::string_view bytes) {
  std::string xml;
  for (const char c : safe_lines(bytes)) {
    switch (c) {
      case '&':
        xml += "&amp;";
        break;
      case '<':
        xml += "&lt;";
        break;
      case '>':
        xml += "&gt;";
        break;
      case '"':
        xml += "&quot;";
        break;
      default:
        xml += c;
    }
  }
  return xml;
}

std::string markdown_text(std::string_view bytes) {
  constexpr std::string_view kMarkup = "\\`*_[]|~>#";
  const std::string line = one_line(bytes);
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '<') {
      text += "&lt;";
    } else if (c == '&') {
      text += "&amp;";
    } else if (c == ':' && std::string_view(line).substr(i).starts_with("://")) {
      text += "&#58;";  // a bare address becomes a link
    } else {
      if (kMarkup.find(c) != std::string_view::npos) text += '\\';
      text += c;
    }
  }
  return text;
}

std::string markdown_code(std::string_view bytes) {
  std::string code;
  for (const char c : safe_lines(bytes)) {
    if (c == '`' || c == '<') {
      add_byte(code, c);
    } else {
      code += c;
    }
  }
  return code;
}

std::string csv_cell(std::string_view bytes) {
  const std::string text = one_line(bytes);
  const bool quoted = text.find_first_of(",\"") != std::string::npos;
  std::string cell;
  if (quoted) cell += '"';
  if (is_formula(text)) cell += '\'';
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  if (quoted) cell += '"';
  return cell;
}

std::string visible_json(std::string_view document) {
  std::string json;
  json.reserve(document.size());
  each_character(document, [&](std::string_view raw, const Character& character) {
    const auto codepoint = static_cast<std::uint32_t>(character.codepoint);
    if (character.codepoint < 0) {
      add_utf16(json, 0xfffd);
    } else if (codepoint < 0x7f || is_visible(character.codepoint)) {
      json += raw;
    } else if (codepoint < 0x10000) {
      add_utf16(json, codepoint);
    } else {
      add_utf16(json, 0xd800 + ((codepoint - 0x10000) >> 10U));
      add_utf16(json, 0xdc00 + ((codepoint - 0x10000) & 0x3ffU));
    }
  });
  return json;
}

}  // namespace nanscope
