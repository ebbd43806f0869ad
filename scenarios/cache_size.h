#pragma once
#include <stop_token>

#include "core/result.h"
#include "scenarios/run_spec.h"
#include "scenarios/workbench.h"

namespace nanscope::scenarios {

/// Raises kv.blocks of a run so far that the requests which share a step fit into the pool. Errors: as of
/// Workbench::engine() and make_prompt().
Status fit_cache(Workbench& workbench, RunSpec& spec, std::stop_token stop = {});

}  // namespace nanscope::scenarios
