#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nanscope {

/// One step of what is done to a text before it is cut into pieces.
struct NormalizerStep {
  enum class Kind : std::uint8_t {
    nfc,      ///< Unicode normalization form C, of the stretches that are UTF-8 (the package's is of Unicode 9)
    prepend,  ///< `to` before the text, unless that is empty
    replace,  ///< `to` for every `from`
  };
  Kind kind = Kind::nfc;
  std::string from;
  std::string to;
};

/// `text` after all steps. O(n log n) in its length.
std::string normalize(std::string_view text, std::span<const NormalizerStep> steps);

}  // namespace nanscope
