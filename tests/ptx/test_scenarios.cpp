// The flagship as a GPU would run it: each launch of its first two requests executes the op's PTX, health and hashes
// included, and every tensor has the CPU's hash.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/scenario.h"
#include "scenarios/workbench.h"
#include "tests/ptx/ptx_device.h"

namespace nanscope {

namespace kernels {

/// In the place of the device that needs a GPU.
Result<std::unique_ptr<Device>> make_cuda_device(int /*ordinal*/, bool /*graphs*/) {
  auto made = ptx::PtxDevice::create(NANSCOPE_OPS_PTX);
  if (!made) return tl::unexpected(made.error());
  return std::unique_ptr<Device>(std::move(*made));
}

}  // namespace kernels

namespace scenarios {
namespace {

Recorded run(RunSpec spec, const std::string& device) {
  spec.config.device = device;
  const auto workbench = Workbench::open(device, 1);
  EXPECT_TRUE(workbench) << workbench.error().message;
  auto recorded = record(**workbench, spec, {});
  EXPECT_TRUE(recorded) << recorded.error().message;
  return std::move(*recorded);
}

RunSpec spec_of(const std::filesystem::path& file) {
  const auto scenario = load_scenario(file);
  EXPECT_TRUE(scenario) << scenario.error().message;
  auto spec = resolve(*scenario);
  EXPECT_TRUE(spec) << spec.error().message;
  return *spec;
}

void expect_the_cpus_hashes(const RunSpec& spec) {
  const Recorded expected = run(spec, "cpu");
  const Recorded found = run(spec, "cuda");
  EXPECT_EQ(found.recording.info().device, "PTX, interpreted");
  EXPECT_EQ(found.result.ops, expected.result.ops);
  const auto on_cpu = expected.recording.tensors();
  const auto on_ptx = found.recording.tensors();
  ASSERT_TRUE(on_cpu && on_ptx);
  ASSERT_EQ(on_cpu->size(), on_ptx->size());
  for (std::size_t i = 0; i < on_cpu->size(); ++i) {
    ASSERT_EQ((*on_cpu)[i].hash, (*on_ptx)[i].hash) << "tensor " << i << " " << (*on_cpu)[i].role;
  }
}

TEST(PtxScenarios, TheFlagshipsFirstTwoRequests) {
  RunSpec spec = spec_of(NANSCOPE_SOURCE_DIR "/scenarios/kv-scale-lock.toml");
  ASSERT_GT(spec.requests.size(), 2U);
  spec.requests.resize(2);
  expect_the_cpus_hashes(spec);
}

/// What executes the PTX has the CPU's model of a tensor core, and so its bits; replay takes it for a device of another
/// kind all the same, whose memory it can only copy from.
TEST(PtxScenarios, TheFlagshipsFirstRequestByTensorCores) {
  RunSpec spec = spec_of(NANSCOPE_SOURCE_DIR "/scenarios/kv-scale-lock.toml");
  spec.requests.resize(1);
  spec.requests.front().max_tokens = 2;
  spec.config.kernel_form = KernelForm::tensor_core;
  expect_the_cpus_hashes(spec);
  const auto bench = Workbench::open("cpu", 1);
  ASSERT_TRUE(bench) << bench.error().message;
  RecordOptions options;
  options.capture = "all";
  const auto recorded = record(**bench, spec, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  const auto other = Workbench::open("cuda", 1);
  ASSERT_TRUE(other) << other.error().message;
  const auto report = replay(**other, recorded->recording);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->same());
  EXPECT_EQ(report->recorded_on, recorded->recording.info().isa);
  EXPECT_EQ(report->verified, report->tensors);
}

TEST(PtxScenariosLong, TheWholeLibrary) {
  for (const auto& entry : std::filesystem::directory_iterator(NANSCOPE_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().stem().string());
    expect_the_cpus_hashes(spec_of(entry.path()));
  }
}

}  // namespace
}  // namespace scenarios
}  // namespace nanscope
