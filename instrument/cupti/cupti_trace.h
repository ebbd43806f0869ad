#pragma once
#include <memory>

#include "core/result.h"
#include "instrument/trace/launch_trace.h"

namespace nanscope {

/// GPU activity by CUPTI: kernels, copies, fills, synchronisation and NVTX markers, joined to ops by external
/// correlation ids. Rows come in the order in which CUPTI delivers them; details are those of activity_json().
/// Errors, in one line: the build has no CUPTI, no libcupti is installed, no driver answers, another tool holds CUPTI.
Result<std::unique_ptr<LaunchTrace>> make_cupti_trace();

}  // namespace nanscope
