#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "instrument/diagnosis/provenance/rule.h"

/// Scales as rules see them: an entry of the ledger, or an element of a tensor of scales. real = code value x scale.
namespace nanscope {

struct UsedScale {
  double value = 1;
  const ScaleRow* ledger = nullptr;
  std::optional<Element> parameter;
  std::string text;  ///< "scale 0.05", "0.05 (model.layers.0.self_attn.k_scale)"
};

/// What an element of `scaled` was divided by or multiplied with: the op's input `role`, else its ledger entry for
/// `target`. Nothing when there is no scale, or none that is known to be this element's.
std::optional<UsedScale> used_scale(const Subject& subject, std::string_view role, std::string_view target,
                                    const Tensor& scaled, std::int64_t row, std::int64_t channel);

/// A value that was stored as a code: a bad value, a clip, an overflow of a cast that does not saturate, a bad scale.
Explanation explain_stored(const Subject& subject, const Tensor& x, std::int64_t row, std::int64_t channel,
                           const std::optional<UsedScale>& scale);
/// code x scale: a bad code, a bad scale, or a product beyond the format.
Explanation explain_read_back(const Subject& subject, const Tensor& codes, std::int64_t row, std::int64_t channel,
                              const std::optional<UsedScale>& scale);

/// Of an op whose other inputs are healthy: goes on at the scale that cannot be one, where it read such.
void blame_scale(const Subject& subject, std::initializer_list<std::string_view> roles, const Element& scaled,
                 Explanation& found);

}  // namespace nanscope
