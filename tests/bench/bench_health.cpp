#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/numbers/codec.h"
#include "core/tensor/health.h"
#include "kernels/device.h"
#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"
#include "tests/bench/bench.h"

/// bench_health [DEVICE]: how fast tensors of each size are scanned and hashed, in GB/s of their elements, medians: on
/// a GPU by warps that take several chunks at once and by those that take one, so that it shows from which size on the
/// first are worth it (HealthScanArgs::several_from). Launches follow one another on one tensor, which stays in the
/// GPU's cache where it fits, as a tensor does that was just written. Nothing is judged.
namespace nanscope::kernels {
namespace {

constexpr int kTurns = 5;
constexpr std::int64_t kColumns = 4096;

/// Numbers from 1 to 2, a MiB of them repeated.
Buffer filled(Device& device, std::int64_t bytes, Format format) {
  const auto element = static_cast<std::size_t>(storage_size(format));
  std::vector<std::byte> from(std::size_t{1} << 20);
  for (std::size_t i = 0; i < from.size(); i += element) {
    const std::uint32_t code = encode(format, 1.0F + static_cast<float>(i / element % 8) / 8.0F, Overflow::saturate);
    std::memcpy(&from[i], &code, element);
  }
  Buffer buffer = must(device.allocate(static_cast<std::size_t>(bytes), false));
  for (std::size_t at = 0; at < buffer.bytes(); at += from.size()) {
    must(device.upload(static_cast<std::byte*>(buffer.data()) + at, from));
  }
  return buffer;
}

/// GB/s of the launches of `args`, so many that they take some milliseconds.
double rate(Device& device, const HealthScanArgs& args, std::int64_t bytes) {
  const auto launches = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{1} << 31) / bytes, 4, 200));
  std::vector<double> rates;
  for (int turn = 0; turn <= kTurns; ++turn) {
    const double time = seconds([&] {
      for (int i = 0; i < launches; ++i) must(device.launch(args));
      must(device.synchronize());
    });
    if (turn > 0) rates.push_back(static_cast<double>(bytes) * launches / time * 1e-9);
  }
  return median(rates);
}

void bench(Device& device, Format format, std::int64_t bytes) {
  const Buffer data = filled(device, bytes, format);
  HealthScanArgs args;
  const std::int64_t rows = bytes / storage_size(format) / kColumns;
  args.x = {data.data(), format, rows, kColumns, kColumns};
  const Buffer tiles =
      must(device.allocate(static_cast<std::size_t>(rows * kColumns / kTileChannels) * sizeof(Health), true));
  const Buffer chunks =
      must(device.allocate(static_cast<std::size_t>(hash_chunks(args.x)) * sizeof(std::uint64_t), true));
  args.tiles = static_cast<Health*>(tiles.data());
  args.chunks = static_cast<std::uint64_t*>(chunks.data());
  args.several_from = 1;
  const double several = rate(device, args, bytes);
  args.several_from = std::numeric_limits<std::int64_t>::max();
  const double one = rate(device, args, bytes);
  fmt::print("| {:<5} | {:>8} | {:>14.1f} | {:>9.1f} | {:>5.2f} |\n", name(format), bytes >> 10, several, one,
             several / one);
  std::fflush(stdout);
}

}  // namespace
}  // namespace nanscope::kernels

int main(int argc, char** argv) {
  using namespace nanscope::kernels;
  using nanscope::Format;
  const auto device = must(make_device(argc > 1 ? argv[1] : "cuda", 1));
  fmt::print("device {} ({}); GB/s, medians of {} turns\n\n", device->info().name, device->info().isa, kTurns);
  fmt::print("| {:<5} | {:>8} | {} | {} | ratio |\n", "", "KiB", "several chunks", "one chunk");
  const std::int64_t most = device->host_addressable() ? 4 : 1024;
  for (const Format format : {Format::f32, Format::bf16, Format::f16, Format::e4m3, Format::int8}) {
    for (std::int64_t mib = 1; mib <= most; mib *= 4) bench(*device, format, mib << 20);
  }
  return 0;
}
