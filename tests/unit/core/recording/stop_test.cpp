#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/unit/core/recording/sample.h"

/// A reader that is told to stop ends soon, wherever it is.
namespace nanscope {
namespace {

using ::testing::HasSubstr;

class StopTest : public ::testing::Test {
 protected:
  void write(int ops) {
    auto writer = RecordingWriter::create(path(), sample::run_info());
    ASSERT_TRUE(writer) << writer.error().message;
    RequestRow request;
    (*writer)->add(request);
    sample::add_step(**writer, 1, 0, 0, ops, 1, 1, false);
    ASSERT_TRUE((*writer)->finish());
  }
  std::filesystem::path path() const { return folder_ / "run.nanscope"; }

  TemporaryFolder folder_;
};

TEST_F(StopTest, BetweenTwoRows) {
  write(3);
  std::stop_source source;
  auto recording = Recording::open(path());
  ASSERT_TRUE(recording);
  recording->stop_with(source.get_token());
  EXPECT_TRUE(recording->tensors());
  for (const std::int64_t id : {1, 2, 2, 1}) EXPECT_EQ(recording->tensor(id)->id, id);
  int seen = 0;
  const Status read = recording->for_each_glance({}, [&](const TensorGlance&) {
    ++seen;
    source.request_stop();
    return true;
  });
  EXPECT_FALSE(read);
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(recording->tensors());
  EXPECT_FALSE(recording->tensor(1));
}

TEST_F(StopTest, WhileARowIsSought) {
  write(20'000);
  TensorFilter nothing;
  nothing.role = "none has it";
  std::string said;
  // Between two queries it is seen without SQLite's help: once in a while the stop falls there.
  for (int attempt = 0; attempt < 20 && said.find("interrupted") == std::string::npos; ++attempt) {
    std::stop_source source;
    auto recording = Recording::open(path());
    ASSERT_TRUE(recording);
    recording->stop_with(source.get_token());
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      source.request_stop();
    });
    said.clear();
    for (int reads = 0; said.empty() && reads < 100'000; ++reads) {
      const auto found = recording->tensors(nothing);
      if (!found) said = found.error().message;
    }
  }
  EXPECT_THAT(said, HasSubstr("interrupted"));
}

}  // namespace
}  // namespace nanscope
