#include <gtest/gtest.h>

#include "instrument/cupti/cupti_trace.h"

namespace nanscope {
namespace {

TEST(NoCupti, ABuildWithoutItSaysSo) {
  const auto trace = make_cupti_trace();
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("built without"), std::string::npos) << trace.error().message;
}

}  // namespace
}  // namespace nanscope
