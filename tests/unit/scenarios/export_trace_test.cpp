#include "scenarios/export_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/recording/writer.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/runner.h"
#include "scenarios/scenario.h"
#include "tests/temporary_folder.h"

namespace nanscope::scenarios {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::vector<Json> events(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TensorRow tensor_of(std::int64_t id, std::int64_t op, std::uint64_t nan) {
  TensorRow row;
  row.id = id;
  row.op = op;
  row.role = "out";
  row.tokens = 1;
  row.channels = 4;
  row.health = empty_health();
  row.health.count = 4;
  row.health.nan = nan;
  row.health.first_bad = nan > 0 ? 0 : -1;
  return row;
}

/// A request, a step, two ops: "norm" is healthy, "gemm" makes a NaN.
class Traced : public testing::Test {
 protected:
  void SetUp() override {
    RunInfo info;
    info.device = "NVIDIA Test";
    info.isa = "sm_90";
    writer_ = RecordingWriter::create(folder_ / "run.nanscope", info).value();
    writer_->add(RequestRow{.id = 1,
                            .name = "r",
                            .prompt = "[]",
                            .prompt_tokens = {},
                            .cached_tokens = 0,
                            .output_tokens = {},
                            .output_text = ""});
    writer_->add(StepRow{1, 1, 0, StepKind::prefill, 0, 1, 1});
    writer_->add(OpRow{1, 1, 3, "norm", "layer_norm", "{}"}, {});
    writer_->add(tensor_of(1, 1, 0));
    writer_->add(OpRow{2, 1, 3, "gemm", "gemm", "{}"}, {});
    writer_->add(tensor_of(2, 2, 1));
  }
  Recording finish() {
    EXPECT_TRUE(writer_->commit_step());
    EXPECT_TRUE(writer_->finish(2));
    return Recording::open(folder_ / "run.nanscope").value();
  }

  TemporaryFolder folder_;
  std::unique_ptr<RecordingWriter> writer_;
};

TEST_F(Traced, KernelsOpsAndStepsHaveTheirTimes) {
  writer_->add(KernelRow{1, "norm_kernel", 1'000'000, 2500, R"({"kind":"kernel","stream":7,"grid":[4,1,1]})"});
  writer_->add(KernelRow{2, "gemm_a", 1'003'000, 1000, R"({"kind":"kernel","stream":9})"});
  writer_->add(KernelRow{2, "gemm_b", 1'005'000, 500, R"({"kind":"kernel","stream":7})"});
  const Recording recording = finish();
  const auto counts = export_trace(recording, folder_ / "trace.json");
  ASSERT_TRUE(counts) << counts.error().message;
  EXPECT_EQ(counts->kernels, 3);
  EXPECT_EQ(counts->ops, 2);
  const Json trace = read_json(folder_ / "trace.json");
  std::map<std::string, Json> by_name;
  for (const Json& event : events(trace, "X")) by_name[event.at("name")] = event;
  ASSERT_EQ(by_name.size(), 6U);
  EXPECT_EQ(by_name["norm_kernel"]["ts"], 0.0) << "times count from the first start";
  EXPECT_EQ(by_name["norm_kernel"]["dur"], 2.5) << "in microseconds";
  EXPECT_EQ(by_name["norm_kernel"]["args"]["grid"], (std::vector<int>{4, 1, 1}));
  EXPECT_EQ(by_name["norm_kernel"]["tid"], by_name["gemm_b"]["tid"]) << "one stream";
  EXPECT_NE(by_name["norm_kernel"]["tid"], by_name["gemm_a"]["tid"]) << "two streams";
  EXPECT_EQ(by_name["gemm"]["ts"], 3.0);
  EXPECT_EQ(by_name["gemm"]["dur"], 2.5) << "from its first kernel's start to its last one's end";
  EXPECT_EQ(by_name["gemm"]["args"]["bad"], "NaN or Inf in an output");
  EXPECT_FALSE(by_name["norm"]["args"].contains("bad"));
  EXPECT_EQ(by_name["request 1 step 0"]["dur"], 5.5);
  EXPECT_EQ(by_name["gemm_a"]["args"]["op"], 2);
}

TEST_F(Traced, MarkersAreRangesAndPoints) {
  writer_->add(KernelRow{1, "k", 100, 10, R"({"kind":"kernel","stream":1})"});
  writer_->add(KernelRow{0, "layer \"3\"", 50, 0, R"({"kind":"marker","edge":"begin","domain":"d","id":4})"});
  writer_->add(KernelRow{0, "", 150, 0, R"({"kind":"marker","edge":"end","domain":"d","id":4})"});
  writer_->add(KernelRow{0, "here", 120, 0, R"({"kind":"marker","edge":"point","domain":"d","id":5})"});
  const Recording recording = finish();
  ASSERT_TRUE(export_trace(recording, folder_ / "trace.json"));
  const Json trace = read_json(folder_ / "trace.json");
  ASSERT_EQ(events(trace, "b").size(), 1U);
  EXPECT_EQ(events(trace, "b")[0]["name"], "layer \"3\"");
  EXPECT_EQ(events(trace, "b")[0]["id"], events(trace, "e")[0]["id"]);
  EXPECT_EQ(events(trace, "i")[0]["name"], "here");
}

TEST_F(Traced, DroppedRecordsAndSenselessTimesAreCounted) {
  writer_->add(KernelRow{1, "k", 100, 10, "no JSON"});
  writer_->add(KernelRow{1, "far", INT64_MAX, INT64_MAX, "{}"});
  writer_->add(KernelRow{1, "early", -5, 1, "{}"});
  writer_->add(KernelRow{0, "records that were dropped", 0, 0, R"({"kind":"dropped","records":12})"});
  const Recording recording = finish();
  const auto counts = export_trace(recording, folder_ / "trace.json");
  ASSERT_TRUE(counts) << counts.error().message;
  EXPECT_EQ(counts->kernels, 1);
  EXPECT_EQ(counts->senseless, 2);
  EXPECT_EQ(counts->dropped, 12);
  EXPECT_EQ(read_json(folder_ / "trace.json")["otherData"]["dropped_records"], 12);
}

TEST_F(Traced, ARecordingWithoutActivitySaysHowToGetSome) {
  const Recording recording = finish();
  const auto counts = export_trace(recording, folder_ / "trace.json");
  ASSERT_FALSE(counts);
  EXPECT_THAT(counts.error().message, HasSubstr("run SCENARIO --trace"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json"));
}

/// Tracing says when each op of a run ran, in the order of the ops, and changes no bit.
TEST(TracedRun, OfTheCpuHasTimesForEveryOpAndTheSameBits) {
  const TemporaryFolder folder;
  const auto file = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "scenarios/legitimate-token-0.toml";
  const Scenario scenario = load_scenario(file).value();
  RunnerOptions options;
  options.output = folder / "plain.nanscope";
  const auto bench = workbench_for(scenario, options).value();
  ASSERT_TRUE(run_scenario(*bench, scenario, options));
  options.output = folder / "traced.nanscope";
  options.trace = true;
  const auto run = run_scenario(*bench, scenario, options);
  ASSERT_TRUE(run) << run.error().message;
  const Recording plain = Recording::open(folder / "plain.nanscope").value();
  const Recording traced = Recording::open(folder / "traced.nanscope").value();
  EXPECT_TRUE(plain.kernels().value().empty()) << "nothing is traced unless it is asked for";
  const auto hashes = plain.tensor_hashes().value();
  const auto traced_hashes = traced.tensor_hashes().value();
  ASSERT_EQ(hashes.size(), traced_hashes.size());
  for (std::size_t i = 0; i < hashes.size(); ++i) EXPECT_EQ(hashes[i].hash, traced_hashes[i].hash) << i;
  std::map<std::int64_t, std::int64_t> first_start;
  std::int64_t last = 0;
  const std::vector<KernelRow> rows = traced.kernels().value();
  for (const KernelRow& row : rows) {
    EXPECT_GE(row.start_ns, last) << "one launch ends before the next begins";
    last = row.start_ns + row.duration_ns;
    first_start.try_emplace(row.op, row.start_ns);
  }
  std::int64_t before = -1;
  std::int64_t timed = 0;
  const std::vector<OpRow> ops = traced.ops().value();
  for (const OpRow& op : ops) {
    const auto found = first_start.find(op.id);
    if (found == first_start.end()) continue;
    ++timed;
    EXPECT_GT(found->second, before) << op.id;
    before = found->second;
  }
  EXPECT_EQ(timed, traced.counts().value().ops);
  for (const KernelRow& row : rows) EXPECT_LE(row.op, ops.back().id) << "no op came after " << row.name;
  EXPECT_TRUE(export_trace(traced, folder / "trace.json"));
}

}  // namespace
}  // namespace nanscope::scenarios
