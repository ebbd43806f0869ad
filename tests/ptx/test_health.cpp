// Health and hash on executed PTX against the CPU: random shapes, strides, offsets and formats, and tensors as large as
// the forms of a GPU that take several chunks at once, with what those must leave to another form here and there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops/health_scan.h"
#include "tests/ptx/against_cpu.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {
namespace {

using kernels::HealthScanArgs;
using kernels::cases::CaseMemory;
using kernels::cases::Fill;
using kernels::cases::OpCase;

struct Scan {
  Format format;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t padding;
  bool sums;
  bool hash;
  bool source;
  std::uint64_t seed;
  unsigned special_tiles;  ///< in a hundred
  bool alone = false;      ///< instead each tile has one special code, or of 8 bits one of all, each in its turn
};

/// A number of f32 or bf16 between 2^-27 and 2^29: sums of such round, so that their order shows.
std::uint32_t wide_code(Format format, std::uint64_t random) {
  const auto code = static_cast<std::uint32_t>(random);
  const std::uint32_t exponent = 100 + static_cast<std::uint32_t>(random >> 32) % 56;
  const std::uint32_t single = (code & 0x807fffffU) | exponent << 23;
  return format == Format::f32 ? single : single >> 16;
}

/// Small codes, and in each tile one that is told by the tile's number.
std::vector<std::uint32_t> codes_alone(const Scan& of) {
  std::mt19937_64 random(of.seed);
  auto codes = fill(Fill::ordinary, of.format, of.rows, of.columns, of.seed, 4.0F);
  std::vector<std::uint32_t> each = kernels::cases::specials(of.format);
  if (info(of.format).bits == 8) {
    each.resize(256);
    std::iota(each.begin(), each.end(), 0U);
  }
  for (std::size_t tile = 0; tile * kTileChannels < codes.size(); ++tile) {
    codes[tile * kTileChannels + random() % kTileChannels] = each[tile % each.size()];
  }
  return codes;
}

/// Ordinary codes; in some tiles a few are special ones, any at all, or all of them are of one kind. A third of the
/// tiles of f32 and bf16 spans many exponents.
std::vector<std::uint32_t> codes_of(const Scan& of) {
  if (of.alone) return codes_alone(of);
  std::mt19937_64 random(of.seed);
  constexpr std::array kAmplitudes = {0.1F, 4.0F, 100.0F, 440.0F};
  auto codes = fill(Fill::ordinary, of.format, of.rows, of.columns, of.seed, kAmplitudes[random() % 4]);
  const std::vector<std::uint32_t> specials = kernels::cases::specials(of.format);
  const std::uint32_t any = 0xffffffffU >> (32 - info(of.format).bits);
  const bool wide = of.format == Format::f32 || of.format == Format::bf16;
  for (std::size_t tile = 0; tile < codes.size(); tile += kTileChannels) {
    const std::size_t length = std::min<std::size_t>(kTileChannels, codes.size() - tile);
    if (wide && random() % 3 == 0) {
      for (std::size_t i = 0; i < length; ++i) codes[tile + i] = wide_code(of.format, random());
    }
    if (random() % 100 >= of.special_tiles) continue;
    const std::uint32_t one = specials[random() % specials.size()];
    const std::uint64_t kind = random() % 8;
    const std::size_t count = kind == 0 ? length : 1 + random() % 4;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = tile + (kind == 0 ? i : random() % length);
      codes[at] = kind == 1 ? static_cast<std::uint32_t>(random()) & any : one;
    }
  }
  return codes;
}

OpCase case_of(const Scan& of) {
  const std::string text = fmt::format("{} {} x {} + {}, sums {}, hash {}, source {}, seed {}", name(of.format),
                                       of.rows, of.columns, of.padding, of.sums, of.hash, of.source, of.seed);
  return {text, kernels::OpId::HealthScan, [=](CaseMemory& memory) {
            HealthScanArgs args;
            args.x = memory.input(of.format, of.rows, of.columns, codes_of(of), of.padding);
            if (of.source) {
              args.source = memory.input(Format::f32, of.rows, of.columns,
                                         fill(Fill::zoo, Format::f32, of.rows, of.columns, of.seed + 1));
            }
            const std::int64_t tiles = of.rows * ((of.columns + kTileChannels - 1) / kTileChannels);
            args.tiles =
                static_cast<Health*>(memory.output_bytes("tiles", static_cast<std::size_t>(tiles) * sizeof(Health)));
            if (of.hash) {
              const auto chunks = static_cast<std::size_t>(kernels::hash_chunks(args.x));
              args.chunks = static_cast<std::uint64_t*>(memory.output_bytes("chunks", chunks * sizeof(std::uint64_t)));
            }
            args.sums = of.sums;
            args.several_from = 1;
            memory.launch(args);
          }};
}

class PtxHealth : public AgainstCpu {};

TEST_F(PtxHealth, RandomShapesHaveTheCpusBits) {
  std::mt19937_64 random(31);
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  std::vector<Format> all;
  for (const FormatInfo& one : formats()) all.push_back(one.format);
  for (int i = 0; i < 150; ++i) {
    Scan scan{all[random() % all.size()],
              1 + below(6),
              1 + below(1300),
              random() % 2 == 0 ? 0 : below(5),
              random() % 4 != 0,
              random() % 4 != 0,
              random() % 5 == 0,
              random(),
              60};
    // Half of them have tiles that are whole, or a multiple of what a warp takes at once.
    if (random() % 2 == 0) scan.columns = 32 * (1 + below(4)) * (random() % 2 == 0 ? 1 : 8);
    expect_the_cpus_bits(case_of(scan), random() % 2 == 0 ? 0 : below(5));
  }
}

/// Tensors of 256 chunks and more, by which the forms for large ones begin; some whole chunks and a short one are left.
TEST_F(PtxHealth, LargeTensorsHaveTheCpusBits) {
  std::mt19937_64 random(32);
  for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::int8, Format::e5m2}) {
    const auto bytes = static_cast<std::int64_t>(info(format).storage_bytes());
    const std::int64_t columns = kTileChannels * static_cast<std::int64_t>(1 + random() % 11);
    const std::int64_t chunks = 256 + static_cast<std::int64_t>(random() % 12);
    const std::int64_t rows = chunks * kernels::kHashChunk / bytes / columns + 1;
    expect_the_cpus_bits(case_of({format, rows, columns, 0, random() % 2 == 0, true, false, random(), 10}), 0);
  }
}

TEST_F(PtxHealth, EachCodeAloneInATileOfALargeTensorHasTheCpusBits) {
  for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::int8}) {
    const std::int64_t columns = 2 * kTileChannels;
    const std::int64_t rows = 257 * kernels::kHashChunk / info(format).storage_bytes() / columns;
    expect_the_cpus_bits(case_of({format, rows, columns, 0, true, true, false, 33, 0, true}), 0);
  }
}

}  // namespace
}  // namespace nanscope::ptx
