#include "core/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/recording/sample.h"

namespace nanscope {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Place, ParsesEveryPart) {
  EXPECT_EQ(parse_place("4/0/3/attn_norm.out[17,255]").value(), (Place{4, 0, 3, "attn_norm", "out", 17, 255}));
  EXPECT_EQ(parse_place("4/0/-/lm_head.logits").value(), (Place{4, 0, -1, "lm_head", "logits", {}, {}}));
  EXPECT_EQ(parse_place("4/0/0/logits[0,0]").value(), (Place{4, 0, 0, "logits", "", 0, 0}));
  EXPECT_EQ(parse_place("-2/0/1/k_proj.out[0]").value(), (Place{-2, 0, 1, "k_proj", "out", 0, {}}));
}

TEST(Place, PartsMayBeLeftOut) {
  EXPECT_EQ(parse_place("logits").value(), (Place{{}, {}, {}, "logits", "", {}, {}}));
  EXPECT_EQ(parse_place("3/attn_norm").value(), (Place{{}, {}, 3, "attn_norm", "", {}, {}}));
  EXPECT_EQ(parse_place("2/3/attn_norm").value(), (Place{{}, 2, 3, "attn_norm", "", {}, {}}));
  EXPECT_EQ(parse_place("4///logits").value(), (Place{4, {}, {}, "logits", "", {}, {}}));
  EXPECT_EQ(parse_place("op[5]").value(), (Place{{}, {}, {}, "op", "", 5, {}}));
  EXPECT_EQ(parse_place("op[,7]").value(), (Place{{}, {}, {}, "op", "", {}, 7}));
}

TEST(Place, PrintsWhatParsesBack) {
  for (const char* text : {"4/0/3/attn_norm.out[17,255]", "4/0/-/lm_head.logits", "logits", "3/attn_norm",
                           "2/3/op.out[1]", "4///logits[,3]", "/2//op", "-1/0/0/op.out"}) {
    const auto place = parse_place(text).value();
    EXPECT_EQ(parse_place(to_string(place)).value(), place) << text;
  }
  EXPECT_EQ(to_string(Place{4, 0, -1, "lm_head", "logits", 3, 9}), "4/0/-/lm_head.logits[3,9]");
}

TEST(Place, RefusalsNameTheOffset) {
  const auto message = [](const char* text) {
    const auto place = parse_place(text);
    return place ? std::string("parsed") : place.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("the op is missing"));
  EXPECT_THAT(message("4/0/0/"), HasSubstr("offset 6, the op is missing"));
  EXPECT_THAT(message("a/0/0/op"), HasSubstr("offset 0, 'a' is no number"));
  EXPECT_THAT(message("1/-/0/op"), HasSubstr("offset 2, '-' is no number"));
  EXPECT_THAT(message("1/-2/0/op"), HasSubstr("offset 2, '-2' is no number"));
  EXPECT_THAT(message("-/0/0/op"), HasSubstr("offset 0, '-' is no number"));
  EXPECT_THAT(message("9/4/0/0/op"), HasSubstr("offset 6, more than three numbers"));
  EXPECT_THAT(message("op["), HasSubstr("offset 2, a '['"));
  EXPECT_THAT(message("op[1,2"), HasSubstr("offset 2, a '['"));
  EXPECT_THAT(message("op[1,x]"), HasSubstr("offset 5, a token"));
  EXPECT_THAT(message("op[-1,0]"), HasSubstr("offset 3, a token"));
  EXPECT_THAT(message("op."), HasSubstr("offset 3, the role is missing"));
  EXPECT_THAT(message("o p"), HasSubstr("'o p' is no op.role"));
  EXPECT_THAT(message("99999999999999999999/0/0/op"), HasSubstr("is no number"));
}

/// Requests 0 and 4 with two steps each, three ops a step: attn_norm in layers 0 and 1, lm_head.
class Resolve : public testing::Test {
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

  static std::int64_t tensor(const std::string& place) {
    const auto found = resolve(*recording_, place);
    EXPECT_TRUE(found) << place << ": " << found.error().message;
    return found ? found->tensor.id : 0;
  }
  static std::string error(const std::string& place) {
    const auto found = resolve(*recording_, place);
    return found ? "found tensor " + std::to_string(found->tensor.id) : found.error().message;
  }

  static std::unique_ptr<Recording> recording_;
};
std::unique_ptr<Recording> Resolve::recording_;

TEST_F(Resolve, FullPlaces) {
  EXPECT_EQ(tensor("0/0/0/attn_norm.out"), 100);
  EXPECT_EQ(tensor("4/1/1/attn_norm.stats"), 411);
  EXPECT_EQ(tensor("4/1/-/lm_head.logits"), 420);
}

TEST_F(Resolve, OutsideTheLayersAnyLayerIsAccepted) {
  EXPECT_EQ(tensor("4/0/0/lm_head.logits"), 320);
  EXPECT_EQ(tensor("4/0/99/lm_head.logits"), 320);
}

TEST_F(Resolve, OpMayBeARole) {
  EXPECT_EQ(tensor("4/0/0/logits"), 320);
  EXPECT_EQ(tensor("4/1//logits"), 420);
}

TEST_F(Resolve, RoleMayBeLeftOutWhereThereIsAnOut) {
  EXPECT_EQ(tensor("4/0/1/attn_norm"), 310);
  EXPECT_THAT(error("4/0/-/lm_head"), AllOf(HasSubstr("several outputs"), HasSubstr("4/0/-/lm_head.stats")));
}

TEST_F(Resolve, AmbiguousPlacesAreListed) {
  EXPECT_THAT(error("4/0//attn_norm"), AllOf(HasSubstr("4/0/0/attn_norm"), HasSubstr("4/0/1/attn_norm")));
  EXPECT_THAT(error("logits"), AllOf(HasSubstr("several"), HasSubstr("0/1/-/lm_head.logits")));
}

TEST_F(Resolve, ElementsByPositionOrRow) {
  const auto found = resolve(*recording_, "4/0/1/attn_norm.out[22,7]").value();
  EXPECT_EQ(found.row, 2);
  EXPECT_EQ(found.channel, 7);
  EXPECT_EQ(found.element(), 23);
  EXPECT_EQ(resolve(*recording_, "4/0/0/logits[0,3]")->element(), 3) << "a row, since position 0 has no logits";
  EXPECT_EQ(resolve(*recording_, "4/0/0/logits[23,3]")->element(), 3);
  EXPECT_EQ(resolve(*recording_, "4/0/0/logits[,3]")->element(), 3) << "there is but one row";
  EXPECT_FALSE(resolve(*recording_, "4/0/1/attn_norm[22]")->element());
  EXPECT_THAT(error("4/0/1/attn_norm[24,0]"), HasSubstr("tokens 20 to 23"));
  EXPECT_THAT(error("4/0/1/attn_norm[22,8]"), HasSubstr("8 channels"));
}

TEST_F(Resolve, WhatIsNotThereIsSaidWithWhatIs) {
  EXPECT_THAT(error("5/0/0/attn_norm"), HasSubstr("no request 5"));
  EXPECT_THAT(error("4/7/0/attn_norm"), HasSubstr("no step 7, the last one is 1"));
  EXPECT_THAT(error("4/0/9/attn_norm"), HasSubstr("in layers 0 to 1, not in 9"));
  EXPECT_THAT(error("4/0/0/atn_norm"), HasSubstr("near: 'attn_norm'"));
  EXPECT_THAT(error("4/0/0/attn_norm.logits"), AllOf(HasSubstr("other outputs"), HasSubstr("4/0/0/attn_norm.out")));
}

TEST_F(Resolve, PlaceOfATensorResolvesToIt) {
  const auto row = recording_->tensor(310).value();
  const auto place = place_of(*recording_, row, 17).value();
  EXPECT_EQ(to_string(place), "4/0/1/attn_norm.out[22,1]");
  const auto found = resolve(*recording_, place).value();
  EXPECT_EQ(found.tensor.id, 310);
  EXPECT_EQ(found.element(), 17);
  EXPECT_FALSE(place_of(*recording_, row, 32));
}

}  // namespace
}  // namespace nanscope
