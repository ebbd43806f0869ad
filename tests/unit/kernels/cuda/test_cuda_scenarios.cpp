// Every scenario on the CUDA device, whose work runs late or out of order: each tensor's hash and bytes are the CPU's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/place.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"
#include "tests/unit/kernels/cuda/fake_cudart.h"

namespace nanscope::scenarios {
namespace {

using fake_cuda::Schedule;
using testing::IsEmpty;

Recorded run(const RunSpec& spec, const std::string& device, const std::string& capture = "all") {
  RunSpec on_device = spec;
  on_device.config.device = device;
  const auto workbench = Workbench::open(device, 1);
  EXPECT_TRUE(workbench) << workbench.error().message;
  RecordOptions options;
  options.capture = capture;
  auto recorded = record(**workbench, on_device, options);
  EXPECT_TRUE(recorded) << recorded.error().message;
  return std::move(*recorded);
}

bool same_bits(const Health& a, const Health& b) { return std::memcmp(&a, &b, sizeof(Health)) == 0; }

void expect_same(const Recording& a, const Recording& b) {
  const auto all_a = a.tensors();
  const auto all_b = b.tensors();
  ASSERT_TRUE(all_a && all_b);
  ASSERT_EQ(all_a->size(), all_b->size());
  for (std::size_t i = 0; i < all_a->size(); ++i) {
    const TensorRow& x = (*all_a)[i];
    const TensorRow& y = (*all_b)[i];
    ASSERT_EQ(x.op, y.op) << "tensor " << x.id;
    ASSERT_EQ(x.role, y.role) << "tensor " << x.id;
    ASSERT_EQ(x.hash, y.hash) << "tensor " << x.id << " " << x.role;
    ASSERT_TRUE(same_bits(x.health, y.health)) << "tensor " << x.id << " " << x.role;
    ASSERT_EQ(*a.tensor_bytes(x.id) == *b.tensor_bytes(y.id), true) << "tensor " << x.id;
    const auto tokens_a = a.token_health(x.id);
    const auto tokens_b = b.token_health(y.id);
    ASSERT_TRUE(tokens_a && tokens_b);
    ASSERT_TRUE(std::equal(tokens_a->begin(), tokens_a->end(), tokens_b->begin(), tokens_b->end(), same_bits));
  }
}

std::vector<std::filesystem::path> scenario_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(NANSCOPE_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Of the two ways in which a GPU may be behind, a scenario meets one and its neighbours in the library the other;
/// NANSCOPE_LONG_TESTS=1 tries both on all.
std::vector<Schedule> schedules_of(const std::filesystem::path& scenario) {
  if (std::getenv("NANSCOPE_LONG_TESTS") != nullptr) return {Schedule::late, Schedule::random};
  const std::vector<std::filesystem::path> all = scenario_files();
  const auto place = std::find(all.begin(), all.end(), scenario) - all.begin();
  return {place % 2 == 0 ? Schedule::late : Schedule::random};
}

class CudaScenarios : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(CudaScenarios, RecordTheCpusBits) {
  const auto scenario = load_scenario(GetParam());
  ASSERT_TRUE(scenario) << scenario.error().message;
  const auto spec = resolve(*scenario);
  ASSERT_TRUE(spec) << spec.error().message;
  const Recorded expected = run(*spec, "cpu");
  for (const Schedule schedule : schedules_of(GetParam())) {
    fake_cuda::reset(schedule, 3);
    {
      const Recorded found = run(*spec, "cuda");
      EXPECT_EQ(found.result.ops, expected.result.ops);
      expect_same(expected.recording, found.recording);
    }
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
    EXPECT_EQ(fake_cuda::allocations(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Library, CudaScenarios, testing::ValuesIn(scenario_files()),
                         [](const testing::TestParamInfo<std::filesystem::path>& info) {
                           std::string name = info.param.stem();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// Codes and scales of a checkpoint lie in the GPU's memory.
TEST(CudaCheckpoints, OfCodesAndScalesRecordTheCpusBits) {
  const TemporaryFolder folder;
  for (const char* name : {"fp8-block", "ct-nvfp4"}) {
    const std::filesystem::path file = folder.path() / "quantized.toml";
    std::ofstream(file) << "name = \"quantized\"\n[model]\nweights = \"" NANSCOPE_SOURCE_DIR
                           "/tests/unit/instrument/quantized/checkpoints/"
                        << name
                        << "\"\n[[request]]\ntokens = [5, 3, 8]\nmax_tokens = 2\n[expect]\nverdict = \"clean\"\n";
    const auto scenario = load_scenario(file);
    ASSERT_TRUE(scenario) << scenario.error().message;
    const auto spec = resolve(*scenario);
    ASSERT_TRUE(spec) << spec.error().message;
    const Recorded expected = run(*spec, "cpu");
    fake_cuda::reset(Schedule::late);
    {
      const Recorded found = run(*spec, "cuda");
      expect_same(expected.recording, found.recording);
      const auto weights = expected.recording.weights();
      const auto on_gpu = found.recording.weights();
      ASSERT_TRUE(weights && on_gpu);
      ASSERT_EQ(weights->size(), on_gpu->size());
      for (std::size_t i = 0; i < weights->size(); ++i) EXPECT_EQ((*weights)[i].hash, (*on_gpu)[i].hash);
    }
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
  }
}

/// A prefill whose tensors are so large that the writer is lent what the GPU's results lie in.
RunSpec wide_prefill() {
  RunSpec spec;
  spec.config.model.weights = "random";
  spec.config.model.layers = 1;
  spec.config.model.width = 128;
  spec.config.model.heads = spec.config.model.kv_heads = 32;
  spec.config.model.head_dim = 4;
  spec.config.model.mlp_width = 600;
  RequestSpec request;
  request.name = "prompt";
  std::string text;
  for (int i = 0; i < 20; ++i) text += "Every evening the old keeper lights the great lamp. ";
  request.parts.emplace_back(TextPart{text});
  request.max_tokens = 1;
  spec.requests.push_back(std::move(request));
  return spec;
}

TEST(CudaRecording, OfLargeTensorsHasTheCpusHealthAndElements) {
  const RunSpec spec = wide_prefill();
  for (const char* capture : {"none", "all", "ring:1"}) {
    SCOPED_TRACE(capture);
    const Recorded expected = run(spec, "cpu", capture);
    fake_cuda::reset(Schedule::late);
    {
      const Recorded found = run(spec, "cuda", capture);
      expect_same(expected.recording, found.recording);
      for (std::int64_t id = 1; id <= expected.result.tensors; ++id) {
        const auto tiles = expected.recording.tiles(id, 0);
        const auto on_gpu = found.recording.tiles(id, 0);
        ASSERT_TRUE(tiles && on_gpu);
        ASSERT_TRUE(
            std::equal(tiles->tiles.begin(), tiles->tiles.end(), on_gpu->tiles.begin(), on_gpu->tiles.end(), same_bits))
            << "tensor " << id;
      }
    }
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
    EXPECT_EQ(fake_cuda::allocations(), 0U);
  }
}

void expect_graphs(const RunSpec& spec, const std::string& capture) {
  SCOPED_TRACE(capture);
  fake_cuda::reset(Schedule::late);
  const Recorded recorded = run(spec, "cuda", capture);
  const int graphs = fake_cuda::calls("cudaGraphLaunch");
  const int launches = fake_cuda::calls("cudaLaunchKernel");
  const int waits = fake_cuda::calls("cudaEventSynchronize") + fake_cuda::calls("cudaStreamSynchronize");
  EXPECT_GT(graphs, recorded.result.steps / 2);
  EXPECT_LT(graphs + launches, recorded.result.ops)
      << "ops and their observers, launched one by one: more than twice that";
  EXPECT_LT(waits, recorded.result.ops / 4) << "the scale policy reads absolute maxima; no other op is waited for";
}

TEST(CudaSteps, OfDecodeAreGraphs) {
  const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/kv-scale-lock.toml");
  ASSERT_TRUE(scenario);
  const auto spec = resolve(*scenario);
  ASSERT_TRUE(spec);
  for (const char* capture : {"none", "all"}) expect_graphs(*spec, capture);
}

RunSpec flagship() {
  const auto scenario = load_scenario(NANSCOPE_SOURCE_DIR "/scenarios/kv-scale-lock.toml");
  EXPECT_TRUE(scenario);
  return *resolve(*scenario);
}

/// A recording of the CPU's, replayed on the GPU.
class CudaReplay : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    fake_cuda::reset(GetParam(), 5);
    workbench_ = *Workbench::open("cuda", 1);
  }
  void TearDown() override {
    workbench_.reset();
    EXPECT_THAT(fake_cuda::problems(), IsEmpty());
  }
  std::unique_ptr<Workbench> workbench_;
};

INSTANTIATE_TEST_SUITE_P(Schedules, CudaReplay, testing::Values(Schedule::late, Schedule::random),
                         [](const testing::TestParamInfo<Schedule>& info) {
                           return info.param == Schedule::late ? "late" : "random";
                         });

TEST_P(CudaReplay, HasEveryHashOfTheRecording) {
  const Recorded recorded = run(flagship(), "cpu", "none");
  const auto report = replay(*workbench_, recorded.recording);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->same());
  EXPECT_EQ(report->verified, recorded.result.tensors);
}

/// What differs is found late, and told at its place; what came after it does not count.
TEST_P(CudaReplay, TellsTheFirstTensorThatDiffers) {
  TemporaryFolder folder;
  const std::filesystem::path path = folder / "changed.nanscope";
  std::int64_t changed = 0;
  {
    const auto cpu = Workbench::open("cpu", 1);
    ASSERT_TRUE(cpu);
    RecordOptions options;
    options.path = path;
    const auto recorded = record(**cpu, flagship(), options);
    ASSERT_TRUE(recorded) << recorded.error().message;
    changed = recorded->result.tensors / 2;
  }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  const std::string sql = "UPDATE tensors SET hash = hash + 1 WHERE id IN (" + std::to_string(changed) + "," +
                          std::to_string(changed + 1) + ")";
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const auto recording = Recording::open(path);
  ASSERT_TRUE(recording) << recording.error().message;
  const auto report = replay(*workbench_, *recording);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_TRUE(report->divergence);
  EXPECT_EQ(report->verified, changed - 1);
  EXPECT_EQ(report->divergence->place, to_string(*place_of(*recording, *recording->tensor(changed))));
}

TEST_P(CudaReplay, RemakesElements) {
  const Recorded all = run(flagship(), "cpu", "all");
  const Recorded none = run(flagship(), "cpu", "none");
  // One budget holds a step and more, the other is spent in the middle of one.
  for (const std::size_t budget : {std::size_t{1} << 22, std::size_t{1} << 16}) {
    ReplayTensors tensors(*workbench_, none.recording, budget);
    for (const std::int64_t id : {std::int64_t{1}, all.result.tensors / 2, all.result.tensors / 2 + 1}) {
      const auto data = tensors.fetch(id);
      ASSERT_TRUE(data) << data.error().text;
      EXPECT_EQ(data->bytes == **all.recording.tensor_bytes(id), true) << "tensor " << id;
    }
  }
}

}  // namespace
}  // namespace nanscope::scenarios
