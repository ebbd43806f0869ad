#include "core/parse_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace nanscope {
namespace {

using ::testing::HasSubstr;

/// As a tree that there is no memory for.
struct TooLarge {
  static TooLarge parse(std::string_view, std::nullptr_t, bool) { throw std::bad_alloc(); }
  bool is_discarded() const { return false; }
};

TEST(ParseJson, WhatIsNoneOrTooMuchIsSaidInOneLine) {
  EXPECT_EQ(parse_json(R"({"a": [1, "x"]})").value()["a"][1], "x");
  EXPECT_EQ(parse_json("[1,").error().message, "not a JSON text");
  EXPECT_EQ(parse_json("").error().message, "not a JSON text");
  EXPECT_THAT(parse_json(std::string(100'000, '[')).error().message, HasSubstr("nested too deeply"));
  EXPECT_THAT(parse_json(std::string(65, '[') + std::string(65, ']')).error().message, HasSubstr("more than 64 deep"));
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']')));
  EXPECT_TRUE(parse_json("\"" + std::string(100, '[') + "\""));
  EXPECT_EQ(parse_json<TooLarge>("{}").error().message, out_of_memory());
  EXPECT_TRUE(parse_json_or_none(std::string(100'000, '{')).is_discarded());
}

}  // namespace
}  // namespace nanscope
