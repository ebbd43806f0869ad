#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>

#include "instrument/files/base64.h"

namespace nanscope {
namespace {

/// The test vectors of RFC 4648, section 10.
constexpr std::pair<std::string_view, std::string_view> kVectors[] = {{"", ""},
                                                                      {"f", "Zg=="},
                                                                      {"fo", "Zm8="},
                                                                      {"foo", "Zm9v"},
                                                                      {"foob", "Zm9vYg=="},
                                                                      {"fooba", "Zm9vYmE="},
                                                                      {"foobar", "Zm9vYmFy"}};

TEST(Base64, VectorsOfTheRfc) {
  for (const auto& [plain, coded] : kVectors) {
    EXPECT_EQ(to_base64(std::as_bytes(std::span(plain))), coded);
    const auto bytes = from_base64(coded);
    ASSERT_TRUE(bytes) << coded;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()), plain);
  }
}

TEST(Base64, OtherTextIsRefused) {
  for (const char* text : {"Zg=", "Zg", "Z g=", "Zm9v\n", "Zm9_", "=Zm9"}) EXPECT_FALSE(from_base64(text)) << text;
}

}  // namespace
}  // namespace nanscope
