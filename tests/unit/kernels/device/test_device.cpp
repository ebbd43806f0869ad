#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/float_environment.h"
#include "kernels/device.h"
#include "kernels/ops/residual_add.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace nanscope::kernels {
namespace {

using testing::HasSubstr;

TensorView view(std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  return {values.data(), Format::f32, rows, columns, columns};
}

TEST(Device, SaysWhatItIs) {
  const auto device = make_device("cpu", 3);
  ASSERT_TRUE(device) << device.error().message;
  const DeviceInfo& info = (*device)->info();
  EXPECT_EQ(info.name, "cpu");
  EXPECT_EQ(info.threads, 3);
  EXPECT_EQ(info.float_environment, "nearest-even, FTZ off, DAZ off");
  EXPECT_THAT(info.isa, testing::AnyOf("baseline", "avx2", "avx512"));
  EXPECT_TRUE((*device)->host_addressable());
}

TEST(Device, BaselineRunsEverywhere) {
  const auto device = make_device("cpu:baseline", 1);
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ((*device)->info().isa, "baseline");
}

TEST(Device, UnknownNamesAndImpossibleThreadsAreOneLine) {
  for (const char* name : {"gpu", "cuda:", "cuda:-1", "cuda:1x", "cpu:sse9", ""}) {
    const auto device = make_device(name);
    ASSERT_FALSE(device) << name;
    EXPECT_THAT(device.error().message, HasSubstr("unknown device"));
    EXPECT_THAT(device.error().message, HasSubstr("cpu:avx2"));
  }
  EXPECT_THAT(make_device("cpu", -1).error().message, HasSubstr("-1 threads"));
  EXPECT_THAT(make_device("cpu", 1 << 20).error().message, HasSubstr("expected 0"));
}

TEST(Device, MemoryHoldsWhatWasUploaded) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  const auto buffer = (*device)->allocate(1000, true);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->bytes(), 1000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
  std::vector<std::byte> host(1000, std::byte{1});
  ASSERT_TRUE((*device)->download(host, buffer->data()));
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill(host.begin(), host.end(), std::byte{7});
  ASSERT_TRUE((*device)->upload(buffer->data(), host));
  ASSERT_TRUE((*device)->copy(static_cast<std::byte*>(buffer->data()) + 500, buffer->data(), 500));
  ASSERT_TRUE((*device)->synchronize());
  EXPECT_EQ(std::memcmp(buffer->data(), host.data(), 1000), 0);
}

TEST(Device, TooMuchMemoryIsAnError) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  const auto buffer = (*device)->allocate(~std::size_t{0} - 3, false);
  ASSERT_FALSE(buffer);
  EXPECT_THAT(buffer.error().message, HasSubstr("cannot allocate"));
}

TEST(Device, WrongArgumentsNameTheOpTheTensorAndTheShape) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  std::vector<float> a(12);
  std::vector<float> out(12);
  ResidualAddArgs args{view(a, 3, 4), view(a, 4, 3), view(out, 3, 4)};
  const Status status = (*device)->launch(args);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "residual_add: tensor 'b' has shape (4, 3), expected (3, 4)");

  args.b = view(a, 3, 4);
  args.a.format = Format::e4m3;
  EXPECT_EQ((*device)->launch(args).error().message, "residual_add: tensor 'a' is e4m3, expected f32, f16, bf16");
  args.a = {};
  EXPECT_EQ((*device)->launch(args).error().message, "residual_add: tensor 'a' is not given");
  args.a = view(a, 3, 4);
  args.a.stride = 3;
  EXPECT_THAT((*device)->launch(args).error().message, HasSubstr("row stride of 3, expected at least its 4 columns"));
}

TEST(Device, EmptyTensorsAreNoWork) {
  const auto device = make_device("cpu", 2);
  ASSERT_TRUE(device);
  std::vector<float> some(4);
  const ResidualAddArgs args{view(some, 0, 4), view(some, 0, 4), view(some, 0, 4)};
  EXPECT_TRUE((*device)->launch(args));
}

TEST(Device, ThreadsDoNotShowInTheBits) {
  constexpr std::int64_t kRows = 3000;
  constexpr std::int64_t kColumns = 301;
  std::vector<float> a(kRows * kColumns);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 8191) * 0.37F;
  std::vector<float> expected(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) expected[i] = a[i] + a[i];
  for (const int threads : {1, 2, 5}) {
    const auto device = make_device("cpu", threads);
    ASSERT_TRUE(device);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<float> out(a.size());
      ASSERT_TRUE((*device)->launch(
          ResidualAddArgs{view(a, kRows, kColumns), view(a, kRows, kColumns), view(out, kRows, kColumns)}));
      ASSERT_EQ(out, expected) << threads << " threads";
    }
  }
}

#if defined(__x86_64__)
/// Sets a bit of MXCSR for the length of a test, as a fast-math library does when it is loaded.
class Mxcsr {
 public:
  explicit Mxcsr(unsigned bits) : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | bits); }
  ~Mxcsr() { _mm_setcsr(saved_); }
  Mxcsr(const Mxcsr&) = delete;
  Mxcsr& operator=(const Mxcsr&) = delete;

 private:
  unsigned saved_;
};

TEST(Device, EveryThreadKeepsSubnormals) {
  constexpr std::int64_t kRows = 4096;
  constexpr std::int64_t kColumns = 256;
  std::vector<float> tiny(kRows * kColumns, 1e-40F);
  std::vector<float> sums(tiny.size());
  const auto device = make_device("cpu", 4);
  ASSERT_TRUE(device);
  const ResidualAddArgs args{view(tiny, kRows, kColumns), view(tiny, kRows, kColumns), view(sums, kRows, kColumns)};
  ASSERT_TRUE((*device)->launch(args));
  EXPECT_EQ(std::count(sums.begin(), sums.end(), 2 * 1e-40F), kRows * kColumns);
}

TEST(Device, ChangedFloatEnvironmentIsRefused) {
  const auto device = make_device("cpu", 1);
  ASSERT_TRUE(device);
  std::vector<float> a(4);
  const ResidualAddArgs args{view(a, 1, 4), view(a, 1, 4), view(a, 1, 4)};
  struct Case {
    unsigned bits;
    const char* named;
  };
  for (const Case c : {Case{0x8000U, "FTZ on"}, Case{0x0040U, "DAZ on"}, Case{0x6000U, "toward-zero"}}) {
    Status launched;
    Result<std::unique_ptr<Device>> made = fail("not tried");
    {
      const Mxcsr changed(c.bits);
      launched = (*device)->launch(args);
      made = make_device("cpu", 1);
    }
    ASSERT_FALSE(launched);
    EXPECT_THAT(launched.error().message, HasSubstr(c.named));
    EXPECT_THAT(launched.error().message, HasSubstr("expected nearest-even"));
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr(c.named));
  }
  EXPECT_TRUE((*device)->launch(args)) << "restored";
}
#endif

}  // namespace
}  // namespace nanscope::kernels
