#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "core/numbers/codec.h"
#include "instrument/live/driver.h"
#include "instrument/live/format_scan.h"

namespace nanscope::live {

/// As Reading counts them.
inline constexpr Format kFormats[] = {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::e5m2};

inline std::vector<std::byte> codes(Format format, std::span<const float> values) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    const std::uint32_t code = encode(format, value, Overflow::overflow);
    for (std::size_t i = 0; i < info(format).storage_bytes(); ++i)
      bytes.push_back(static_cast<std::byte>(code >> (8 * i)));
  }
  return bytes;
}

inline std::vector<float> normal(std::size_t count, float sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, sigma);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

/// Memory of the host, a clock that a test turns, and kernels that a test runs between before() and after().
class FakeDriver final : public LiveDriver {
 public:
  bool capturing(std::uint64_t stream) override { return stream == 13; }
  Status scan(std::uint64_t, std::span<const Extent> extents, bool again, std::span<Scan> scans) override {
    if (refuses) return fail("refused");
    ++this->scans;
    clock += cost_ns;
    if (!again) beginnings.resize(extents.size() * kBeginningWords);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      ScanJob job;
      job.range = {extents[i].address, extents[i].bytes};
      job.scan = &scans[i];
      job.beginning = beginnings.data() + i * kBeginningWords;
      job.again = again ? 1 : 0;
      scan_on_cpu(job);
    }
    return {};
  }
  Status copy(std::uint64_t, std::uint64_t address, std::span<std::byte> to) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    return {};
  }
  std::int64_t now_ns() override { return clock; }

  std::int64_t clock = 0;
  std::int64_t cost_ns = 1000;
  bool refuses = false;
  int scans = 0;
  std::vector<std::uint32_t> beginnings;
};

}  // namespace nanscope::live
