#include "tests/bench/plain_read.h"

#include <cstdint>
#include <cstring>
#include <thread>

#include "tests/bench/bench.h"

namespace nanscope {

void read_once(const Memory& memory) {
  std::uint64_t sums[16] = {};
  const auto [data, size] = memory;
  for (std::size_t at = 0; at + sizeof sums <= size; at += sizeof sums) {
    std::uint64_t words[16];
    std::memcpy(words, data + at, sizeof words);
    for (int j = 0; j < 16; ++j) sums[j] += words[j];
  }
  std::uint64_t total = 0;
  for (std::size_t at = size / sizeof sums * sizeof sums; at < size; ++at)
    total += static_cast<std::uint64_t>(data[at]);
  for (const std::uint64_t sum : sums) total += sum;
  asm volatile("" : : "r"(total));  // the sum is wanted
}

double read_plainly(const std::vector<Memory>& memory, std::size_t threads) {
  return seconds([&] {
    std::vector<std::jthread> readers;
    for (std::size_t i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] {
        for (const auto& [data, size] : memory) read_once({data + size / threads * i, size / threads});
      });
    }
  });
}

}  // namespace nanscope
