// In place of the trace where no CUDA toolkit was found.
#include "instrument/cupti/cupti_trace.h"

namespace nanscope {

Result<std::unique_ptr<LaunchTrace>> make_cupti_trace() {
  return fail("cupti: nanscope was built without it: build where the CUDA toolkit's cupti.h is found");
}

}  // namespace nanscope
