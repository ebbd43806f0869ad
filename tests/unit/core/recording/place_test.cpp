#include "core/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanscope {
namespace {

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

}  // namespace
}  // namespace nanscope
