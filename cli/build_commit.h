#pragma once

namespace nanscope::cli {

/// "@commit: HASH, DATE@" of the sources, written by scripts/cmake/commit.cmake; HASH is 12 digits, DATE is 2026-11-28.
/// Outside of a git checkout it says so instead.
extern const char* const kBuildCommit;

}  // namespace nanscope::cli
