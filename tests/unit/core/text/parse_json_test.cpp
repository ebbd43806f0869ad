#include "core/parse_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
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

/// Those of ordered objects are searched one by one: a file of a megabyte could take a minute.
TEST(ParseJson, OrderedObjectsHaveNotAnyNumberOfKeys) {
  const auto object = [](std::size_t keys) {
    std::string text = "{";
    for (std::size_t i = 0; i < keys; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
    return text + "}";
  };
  const std::string most = object(kMostOrderedKeys);
  EXPECT_TRUE(parse_json<nlohmann::ordered_json>(most));
  EXPECT_EQ(parse_json<nlohmann::ordered_json>("[0,{\"a\":" + object(kMostOrderedKeys + 1) + "}]").error().message,
            "has more than 8192 keys in an object");
  EXPECT_TRUE(parse_json(object(kMostOrderedKeys + 1)));
  // As many in each of two, and colons in a text.
  EXPECT_TRUE(parse_json<nlohmann::ordered_json>("[{\"a\":" + object(100) + "},{\"b:\\\":\":" + object(100) + "}]"));
  EXPECT_TRUE(parse_json<nlohmann::ordered_json>("[\"" + std::string(kMostOrderedKeys + 1, ':') + "\"]"));
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

struct Tree {
  const char* name;
  std::string (*element)(int i);
  const char* ends;
  bool ordered = false;
};

class ParseJsonInLittleMemory : public ::testing::TestWithParam<Tree> {
 protected:
  static std::string text() {
    std::string text(1, GetParam().ends[0]);
    for (int i = 0; i < 10'000; ++i) text += (i > 0 ? "," : "") + GetParam().element(i);
    return text + GetParam().ends[1];
  }
  template <class Json>
  static Status status_of(const Result<Json>& parsed) {
    if (parsed) return {};
    return tl::unexpected(parsed.error());
  }
  /// The status of a process that has so many bytes more than it has taken already.
  static int parse_within(const std::string& text, std::uint64_t more) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::malloc_trim(0);  // what tests before have left
      ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
      std::uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t most = pages * static_cast<std::uint64_t>(::getpagesize()) + more;
      const rlimit limit{most, most};
      ::setrlimit(RLIMIT_AS, &limit);
      int code = 0;
      {
        const auto parsed =
            GetParam().ordered ? status_of(parse_json<nlohmann::ordered_json>(text)) : status_of(parse_json(text));
        code = parsed || parsed.error().message == out_of_memory() ? 0 : 1;
      }
      std::_Exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
};

/// Whatever the tree is made of, and wherever the memory ends.
TEST_P(ParseJsonInLittleMemory, EndsInATreeOrInALine) {
  const std::string json = text();
  for (std::uint64_t part = 0; part <= 24; ++part) {
    EXPECT_EQ(parse_within(json, (std::uint64_t{1} << 18) * part), 0) << part << " quarters of a MiB";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Trees, ParseJsonInLittleMemory,
    ::testing::Values(Tree{"numbers", [](int i) { return std::to_string(i); }, "[]"},
                      Tree{"short_keys", [](int i) { return '"' + std::to_string(i) + "\":0"; }, "{}"},
                      Tree{"long_keys", [](int i) { return "\"model.layers.weight." + std::to_string(i) + "\":0"; },
                           "{}"},
                      Tree{"short_texts", [](int) { return std::string("\"a\""); }, "[]"},
                      Tree{"long_texts", [](int) { return '"' + std::string(40, 'a') + '"'; }, "[]"},
                      Tree{"empty_lists", [](int) { return std::string("[]"); }, "[]"},
                      Tree{"lists_of_one", [](int) { return std::string("[0]"); }, "[]"},
                      Tree{"empty_objects", [](int) { return std::string("{}"); }, "[]"},
                      Tree{"objects_of_one", [](int) { return std::string(R"({"a":0})"); }, "[]"},
                      Tree{"ordered_objects_of_one", [](int) { return std::string(R"({"a":0})"); }, "[]", true}),
    [](const auto& tree) { return std::string(tree.param.name); });
#endif

}  // namespace
}  // namespace nanscope
