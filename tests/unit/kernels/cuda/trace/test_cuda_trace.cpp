// A run on the CUDA device, traced: each kernel is joined to the op that launched it, as on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "kernels/op_table.h"
#include "scenarios/record.h"
#include "scenarios/scenario.h"
#include "tests/unit/instrument/cupti/load_fake_cupti.h"
#include "tests/unit/kernels/cuda/fake_cudart.h"

namespace nanscope::scenarios {
namespace {

class CudaTrace : public testing::Test {
 protected:
  void SetUp() override {
    cupti_ = cupti::load_fake_cupti(NANSCOPE_FAKE_CUPTI);
    ASSERT_NE(cupti_, nullptr);
    fake_cuda::reset(fake_cuda::Schedule::late);
    fake_cuda::on_launch([this](kernels::OpId op) { report(kernels::op_name(op)); });
  }
  void TearDown() override { unsetenv("NANSCOPE_CUPTI"); }

  /// CUPTI tells of a kernel with the external id that its launch was marked with.
  void report(const char* name) {
    CUpti_ActivityKernel10 record;
    std::memset(&record, 0, sizeof record);
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.correlationId = ++launches_;
    record.start = 10ULL * launches_;
    record.end = record.start + 5;
    record.name = name;
    cupti_->report(&record, sizeof record, record.correlationId);
  }

  const FakeCuptiControl* cupti_ = nullptr;
  std::uint32_t launches_ = 0;
};

/// Kernels that look at what an op made belong to none; all others bear the name of their op's kind or serve it.
TEST_F(CudaTrace, EveryOpHasTheKernelsThatMadeIt) {
  const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/kv-scale-lock.toml");
  ASSERT_TRUE(scenario);
  auto spec = resolve(*scenario);
  ASSERT_TRUE(spec);
  spec->config.device = "cuda";
  const auto workbench = Workbench::open("cuda", 1);
  ASSERT_TRUE(workbench);
  RecordOptions options;
  options.trace = true;
  const auto recorded = record(**workbench, *spec, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 0) << "what a graph runs is not told apart by op";

  std::map<std::int64_t, std::set<std::string>> kernels;
  std::int64_t of_nobody = 0;
  ASSERT_TRUE(recorded->recording.for_each_kernel([&](const KernelRow& row) {
    if (row.op == 0) {
      of_nobody += row.name == "health_scan" || row.name == "content_hash" ? 0 : 1;
    } else {
      kernels[row.op].insert(row.name);
    }
    return true;
  }));
  EXPECT_EQ(of_nobody, 0);
  const auto ops = recorded->recording.ops();
  ASSERT_TRUE(ops);
  ASSERT_EQ(static_cast<std::int64_t>(ops->size()), recorded->result.ops);
  for (const OpRow& op : *ops) {
    EXPECT_TRUE(kernels.contains(op.id)) << op.name;
    EXPECT_FALSE(kernels[op.id].contains("health_scan")) << op.name;
  }
  // What is not traced is started as before.
  const auto again = record(**workbench, *spec);
  ASSERT_TRUE(again);
  EXPECT_GT(fake_cuda::calls("cudaGraphLaunch"), 0);
}

}  // namespace
}  // namespace nanscope::scenarios
