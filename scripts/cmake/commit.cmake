# cmake -DSOURCE=FOLDER -DOUTPUT=FILE -P commit.cmake: writes a source with the commit that is built, and its date; rewritten
# only if they changed. tests/run_once leaves the text between the two @ out of a program's hash.
execute_process(COMMAND git -C ${SOURCE} log -1 --format=%h,\ %cs --abbrev=12 OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
file(REAL_PATH ${SOURCE} source)
if(NOT commit OR NOT top STREQUAL source)
  set(commit "not built from a git checkout")
endif()
set(AT "@")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [=[
#include "cli/build_commit.h"

namespace nanscope::cli {

const char* const kBuildCommit = "@AT@commit: @commit@@AT@";

}  // namespace nanscope::cli
]=] @ONLY)
