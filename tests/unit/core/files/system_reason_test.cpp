#include "core/system_reason.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace nanscope {
namespace {

using ::testing::HasSubstr;

TEST(SystemReason, NamesTheLimitThatWasReached) {
  EXPECT_THAT(system_reason(EMFILE), HasSubstr("ulimit -n"));
  EXPECT_THAT(system_reason(ENFILE), HasSubstr("fs.file-max"));
  EXPECT_THAT(system_reason(EFBIG), HasSubstr("ulimit -f"));
  EXPECT_THAT(system_reason(ENOMEM), HasSubstr("ulimit -v"));
  EXPECT_EQ(system_reason(ENOENT), "No such file or directory");
}

TEST(SystemReason, OfAnExceptionSaysWhatRanOut) {
  EXPECT_EQ(reason_of(std::bad_alloc()), out_of_memory());
  EXPECT_EQ(reason_of(std::length_error("vector")), out_of_memory());
  EXPECT_THAT(reason_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
              HasSubstr("no more threads can be started: raise the limits"));
  EXPECT_THAT(reason_of(std::filesystem::filesystem_error("x", std::error_code(EMFILE, std::generic_category()))),
              HasSubstr("ulimit -n"));
  EXPECT_EQ(reason_of(std::runtime_error("oh")), "internal error: oh");
}

}  // namespace
}  // namespace nanscope
