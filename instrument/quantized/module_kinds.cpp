#include "instrument/quantized/module_kinds.h"

#include <algorithm>
#include <array>

namespace nanscope {

bool is_kept_as_floats(std::string_view leaf) {
  constexpr std::array<std::string_view, 8> kKept = {"lm_head", "gate", "router", "shared_expert_gate",
                                                     "score",   "wte",  "wpe",    "classifier"};
  return std::find(kKept.begin(), kKept.end(), leaf) != kKept.end() || leaf.find("embed") != std::string_view::npos ||
         leaf.find("norm") != std::string_view::npos;
}

std::span<const std::string_view> fused_parts(std::string_view leaf) {
  static constexpr std::array<std::string_view, 3> kAttention = {"q_proj", "k_proj", "v_proj"};
  static constexpr std::array<std::string_view, 2> kMlp = {"gate_proj", "up_proj"};
  static constexpr std::array<std::string_view, 2> kExpert = {"w1", "w3"};
  for (const std::span<const std::string_view> parts :
       {std::span<const std::string_view>(kAttention), std::span<const std::string_view>(kMlp),
        std::span<const std::string_view>(kExpert)}) {
    if (std::find(parts.begin(), parts.end(), leaf) != parts.end()) return parts;
  }
  return {};
}

}  // namespace nanscope
