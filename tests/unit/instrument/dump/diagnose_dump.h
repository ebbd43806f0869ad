#pragma once
#include "core/dump/dump_run.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/dump/open_dump.h"
#include "instrument/recompute/arithmetic.h"

namespace nanscope {

inline Result<Diagnosis> diagnose_dump(OpenDump& dump, const DiagnoseOptions& options = {}) {
  DumpRun run(dump.dump(), dump, options.stop);
  PlainArithmetic arithmetic;
  return diagnose(run, arithmetic, options);
}

}  // namespace nanscope
