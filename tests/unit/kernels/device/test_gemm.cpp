// The product against one chain of std::fma an output: the order contract, at sizes around every
// border of the blocking.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/numbers/codec.h"
#include "kernels/device.h"
#include "kernels/ops/gemm.h"
#include "kernels/pack.h"

namespace nanscope::kernels {
namespace {

struct Tensor {
  std::vector<std::uint32_t> memory;  // any format fits; 4 byte aligned
  TensorView view;
};

float pseudo_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<float>(static_cast<std::int64_t>(state >> 40) - (1 << 23)) * 0x1p-22F;
}

Tensor make_tensor(Format format, std::int64_t rows, std::int64_t columns, std::int64_t padding, std::uint64_t seed) {
  Tensor tensor;
  const auto bytes = static_cast<std::size_t>(storage_size(format));
  const std::int64_t stride = columns + padding;
  tensor.memory.resize(static_cast<std::size_t>(rows * stride) * bytes / 4 + 1);
  std::uint64_t state = seed;
  auto* memory = reinterpret_cast<std::byte*>(tensor.memory.data());
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    const std::uint32_t code = encode(format, pseudo_random(state), Overflow::saturate);
    std::memcpy(memory + static_cast<std::size_t>(i) * bytes, &code, bytes);
  }
  tensor.view = {tensor.memory.data(), format, rows, columns, stride};
  return tensor;
}

float element(const TensorView& view, std::int64_t row, std::int64_t column) {
  const auto bytes = static_cast<std::size_t>(storage_size(view.format));
  std::uint32_t code = 0;
  std::memcpy(&code,
              static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride + column) * bytes,
              bytes);
  return decode(view.format, code);
}

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    for (std::int64_t column = 0; column < view.columns; ++column) values.push_back(element(view, row, column));
  }
  return values;
}

void expect_chains(const GemmArgs& args, const std::string& what) {
  const std::int64_t depth = args.x.columns;
  const std::vector<float> x = values_of(args.x);
  const std::vector<float> weight = values_of(args.weight);
  for (std::int64_t t = 0; t < args.out.rows; ++t) {
    for (std::int64_t n = 0; n < args.out.columns; ++n) {
      float total = 0.0F;
      float parts = 0.0F;
      for (std::int64_t k = 0; k < depth; ++k) {
        total = std::fma(x[static_cast<std::size_t>(t * depth + k)], weight[static_cast<std::size_t>(n * depth + k)],
                         total);
        if (args.partial == Format::f32 || (k % 32 != 31 && k + 1 != depth)) continue;
        parts += decode(Format::f16, encode(Format::f16, total, Overflow::overflow));
        total = 0.0F;
      }
      if (args.partial != Format::f32) total = parts;
      if (args.bias.given()) total += element(args.bias, 0, n);
      const float expected = decode(args.out.format, encode(args.out.format, total, Overflow::overflow));
      ASSERT_EQ(element(args.out, t, n), expected) << what << " at " << t << ", " << n;
    }
  }
}

struct Size {
  std::int64_t t, n, k;
};

TEST(Gemm, OneFmaChainAnOutputWhateverTheBlocking) {
  const Size sizes[] = {{1, 32, 1},   {1, 300, 257}, {2, 33, 256},   {4, 64, 512},  {5, 31, 300},
                        {13, 96, 40}, {97, 40, 33},  {100, 290, 70}, {203, 20, 260}};
  for (const char* name : {"cpu:baseline", "cpu:avx2", "cpu:avx512"}) {
    const auto device = make_device(name, 2);
    if (!device) continue;  // this CPU cannot
    for (const Size& size : sizes) {
      for (const Format format : {Format::f32, Format::bf16, Format::f16}) {
        const Tensor x = make_tensor(format, size.t, size.k, 3, 1);
        const Tensor weight = make_tensor(format, size.n, size.k, 1, 2);
        const Tensor bias = make_tensor(Format::f32, 1, size.n, 0, 3);
        Tensor out = make_tensor(format, size.t, size.n, 2, 4);
        GemmArgs args{x.view, weight.view, {}, bias.view, out.view};
        const std::string what = std::string(name) + " " + std::string(nanscope::name(format)) + " " +
                                 std::to_string(size.t) + "x" + std::to_string(size.n) + "x" + std::to_string(size.k);
        const auto launched = (*device)->launch(args);
        ASSERT_TRUE(launched) << launched.error().message;
        expect_chains(args, what);

        std::vector<float> panels(static_cast<std::size_t>(packed_floats(size.n, size.k)));
        ASSERT_TRUE(pack_weight(weight.view, panels));
        args.packed = packed_view(panels.data(), size.n, size.k);
        args.bias = {};
        ASSERT_TRUE((*device)->launch(args));
        expect_chains(args, what + " packed");

        args.partial = Format::f16;
        ASSERT_TRUE((*device)->launch(args));
        expect_chains(args, what + " packed, sums of 32 in f16");
        args.packed = {};
        args.bias = bias.view;
        ASSERT_TRUE((*device)->launch(args));
        expect_chains(args, what + " sums of 32 in f16");
      }
    }
  }
}

TEST(Gemm, ASumOfABlockInHalvesOverflowsThoughTheProductIsSmall) {
  const std::int64_t k = 64;
  Tensor x = make_tensor(Format::f32, 1, k, 0, 1);
  Tensor weight = make_tensor(Format::f32, 1, k, 0, 2);
  Tensor out = make_tensor(Format::f32, 1, 1, 0, 3);
  auto* values = static_cast<float*>(x.view.data);
  auto* weights = static_cast<float*>(weight.view.data);
  for (std::int64_t i = 0; i < k; ++i) values[i] = 100.0F;
  for (std::int64_t i = 0; i < k; ++i) weights[i] = i < 32 ? 21.0F : -15.0F;  // 67200 and -48000
  const auto device = make_device("cpu:baseline", 1);
  GemmArgs args{x.view, weight.view, {}, {}, out.view};
  ASSERT_TRUE((*device)->launch(args));
  EXPECT_EQ(element(out.view, 0, 0), 19200.0F);
  args.partial = Format::f16;
  ASSERT_TRUE((*device)->launch(args));
  EXPECT_TRUE(std::isinf(element(out.view, 0, 0)));
}

TEST(Gemm, NeighboursAreLeftAlone) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  const Tensor x = make_tensor(Format::f32, 14, 40, 0, 1);
  const Tensor weight = make_tensor(Format::f32, 37, 40, 0, 2);
  std::vector<float> out(14 * 50, -5.0F);
  const GemmArgs args{x.view, weight.view, {}, {}, {out.data(), Format::f32, 14, 37, 50}};
  ASSERT_TRUE((*device)->launch(args));
  for (std::size_t row = 0; row < 14; ++row) {
    for (std::size_t column = 37; column < 50; ++column) EXPECT_EQ(out[row * 50 + column], -5.0F);
  }
}

TEST(Gemm, ANanStaysInItsRowAndColumn) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  Tensor x = make_tensor(Format::f32, 3, 40, 0, 1);
  Tensor weight = make_tensor(Format::f32, 37, 40, 0, 2);
  x.memory[40 + 5] = 0xffc00001U;            // row 1
  weight.memory[33 * 40 + 7] = 0x7f800000U;  // column 33: Inf
  Tensor out = make_tensor(Format::f32, 3, 37, 0, 3);
  ASSERT_TRUE((*device)->launch(GemmArgs{x.view, weight.view, {}, {}, out.view}));
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t n = 0; n < 37; ++n) {
      const float value = std::bit_cast<float>(out.memory[t * 37 + n]);
      if (t == 1) {
        EXPECT_EQ(out.memory[t * 37 + n], 0x7fffffffU) << "canonical";
      } else {
        EXPECT_EQ(std::isfinite(value), n != 33) << t << " " << n;
      }
    }
  }
}

TEST(Gemm, WrongShapesAreNamed) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  const Tensor x = make_tensor(Format::f32, 2, 8, 0, 1);
  const Tensor weight = make_tensor(Format::f32, 4, 9, 0, 2);
  const Tensor out = make_tensor(Format::f32, 2, 4, 0, 3);
  GemmArgs args{x.view, weight.view, {}, {}, out.view};
  EXPECT_EQ((*device)->launch(args).error().message, "gemm: tensor 'weight' has shape (4, 9), expected (4, 8)");
  std::vector<float> panels(5);
  EXPECT_THAT(pack_weight(weight.view, panels).error().message, testing::HasSubstr("expected 288"));
}

}  // namespace
}  // namespace nanscope::kernels
