#pragma once
#include <filesystem>

namespace nanscope::gui {

/// Expects that what the window prepares of a run says nothing else than the diagnosis in JSON: faults and their
/// places, the chain, the first bad tensor, bad tokens, what was clipped, scales, slots of the cache, requests.
void expect_agreement(const std::filesystem::path& target);

}  // namespace nanscope::gui
