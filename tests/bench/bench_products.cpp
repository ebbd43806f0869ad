/// bench_products [FORMAT...]: a decode step's product with weights of every format, on two threads, against plainly
/// reading the bytes that it moves; then with inputs that are quantized as well, quantizing them included.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/blocks/presets.h"
#include "kernels/device.h"
#include "kernels/ops/block_gemm.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/gemm.h"
#include "tests/bench/bench.h"
#include "tests/bench/plain_read.h"

namespace nanscope {
namespace {

using kernels::TensorView;

constexpr int kThreads = 2;
constexpr int kTurns = 7;
constexpr double kLimit = 0.6;
/// Weights that are read in turn: more than a cache holds, as the layers of a model are.
constexpr std::size_t kBytes = std::size_t{384} << 20;

/// How a weight is stored.
struct Stored {
  std::string_view name;
  Format codes;
  Format scales;  ///< f32 with a block of no columns: none
  BlockShape block;
  SecondScale second = SecondScale::none;

  bool scaled() const { return block.columns > 0; }
  std::size_t code_bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements * info(codes).bits / 8);
  }
};

constexpr std::int32_t kWhole = 1 << 30;
constexpr Stored kStored[] = {
    {"f32", Format::f32, Format::f32, {0, 0}},
    {"bf16", Format::bf16, Format::f32, {0, 0}},
    {"e4m3, a scale", Format::e4m3, Format::f32, {kWhole, kWhole}},
    {"e4m3, a scale a row", Format::e4m3, Format::bf16, {1, kWhole}},
    {"e4m3, f32 scales of 128 x 128", Format::e4m3, Format::f32, {128, 128}},
    {"e5m2, a scale", Format::e5m2, Format::f32, {kWhole, kWhole}},
    {"int8, a scale a row", Format::int8, Format::f32, {1, kWhole}},
    {"mxfp8", Format::e4m3, Format::e8m0, {1, 32}},
    {"mxfp4", Format::e2m1, Format::e8m0, {1, 32}},
    {"nvfp4", Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor},
};

/// Copies of a weight on a device, with codes and scales that are all finite.
class Weights {
 public:
  Weights(kernels::Device& device, const Stored& stored, std::int64_t rows, std::int64_t columns) {
    const std::size_t codes = stored.code_bytes(rows * columns);
    const std::int64_t scale_rows = stored.scaled() ? (rows + stored.block.rows - 1) / stored.block.rows : 0;
    const std::int64_t scale_columns =
        stored.scaled() ? (columns + stored.block.columns - 1) / stored.block.columns : 0;
    const std::size_t scales =
        static_cast<std::size_t>(scale_rows * scale_columns * kernels::storage_size(stored.scales));
    for (std::size_t bytes = 0; bytes < kBytes; bytes += codes + scales) {
      kernels::GemmArgs args{};
      const TensorView view{filled(device, codes, 1), stored.codes, rows, columns, columns};
      if (stored.scaled()) {
        args.scaled = {.codes = view,
                       .scales = {filled(device, scales, 2), stored.scales, scale_rows, scale_columns, scale_columns},
                       .block = stored.block,
                       .second = stored.second,
                       .second_scale = 3};
      } else {
        args.weight = view;
      }
      products.push_back(args);
    }
  }

  std::vector<kernels::GemmArgs> products;
  std::vector<Memory> memory;

 private:
  void* filled(kernels::Device& device, std::size_t bytes, int seed) {
    buffers_.push_back(must(device.allocate(bytes, false)));
    auto* data = static_cast<std::uint8_t*>(buffers_.back().data());
    std::uint32_t state = static_cast<std::uint32_t>(seed);
    for (std::size_t i = 0; i < bytes; ++i) {
      state = state * 1664525U + 1013904223U;
      data[i] = static_cast<std::uint8_t>(0x30U + (state >> 28));  // small and normal in all of these formats
    }
    memory.emplace_back(reinterpret_cast<const std::byte*>(data), bytes);
    return data;
  }

  std::vector<kernels::Buffer> buffers_;
};

bool measure(kernels::Device& device, const Stored& stored, std::int64_t rows, std::int64_t columns) {
  Weights weights(device, stored, rows, columns);
  const auto floats = [&](std::int64_t count) {
    return must(device.allocate(static_cast<std::size_t>(count) * sizeof(float), true));
  };
  const kernels::Buffer x = floats(columns);
  const kernels::Buffer out = floats(rows);
  std::vector<double> ratios;
  std::vector<double> times;
  double bytes = 0;
  for (const auto& [data, size] : weights.memory) bytes += static_cast<double>(size);
  for (int turn = 0; turn < kTurns; ++turn) {
    const double read = read_plainly(weights.memory, kThreads);
    const double took = seconds([&] {
      for (kernels::GemmArgs& args : weights.products) {
        args.x = {x.data(), Format::f32, 1, columns, columns};
        args.out = {out.data(), Format::f32, 1, rows, rows};
        must(device.launch(args));
      }
    });
    ratios.push_back(read / took);
    times.push_back(took);
  }
  const double best = *std::min_element(times.begin(), times.end());
  const double ratio = median(ratios);
  const auto count = static_cast<double>(weights.products.size());
  return row(fmt::format("{} x {}, {} / plain read", rows, columns, stored.name),
             fmt::format("{:.2f}, {:.1f} MiB, {:.2f} ms", ratio, bytes / count / 1048576, best / count * 1e3),
             fmt::format(">= {}", kLimit), ratio >= kLimit);
}

/// Formats of weights and inputs both.
struct Both {
  std::string_view weights;
  std::string_view inputs;  ///< of core/blocks
};
constexpr Both kBoth[] = {{"e4m3, f32 scales of 128 x 128", "fp8-group-ue8m0"},
                          {"mxfp8", "mxfp8-rceil"},
                          {"mxfp4", "mxfp4-rceil"},
                          {"nvfp4", "nvfp4"}};

void measure_both(kernels::Device& device, const Both& both, std::int64_t rows, std::int64_t columns) {
  const Stored& stored = *std::find_if(std::begin(kStored), std::end(kStored),
                                       [&](const Stored& one) { return one.name == both.weights; });
  const BlockFormat& format = find_block_preset(both.inputs)->format;
  Weights weights(device, stored, rows, columns);
  const std::int64_t blocks = columns / format.block.columns;
  const auto bytes_of = [&](std::int64_t count) {
    return must(device.allocate(static_cast<std::size_t>(count) * sizeof(float), true));
  };
  const kernels::Buffer x = bytes_of(columns);
  const kernels::Buffer codes = bytes_of(columns);
  const kernels::Buffer scales = bytes_of(blocks);
  const kernels::Buffer out = bytes_of(rows);
  for (std::int64_t i = 0; i < columns; ++i) static_cast<float*>(x.data())[i] = 0.01F * static_cast<float>(i % 97);
  const kernels::BlockQuantiseArgs quantise{.x = {x.data(), Format::f32, 1, columns, columns},
                                            .codes = {codes.data(), format.element, 1, columns, columns},
                                            .scales = {scales.data(), format.scale, 1, blocks, blocks},
                                            .format = format,
                                            .second = 0.01F};
  double bytes = 0;
  for (const auto& [data, size] : weights.memory) bytes += static_cast<double>(size);
  const auto count = static_cast<double>(weights.products.size());
  const double inputs = static_cast<double>(columns) * (info(format.element).bits == 4 ? 0.5 : 1.0) +
                        static_cast<double>(blocks * kernels::storage_size(format.scale));
  std::vector<double> times;
  times.reserve(kTurns);
  for (int turn = 0; turn < kTurns; ++turn) {
    times.push_back(seconds([&] {
      for (const kernels::GemmArgs& args : weights.products) {
        must(device.launch(quantise));
        must(device.launch(kernels::BlockGemmArgs{.codes = quantise.codes,
                                                  .scales = quantise.scales,
                                                  .packed = {},
                                                  .bias = {},
                                                  .out = {out.data(), Format::f32, 1, rows, rows},
                                                  .format = format,
                                                  .second = 0.01F,
                                                  .weight = {},
                                                  .scaled = args.scaled}));
      }
    }));
  }
  const double best = *std::min_element(times.begin(), times.end());
  row(fmt::format("{} x {}, {}, inputs {}", rows, columns, stored.name, both.inputs),
      fmt::format("{:.1f} MiB + {:.1f} KiB, {:.2f} ms", bytes / count / 1048576, inputs / 1024, best / count * 1e3),
      "none", true);
}

bool run(std::span<char*> names) {
  const auto device = must(kernels::make_device("cpu", kThreads));
  bool ok = true;
  for (const Stored& stored : kStored) {
    const bool wanted = names.empty() || std::any_of(names.begin(), names.end(), [&](std::string_view name) {
                          return stored.name.find(name) != std::string_view::npos;
                        });
    if (!wanted) continue;
    for (const std::int64_t columns : {4096, 11008}) ok = measure(*device, stored, 4096, columns) && ok;
  }
  for (const Both& both : kBoth) {
    if (!names.empty()) break;
    for (const std::int64_t columns : {4096, 11008}) measure_both(*device, both, 4096, columns);
  }
  return ok;
}

}  // namespace
}  // namespace nanscope

int main(int argc, char** argv) {
  return nanscope::run(std::span(argv + 1, static_cast<std::size_t>(argc - 1))) ? 0 : 1;
}
