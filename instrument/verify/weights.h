#pragma once
#include <vector>

#include "core/dump/dump_run.h"
#include "instrument/dump/open_dump.h"
#include "instrument/verify/verify.h"

namespace nanscope {

/// The weights that were dumped beside the activations, against those of the files.
std::vector<VerifiedOutput> check_weights(OpenDump& dump, DumpRun& run);

}  // namespace nanscope
