#pragma once
#include <cstddef>
#include <utility>
#include <vector>

/// The plain read that benchmarks compare with: it sums 8 byte words with enough accumulators to be limited by memory
/// alone. Compiled at -O3 whatever the preset is: at -Og it flatters what it is held against.
namespace nanscope {

/// Memory that is read.
using Memory = std::pair<const std::byte*, std::size_t>;

/// All of it once, in this thread.
void read_once(const Memory& memory);

/// Seconds to read all of it once, each thread its part of each.
double read_plainly(const std::vector<Memory>& memory, std::size_t threads);

}  // namespace nanscope
