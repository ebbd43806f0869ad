#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/place.h"
#include "core/recording/writer.h"
#include "core/run/find_place.h"
#include "core/run/recording_view.h"

namespace nanscope {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Requests 0 and 4 with two steps each, three ops a step: attn_norm in layers 0 and 1, lm_head.
class FindRecordedPlace : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto writer = RecordingWriter::create_in_memory({}).value();
    int id = 0;
    for (const int request : {0, 4}) {
      for (int index = 0; index < 2; ++index) add_step(*writer, ++id, request, index);
    }
    recording_ = std::make_unique<Recording>(std::move(*writer->finish_in_memory()));
  }
  static void TearDownTestSuite() { recording_.reset(); }

  static void add_step(RecordingWriter& writer, int id, int request, int index) {
    StepRow step;
    step.id = id;
    step.request = request;
    step.index = index;
    writer.add(step);
    for (int i = 0; i < 3; ++i) {
      OpRow op;
      op.id = id * 10 + i;
      op.step = id;
      op.layer = i < 2 ? i : -1;
      op.name = i < 2 ? "attn_norm" : "lm_head";
      writer.add(op, {});
      for (const char* role : {i < 2 ? "out" : "logits", "stats"}) {
        TensorRow tensor;
        tensor.id = op.id * 10 + (role == std::string("stats") ? 1 : 0);
        tensor.op = op.id;
        tensor.role = role;
        tensor.tokens = i < 2 ? 4 : 1;
        tensor.channels = 8;
        tensor.first_token = i < 2 ? 20 : 23;
        writer.add(tensor);
      }
    }
    ASSERT_TRUE(writer.commit_step());
  }

  std::int64_t tensor(const std::string& place) {
    const auto found = find_place(run_, place);
    EXPECT_TRUE(found) << place << ": " << found.error().message;
    return found ? found->tensor->id : 0;
  }
  std::string error(const std::string& place) {
    const auto found = find_place(run_, place);
    return found ? "found tensor " + std::to_string(found->tensor->id) : found.error().message;
  }
  /// Row-major; nothing where the place names no channel.
  std::optional<std::int64_t> element(const std::string& place) {
    const auto found = find_place(run_, place).value();
    if (!found.row || !found.channel) return std::nullopt;
    return *found.row * found.tensor->channels + *found.channel;
  }

  static std::unique_ptr<Recording> recording_;
  RecordingRun rows_{*recording_};
  StoredTensors elements_{*recording_};
  RecordingView run_{rows_, elements_};
};
std::unique_ptr<Recording> FindRecordedPlace::recording_;

TEST_F(FindRecordedPlace, FullPlaces) {
  EXPECT_EQ(tensor("0/0/0/attn_norm.out"), 100);
  EXPECT_EQ(tensor("4/1/1/attn_norm.stats"), 411);
  EXPECT_EQ(tensor("4/1/-/lm_head.logits"), 420);
}

TEST_F(FindRecordedPlace, OutsideTheLayersAnyLayerIsAccepted) {
  EXPECT_EQ(tensor("4/0/0/lm_head.logits"), 320);
  EXPECT_EQ(tensor("4/0/99/lm_head.logits"), 320);
}

TEST_F(FindRecordedPlace, OpMayBeARole) {
  EXPECT_EQ(tensor("4/0/0/logits"), 320);
  EXPECT_EQ(tensor("4/1//logits"), 420);
}

TEST_F(FindRecordedPlace, RoleMayBeLeftOutWhereThereIsAnOut) {
  EXPECT_EQ(tensor("4/0/1/attn_norm"), 310);
  EXPECT_THAT(error("4/0/-/lm_head"), AllOf(HasSubstr("several outputs"), HasSubstr("4/0/-/lm_head.stats")));
}

TEST_F(FindRecordedPlace, AmbiguousPlacesAreListed) {
  EXPECT_THAT(error("4/0//attn_norm"), AllOf(HasSubstr("4/0/0/attn_norm"), HasSubstr("4/0/1/attn_norm")));
  EXPECT_THAT(error("logits"), AllOf(HasSubstr("several"), HasSubstr("0/1/-/lm_head.logits")));
}

TEST_F(FindRecordedPlace, ElementsByPositionOrRow) {
  EXPECT_EQ(element("4/0/1/attn_norm.out[22,7]"), 23);
  EXPECT_EQ(element("4/0/0/logits[0,3]"), 3) << "a row, since position 0 has no logits";
  EXPECT_EQ(element("4/0/0/logits[23,3]"), 3);
  EXPECT_EQ(element("4/0/0/logits[,3]"), 3) << "there is but one row";
  EXPECT_FALSE(element("4/0/1/attn_norm[22]"));
  EXPECT_THAT(error("4/0/1/attn_norm[24,0]"), HasSubstr("tokens 20 to 23"));
  EXPECT_THAT(error("4/0/1/attn_norm[22,8]"), HasSubstr("8 channels"));
}

TEST_F(FindRecordedPlace, WhatIsNotThereIsSaidWithWhatIs) {
  const std::map<std::string, std::string> said = {{"5/0/0/attn_norm", "no request 5"},
                                                   {"4/7/0/attn_norm", "no step 7, the last one is 1"},
                                                   {"4/0/9/attn_norm", "in layers 0 to 1, not in 9"},
                                                   {"4/0/0/atn_norm", "near: 'attn_norm'"},
                                                   {"4/0/0/attn_norm.logits", "other outputs: 4/0/0/attn_norm.out"}};
  for (const auto& [place, what] : said) EXPECT_THAT(error(place), HasSubstr(what));
}

TEST_F(FindRecordedPlace, PlaceOfATensorLeadsToIt) {
  const auto row = recording_->tensor(310).value();
  const auto place = place_of(*recording_, row, 17).value();
  EXPECT_EQ(to_string(place), "4/0/1/attn_norm.out[22,1]");
  EXPECT_EQ(tensor(to_string(place)), 310);
  EXPECT_EQ(element(to_string(place)), 17);
  EXPECT_FALSE(place_of(*recording_, row, 32));
}

}  // namespace
}  // namespace nanscope
