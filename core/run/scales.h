#pragma once
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

/// What a scale may be, and how often a reader applied it.
namespace nanscope {

/// ScaleRow::calibrated_request of rows that pad a step.
inline constexpr std::int64_t kPaddingRows = -3;

/// "x[3]" -> 3: the head that a ledger's line is of; -1: all of them.
inline std::int64_t head_of_target(std::string_view target) {
  const std::size_t open = target.find('[');
  std::int64_t head = -1;
  if (open != std::string_view::npos) std::from_chars(target.data() + open + 1, target.data() + target.size(), head);
  return head;
}
/// "x[3]" -> "x".
inline std::string_view target_without_head(std::string_view target) { return target.substr(0, target.find('[')); }

/// "x scale of layer 2 head 3".
inline std::string scale_text(std::string_view target, std::int64_t layer) {
  std::string text(target_without_head(target));
  text += " scale of layer " + std::to_string(layer);
  if (const std::int64_t head = head_of_target(target); head >= 0) text += " head " + std::to_string(head);
  return text;
}

/// real = code value x scale^power. 0 left the scale out, 2 took it twice, -1 inverted it.
inline double powered(double scale, int power) {
  return power == 0 ? 1 : power == 1 ? scale : power == 2 ? scale * scale : 1 / scale;
}

inline std::string_view power_text(int power) {
  return power == 0 ? "left out" : power == 1 ? "applied once" : power == 2 ? "applied twice" : "inverted";
}

/// What is wrong with a scale, or empty. Above 1e30 and below 1e-30 nothing real is scaled: such values are sentinels
/// (finfo.min, -1) or memory that nobody wrote.
inline std::string_view scale_complaint(double scale) {
  if (std::isnan(scale)) return "NaN";
  if (std::isinf(scale)) return "infinite";
  if (scale == 0) return "zero";
  if (scale <= -1e30) return "as large as a sentinel";
  if (scale < 0) return "negative";
  if (scale >= 1e30) return "as large as a sentinel";
  if (scale < 1e-30) return "as small as unwritten memory";
  return {};
}

}  // namespace nanscope
