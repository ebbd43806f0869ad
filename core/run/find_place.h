#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/run/run_view.h"

namespace nanscope {

/// A tensor of a run that a text named. Valid as long as the run.
struct FoundPlace {
  const Tensor* tensor = nullptr;
  std::optional<std::int64_t> row;
  std::optional<std::int64_t> channel;
};

/// Finds the tensor, and the element, that a text names in a run: a place as in core/place.h, or a tensor by the name
/// that its producer gave it, whole or the end of it behind a '/', ':' or '.', with [token,channel] behind it if
/// wished. `token` is a position in the sequence; it is a row where no row is at that position, and, behind a name,
/// where several sequences have it. Errors: nothing has that name (near ones are listed), several tensors have it (they
/// are listed), the element is outside of the tensor, the run cannot be read.
Result<FoundPlace> find_place(RunView& run, std::string_view text);

/// The place of a tensor, `request/step/layer/op.role`; what is not known is left out.
std::string place_of(RunView& run, const Tensor& tensor);

}  // namespace nanscope
