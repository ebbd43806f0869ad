#pragma once
#include "core/diagnosis/diagnosis.h"
#include "core/dump/dump.h"
#include "core/result.h"

namespace nanscope {

/// Applies every detector of core/dump/detectors to the numbers of a dump. The root cause is the earliest link
/// that the numbers prove; `because` ties what follows from it in the same or a later pass.
/// Errors: none of the tensors can be read.
Result<Diagnosis> diagnose_dump(const Dump& dump, DumpElements& elements);

}  // namespace nanscope
