#pragma once
#include <span>
#include <string>

#include "core/blocks/block_report.h"
#include "core/numbers/bits_report.h"
#include "instrument/moments/moments.h"

namespace nanscope::cli {

/// `nanscope bits`: prints the anatomy of a number to stdout, or a one-line error to stderr.
/// Returns the exit code: 0, or 2 for bad usage.
int run_bits(const BitsOptions& options, bool json);
/// `nanscope bits VALUE VALUE ...`: the same for a table of values.
int run_bits_values(const BitsOptions& options, std::span<const std::string> values, bool json);
/// `nanscope bits --moments`: the moments of the values; `format` is empty (f32) or a format's name.
int run_moments(MomentsOptions options, const std::string& format, std::span<const std::string> values, bool json);
/// `nanscope bits --block`: the same for a block.
int run_block(const BlockReportOptions& options, bool json);

}  // namespace nanscope::cli
