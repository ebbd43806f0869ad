/// A recording that nanscope 0.1 wrote, of schema 1, its pages made smaller. What is expected of it is what that
/// nanscope printed of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/place.h"
#include "core/run/recording_view.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/recompute/arithmetic.h"
#include "tests/temporary_folder.h"

namespace nanscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Schema1 : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy_file(std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/recordings/schema1.nanscope",
                               path_);
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "old.nanscope";
};

TEST_F(Schema1, ItsRowsAreWhatTheyWere) {
  const Result<Recording> opened = Recording::open(path_);
  ASSERT_TRUE(opened) << opened.error().message;
  const Recording& r = *opened;
  EXPECT_EQ(r.schema(), 1U);
  EXPECT_TRUE(r.check());
  EXPECT_EQ(r.state().value(), RunState::complete);
  const RecordingCounts counts = r.counts().value();
  EXPECT_EQ(counts.ops, 126);
  EXPECT_EQ(counts.expected_ops, 126);
  EXPECT_EQ(counts.tensors, 153);
  EXPECT_EQ(counts.stored_tensors, 153);
  EXPECT_EQ(r.weights().value().size(), 28U);
  EXPECT_EQ(r.kv_history().value().size(), 7U);
  EXPECT_THAT(r.notes().value(), IsEmpty());

  const std::vector<StepRow> steps = r.steps().value();
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[2].request, 1);
  EXPECT_EQ(steps[2].index, 1);
  EXPECT_EQ(steps[2].kind, StepKind::decode);
  EXPECT_EQ(steps[2].first_token, 3);
  EXPECT_EQ(steps[2].tokens, 1);
  EXPECT_EQ(steps[2].context, 4);
  EXPECT_EQ(r.find_step(1, 1).value()->id, 3);
  EXPECT_EQ(r.steps(1).value().size(), 2U);

  const OpRow scores = r.op(10).value();
  EXPECT_EQ(scores.name, "scores");
  EXPECT_EQ(scores.attributes, R"({"heads":2,"kv_heads":2,"factor":0.25})");
  EXPECT_EQ(r.inputs_of(10).value()[1].tensor, 11);
  const TensorRow embed = r.tensor(1).value();
  EXPECT_EQ(embed.hash, 0x2a6267b89771fd0aU);
  EXPECT_EQ(embed.tokens, 4);
  EXPECT_EQ(embed.channels, 32);
  EXPECT_FALSE(embed.axis) << "shapes tell";
  const BadOp bad = r.first_bad_op().value().value();
  EXPECT_EQ(to_string(place_of(r, bad.tensor).value()), "0/0/0/kv_read.k_read");
  EXPECT_EQ(bad.tensor.health.nan, 289U);
  EXPECT_EQ(bad.tensor.health.pos_inf, 95U);
  const ScaleRow scale = r.scales().value().front();
  EXPECT_EQ(scale.scale, 0.01678563840687275);
  EXPECT_EQ(scale.headroom, 2.240000009942607);
  EXPECT_EQ(r.request(1)->output_text, "!!");
}

TEST_F(Schema1, ShapesSayWhatItsRowsAre) {
  const Recording recording = Recording::open(path_).value();
  RecordingRun rows(recording);
  StoredTensors stored(recording);
  RecordingView view(rows, stored);
  ASSERT_EQ(view.steps().size(), 3U);
  EXPECT_EQ(view.steps()[2].spans.size(), 1U);
  EXPECT_EQ(view.steps()[2].spans[0].rows, 1);
  EXPECT_THAT(view.content(kBeforeSteps).ops, IsEmpty());
  const auto axis = [&](StepId step, std::optional<std::int64_t> layer, std::string_view op) {
    return view.tensor(view.find_op(step, layer, op)->outputs.front())->axis;
  };
  EXPECT_EQ(axis(1, 0, "q_rope"), Axis::rows);
  EXPECT_EQ(axis(1, 0, "kv_read"), Axis::keys);
  EXPECT_EQ(axis(1, std::nullopt, "lm_head"), Axis::rows);
  EXPECT_EQ(axis_by_shape(1, 3, OpKind::token_softmax, view.steps()[0].spans[0]), Axis::ends);
  EXPECT_EQ(axis_by_shape(2, 1, OpKind::copy, view.steps()[0].spans[0]), Axis::part);
  const auto* softmax = view.find_op(1, 0, "softmax")->get<SoftmaxAttributes>();
  ASSERT_NE(softmax, nullptr);
  EXPECT_EQ(softmax->zero_guard, false) << "schema 1 has it as a text";
  EXPECT_TRUE(view.status());
}

TEST_F(Schema1, ItsDiagnosisIsWhatItWas) {
  const Recording recording = Recording::open(path_).value();
  RecordingRun rows(recording);
  StoredTensors stored(recording);
  RecordingView view(rows, stored);
  PlainArithmetic arithmetic;
  const Result<Diagnosis> diagnosis = diagnose(view, arithmetic, {});
  ASSERT_TRUE(diagnosis) << diagnosis.error().message;
  ASSERT_TRUE(diagnosis->root_cause);
  const Fault& root = diagnosis->faults[*diagnosis->root_cause];
  EXPECT_EQ(root.fault_class, "scale-misapplied");
  EXPECT_EQ(root.tensor, "0/0/0/kv_read.k_read");
  EXPECT_EQ(diagnosis->spread.first_bad_tensor, "0/0/0/kv_read.k_read");
  EXPECT_EQ(diagnosis->spread.bad_tokens, 8);
  EXPECT_EQ(diagnosis->spread.tokens, 8);
}

TEST_F(Schema1, NothingIsWrittenToIt) {
  const std::string before = bytes();
  const EventRow events[] = {{1, "scale-misapplied", 11, 0, "inverted", "{}"}};
  const Status refused = write_events(path_, events);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("of schema 1"));
  ASSERT_TRUE(Recording::open(path_).value().check());
  EXPECT_EQ(bytes(), before);
}

}  // namespace
}  // namespace nanscope
