#pragma once
#include "core/blocks/block_report.h"
#include "core/numbers/bits_report.h"

namespace nanscope::cli {

/// `nanscope bits`: prints the anatomy of a number to stdout, or a one-line error to stderr.
/// Returns the exit code: 0, or 2 for bad usage.
int run_bits(const BitsOptions& options, bool json);
/// `nanscope bits --block`: the same for a block.
int run_block(const BlockReportOptions& options, bool json);

}  // namespace nanscope::cli
