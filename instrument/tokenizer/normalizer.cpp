#include "instrument/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "instrument/files/utf8.h"
#include "instrument/tokenizer/character.h"

namespace nanscope {
namespace {

utf8proc_propval_t combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

constexpr auto kNfc = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

/// Appends the composition of decomposed characters, and clears them. Not by utf8proc_map(), which takes the square of
/// the length of a run of marks to put them in order.
void compose(std::vector<utf8proc_int32_t>& code_points, std::string& out) {
  const auto is_starter = [](utf8proc_int32_t code_point) { return combining_class(code_point) == 0; };
  for (auto mark = code_points.begin(); mark != code_points.end();) {
    mark = std::find_if_not(mark, code_points.end(), is_starter);
    const auto end = std::find_if(mark, code_points.end(), is_starter);
    std::ranges::stable_sort(mark, end, {}, combining_class);
    mark = end;
  }
  const auto size =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), kNfc);
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length = utf8proc_encode_char(code_points[static_cast<std::size_t>(i)], bytes.data());
    out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
  }
  code_points.clear();
}

/// Appends the NFC of a stretch that is UTF-8.
void append_nfc(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  std::array<utf8proc_int32_t, 32> decomposed{};  // no canonical decomposition has more than four
  while (!text.empty()) {
    const Character c = first_character(text);
    text.remove_prefix(c.length);
    // utf8proc 2.8 takes this vowel for the lack of a final consonant, and drops it behind a syllable.
    constexpr std::int32_t kHangulOYae = 0x11A7;
    if (c.code_point == kHangulOYae) compose(code_points, out);
    const auto size = utf8proc_decompose_char(c.code_point, decomposed.data(),
                                              static_cast<utf8proc_ssize_t>(decomposed.size()), kNfc, nullptr);
    code_points.insert(code_points.end(), decomposed.begin(), decomposed.begin() + size);
  }
  compose(code_points, out);
}

std::string normalize_nfc(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = utf8_prefix(text);
    append_nfc(text.substr(0, size), out);
    text.remove_prefix(size);
    if (text.empty()) break;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::string normalize(std::string_view text, std::span<const NormalizerStep> steps) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    if (step.kind == NormalizerStep::Kind::nfc) {
      out = normalize_nfc(out);
    } else if (step.kind == NormalizerStep::Kind::replace) {
      out = replace_all(out, step.from, step.to);
    } else if (!out.empty()) {
      out.insert(0, step.to);
    }
  }
  return out;
}

}  // namespace nanscope
