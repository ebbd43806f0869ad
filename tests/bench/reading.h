#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "instrument/files/file.h"
#include "tests/bench/bench.h"

/// The plain read that scans of files are measured against, and what a process holds.
namespace nanscope {

/// All bytes once, by as many threads as the machine has.
inline double read_all(const std::filesystem::path& path) {
  const auto begin = Clock::now();
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) std::exit(2);
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::uint64_t> sums(threads);
  {
    std::vector<std::jthread> readers;
    for (std::size_t t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] {
        const std::size_t part = file->bytes().size() / threads / 8 * 8;
        const auto bytes = file->bytes().subspan(t * part, part);
        for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
          std::uint64_t word = 0;
          std::memcpy(&word, bytes.data() + i, 8);
          sums[t] ^= word;
        }
      });
    }
  }
  volatile std::uint64_t keep = sums.front();
  static_cast<void>(keep);
  return seconds_since(begin);
}

/// Memory of the process's own, in MiB: the dump's pages are the page cache's.
inline double own_memory() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  }
  return 0;
}

/// The most memory of its own that the process held since this was made, looked at every few milliseconds.
class MemoryWatch {
 public:
  MemoryWatch()
      : watcher_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            most_ = std::max(most_.load(), own_memory());
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
        }) {}
  /// In MiB.
  double most() const { return most_; }

 private:
  std::atomic<double> most_{0};
  std::jthread watcher_;  ///< the last member: it is over before what it writes is gone
};

}  // namespace nanscope
