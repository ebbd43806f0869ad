// The CUDA device on a runtime that runs everything as late, or in as odd an order, as CUDA allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/launch_batch.h"
#include "kernels/cuda/pinned_pool.h"
#include "kernels/cuda/staging.h"
#include "kernels/device.h"
#include "kernels/ops/absmax.h"
#include "kernels/ops/residual_add.h"
#include "tests/unit/kernels/cuda/fake_cudart.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels {
namespace {

using fake_cuda::Schedule;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kColumns = 64;

std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = seed;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

class CudaDevice : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    fake_cuda::reset(GetParam(), 7);
    open("cuda");
  }
  void TearDown() override {
    vectors_.clear();
    device_.reset();
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
    EXPECT_EQ(fake_cuda::allocations(), 0U);
    EXPECT_EQ(fake_cuda::pending(), 0U);
  }
  void open(const std::string& name) {
    auto device = make_device(name);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
  }

  /// Memory of 64 floats, all `value`.
  TensorView vector(float value) {
    vectors_.push_back(*device_->allocate(kColumns * sizeof(float), false));
    const std::vector<float> values(kColumns, value);
    EXPECT_TRUE(device_->upload(vectors_.back().data(), std::as_bytes(std::span(values))));
    return {vectors_.back().data(), Format::f32, 1, kColumns, kColumns};
  }
  std::vector<float> read(const TensorView& view) {
    std::vector<float> values(kColumns);
    const Status got = device_->download(std::as_writable_bytes(std::span(values)), view.data);
    EXPECT_TRUE(got) << (got ? "" : got.error().message);
    return values;
  }
  void add(const TensorView& a, const TensorView& b, const TensorView& out) {
    const Status launched = device_->launch(ResidualAddArgs{a, b, out});
    ASSERT_TRUE(launched) << launched.error().message;
  }

  std::unique_ptr<Device> device_;
  std::vector<Buffer> vectors_;
};

INSTANTIATE_TEST_SUITE_P(Schedules, CudaDevice, testing::Values(Schedule::late, Schedule::eager, Schedule::random),
                         [](const testing::TestParamInfo<Schedule>& info) {
                           return info.param == Schedule::late    ? "late"
                                  : info.param == Schedule::eager ? "eager"
                                                                  : "random";
                         });

TEST_P(CudaDevice, EveryOpCaseIsTheCpusInEveryByte) {
  const auto cpu = make_device("cpu:baseline", 1);
  ASSERT_TRUE(cpu);
  for (const cases::OpCase& op_case : cases::op_cases()) {
    const auto expected = cases::run_case(op_case, **cpu);
    const auto found = cases::run_case(op_case, *device_);
    ASSERT_TRUE(expected);
    ASSERT_TRUE(found) << op_case.name << ": " << found.error().message;
    EXPECT_EQ(cases::first_difference(*expected, *found), "") << op_case.name;
  }
}

TEST_P(CudaDevice, CopiesOfEverySizeComeBackAsTheyWent) {
  constexpr std::size_t kPiece = cuda::Staging::kPieceBytes;
  for (const std::size_t count : {std::size_t{1}, std::size_t{4097}, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece + 5}) {
    const std::vector<std::byte> sent = bytes_of(count, 3);
    const Buffer buffer = *device_->allocate(count, false);
    std::vector<std::byte> reused = sent;
    ASSERT_TRUE(device_->upload(buffer.data(), reused));
    std::fill(reused.begin(), reused.end(), std::byte{0});  // the caller's memory is its own again
    std::vector<std::byte> got(count);
    ASSERT_TRUE(device_->download(got, buffer.data()));
    EXPECT_EQ(got == sent, true) << count << " bytes";
  }
}

TEST_P(CudaDevice, UploadsAreInOrderWithLaunches) {
  const TensorView x = vector(0);
  const TensorView one = vector(1);
  std::vector<TensorView> sums;
  // More than the pinned memory holds, so that pieces are used again while work waits.
  for (int i = 0; i < 40; ++i) {
    const std::vector<float> values(std::size_t{1} << 18, static_cast<float>(i));
    const Buffer large = *device_->allocate(values.size() * sizeof(float), false);
    ASSERT_TRUE(device_->upload(large.data(), std::as_bytes(std::span(values))));
    sums.push_back(vector(0));
    add({large.data(), Format::f32, 1, kColumns, kColumns}, one, sums.back());
  }
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(read(sums[static_cast<std::size_t>(i)]), std::vector<float>(kColumns, static_cast<float>(i + 1)));
  }
  EXPECT_EQ(read(x), std::vector<float>(kColumns, 0.0F));
}

TEST_P(CudaDevice, AnUploadDoesNotOvertakeALaunchThatReadsWhatItReplaces) {
  const TensorView x = vector(1);
  const TensorView sum = vector(0);
  add(x, x, sum);
  const std::vector<float> values(kColumns, 50.0F);
  ASSERT_TRUE(device_->upload(x.data, std::as_bytes(std::span(values))));
  EXPECT_EQ(read(sum), std::vector<float>(kColumns, 2.0F));
  add(x, x, sum);
  ASSERT_TRUE(device_->copy(x.data, sum.data, 4));
  EXPECT_EQ(read(sum), std::vector<float>(kColumns, 100.0F));
  EXPECT_EQ(read(x)[0], 100.0F);
  EXPECT_EQ(read(x)[1], 50.0F);
}

TEST_P(CudaDevice, ZeroedMemoryIsZeroForWhatComesNext) {
  const Buffer zeroed = *device_->allocate(kColumns * sizeof(float), true);
  const TensorView sum = vector(5);
  add({zeroed.data(), Format::f32, 1, kColumns, kColumns}, vector(2), sum);
  EXPECT_EQ(read(sum), std::vector<float>(kColumns, 2.0F));
}

TEST_P(CudaDevice, RowsAreGatheredWithoutTheirGaps) {
  const std::vector<std::byte> sent = bytes_of(7 * 100, 4);
  const Buffer from = *device_->allocate(sent.size(), false);
  const Buffer to = *device_->allocate(7 * 33, false);
  ASSERT_TRUE(device_->upload(from.data(), sent));
  ASSERT_TRUE(device_->gather(to.data(), from.data(), {7, 33, 100}));
  std::vector<std::byte> got(7 * 33);
  ASSERT_TRUE(device_->download(got, to.data()));
  for (std::size_t row = 0; row < 7; ++row) EXPECT_EQ(std::memcmp(&got[row * 33], &sent[row * 100], 33), 0) << row;
}

TEST_P(CudaDevice, ACopyThatWasBegunSeesWhatCameBeforeIt) {
  const TensorView sum = vector(0);
  const TensorView other = vector(0);
  add(vector(1), vector(2), sum);
  const Buffer host = *device_->allocate_host(kColumns * sizeof(float));
  const std::span<std::byte> bytes(static_cast<std::byte*>(host.data()), host.bytes());
  const auto transfer = device_->start_download(bytes, sum.data);
  ASSERT_TRUE(transfer);
  add(sum, sum, other);  // runs beside the copy
  ASSERT_TRUE(device_->wait(*transfer));
  std::vector<float> values(kColumns);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  EXPECT_EQ(values, std::vector<float>(kColumns, 3.0F));
  EXPECT_EQ(read(other), std::vector<float>(kColumns, 6.0F));
}

TEST_P(CudaDevice, SynchronizeWaitsForCopiesToo) {
  const TensorView sum = vector(4);
  const Buffer host = *device_->allocate_host(kColumns * sizeof(float));
  const std::span<std::byte> bytes(static_cast<std::byte*>(host.data()), host.bytes());
  ASSERT_TRUE(device_->start_download(bytes, sum.data));
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(fake_cuda::pending(), 0U);
}

TEST_P(CudaDevice, PinnedMemoryIsUsedAgain) {
  const int before = fake_cuda::calls("cudaMallocHost");
  const void* first = nullptr;
  {
    const Buffer host = *device_->allocate_host(1000);
    const Buffer other = *device_->allocate_host(1000);
    EXPECT_NE(host.data(), other.data());
    first = host.data();
  }
  const Buffer again = *device_->allocate_host(600);
  const Buffer larger = *device_->allocate_host(1001);
  const Buffer smaller = *device_->allocate_host(499);
  EXPECT_EQ(fake_cuda::calls("cudaMallocHost"), before + 4) << "neither what is too small nor what is far too large";
  const Buffer last = *device_->allocate_host(1000);
  EXPECT_EQ(fake_cuda::calls("cudaMallocHost"), before + 4);
  EXPECT_TRUE(again.data() == first || last.data() == first);
}

TEST(PinnedPool, KeepsNoMoreThanItMay) {
  fake_cuda::reset(Schedule::late, 1);
  const auto pool = std::make_shared<cuda::PinnedPool>(1000);
  const int before = fake_cuda::calls("cudaMallocHost");
  {
    const auto kept = *pool->take(600);
    const auto over = *pool->take(600);
  }
  const auto again = *pool->take(600);
  const auto anew = *pool->take(600);
  EXPECT_EQ(fake_cuda::calls("cudaMallocHost"), before + 3);
}

TEST_P(CudaDevice, MemoryFreedAfterALaunchWasStillThereForIt) {
  const TensorView sum = vector(0);
  const TensorView two = vector(2);
  {
    const Buffer brief = *device_->allocate(kColumns * sizeof(float), true);
    add({brief.data(), Format::f32, 1, kColumns, kColumns}, two, sum);
  }
  EXPECT_EQ(read(sum), std::vector<float>(kColumns, 2.0F));
}

/// A step of ops that doubles: out[i] = out[i - 1] + out[i - 1].
class CudaGraphs : public CudaDevice {
 protected:
  static constexpr int kOps = 6;
  void step(const TensorView& x) {
    for (int i = 0; i < kOps; ++i) {
      const TensorView& from = i == 0 ? x : chain_[static_cast<std::size_t>(i - 1)];
      add(from, from, chain_[static_cast<std::size_t>(i)]);
    }
  }
  void expect_step(float value) {
    const TensorView x = vector(value);
    step(x);
    EXPECT_EQ(read(chain_.back()), std::vector<float>(kColumns, value * static_cast<float>(1 << kOps)));
  }
  void make_chain() {
    for (int i = 0; i < kOps; ++i) chain_.push_back(vector(-1));
  }
  std::vector<TensorView> chain_;
};

INSTANTIATE_TEST_SUITE_P(Schedules, CudaGraphs, testing::Values(Schedule::late, Schedule::random),
                         [](const testing::TestParamInfo<Schedule>& info) {
                           return info.param == Schedule::late ? "late" : "random";
                         });

TEST_P(CudaGraphs, AStepThatComesAgainIsOneLaunch) {
  make_chain();
  expect_step(1);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), kOps);
  expect_step(2);
  expect_step(3);
  expect_step(4);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), kOps) << "only the first time";
  EXPECT_EQ(fake_cuda::calls("cudaGraphInstantiate"), 1);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 3);
  EXPECT_EQ(fake_cuda::calls("cudaGraphExecKernelNodeSetParams"), 2)
      << "the op that reads x, each time after the first";
}

TEST_P(CudaGraphs, NodesAreToldOfOtherSizesToo) {
  make_chain();
  expect_step(1);
  expect_step(2);
  const TensorView x = vector(5);
  for (TensorView& view : chain_) view.columns = 3;
  TensorView narrow = x;
  narrow.columns = 3;
  step(narrow);
  const std::vector<float> last = read(chain_.back());
  EXPECT_EQ(last[2], 5.0F * (1 << kOps));
  EXPECT_EQ(last[3], 2.0F * (1 << kOps)) << "beyond the three columns";
}

TEST_P(CudaGraphs, NodesAreToldOfAnotherKernelOfTheirOp) {
  make_chain();
  expect_step(1);
  expect_step(2);
  TensorView x = vector(5);
  const auto as_two_rows = [](TensorView& view) {
    view.rows = 2;
    view.columns = view.stride = kColumns / 2;
  };
  as_two_rows(x);
  std::for_each(chain_.begin(), chain_.end(), as_two_rows);
  step(x);
  TensorView last = chain_.back();
  last.rows = 1;
  last.columns = last.stride = kColumns;
  EXPECT_EQ(read(last), std::vector<float>(kColumns, 5.0F * (1 << kOps)));
  EXPECT_GT(fake_cuda::calls("cudaGraphExecKernelNodeSetParams"), kOps - 1);
}

TEST_P(CudaGraphs, OneThatCouldNotBeChangedAsAWholeIsMadeAnew) {
  make_chain();
  expect_step(1);
  const TensorView x = vector(2);
  step(x);
  ASSERT_TRUE(device_->synchronize());
  const std::vector<TensorView> whole = chain_;
  TensorView narrow = x;
  narrow.columns = 3;
  for (TensorView& view : chain_) view.columns = 3;
  fake_cuda::fail_next("cudaGraphExecKernelNodeSetParams", cudaErrorIllegalAddress, 2);
  step(narrow);
  EXPECT_EQ(read(chain_.back())[2], 2.0F * (1 << kOps));
  EXPECT_EQ(fake_cuda::calls("cudaGraphInstantiate"), 2);
  chain_ = whole;
  const std::vector<float> five(kColumns, 5.0F);
  ASSERT_TRUE(device_->upload(x.data, std::as_bytes(std::span(five))));
  step(x);
  EXPECT_EQ(read(chain_.back()), std::vector<float>(kColumns, 5.0F * (1 << kOps)));
}

TEST_P(CudaGraphs, ManyOpsAreStartedBeforeAnybodyAsks) {
  const TensorView a = vector(1);
  const TensorView b = vector(2);
  const TensorView out = vector(0);
  for (std::size_t i = 0; i < cuda::LaunchBatch::kMostOps - 1; ++i) add(a, b, out);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), 0);
  add(a, b, out);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), static_cast<int>(cuda::LaunchBatch::kMostOps));
}

TEST_P(CudaGraphs, AnOpThatKeepsTheGpuBusyIsStartedAtOnce) {
  const std::int64_t rows = cuda::LaunchBatch::kBusyWork / kColumns;
  const Buffer large = *device_->allocate(static_cast<std::size_t>(rows * kColumns) * sizeof(float), true);
  const TensorView view{large.data(), Format::f32, rows, kColumns, kColumns};
  add(view, view, view);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), 1);
}

TEST_P(CudaGraphs, SequencesThatAreNotUsedAreForgotten) {
  make_chain();
  expect_step(1);
  expect_step(2);
  for (std::size_t extra = 1; extra <= cuda::LaunchBatch::kMostSequences; ++extra) {
    for (std::size_t i = 0; i < kOps + extra; ++i) add(chain_[0], chain_[0], chain_[1]);
    ASSERT_TRUE(device_->synchronize());
  }
  const int graphs = fake_cuda::calls("cudaGraphLaunch");
  expect_step(3);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), graphs) << "it counts as new";
  expect_step(4);
  EXPECT_EQ(fake_cuda::calls("cudaGraphDestroy"), 1);
}

TEST_P(CudaGraphs, TheOneInUseIsKept) {
  make_chain();
  expect_step(1);
  for (std::size_t extra = 1; extra < 2 * cuda::LaunchBatch::kMostSequences; ++extra) {
    for (std::size_t i = 0; i < kOps + extra; ++i) add(chain_[0], chain_[0], chain_[1]);
    ASSERT_TRUE(device_->synchronize());
    expect_step(2);
  }
  EXPECT_EQ(fake_cuda::calls("cudaGraphInstantiate"), 1);
}

TEST_P(CudaGraphs, CopiesAreNodesToo) {
  make_chain();
  const Buffer kept = *device_->allocate(4 * kColumns * sizeof(float), true);
  for (int turn = 0; turn < 4; ++turn) {
    step(vector(static_cast<float>(turn)));
    float* to = static_cast<float*>(kept.data()) + turn * kColumns;
    ASSERT_TRUE(device_->copy(to, chain_[1].data, kColumns * sizeof(float)));
    step(chain_[1]);
    ASSERT_TRUE(device_->synchronize());
  }
  std::vector<float> values(4 * kColumns);
  ASSERT_TRUE(device_->download(std::as_writable_bytes(std::span(values)), kept.data()));
  for (int turn = 0; turn < 4; ++turn)
    EXPECT_EQ(values[static_cast<std::size_t>(turn * kColumns)], static_cast<float>(4 * turn));
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 3);
  EXPECT_EQ(fake_cuda::calls("cudaGraphExecMemcpyNodeSetParams1D"), 2);
}

TEST_P(CudaGraphs, AsManyOpsOfOtherKindsAreAnotherSequence) {
  make_chain();
  expect_step(1);
  expect_step(2);
  const Buffer largest = *device_->allocate(sizeof(float), true);
  for (int i = 0; i < kOps; ++i) {
    AbsmaxArgs args;
    args.x = chain_[static_cast<std::size_t>(i)];
    args.out = {largest.data(), Format::f32, 1, 1, 1};
    ASSERT_TRUE(device_->launch(args));
  }
  float found = 0;
  ASSERT_TRUE(device_->download(std::as_writable_bytes(std::span(&found, 1)), largest.data()));
  EXPECT_EQ(found, 2.0F * (1 << kOps));
}

TEST_P(CudaGraphs, NobodyNeedsThem) {
  open("cuda:nograph");
  make_chain();
  for (int i = 0; i < 3; ++i) expect_step(static_cast<float>(i));
  ASSERT_TRUE(device_->use_graphs(true)) << "what the name forbids stays off";
  for (int i = 0; i < 3; ++i) expect_step(static_cast<float>(i));
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), 6 * kOps);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 0);
}

TEST_P(CudaGraphs, TurnedOffAndOnAgain) {
  make_chain();
  expect_step(1);
  expect_step(2);
  ASSERT_TRUE(device_->use_graphs(false));
  expect_step(3);
  ASSERT_TRUE(device_->use_graphs(true));
  expect_step(4);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernel"), 2 * kOps);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 2);
}

/// Every call of the runtime, with what leads to it: an error is told in one line that names what failed.
struct Trouble {
  const char* call;
  const char* said;
  void (*work)(Device&, Status&);
};

void with_memory(Device& device, Status& status, const std::function<Status(const Buffer&)>& work) {
  const auto buffer = device.allocate(kColumns * sizeof(float), false);
  status = buffer ? work(*buffer) : Status(tl::unexpected(buffer.error()));
}
void upload_some(Device& device, Status& status) {
  with_memory(device, status, [&](const Buffer& buffer) {
    const std::vector<std::byte> bytes(8);
    return device.upload(buffer.data(), bytes);
  });
}
void download_some(Device& device, Status& status) {
  with_memory(device, status, [&](const Buffer& buffer) {
    std::vector<std::byte> bytes(8);
    return device.download(bytes, buffer.data());
  });
}
void begin_download(Device& device, Status& status) {
  with_memory(device, status, [&](const Buffer& buffer) -> Status {
    const auto host = device.allocate_host(8);
    if (!host) return tl::unexpected(host.error());
    const auto begun = device.start_download({static_cast<std::byte*>(host->data()), 8}, buffer.data());
    if (!begun) return tl::unexpected(begun.error());
    return device.wait(*begun);
  });
}
void launch_steps(Device& device, Status& status) {
  with_memory(device, status, [&](const Buffer& buffer) {
    const TensorView view{buffer.data(), Format::f32, 1, kColumns, kColumns};
    Status all;
    for (int step = 0; all && step < 3; ++step) {
      for (int i = 0; all && i < 5; ++i) {
        TensorView part = view;
        part.columns = 8 + step;
        all = device.launch(ResidualAddArgs{part, part, part});
      }
      if (all) all = device.synchronize();
    }
    return all;
  });
}

void copy_steps(Device& device, Status& status) {
  with_memory(device, status, [&](const Buffer& buffer) {
    auto* bytes = static_cast<std::byte*>(buffer.data());
    Status all;
    for (std::size_t step = 1; all && step < 4; ++step) {
      for (int i = 0; all && i < 5; ++i) all = device.copy(bytes + 128, bytes, 4 * step);
      if (all) all = device.synchronize();
    }
    if (all) all = device.gather(bytes + 128, bytes, {2, 4, 8});
    return all;
  });
}

const std::vector<Trouble>& troubles() {
  static const std::vector<Trouble> list = {
      {"cudaMalloc", "allocating 256 bytes", upload_some},
      {"cudaMallocHost", "pinning 4194304 bytes of host memory", upload_some},
      {"cudaEventCreateWithFlags", "making an event", upload_some},
      {"cudaMemcpyAsync", "copying to the GPU", upload_some},
      {"cudaEventRecord", "marking a copy", upload_some},
      {"cudaSetDevice", "selecting GPU 0", upload_some},
      {"cudaMemcpyAsync", "copying from the GPU", download_some},
      {"cudaEventSynchronize", "waiting for a copy", download_some},
      {"cudaEventRecord", "marking what was launched", begin_download},
      {"cudaStreamWaitEvent", "ordering a copy", begin_download},
      {"cudaMemcpyAsync", "copying from the GPU", begin_download},
      {"cudaEventSynchronize", "waiting for a copy", begin_download},
      {"cudaMallocHost", "pinning 8 bytes of host memory", begin_download},
      {"cudaLaunchKernel", "launching residual_add", launch_steps},
      {"cudaStreamSynchronize", "waiting for the GPU", launch_steps},
      {"cudaGraphCreate", "making a graph", launch_steps},
      {"cudaGraphAddKernelNode", "adding residual_add to a graph", launch_steps},
      {"cudaGraphInstantiate", "preparing a graph", launch_steps},
      {"cudaMemcpyAsync", "launching a copy", copy_steps},
      {"cudaGraphAddMemcpyNode1D", "adding a copy to a graph", copy_steps},
      {"cudaMemcpy2DAsync", "copying rows on the GPU", copy_steps},
      {"cudaGraphLaunch", "launching a graph of 5 ops, residual_add the first", launch_steps},
  };
  return list;
}

TEST(CudaErrors, SayWhatFailedAndLeaveADeviceThatWorks) {
  for (const Trouble& trouble : troubles()) {
    SCOPED_TRACE(testing::Message() << trouble.call << ": " << trouble.said);
    fake_cuda::reset(Schedule::late);
    {
      auto device = make_device("cuda");
      ASSERT_TRUE(device);
      fake_cuda::fail_next(trouble.call, cudaErrorIllegalAddress);
      Status status;
      trouble.work(**device, status);
      ASSERT_FALSE(status);
      EXPECT_THAT(status.error().message, HasSubstr(std::string("cuda: ") + trouble.said + " failed: fake trouble"));
      EXPECT_THAT(status.error().message, HasSubstr("cudaErrorIllegalAddress); "));
      trouble.work(**device, status);
      EXPECT_TRUE(status) << status.error().message;
    }
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
    EXPECT_EQ(fake_cuda::allocations(), 0U);
  }
}

TEST(CudaErrors, OpeningSaysWhatIsMissing) {
  for (const char* call : {"cudaGetDeviceCount", "cudaGetDeviceProperties", "cudaSetDevice",
                           "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags"}) {
    fake_cuda::reset(Schedule::late);
    fake_cuda::fail_next(call, cudaErrorIllegalAddress);
    const auto device = make_device("cuda");
    ASSERT_FALSE(device) << call;
    EXPECT_THAT(device.error().message, HasSubstr("failed: fake trouble (cudaErrorIllegalAddress); ")) << call;
  }
  fake_cuda::reset(Schedule::late);
  const auto second = make_device("cuda:1");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "cuda:1: no such GPU, expected 0 to 0");
}

/// Of work that could only be started when its memory was given back, the next call tells.
TEST(CudaErrors, OfAFreeAreToldByTheNextCall) {
  fake_cuda::reset(Schedule::late);
  auto device = make_device("cuda");
  ASSERT_TRUE(device);
  {
    const Buffer buffer = *(*device)->allocate(kColumns * sizeof(float), true);
    const TensorView view{buffer.data(), Format::f32, 1, kColumns, kColumns};
    ASSERT_TRUE((*device)->launch(ResidualAddArgs{view, view, view}));
    fake_cuda::fail_next("cudaLaunchKernel", cudaErrorIllegalAddress);
  }
  const Status status = (*device)->synchronize();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("launching residual_add"));
  EXPECT_TRUE((*device)->synchronize());
}

TEST(CudaDeviceName, ChoosesGpuAndGraphs) {
  for (const char* good : {"cuda", "cuda:0", "cuda:nograph", "cuda:0:nograph"}) EXPECT_TRUE(make_device(good)) << good;
  for (const char* bad : {"cuda:", "cuda:nograph:0", "cuda0", "cuda:0:", ":nograph", "cpu:nograph", "cuda::nograph"}) {
    const auto device = make_device(bad);
    ASSERT_FALSE(device) << bad;
    EXPECT_THAT(device.error().message, HasSubstr("unknown device")) << bad;
  }
}

}  // namespace
}  // namespace nanscope::kernels
