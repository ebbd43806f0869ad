#include "core/parse_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/system_reason.h"

namespace nanscope {
namespace {

using ::testing::HasSubstr;

TEST(ParseJson, WhatIsNoneOrTooMuchIsSaidInOneLine) {
  EXPECT_EQ(parse_json(R"({"a": [1, "x"]})").value()["a"][1], "x");
  EXPECT_EQ(parse_json("[1,").error().message, "not a JSON text");
  EXPECT_EQ(parse_json("").error().message, "not a JSON text");
  EXPECT_THAT(parse_json(std::string(100'000, '[')).error().message, HasSubstr("nested too deeply"));
  EXPECT_THAT(parse_json(std::string(65, '[') + std::string(65, ']')).error().message, HasSubstr("more than 64 deep"));
  EXPECT_TRUE(parse_json(std::string(64, '[') + std::string(64, ']')));
  EXPECT_TRUE(parse_json("\"" + std::string(100, '[') + "\""));
  EXPECT_TRUE(parse_json_or_none(std::string(100'000, '{')).is_discarded());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// In a process of its own, which has memory for the text and not for the tree.
TEST(ParseJson, ATreeThatThereIsNoMemoryForIsAnErrorToo) {
  std::string text = "[";
  for (int i = 0; i < 10'000'000; ++i) text += "0,";
  text += "0]";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{rlim_t{1} << 28, rlim_t{1} << 28};
    ::setrlimit(RLIMIT_AS, &limit);
    const auto parsed = parse_json(text);
    std::_Exit(parsed ? 1 : parsed.error().message == out_of_memory() ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "ended by a signal, or with a tree, or with another error";
}
#endif

}  // namespace
}  // namespace nanscope
