#include "instrument/dump/containers/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <vector>

namespace nanscope {
namespace {

using testing::ElementsAre;

std::string refusal(const std::string& text) {
  const auto read =
      for_each_json_line(std::as_bytes(std::span(text)), "x.jsonl", [](const JsonLine&) { return Status(); });
  return read ? "" : read.error().message;
}

TEST(JsonLines, AreGivenOneByOne) {
  const std::string text = "{\"a\":1}\n\n  \r\n{\"a\":{\"b\":[2]}}\r\n{\"a\":3}";
  std::vector<std::string> seen;
  const auto read = for_each_json_line(std::as_bytes(std::span(text)), "x.jsonl", [&](const JsonLine& line) {
    seen.push_back(std::to_string(line.number) + "@" + std::to_string(line.offset) + std::string(line.object.source()));
    return Status();
  });
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_THAT(seen, ElementsAre("1@0{\"a\":1}", "4@13{\"a\":{\"b\":[2]}}", "5@30{\"a\":3}"));
}

TEST(JsonLines, ErrorsNameLineAndOffset) {
  EXPECT_EQ(refusal("{}\n{\"a\":}\n"), "x.jsonl: line 2: offset 8: not JSON here");
  EXPECT_EQ(refusal("{}\n{\"a\":NaN}\n"), "x.jsonl: line 2: offset 8: not JSON here");
  EXPECT_EQ(refusal("{}\n[1]\n"), "x.jsonl: line 2: offset 3: no JSON object, expected one in each line");
  EXPECT_EQ(refusal("{\"a\":1,\"a\":2}"), "x.jsonl: line 1: offset 0: names 'a' twice");
  EXPECT_EQ(refusal("{} {}"), "x.jsonl: line 1: offset 3: not JSON here");
  EXPECT_EQ(refusal("{\"a\":" + std::string(40, '[')),
            "x.jsonl: line 1: offset 36: nested too deeply, expected at most 32");
  EXPECT_EQ(refusal("{\"a\":\"" + std::string(kMaxJsonLine, 'x') + "\"}"),
            "x.jsonl: line 1: offset 0: more than 4194304 bytes in a line");
}

TEST(JsonLines, AreSoughtNoFurtherThanALineMayGo) {
  constexpr std::size_t kSize = std::size_t{1} << 40;
  void* zeros = ::mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const std::span text(static_cast<const std::byte*>(zeros), kSize);
  const Status read = for_each_json_line(text, "x.jsonl", [](const JsonLine&) { return Status(); });
  ::munmap(zeros, kSize);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "x.jsonl: line 1: offset 0: more than 4194304 bytes in a line");
}

TEST(JsonLines, TakerEndsTheReading) {
  int lines = 0;
  const std::string text = "{}\n{}\n{}\n";
  const auto read = for_each_json_line(std::as_bytes(std::span(text)), "x", [&](const JsonLine&) -> Status {
    if (++lines == 2) return fail("enough");
    return {};
  });
  EXPECT_EQ(read.error().message, "enough");
  EXPECT_EQ(lines, 2);
}

}  // namespace
}  // namespace nanscope
