// Runs by tensor cores: their bits again on the same kind of device; on another, within the bound, each product made of
// what was recorded. The other device is the CPU with products of its own, one f32 fma after another.
#include "scenarios/tensor_core_replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/numbers/codec.h"
#include "core/recording/schema.h"
#include "kernels/ops/gemm_tensor_core.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"
#include "scenarios/report/replay_report.h"
#include "scenarios/report/run_report.h"
#include "tests/temporary_folder.h"
#include "tests/unit/instrument/engine/engine_rig.h"

namespace nanscope {
namespace kernels {
namespace {

float element(const TensorView& view, std::int64_t row, std::int64_t column) {
  const auto at = static_cast<std::size_t>(row * view.stride + column);
  if (view.format == Format::f32) return static_cast<const float*>(view.data)[at];
  return decode(view.format, static_cast<const std::uint16_t*>(view.data)[at]);
}

void set_element(const TensorView& view, std::int64_t row, std::int64_t column, float value) {
  const auto at = static_cast<std::size_t>(row * view.stride + column);
  if (view.format == Format::f32) {
    static_cast<float*>(view.data)[at] = value;
  } else {
    static_cast<std::uint16_t*>(view.data)[at] =
        static_cast<std::uint16_t>(encode(view.format, value, Overflow::overflow));
  }
}

class OtherTensorCores final : public Device {
 public:
  static inline float off = 0;  ///< of each output, relatively

  OtherTensorCores() : cpu_(make_cpu_device(Isa::best, 1).value()), info_(cpu_->info()) {
    info_.name = "other tensor cores";
    info_.isa = "sm_00";
  }
  const DeviceInfo& info() const override { return info_; }
  bool reads_host_memory() const override { return true; }
  bool host_addressable() const override { return true; }
  Result<Buffer> allocate(std::size_t bytes, bool zeroed) override { return cpu_->allocate(bytes, zeroed); }
  Result<Buffer> allocate_host(std::size_t bytes) override { return cpu_->allocate_host(bytes); }
  Status upload(void* device, std::span<const std::byte> host) override { return cpu_->upload(device, host); }
  Status download(std::span<std::byte> host, const void* device) override { return cpu_->download(host, device); }
  Status copy(void* to, const void* from, std::size_t bytes) override { return cpu_->copy(to, from, bytes); }
  Status gather(void* to, const void* from, const Rows& rows) override { return cpu_->gather(to, from, rows); }
  Result<Transfer> start_download(std::span<std::byte> host, const void* device) override {
    return cpu_->start_download(host, device);
  }
  Status wait(const Transfer& transfer) override { return cpu_->wait(transfer); }
  Status synchronize() override { return cpu_->synchronize(); }
  Status launch_raw(OpId id, const void* args) override {
    if (id != OpId::GemmTensorCore) return cpu_->launch_raw(id, args);
    const auto& of = *static_cast<const GemmTensorCoreArgs*>(args);
    const Format operand = tensor_core_operand(of.x.format, of.weight.format);
    const auto read = [&](float value) { return decode(operand, encode(operand, value, Overflow::overflow)); };
    for (std::int64_t row = 0; row < of.out.rows; ++row) {
      for (std::int64_t n = 0; n < of.out.columns; ++n) {
        float sum = 0;
        for (std::int64_t k = 0; k < of.x.columns; ++k) {
          sum = std::fma(read(element(of.x, row, k)), read(element(of.weight, n, k)), sum);
        }
        if (of.bias.given()) sum += element(of.bias, 0, n);
        set_element(of.out, row, n, sum * (1 + off));
      }
    }
    return {};
  }

 private:
  std::unique_ptr<Device> cpu_;
  DeviceInfo info_;
};

}  // namespace

/// In the place of the device that needs a GPU.
Result<std::unique_ptr<Device>> make_cuda_device(int /*ordinal*/, bool /*graphs*/) {
  return std::unique_ptr<Device>(std::make_unique<OtherTensorCores>());
}

}  // namespace kernels

namespace scenarios {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

RunSpec spec_of(const nanscope::testing::Knobs& changes = {}) {
  RunSpec spec;
  spec.config = nanscope::testing::tiny_config(changes);
  spec.config.kernel_form = KernelForm::tensor_core;
  spec.requests = {nanscope::testing::text_request("A storm rises over the sea.", 3),
                   nanscope::testing::text_request("Moons pull tides", 2)};
  return spec;
}

Recorded recorded_on(RunSpec spec, const std::string& device, const std::string& capture, const fs::path& path = {}) {
  spec.config.device = device;
  const auto bench = Workbench::open(device, 1);
  EXPECT_TRUE(bench) << bench.error().message;
  RecordOptions options;
  options.capture = capture;
  options.path = path;
  auto recorded = record(**bench, spec, options);
  EXPECT_TRUE(recorded) << recorded.error().message;
  return std::move(*recorded);
}

Result<ReplayReport> replayed_on(const Recording& recording, const std::string& device) {
  const auto bench = Workbench::open(device, 1);
  EXPECT_TRUE(bench) << bench.error().message;
  return replay(**bench, recording);
}

void update(const fs::path& recording, const char* sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(recording.string().c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
  sqlite3_close(database);
}

/// Flips the last bit of a stored tensor's first element, which is f32.
void change_elements(const fs::path& recording, std::int64_t tensor) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(recording.string().c_str(), &database), SQLITE_OK);
  sqlite3_blob* blob = nullptr;
  ASSERT_EQ(sqlite3_blob_open(database, "main", "chunks", "data", tensor * schema::kChunksPerTensor, 1, &blob),
            SQLITE_OK)
      << sqlite3_errmsg(database);
  unsigned char lowest = 0;
  EXPECT_EQ(sqlite3_blob_read(blob, &lowest, 1, 0), SQLITE_OK);
  lowest ^= 1U;
  EXPECT_EQ(sqlite3_blob_write(blob, &lowest, 1, 0), SQLITE_OK);
  sqlite3_blob_close(blob);
  sqlite3_close(database);
}

/// The output of the run's first op of that name.
std::int64_t first_output(const Recording& recording, std::string_view name) {
  const std::vector<OpRow> ops = recording.ops().value();
  const auto op = std::find_if(ops.begin(), ops.end(), [&](const OpRow& one) { return one.name == name; });
  return recording.tensors_of(op->id).value().front().id;
}

class TensorCoreReplays : public ::testing::Test {
 protected:
  void TearDown() override { kernels::OtherTensorCores::off = 0; }
};

TEST_F(TensorCoreReplays, TheFormIsInTheRecordingAndItsBitsAreMadeAgain) {
  for (const char* device : {"cpu", "cuda"}) {
    const Recorded recorded = recorded_on(spec_of(), device, "none");
    EXPECT_THAT(recorded.recording.info().config, HasSubstr(R"("engine.kernel_form":"tensor_core")"));
    EXPECT_EQ(report::kernel_form_text(recorded.recording.info()), ", products by tensor cores");
    int products = 0;
    const auto ops = recorded.recording.ops();
    ASSERT_TRUE(ops) << ops.error().message;
    for (const OpRow& op : *ops) {
      if (op.kind != "gemm") continue;
      EXPECT_THAT(op.attributes, HasSubstr(R"("kernel_form":"tensor_core")")) << op.name;
      ++products;
    }
    EXPECT_GT(products, 20);
    const auto report = replayed_on(recorded.recording, device);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->same());
    EXPECT_EQ(report->within, 0);
    EXPECT_EQ(report->verified, report->tensors);
    EXPECT_THAT(report::replay_text(*report, "run.nanscope", {}), HasSubstr("Same, bit for bit"));
    EXPECT_EQ(report::to_json(*report)["same"], true);
  }
}

TEST_F(TensorCoreReplays, OnAnotherKindOfDeviceProductsAreWithinTheBoundAndTheRestHasItsBits) {
  const nanscope::testing::Knobs models[] = {
      {},
      {{"activation.format", "bf16"}},
      {{"activation.format", "f16"}, {"kv.format", "e4m3"}, {"kv.policy", "locked"}},
      {{"model.experts", "4"}, {"model.experts_per_token", "2"}},
      {{"engine.batch", "2"}, {"engine.chunk", "3"}}};
  for (const auto& knobs : models) {
    SCOPED_TRACE(knobs.empty() ? "plain" : knobs.front().first);
    // What rounding to 16 bits would hide of so short sums.
    const bool rounded = !knobs.empty() && knobs.front().first == "activation.format";
    kernels::OtherTensorCores::off = rounded ? 3e-4F : 0;
    for (const auto& [from, to] : {std::pair("cpu", "cuda"), std::pair("cuda", "cpu")}) {
      const Recorded recorded = recorded_on(spec_of(knobs), from, "all");
      const auto report = replayed_on(recorded.recording, to);
      ASSERT_TRUE(report) << report.error().message;
      ASSERT_TRUE(report->same()) << report->divergence->place << ": " << report->divergence->expected << ", "
                                  << report->divergence->found;
      EXPECT_EQ(report->verified + report->within, report->tensors);
      EXPECT_GT(report->share, 0);
      EXPECT_LE(report->share, 1);
      EXPECT_GT(report->within, knobs.empty() ? 20 : 0);
      const std::string text = report::replay_text(*report, "run.nanscope", {});
      EXPECT_THAT(text, HasSubstr("Within the bound, not identical"));
      EXPECT_THAT(text, Not(HasSubstr("bit for bit")));
      EXPECT_EQ(report::to_json(*report)["same"], false);
      EXPECT_EQ(report::to_json(*report)["within_bound"], report->within);
    }
  }
}

TEST_F(TensorCoreReplays, TheElementsOfProductsAreEnough) {
  const Recorded recorded = recorded_on(
      spec_of(), "cuda", "named:q_proj.*,k_proj.*,v_proj.*,o_proj.*,gate_proj.*,up_proj.*,down_proj.*,lm_head.*");
  const auto report = replayed_on(recorded.recording, "cpu");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->same());
  EXPECT_GT(report->within, 20);
}

/// The names that docs/tensor-cores.md gives for models that are not dense transformers.
TEST_F(TensorCoreReplays, TheElementsOfAllProductsAreNeeded) {
  const std::string dense = "named:q_proj.*,k_proj.*,v_proj.*,o_proj.*,gate_proj.*,up_proj.*,down_proj.*,lm_head.*";
  const std::pair<nanscope::testing::Knobs, std::string> models[] = {
      {{{"model.experts", "2"}, {"model.experts_per_token", "1"}, {"model.shared_expert_width", "16"}},
       ",router.*,expert0_gate_proj.*,expert0_up_proj.*,expert0_down_proj.*,expert1_gate_proj.*,expert1_up_proj.*,"
       "expert1_down_proj.*,shared_gate.*,shared_gate_proj.*,shared_up_proj.*,shared_down_proj.*"},
      {{{"model.recurrent_layers", "0"}}, ",recurrent_in.*,recurrent_out.*"}};
  for (const auto& [knobs, more] : models) {
    SCOPED_TRACE(more);
    const auto refused = replayed_on(recorded_on(spec_of(knobs), "cuda", dense).recording, "cpu");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("without the elements of 0/0/0/"));
    const auto report = replayed_on(recorded_on(spec_of(knobs), "cuda", dense + more).recording, "cpu");
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->same());
    EXPECT_GT(report->within, 0);
  }
}

TEST_F(TensorCoreReplays, OfHashesAloneNothingCanBeCompared) {
  const Recorded recorded = recorded_on(spec_of(), "cuda", "none");
  const auto report = replayed_on(recorded.recording, "cpu");
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("recorded on sm_00 with engine.kernel_form=tensor_core"));
  EXPECT_THAT(report.error().message, HasSubstr("without the elements of 0/0/0/"));
  EXPECT_THAT(report.error().message, HasSubstr("record with --capture all, or replay on sm_00"));
  EXPECT_THAT(report.error().message, Not(HasSubstr("\n")));
}

TEST_F(TensorCoreReplays, AProductBeyondTheBoundDiverges) {
  const Recorded recorded = recorded_on(spec_of(), "cpu", "all");
  kernels::OtherTensorCores::off = 1e-3F;
  const auto report = replayed_on(recorded.recording, "cuda");
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_FALSE(report->same());
  EXPECT_THAT(report->divergence->place, HasSubstr("0/0/0/q_proj.out["));
  EXPECT_THAT(report->divergence->found, HasSubstr("beyond the bound of tensor cores"));
}

/// What is no product is held to its bits, also behind products that differ.
TEST_F(TensorCoreReplays, AnythingElseThatDiffersDiverges) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run.nanscope";
  { const Recorded recorded = recorded_on(spec_of(), "cuda", "all", path); }
  update(path, "UPDATE tensors SET hash = ~hash WHERE op = (SELECT id FROM ops WHERE name = 'mlp_residual' LIMIT 1)");
  const auto report = replayed_on(Recording::open(path).value(), "cpu");
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_FALSE(report->same());
  EXPECT_THAT(report->divergence->place, HasSubstr("0/0/0/mlp_residual"));
  EXPECT_GT(report->within, 0);
}

/// Equal bytes and those within the bound are no proof where they are not those that were recorded.
TEST_F(TensorCoreReplays, ElementsThatHaveNotTheRecordedHashAreRefused) {
  const TemporaryFolder folder;
  for (const bool of_hash : {true, false}) {
    const fs::path path = folder / (of_hash ? "hash.nanscope" : "elements.nanscope");
    { const Recorded recorded = recorded_on(spec_of(), "cuda", "all", path); }
    const std::int64_t tensor = first_output(Recording::open(path).value(), "q_proj");
    if (of_hash) {
      update(path, fmt::format("UPDATE tensors SET hash = ~hash WHERE id = {}", tensor).c_str());
    } else {
      change_elements(path, tensor);
    }
    for (const char* device : {"cpu", "cuda"}) {
      const auto report = replayed_on(Recording::open(path).value(), device);
      const bool same_kind = std::string_view(device) == "cuda";
      ASSERT_EQ(report.has_value(), same_kind);
      if (same_kind) {
        EXPECT_EQ(report->same(), !of_hash) << "elements are not looked at where hashes are compared";
        continue;
      }
      EXPECT_THAT(report.error().message, HasSubstr(fmt::format("the elements of tensor {} have the hash", tensor)));
      EXPECT_THAT(report.error().message, Not(HasSubstr("without the elements")));
    }
  }
}

TEST_F(TensorCoreReplays, ElementsAreNotMadeAgainOnAnotherKindOfDevice) {
  const Recorded recorded = recorded_on(spec_of(), "cuda", "none");
  const auto bench = Workbench::open("cpu", 1).value();
  ReplayTensors tensors(*bench, recorded.recording);
  const auto fetched = tensors.fetch(5);
  ASSERT_FALSE(fetched);
  EXPECT_THAT(fetched.error().text, HasSubstr("whose bits"));
  const auto same_bench = Workbench::open("cuda", 1).value();
  ReplayTensors same_kind(*same_bench, recorded.recording);
  EXPECT_TRUE(same_kind.fetch(5));
}

TEST_F(TensorCoreReplays, TheExactFormHasItsBitsOnBoth) {
  RunSpec spec = spec_of();
  spec.config.kernel_form = KernelForm::exact;
  const Recorded recorded = recorded_on(spec, "cuda", "none");
  EXPECT_EQ(report::kernel_form_text(recorded.recording.info()), "");
  const auto report = replayed_on(recorded.recording, "cpu");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->same());
  EXPECT_EQ(report->within, 0);
}

TEST(DeviceKind, CpusAreOneKind) {
  EXPECT_EQ(device_kind("baseline"), "cpu");
  EXPECT_EQ(device_kind("avx512"), "cpu");
  EXPECT_EQ(device_kind("sm_90"), "sm_90");
}

}  // namespace
}  // namespace scenarios
}  // namespace nanscope
