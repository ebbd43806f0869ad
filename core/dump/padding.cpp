#include <algorithm>
#include <span>

#include "core/dump/facts.h"

namespace nanscope {
namespace {

/// Masks hide by -inf or by a number that is as good as it.
constexpr float kHidden = -1e4F;

/// Of 0 and 1 (or booleans), one a token: 0 hides it. Several sequences of a batch are left alone.
void add_hidden_tokens(std::span<const float> mask, std::set<std::int64_t>& tokens) {
  const bool binary = std::all_of(mask.begin(), mask.end(), [](float x) { return x == 0 || x == 1; });
  const bool any_shown = std::any_of(mask.begin(), mask.end(), [](float x) { return x == 1; });
  if (!binary || !any_shown) return;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) tokens.insert(static_cast<std::int64_t>(i));
  }
}

/// Of numbers that are added to scores: keys that no query may see.
void add_hidden_keys(std::span<const float> mask, std::int64_t keys, std::set<std::int64_t>& tokens) {
  for (std::int64_t key = 0; key < keys; ++key) {
    bool hidden = true;
    for (std::size_t i = static_cast<std::size_t>(key); i < mask.size() && hidden;
         i += static_cast<std::size_t>(keys)) {
      hidden = mask[i] <= kHidden;
    }
    if (hidden) tokens.insert(key);
  }
}

}  // namespace

Padding padding_of(DumpFacts& facts, std::size_t pass) {
  Padding padding;
  for (const TensorIndex i : facts.members(pass)) {
    const DumpTensor& tensor = facts.tensor(i);
    if (tensor.at.role != "mask" && tensor.at.role != "seq_lens") continue;
    const auto values = facts.values(i);
    if (!values || values->empty()) continue;
    if (tensor.at.role == "seq_lens") {
      if (values->size() == 1 && values->front() >= 1)
        padding.length = static_cast<std::int64_t>(std::min(values->front(), 1e9F));
    } else if (tensor.rows() == 1) {
      add_hidden_tokens(*values, padding.hidden);
    } else {
      add_hidden_keys(*values, tensor.channels(), padding.hidden);
    }
  }
  return padding;
}

}  // namespace nanscope
