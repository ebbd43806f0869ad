// gemm of weights as they are stored, codes and scales among them, against one std::fma chain an output: the same bits
// for every instruction set, format, number of rows and ragged shape, and nothing is read behind the last weight.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "core/numbers/codec.h"
#include "kernels/ops/gemm.h"
#include "tests/unit/kernels/ops/op_test.h"

namespace nanscope::kernels {
namespace {

using test::Floats;

constexpr std::size_t kPage = 4096;

/// Memory that ends where a page begins that nobody may touch.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : pages_((bytes + kPage - 1) / kPage * kPage), bytes_(bytes) {
    void* memory = mmap(nullptr, pages_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    base_ = static_cast<std::byte*>(memory);
    mprotect(base_ + pages_, kPage, PROT_NONE);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, pages_ + kPage);
  }
  std::byte* data() const { return base_ == nullptr ? nullptr : base_ + pages_ - bytes_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t pages_;
  std::size_t bytes_;
};

struct Product {
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t outputs;
  std::int64_t stride;  ///< of the weight's rows
  Format format;
};

/// Weights of all magnitudes that the format has: subnormals of f16, both zeros, here and there Inf and NaN.
std::uint32_t weight_code(cases::Sequence& sequence, Format format) {
  const float draw = sequence.next();
  if (draw > 0.9995F) return encode(format, test::kNan, Overflow::overflow);
  if (draw < -0.9995F) return encode(format, -test::kInf, Overflow::overflow);
  if (draw > 0.98F) return encode(format, -0.0F, Overflow::overflow);
  const float magnitude = draw < -0.8F ? 0x1p-18F : 1.0F;
  return encode(format, sequence.next() * magnitude, Overflow::overflow);
}

float chain(const Product& shape, const Floats& x, std::span<const float> weights, std::int64_t row, std::int64_t n) {
  float sum = 0;
  for (std::int64_t k = 0; k < shape.depth; ++k) {
    sum = std::fma(x.at(row, k), weights[static_cast<std::size_t>(n * shape.depth + k)], sum);
  }
  return sum;
}

void expect_chains(const Product& shape, std::uint64_t seed, std::span<const std::unique_ptr<Device>> devices) {
  const auto element = static_cast<std::size_t>(storage_size(shape.format));
  Floats x = test::random_floats(shape.rows, shape.depth, seed);
  cases::Sequence sequence(seed + 1);
  const auto elements = static_cast<std::size_t>((shape.outputs - 1) * shape.stride + shape.depth);
  const Guarded memory(elements * element);
  ASSERT_NE(memory.data(), nullptr);
  std::vector<float> weights;
  for (std::int64_t n = 0; n < shape.outputs; ++n) {
    for (std::int64_t k = 0; k < shape.depth; ++k) {
      const std::uint32_t code = weight_code(sequence, shape.format);
      std::memcpy(memory.data() + static_cast<std::size_t>(n * shape.stride + k) * element, &code, element);
      weights.push_back(decode(shape.format, code));
    }
  }
  std::vector<std::uint32_t> expected;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t n = 0; n < shape.outputs; ++n) {
      const float sum = chain(shape, x, weights, row, n);
      expected.push_back(std::isnan(sum) ? test::kCanonical : test::bits(sum));
    }
  }
  for (const auto& device : devices) {
    Floats out(shape.rows, shape.outputs, test::kNan);
    const Status done =
        device->launch(GemmArgs{.x = x.view(),
                                .weight = {memory.data(), shape.format, shape.outputs, shape.depth, shape.stride},
                                .packed = {},
                                .bias = {},
                                .out = out.view()});
    ASSERT_TRUE(done) << done.error().message;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(test::bits(out.data[i]), expected[i])
          << device->info().isa << " " << name(shape.format) << " " << shape.rows << "x" << shape.depth << "x"
          << shape.outputs << " stride " << shape.stride << ", output " << i << ", seed " << seed;
    }
  }
}

std::vector<std::unique_ptr<Device>> all_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (auto made = make_cpu_device(isa, 2)) devices.push_back(*std::move(made));
  }
  return devices;
}

TEST(Gemm, OfStoredWeightsIsOneChainAnOutput) {
  const auto devices = all_devices();
  ASSERT_FALSE(devices.empty());
  cases::Sequence sequence(7);
  const auto draw = [&](std::int64_t most) {
    const auto value = static_cast<std::int64_t>((sequence.next() + 1.0F) / 2.0F * static_cast<float>(most));
    return std::min(value, most - 1) + 1;
  };
  constexpr std::array kFormats = {Format::f32, Format::bf16, Format::f16};
  for (std::uint64_t turn = 0; turn < 300; ++turn) {
    // A decode step's one row half the time, else up to more than a tile; all lengths up to two blocks of k.
    const std::int64_t rows = turn % 2 == 0 ? 1 : draw(turn % 3 == 0 ? 100 : 17);
    const std::int64_t depth = rows > 17 ? draw(100) : draw(530);
    const std::int64_t outputs = draw(rows > 17 ? 40 : 100);
    expect_chains({rows, depth, outputs, depth + (turn % 5 == 0 ? draw(9) : 0), kFormats[turn % 3]}, 100 + turn,
                  devices);
    if (HasFatalFailure()) return;
  }
  // Rows so long that strips of rows are read at columns of their own, warps of several panels, and rows that are
  // longer than the room for a copy of x.
  constexpr Product kLong[] = {{1, 1500, 70, 1500, Format::bf16},  {2, 3001, 40, 3010, Format::f16},
                               {3, 900, 65, 900, Format::f32},     {4, 75, 4100, 75, Format::bf16},
                               {1, 64, 2050, 64, Format::bf16},    {4, 8500, 33, 8500, Format::bf16},
                               {1, 34000, 33, 34000, Format::f16}, {6, 1100, 40, 1100, Format::bf16}};
  for (const Product& shape : kLong) {
    expect_chains(shape, 1000, devices);
    if (HasFatalFailure()) return;
  }
}

/// A weight of codes and scales, part of a larger matrix.
struct Scaled {
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t outputs;
  Format codes;
  Format scales;
  BlockShape block;
  SecondScale second = SecondScale::none;
  Format partial = Format::f32;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  float second_scale = 3.7F;  ///< of a divisor
  bool ordinary = false;      ///< no NaN, Inf or zero among codes and scales
};

/// The matrix, in memory that ends where nobody may read, and what each element of the weight is worth.
class ScaledMatrix {
 public:
  ScaledMatrix(const Scaled& shape, std::uint64_t seed)
      : halves_(shape.codes == Format::e2m1),
        rows_(shape.first_row + shape.outputs),
        columns_(shape.first_column + shape.depth),
        stride_(halves_ ? (columns_ + 1) / 2 * 2 : columns_),
        scale_rows_((rows_ + shape.block.rows - 1) / shape.block.rows),
        scale_columns_((columns_ + shape.block.columns - 1) / shape.block.columns),
        codes_(static_cast<std::size_t>(rows_ * stride_ / (halves_ ? 2 : 1))),
        scales_(static_cast<std::size_t>(scale_rows_ * scale_columns_ * storage_size(shape.scales))),
        shape_(shape) {
    cases::Sequence sequence(seed);
    const float second = shape.second == SecondScale::divisor ? shape.second_scale : 0.0625F;
    view_ = {{codes_.data(), shape.codes, rows_, columns_, stride_},
             {scales_.data(), shape.scales, scale_rows_, scale_columns_, scale_columns_},
             shape.block,
             shape.second,
             second,
             shape.first_row,
             shape.first_column};
    for (std::size_t i = 0; i < codes_.size(); ++i) codes_.data()[i] = static_cast<std::byte>(any_byte(sequence));
    const auto width = static_cast<std::size_t>(storage_size(shape.scales));
    const float offset = shape.ordinary ? 1.125F : 0;
    for (std::size_t i = 0; i < scales_.size() / width; ++i) {
      const float draw = shape.ordinary ? 0 : sequence.next();
      const float scale = draw > 0.995F ? test::kNan : draw < -0.995F ? -0.0F : (sequence.next() + offset) * 3;
      const std::uint32_t code = encode(shape.scales, scale, Overflow::saturate);
      std::memcpy(scales_.data() + i * width, &code, width);
    }
  }
  const ScaledWeight& view() const { return view_; }
  bool ok() const { return codes_.data() != nullptr && scales_.data() != nullptr; }

  float value(std::int64_t n, std::int64_t k) const {
    const std::int64_t row = n + shape_.first_row;
    const std::int64_t column = k + shape_.first_column;
    const std::int64_t at = row * stride_ + column;
    auto code = std::to_integer<std::uint32_t>(codes_.data()[halves_ ? at / 2 : at]);
    if (halves_) code = at % 2 == 0 ? code & 15U : code >> 4U;
    const auto width = static_cast<std::size_t>(storage_size(shape_.scales));
    const std::int64_t block = row / shape_.block.rows * scale_columns_ + column / shape_.block.columns;
    std::uint32_t scale_code = 0;
    std::memcpy(&scale_code, scales_.data() + static_cast<std::size_t>(block) * width, width);
    float scale = decode(shape_.scales, scale_code);
    if (shape_.second == SecondScale::divisor) scale /= view_.second_scale;
    if (shape_.second == SecondScale::multiplier) scale *= view_.second_scale;
    return decode(shape_.codes, code) * scale;
  }

 private:
  /// Codes that are NaN or Inf in one of a few thousand.
  std::uint32_t any_byte(cases::Sequence& sequence) const {
    const auto byte = static_cast<std::uint32_t>((sequence.next() + 1) * 127.99F);
    const bool finite = halves_ || std::isfinite(decode(shape_.codes, byte));
    return finite || (!shape_.ordinary && sequence.next() > 0.99F) ? byte : byte ^ 0x40U;
  }

  bool halves_;
  std::int64_t rows_, columns_, stride_, scale_rows_, scale_columns_;
  Guarded codes_, scales_;
  Scaled shape_;
  ScaledWeight view_;
};

/// One chain, or chains of 32 inputs that are rounded to f16 before they are added.
float scaled_sum(const Scaled& shape, const Floats& x, std::span<const float> weights, std::int64_t row) {
  float total = 0;
  float sum = 0;
  for (std::int64_t k = 0; k < shape.depth; ++k) {
    sum = std::fma(x.at(row, k), weights[static_cast<std::size_t>(k)], sum);
    if (shape.partial == Format::f32 || ((k + 1) % kPartialDepth != 0 && k + 1 != shape.depth)) continue;
    total += decode(Format::f16, encode(Format::f16, sum, Overflow::overflow));
    sum = 0;
  }
  return shape.partial == Format::f32 ? sum : total;
}

void expect_scaled(const Scaled& shape, std::uint64_t seed, std::span<const std::unique_ptr<Device>> devices) {
  Floats x = test::random_floats(shape.rows, shape.depth, seed);
  const ScaledMatrix matrix(shape, seed + 1);
  ASSERT_TRUE(matrix.ok());
  std::vector<std::uint32_t> expected(static_cast<std::size_t>(shape.rows * shape.outputs));
  std::vector<float> weights(static_cast<std::size_t>(shape.depth));
  for (std::int64_t n = 0; n < shape.outputs; ++n) {
    for (std::int64_t k = 0; k < shape.depth; ++k) weights[static_cast<std::size_t>(k)] = matrix.value(n, k);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const float sum = scaled_sum(shape, x, weights, row);
      expected[static_cast<std::size_t>(row * shape.outputs + n)] =
          std::isnan(sum) ? test::kCanonical : test::bits(sum);
    }
  }
  for (const auto& device : devices) {
    Floats out(shape.rows, shape.outputs, test::kNan);
    const Status done = device->launch(GemmArgs{.x = x.view(),
                                                .weight = {},
                                                .packed = {},
                                                .bias = {},
                                                .out = out.view(),
                                                .partial = shape.partial,
                                                .scaled = matrix.view()});
    ASSERT_TRUE(done) << done.error().message;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(test::bits(out.data[i]), expected[i])
          << device->info().isa << " " << name(shape.codes) << " " << name(shape.scales) << " of " << shape.block.rows
          << "x" << shape.block.columns << ", " << shape.rows << "x" << shape.depth << "x" << shape.outputs
          << ", output " << i << ", seed " << seed;
    }
  }
}

TEST(Gemm, OfCodesAndScalesIsOneChainAnOutput) {
  const auto devices = all_devices();
  ASSERT_FALSE(devices.empty());
  constexpr std::int32_t kAll = 1 << 30;
  // What checkpoints have: one scale, one a row, blocks of each producer; then blocks that no word fits into, parts of
  // larger matrices, chains of halves, rows of more than one piece, and more rows of x than a few.
  const Scaled shapes[] = {
      {1, 300, 70, Format::e4m3, Format::f32, {kAll, kAll}},
      {1, 1000, 150, Format::e5m2, Format::bf16, {1, kAll}},
      {4, 700, 140, Format::int8, Format::f32, {1, kAll}},
      {1, 700, 300, Format::e4m3, Format::f32, {128, 128}},
      {2, 900, 70, Format::e4m3, Format::bf16, {128, 128}},
      {1, 4500, 70, Format::e4m3, Format::e8m0, {1, 32}},
      {3, 2500, 33, Format::e5m2, Format::e8m0, {1, 32}},
      {1, 6200, 100, Format::e2m1, Format::e8m0, {1, 32}},
      {1, 3333, 170, Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor},
      {4, 2100, 40, Format::e2m1, Format::e4m3, {1, 16}, SecondScale::multiplier},
      {1, 34000, 33, Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor},
      {20, 530, 70, Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor},
      {40, 700, 40, Format::e4m3, Format::f32, {128, 128}},
      {7, 600, 40, Format::e5m2, Format::e8m0, {1, 32}},
      {6, 1030, 40, Format::int8, Format::f16, {1, kAll}},
      {1, 500, 40, Format::e4m3, Format::f32, {3, 24}},
      {5, 300, 40, Format::e2m1, Format::e4m3, {1, 6}, SecondScale::multiplier},
      {1, 600, 70, Format::e2m1, Format::e8m0, {1, 32}, SecondScale::none, Format::f32, 40, 64},
      {1, 600, 70, Format::e2m1, Format::e8m0, {1, 32}, SecondScale::none, Format::f32, 3, 7},
      {9, 600, 70, Format::e4m3, Format::f32, {128, 128}, SecondScale::none, Format::f32, 100, 128},
      {1, 600, 70, Format::e4m3, Format::f32, {128, 128}, SecondScale::none, Format::f32, 100, 40},
      {1, 300, 70, Format::e4m3, Format::e8m0, {1, 32}, SecondScale::none, Format::f16},
      {8, 300, 40, Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor, Format::f16},
  };
  for (std::uint64_t i = 0; i < std::size(shapes); ++i) {
    expect_scaled(shapes[i], 2000 + i, devices);
    if (HasFatalFailure()) return;
    Scaled ordinary = shapes[i];
    ordinary.ordinary = true;
    expect_scaled(ordinary, 2500 + i, devices);
    if (HasFatalFailure()) return;
  }
}

/// What quotients of scales round to, by divisors of any mantissa and of exponents that leave the normal numbers.
TEST(Gemm, OfScalesThatAreDividedRoundsOnce) {
  const auto devices = all_devices();
  cases::Sequence sequence(3000);
  const float far[] = {0x1p-140F, 0x1p-126F, 0x1p-60F, 0x1p60F, 0x1p126F, 0x1.fffffep127F, -3, 0, test::kInf};
  for (std::uint64_t i = 0; i < 40; ++i) {
    Scaled shape{1, 1100, 64, Format::e2m1, Format::e4m3, {1, 16}, SecondScale::divisor};
    shape.second_scale = i < std::size(far) ? far[i] : std::exp2(sequence.next() * 20);
    expect_scaled(shape, 3000 + i, devices);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace nanscope::kernels
