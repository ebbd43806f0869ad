/// bench_blocks [PRESET...]: encodes and decodes every block format with one thread, against a plain copy of the bytes
/// that are read and written.
#include <cmath>
#include <string>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"
#include "tests/bench/bench.h"

namespace nanscope {
namespace {

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kColumns = 8192;
constexpr int kTurns = 5;

/// Weights: uniform, of the size that layers have, every row of its own.
std::vector<float> weights() {
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
  std::uint64_t state = 1;
  for (float& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = (static_cast<float>(state >> 40) * 0x1p-23F - 1) * 0.05F;
  }
  return values;
}

using Vector [[gnu::vector_size(16)]] = float;

/// A copy loop with ordinary vector loads and stores, as bench_kernels has it.
void copy_loop(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<Vector*>(to);
  const auto* in = static_cast<const Vector*>(from);
  for (std::size_t i = 0; i < bytes / 16; i += 4) {
    const Vector a = in[i];
    const Vector b = in[i + 1];
    const Vector c = in[i + 2];
    const Vector d = in[i + 3];
    out[i] = a;
    out[i + 1] = b;
    out[i + 2] = c;
    out[i + 3] = d;
    asm volatile("" : : : "memory");
  }
}

struct Pace {
  double ratio;  ///< of the work's rate to that of a copy that reads and writes as many bytes
  double rate;   ///< GB/s, read and written
};

Pace pace_of(const auto& work, double bytes, std::vector<char>& from, std::vector<char>& to) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double own = seconds(work);
    const double plain = seconds([&] { copy_loop(to.data(), from.data(), half); });
    ratios.push_back(plain / own);
    rates.push_back(bytes / own / 1e9);
  }
  return {median(ratios), median(rates)};
}

bool run(int count, char** names) {
  const std::vector<float> values = weights();
  std::vector<float> read(values.size());
  std::vector<char> from(values.size() * 5, 1);
  std::vector<char> to(values.size() * 5, 2);
  bool ok = true;
  for (const BlockPreset& preset : block_presets()) {
    if (count > 0 && std::none_of(names, names + count, [&](const char* name) { return preset.name == name; }))
      continue;
    const BlockFormat& format = preset.format;
    const BlockBytes size = block_bytes(format, kRows, kColumns);
    const float second = second_block_scale(format, block_amax(values));
    std::vector<std::byte> codes(size.codes, std::byte{1});
    std::vector<std::byte> scales(size.scales, std::byte{1});
    const auto bytes = static_cast<double>(values.size() * 4 + size.codes + size.scales);
    const Pace encode = pace_of(
        [&] {
          encode_blocks(format, values, kRows, kColumns, second, {codes, scales});
        },
        bytes, from, to);
    const Pace decode = pace_of(
        [&] {
          decode_blocks(format, {codes, scales}, kRows, kColumns, second, read);
        },
        bytes, from, to);
    ok = row(fmt::format("encode {} / copy of its bytes", preset.name),
             fmt::format("{:.2f} ({:.1f} GB/s)", encode.ratio, encode.rate), ">= 0.4", encode.ratio >= 0.4) &&
         ok;
    ok = row(fmt::format("decode {} / copy of its bytes", preset.name),
             fmt::format("{:.2f} ({:.1f} GB/s)", decode.ratio, decode.rate), ">= 0.5", decode.ratio >= 0.5) &&
         ok;
  }
  return ok;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) { return nanscope::run(argc - 1, argv + 1) ? 0 : 1; }
