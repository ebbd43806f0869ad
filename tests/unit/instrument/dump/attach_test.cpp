#include "instrument/dump/attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/dump/recorded_dump.h"
#include "instrument/files/file.h"
#include "instrument/weights/safetensors.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using testing::HasSubstr;

class Attach : public testing::Test {
 protected:
  void write(const std::string& key, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    const auto bytes = encode_safetensors({{key, "F32", std::move(shape), std::as_bytes(std::span(values))}}).value();
    std::filesystem::create_directories(folder_ / "dump");
    ASSERT_TRUE(write_file(folder_ / "dump" / (key + ".safetensors"), bytes));
  }
  Result<Attached> attach_it(AttachOptions options = {}) {
    auto dump = OpenDump::open(folder_ / "dump");
    if (!dump) return tl::unexpected(dump.error());
    return attach(**dump, recording_, options);
  }

  TemporaryFolder folder_;
  std::filesystem::path recording_ = folder_ / "out.nanscope";
};

/// As many heads as queries: the shape alone does not tell which comes first, and the elements must come back all the
/// same.
TEST_F(Attach, BringsEveryElementBack) {
  std::vector<float> scores(3 * 3 * 5);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i);
  std::vector<float> q(3 * 3 * 2);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = -static_cast<float>(i);
  write("model.layers.0.self_attn.scores", {3, 3, 5}, scores);
  write("model.layers.0.self_attn.q", {3, 3, 2}, q);
  const Result<Attached> attached = attach_it();
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->tensors, 2);
  const Recording recording = Recording::open(recording_).value();
  ASSERT_EQ(recording.info().device, kDumpDevice);
  RecordingRun run(recording);
  StoredTensors stored(recording);
  Result<RecordedDump> again = RecordedDump::of(run, stored, "again");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->dump().tensors.size(), 2U);
  for (const DumpTensor& tensor : again->dump().tensors) {
    const Result<std::vector<float>> values = again->values(tensor, 0, tensor.count());
    ASSERT_TRUE(values);
    EXPECT_EQ(*values, tensor.at.role == "scores" ? scores : q) << tensor.name;
  }
}

TEST_F(Attach, ReplacesNothingUnasked) {
  write("x", {2}, {1, 2});
  std::ofstream(recording_) << "precious";
  const Result<Attached> refused = attach_it();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("exists already"));
  EXPECT_EQ(std::filesystem::file_size(recording_), 8U);
  AttachOptions options;
  options.overwrite = true;
  EXPECT_TRUE(attach_it(options));
}

TEST_F(Attach, LeavesNothingHalfWritten) {
  write("x", {2}, {1, 2});
  std::stop_source stop;
  stop.request_stop();
  AttachOptions options;
  options.stop = stop.get_token();
  EXPECT_FALSE(attach_it(options));
  EXPECT_FALSE(std::filesystem::exists(recording_));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_EQ(entry.path().filename(), "dump") << "was left";
  }
}

/// What msprobe measured comes back as it was, and the diagnosis says the same of the recording.
TEST_F(Attach, KeepsStatisticsWithoutElements) {
  const auto source = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps/producers/msprobe_statistics";
  auto dump = OpenDump::open(source);
  ASSERT_TRUE(dump) << dump.error().message;
  const Result<Attached> attached = attach(**dump, recording_, {});
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->tensors, static_cast<std::int64_t>((*dump)->dump().tensors.size()));
  EXPECT_EQ(attached->stated, attached->tensors);
  EXPECT_EQ(attached->converted, 0);
  const Recording recording = Recording::open(recording_).value();
  EXPECT_TRUE(recording.check());
  RecordingRun run(recording);
  StoredTensors stored(recording);
  Result<RecordedDump> again = RecordedDump::of(run, stored, "again");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->dump().tensors.size(), (*dump)->dump().tensors.size());
  for (std::size_t i = 0; i < again->dump().tensors.size(); ++i) {
    const DumpTensor& was = (*dump)->dump().tensors[i];
    const DumpTensor& is = again->dump().tensors[i];
    EXPECT_EQ(is.name, was.name);
    EXPECT_EQ(is.shape, was.shape);
    EXPECT_TRUE(is.stated);
    EXPECT_EQ(is.health.nan, was.health.nan);
    EXPECT_EQ(is.health.absmax, was.health.absmax);
    EXPECT_FALSE(again->values(is, 0, is.count()));
  }
  const auto diagnosis = diagnose_recorded(run, stored, "again");
  ASSERT_TRUE(diagnosis) << diagnosis.error().message;
  ASSERT_TRUE(diagnosis->root_cause);
  EXPECT_EQ(diagnosis->faults[*diagnosis->root_cause].tensor,
            "step0/rank0/model.layers.1.post_attention_layernorm.output.0");
  EXPECT_TRUE(diagnosis->spread.at_least);
}

}  // namespace
}  // namespace nanscope
