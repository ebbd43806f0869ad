#pragma once

namespace nanscope::cli {

/// "@commit: HASH, DATE@" of the sources, written by scripts/cmake/commit.cmake; HASH is 12 digits, DATE is 2026-11-28.
/// A build outside of a git checkout has "not built from a git checkout" instead.
extern const char* const kBuildCommit;

}  // namespace nanscope::cli
