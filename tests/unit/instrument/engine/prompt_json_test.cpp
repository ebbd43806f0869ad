#include <gtest/gtest.h>

#include <span>

#include "instrument/engine/request.h"

namespace nanscope {
namespace {

std::vector<std::byte> bytes(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

TEST(PromptJson, IsPlainJson) {
  EXPECT_EQ(prompt_to_json({TextPart{"a \"b\""}}), R"([{"text":"a \"b\""}])");
  EXPECT_EQ(prompt_to_json({ImagePart{"lamp.png", bytes("foobar")}}), R"([{"image":"lamp.png","png":"Zm9vYmFy"}])");
  EXPECT_EQ(prompt_to_json({}), "[]");
}

TEST(PromptJson, Base64HasTheVectorsOfRfc4648) {
  const std::vector<std::pair<std::string, std::string>> vectors{
      {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}};
  for (const auto& [plain, encoded] : vectors) {
    EXPECT_NE(prompt_to_json({ImagePart{"x", bytes(plain)}}).find("\"" + encoded + "\""), std::string::npos) << plain;
  }
}

TEST(PromptJson, RoundTripKeepsEveryByte) {
  std::vector<std::byte> all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<std::byte>(i));
  const std::vector<PromptPart> parts{TextPart{"Grüße"}, TextPart{std::string("\xff\x00 broken", 9)}, TextPart{""},
                                      ImagePart{"a/b.png", all}, ImagePart{"empty.png", {}}};
  const auto back = prompt_from_json(prompt_to_json(parts));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, parts);
}

TEST(PromptJson, WrongPartsAreRefused) {
  for (const char* json : {"", "{}", "[1]", "[{}]", R"([{"text":1}])", R"([{"image":"x"}])",
                           R"([{"image":"x","png":"Zm9"}])", R"([{"bytes":"Z$=="}])"}) {
    const auto parts = prompt_from_json(json);
    ASSERT_FALSE(parts) << json;
    EXPECT_EQ(parts.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace nanscope
