#pragma once
#include <vector>

#include "core/dump/dump_run.h"
#include "instrument/dump/open_dump.h"
#include "instrument/verify/verify.h"

namespace nanscope {

/// The weights that were dumped beside the activations, against those of the files.
std::vector<VerifiedOutput> check_weights(OpenDump& dump, DumpRun& run);

/// What the file holds of rows of a weight that was dumped. Errors: it cannot be read.
Result<Prediction> weight_of_file(OpenDump& dump, const ReplacedWeight& pair, std::int64_t first, std::int64_t count);

}  // namespace nanscope
