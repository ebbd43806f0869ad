#pragma once
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/bench.h"

namespace nanscope {

/// Memory that is read.
using Memory = std::pair<const std::byte*, std::size_t>;

inline void read_part(const std::byte* data, std::size_t bytes) {
  using Vector = std::uint64_t __attribute__((vector_size(64), aligned(1)));
  Vector sums[4] = {};
  for (std::size_t at = 0; at + sizeof(sums) <= bytes; at += sizeof(sums)) {
    const auto* vectors = reinterpret_cast<const Vector*>(data + at);
    for (int j = 0; j < 4; ++j) sums[j] += vectors[j];
  }
  const Vector total = sums[0] + sums[1] + sums[2] + sums[3];
  asm volatile("" : : "m"(total));  // the sum is wanted
}

/// Seconds to read all of it once, each thread its part of each.
inline double read_plainly(const std::vector<Memory>& memory, std::size_t threads) {
  return seconds([&] {
    std::vector<std::jthread> readers;
    for (std::size_t i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] {
        for (const auto& [data, size] : memory) read_part(data + size / threads * i, size / threads);
      });
    }
  });
}

}  // namespace nanscope
