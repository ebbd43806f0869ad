#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/codec.h"
#include "core/tensor/health.h"
#include "kernels/device.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/cast.h"
#include "kernels/ops/content_hash.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/health_scan.h"
#include "kernels/ops/residual_add.h"
#include "kernels/pack.h"
#include "tests/bench/bench.h"
#include "tests/bench/plain_read.h"

#ifdef NANSCOPE_HAS_OPENBLAS
#include <cblas.h>
#endif

/// bench_kernels [DEVICE]: speed of the ops against their limits (docs/measurements.md), on one thread.
/// Each figure is a ratio to a peer that is measured in the same run, in turns with it, so that a busy
/// machine slows both; the median of the turns' ratios counts. On a CPU the thread's own time is taken. Buffers are
/// touched before the clock runs. On a GPU there are no peers and rates are printed alone. Exit 1 when a limit is
/// missed.
namespace nanscope::kernels {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kScanBytes = 256 * kMiB;
constexpr int kTurns = 11;

/// Of the calling thread alone, so that waiting for a core is not counted; a GPU needs the wall clock.
double now(bool thread_time) {
  timespec time{};
  clock_gettime(thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Table {
  bool thread_time;
  bool missed = false;

  double seconds(const std::function<void()>& work) const {
    const double begin = now(thread_time);
    work();
    return now(thread_time) - begin;
  }

  void row(const std::string& measure, const std::string& value, const std::string& limit, bool ok) {
    fmt::print("| {:<44} | {:>34} | {:>8} | {:<3} |\n", measure, value, limit, ok ? "ok" : "NO");
    std::fflush(stdout);
    missed = missed || !ok;
  }
};

/// One measure: `ours` does `units` of work (bytes or operations) a call, `peer` does `peer_units`.
struct Measure {
  std::string name;
  const char* unit;
  double units;
  std::function<void()> ours;
  double peer_units;
  std::function<void()> peer;  ///< none: the rate is printed without a limit
  double limit;                ///< least ratio; 0: for information
};

void run(Table& table, const Measure& measure) {
  measure.ours();
  if (measure.peer) measure.peer();
  std::vector<double> ours;
  std::vector<double> ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    ours.push_back(measure.units / table.seconds(measure.ours));
    if (measure.peer) ratios.push_back(ours.back() / (measure.peer_units / table.seconds(measure.peer)));
  }
  const std::string rate = fmt::format("{:.2f} {}", median(ours) * 1e-9, measure.unit);
  if (!measure.peer) return table.row(measure.name, rate, "", true);
  const double ratio = median(ratios);
  table.row(measure.name, fmt::format("{:.2f} of its peer, {}", ratio, rate),
            measure.limit > 0 ? fmt::format(">= {:.2f}", measure.limit) : "", ratio >= measure.limit);
}

/// Device memory with values as a calibrated scale leaves them: bell-shaped, at most 400, one MiB of them
/// repeated. `small`: of 64 values one is 0 and one subnormal, so that no tile is without values that must be counted.
Buffer filled(Device& device, std::int64_t bytes, Format format, bool small = false) {
  const auto element = static_cast<std::size_t>(storage_size(format));
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(bytes, kMiB)));
  std::uint64_t state = 1;
  const auto uniform = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<float>(state >> 40) * 0x1p-23F - 1.0F;
  };
  for (std::size_t i = 0; i + element <= block.size(); i += element) {
    float value = 100.0F * (uniform() + uniform() + uniform() + uniform());
    if (format == Format::int8) value *= 0.3F;
    if (small && i / element % 64 == 0) value = 0.0F;
    if (small && i / element % 64 == 32) value = -info(format).min_subnormal;
    const std::uint32_t code = encode(format, value, Overflow::saturate);
    std::memcpy(block.data() + i, &code, element);
  }
  Buffer buffer = must(device.allocate(static_cast<std::size_t>(bytes), false));
  for (std::size_t at = 0; at < buffer.bytes(); at += block.size()) {
    const std::size_t count = std::min(block.size(), buffer.bytes() - at);
    must(device.upload(static_cast<std::byte*>(buffer.data()) + at, std::span(block).first(count)));
  }
  return buffer;
}

void read_all(const void* data, std::int64_t bytes) {
  read_once({static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)});
}

using Vector = std::uint32_t __attribute__((vector_size(16)));

/// A copy loop with ordinary vector loads and stores.
void copy_loop(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<Vector*>(to);
  const auto* in = static_cast<const Vector*>(from);
  for (std::int64_t i = 0; i < bytes / 16; i += 4) {
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

void launch(Device& device, const auto& args) {
  must(device.launch(args));
  must(device.synchronize());
}

/// With the weight as an engine has it on the device: in panels on a CPU.
GemmArgs product(const Device& device, const TensorView& x, const TensorView& weight, const TensorView& out) {
  if (!device.host_addressable()) return {x, weight, {}, {}, out};
  return {x, {}, packed_view(static_cast<float*>(weight.data), weight.rows, weight.columns), {}, out};
}

void bench_gemm(Table& table, Device& device) {
  constexpr std::int64_t kSize = 1024;
  const std::int64_t bytes = kSize * kSize * 4;
  const Buffer x = filled(device, bytes, Format::f32);
  const Buffer panels = filled(device, bytes, Format::f32);
  const Buffer out = filled(device, bytes, Format::f32);
  const auto matrix = [](const Buffer& buffer) { return TensorView{buffer.data(), Format::f32, kSize, kSize, kSize}; };
  const GemmArgs args = product(device, matrix(x), matrix(panels), matrix(out));
  constexpr double kOperations = 2.0 * kSize * kSize * kSize;
  Measure measure{
      "gemm f32 1024x1024x1024, one thread", "GFLOP/s", kOperations, [&] { launch(device, args); }, 0, {}, 0.5};
#ifdef NANSCOPE_HAS_OPENBLAS
  if (device.host_addressable()) {
    openblas_set_num_threads(1);
    measure.name += " / OpenBLAS";
    measure.peer_units = kOperations;
    measure.peer = [&] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kSize, kSize, kSize, 1.0F,
                  static_cast<const float*>(x.data()), kSize, static_cast<const float*>(panels.data()), kSize, 0.0F,
                  static_cast<float*>(out.data()), kSize);
    };
  }
#endif
  run(table, measure);
}

void bench_decode(Table& table, Device& device) {
  constexpr std::int64_t kSize = 4096;
  const std::int64_t bytes = kSize * kSize * 4;
  const Buffer x = filled(device, kSize * 4, Format::f32);
  const Buffer panels = filled(device, bytes, Format::f32);
  const Buffer out = filled(device, kSize * 4, Format::f32);
  const auto row = [](const Buffer& buffer) { return TensorView{buffer.data(), Format::f32, 1, kSize, kSize}; };
  const TensorView weight{panels.data(), Format::f32, kSize, kSize, kSize};
  const GemmArgs args = product(device, row(x), weight, row(out));
  Measure measure{"gemm f32 1x4096x4096 / plain read",
                  "GB/s",
                  static_cast<double>(bytes),
                  [&] { launch(device, args); },
                  0,
                  {},
                  0.6};
  if (device.host_addressable()) {
    measure.peer_units = static_cast<double>(bytes);
    measure.peer = [&] { read_all(panels.data(), bytes); };
  }
  run(table, measure);
}

/// The observers: one pass over 256 MiB against the plain read of the same memory. `limit` is that of health alone,
/// `both_limit` of health and hash.
void bench_observers(Table& table, Device& device, Format format, double limit, double both_limit, bool small = false) {
  const Buffer data = filled(device, kScanBytes, format, small);
  constexpr std::int64_t kColumns = 4096;
  const std::int64_t rows = kScanBytes / storage_size(format) / kColumns;
  const TensorView view{data.data(), format, rows, kColumns, kColumns};
  const auto tiles = static_cast<std::size_t>(rows * kColumns / kTileChannels);
  const Buffer health = must(device.allocate(tiles * sizeof(Health), true));
  const Buffer chunks = must(device.allocate(static_cast<std::size_t>(hash_chunks(view)) * 8, true));

  HealthScanArgs scan;
  scan.x = view;
  scan.tiles = static_cast<Health*>(health.data());
  const ContentHashArgs hash{view, static_cast<std::uint64_t*>(chunks.data())};
  std::function<void()> peer;
  if (device.host_addressable()) peer = [&] { read_all(data.data(), kScanBytes); };
  const auto bytes = static_cast<double>(kScanBytes);
  run(table, {fmt::format("health scan 256 MiB {}{} / plain read", name(format), small ? ", small" : ""), "GB/s", bytes,
              [&] { launch(device, scan); }, bytes, peer, limit});
  HealthScanArgs both = scan;
  both.chunks = hash.chunks;
  run(table, {fmt::format("health + hash 256 MiB {}{} / plain read", name(format), small ? ", small" : ""), "GB/s",
              bytes, [&] { launch(device, both); }, bytes, peer, both_limit});
  if (format != Format::f32) return;
  run(table, {"content hash 256 MiB / plain read", "GB/s", bytes, [&] { launch(device, hash); }, bytes, peer, 0.8});
}

void bench_cast(Table& table, Device& device) {
  constexpr std::int64_t kColumns = 4096;
  constexpr std::int64_t kRows = 128 * kMiB / 4 / kColumns;
  const Buffer from = filled(device, kRows * kColumns * 4, Format::f32);
  const Buffer to = filled(device, kRows * kColumns * 4, Format::f32);
  CastArgs args;
  args.x = {from.data(), Format::f32, kRows, kColumns, kColumns};
  args.out = {to.data(), Format::e4m3, kRows, kColumns, kColumns};
  args.scale = 0.025F;
  Measure measure{"cast f32 to e4m3 with a scale / copy loop",
                  "GB/s",
                  5.0 * kRows * kColumns,
                  [&] { launch(device, args); },
                  8.0 * kRows * kColumns,
                  {},
                  0.5};
  if (device.host_addressable()) measure.peer = [&] { copy_loop(to.data(), from.data(), kRows * kColumns * 4); };
  run(table, measure);
}

/// A decode step's attention over 4096 keys of 8 heads of 128, 32 query heads: kv_read before it, and codes read by
/// itself.
void bench_cached_attention(Table& table, Device& device, Format format) {
  constexpr std::int64_t kKeys = 4096;
  constexpr std::int64_t kHeads = 32;
  constexpr std::int64_t kKvHeads = 8;
  constexpr std::int64_t kWidth = 128;
  constexpr std::int64_t kChannels = kKvHeads * kWidth;
  const auto code_bytes = static_cast<std::int64_t>(info(format).storage_bytes());
  const Buffer pool = filled(device, kKeys * kChannels * code_bytes, format);
  const Buffer read = filled(device, kKeys * kChannels * 4, Format::f32);
  const Buffer scores = filled(device, kHeads * kKeys * 4, Format::f32);
  const Buffer q = filled(device, kHeads * kWidth * 4, Format::f32);
  std::vector<std::int32_t> order(static_cast<std::size_t>(kKeys));
  std::iota(order.begin(), order.end(), 0);
  const Buffer slots = must(device.allocate(order.size() * 4, false));
  must(device.upload(slots.data(), std::as_bytes(std::span(order))));
  const TensorView codes{pool.data(), format, kKeys, kChannels, kChannels};
  const TensorView positions{slots.data(), Format::i32, kKeys, 1, 1};
  const TensorView rows{read.data(), Format::f32, kKeys, kChannels, kChannels};
  const KvReadArgs read_args{
      .pool = codes, .blocks = positions, .slot_scales = {}, .out = rows, .block_size = 1, .scale = 0.1F};
  AttentionScoresArgs scores_args{.q = {q.data(), Format::f32, 1, kHeads * kWidth, kHeads * kWidth},
                                  .k = rows,
                                  .out = {scores.data(), Format::f32, 1, kHeads * kKeys, kHeads * kKeys},
                                  .heads = kHeads,
                                  .kv_heads = kKvHeads,
                                  .factor = 0.09F};
  AttentionMixArgs mix_args{
      .p = scores_args.out, .v = rows, .out = scores_args.q, .heads = kHeads, .kv_heads = kKvHeads};
  const auto apart = [&, scores_args, mix_args] {
    launch(device, read_args);
    launch(device, scores_args);
    launch(device, read_args);
    launch(device, mix_args);
  };
  scores_args.k = mix_args.v = {};
  scores_args.cache = mix_args.cache = {.pool = codes, .slots = positions, .scale = 0.1F};
  const auto itself = [&, scores_args, mix_args] {
    launch(device, scores_args);
    launch(device, mix_args);
  };
  const double bytes = 2.0 * kKeys * kChannels * static_cast<double>(code_bytes);
  Measure measure{fmt::format("attention over {} codes / kv_read before it", name(format)),
                  "GB/s",
                  bytes,
                  itself,
                  bytes,
                  apart,
                  1.0};
  run(table, measure);
}

void bench_launch(Table& table, Device& device) {
  constexpr int kLaunches = 20000;
  const Buffer data = filled(device, 3 * 64 * 4, Format::f32);
  auto* values = static_cast<float*>(data.data());
  const auto row = [&](int i) { return TensorView{values + i * 64, Format::f32, 1, 64, 64}; };
  const ResidualAddArgs args{row(0), row(1), row(2)};
  std::vector<double> times;
  for (int turn = 0; turn < kTurns; ++turn) {
    times.push_back(table.seconds([&] {
      for (int i = 0; i < kLaunches; ++i) must(device.launch(args));
      must(device.synchronize());
    }) / kLaunches * 1e6);
  }
  const double time = median(times);
  const bool judged = device.host_addressable();
  table.row("launch of a small op", fmt::format("{:.3f} us", time), judged ? "<= 1 us" : "", !judged || time <= 1.0);
}

int bench(const std::string& name) {
  const auto device = must(make_device(name, 1));
  const DeviceInfo& info = device->info();
  fmt::print("device {} ({}), one thread; medians of {} turns\n\n", info.name, info.isa, kTurns);
  fmt::print("| {:<44} | {:>34} | {:>8} | {:<3} |\n", "measure", "value", "limit", "ok");
  fmt::print("|{:-<46}|{:-<36}|{:-<10}|{:-<5}|\n", "", "", "", "");
  Table table{device->host_addressable()};
  bench_launch(table, *device);
  bench_gemm(table, *device);
  bench_decode(table, *device);
  bench_observers(table, *device, Format::f32, 0.8, 0.85);
  bench_observers(table, *device, Format::bf16, 0.6, 0.75);
  for (const Format format : {Format::e4m3, Format::e5m2, Format::int8}) {
    bench_observers(table, *device, format, 0.5, 0.7);
    bench_observers(table, *device, format, 0.5, 0.7, true);
  }
  bench_cast(table, *device);
  bench_cached_attention(table, *device, Format::e4m3);
  bench_cached_attention(table, *device, Format::bf16);
#ifndef NANSCOPE_HAS_OPENBLAS
  fmt::print("\nOpenBLAS was not found when this was built: the product has no peer here.\n");
#endif
  return table.missed ? 1 : 0;
}

}  // namespace
}  // namespace nanscope::kernels

int main(int argc, char** argv) { return nanscope::kernels::bench(argc > 1 ? argv[1] : "cpu"); }
