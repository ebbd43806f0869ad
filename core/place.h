#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/recording/reader.h"
#include "core/result.h"

namespace nanscope {

/// The address of a tensor or of one element: `request/step/layer/op.role[token,channel]`, behind
/// `@rank/` where it is of a rank other than the first. Parts are left out where the rest is
/// unambiguous: leading ones with their slash (`3/attn_norm` is a layer and an op), any of them by
/// leaving it empty (`4///logits`), the role, the element, the channel. `step` counts within its
/// request, 0 is the prefill. `layer` is `-` for ops outside the layers, where any number is accepted
/// too. `token` is a position in the request.
struct Place {
  std::optional<std::int64_t> request;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> layer;  ///< -1 is written `-`
  std::string op;                     ///< or, when it names no op, a role
  std::string role;                   ///< empty: the op's only output, or the one called `out`
  std::optional<std::int64_t> token;
  std::optional<std::int64_t> channel;
  std::int64_t rank = 0;

  bool operator==(const Place&) const = default;
};

/// Errors name the offset and what was expected there.
Result<Place> parse_place(std::string_view text);
/// parse_place(to_string(place)) gives the place back. core/run/find_place.h finds what it names.
std::string to_string(const Place& place);

/// The full place of a tensor, or of its element at row-major index `element`.
Result<Place> place_of(const Recording& recording, const TensorRow& tensor, std::optional<std::int64_t> element = {});

}  // namespace nanscope
