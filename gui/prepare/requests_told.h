#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/run/run_view.h"

namespace nanscope::gui {

/// The requests of a run as the window tells them. A dump has no list of them: what its folders are called beside
/// numbers of requests and steps is the name, and what was asked and answered is in tensors of token ids where those
/// were dumped.
std::vector<RequestRow> requests_of(RunView& run);

/// The name of one of them, which may be empty.
std::string request_name(RunView& run, std::int64_t id);
/// "2  image-and-text", "request 2" where it has no name; of what nobody asked for, such as a warm-up, the name.
std::string request_title(const RequestRow& request);

}  // namespace nanscope::gui
