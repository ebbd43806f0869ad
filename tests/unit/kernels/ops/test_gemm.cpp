// gemm of weights as they are stored, against one std::fma chain an output: the same bits for every instruction set,
// format, number of rows and ragged shape, and nothing is read behind the last weight.
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

TEST(Gemm, OfStoredWeightsIsOneChainAnOutput) {
  std::vector<std::unique_ptr<Device>> devices;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (auto made = make_cpu_device(isa, 2)) devices.push_back(*std::move(made));
  }
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

}  // namespace
}  // namespace nanscope::kernels
