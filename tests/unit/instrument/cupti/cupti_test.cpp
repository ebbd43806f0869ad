#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "instrument/cupti/activity_trace.h"
#include "instrument/cupti/api.h"
#include "instrument/cupti/cupti_trace.h"
#include "instrument/cupti/joiner.h"
#include "instrument/cupti/subscriber.h"
#include "tests/unit/instrument/cupti/load_fake_cupti.h"

/// Against a fake libcupti that hands out made-up records.
namespace nanscope::cupti {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

CUpti_ActivityKernel10 kernel(std::uint32_t correlation, const char* name, std::uint64_t start, std::uint64_t end) {
  CUpti_ActivityKernel10 record;
  std::memset(&record, 0, sizeof record);
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.registersPerThread = 96;
  record.start = start;
  record.end = end;
  record.streamId = 7;
  record.gridX = 12;
  record.gridY = 3;
  record.gridZ = 1;
  record.blockX = 128;
  record.blockY = 2;
  record.blockZ = 1;
  record.staticSharedMemory = 1024;
  record.dynamicSharedMemory = 49152;
  record.correlationId = correlation;
  record.name = name;
  return record;
}

class Cupti : public testing::Test {
 protected:
  void SetUp() override {
    fake_ = load_fake_cupti(NANSCOPE_FAKE_CUPTI);
    ASSERT_NE(fake_, nullptr);
    api_ = Api::load(NANSCOPE_FAKE_CUPTI).value();
  }
  void TearDown() override { unsetenv("NANSCOPE_CUPTI"); }

  void report(const CUpti_ActivityKernel10& record) { fake_->report(&record, sizeof record, record.correlationId); }

  const FakeCuptiControl* fake_ = nullptr;
  std::shared_ptr<const Api> api_;
};

static void CUPTIAPI ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

TEST_F(Cupti, AMissingLibraryIsOneLineThatSaysHowToNameOne) {
  const auto api = Api::load("/nowhere/libcupti.so.13");
  ASSERT_FALSE(api);
  EXPECT_THAT(api.error().message, AllOf(HasSubstr("/nowhere/libcupti.so.13"), HasSubstr("NANSCOPE_CUPTI")));
  EXPECT_THAT(api.error().message, ::testing::Not(HasSubstr("\n")));
}

TEST_F(Cupti, ALibraryThatIsNotCuptiIsNamedByWhatItLacks) {
  const auto api = Api::load("libm.so.6");
  ASSERT_FALSE(api);
  EXPECT_THAT(api.error().message, HasSubstr("cuptiGetVersion"));
}

TEST_F(Cupti, WithoutADriverTheErrorSaysSo) {
  fake_->answer(CUPTI_ERROR_UNKNOWN);
  const auto trace = make_cupti_trace();
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, AllOf(HasSubstr("999"), HasSubstr("no NVIDIA driver"), HasSubstr("nvidia-smi")));
}

TEST_F(Cupti, WithoutTheRightToProfileTheErrorSaysSo) {
  fake_->answer(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  const auto trace = make_cupti_trace();
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, AllOf(HasSubstr("(35)"), HasSubstr("ERR_NVGPUCTRPERM")));
}

TEST_F(Cupti, AnotherSubscriberIsNamed) {
  fake_->hold("CUPTI for torch.profiler");
  const auto trace = make_cupti_trace();
  ASSERT_FALSE(trace);
  EXPECT_THAT(trace.error().message, HasSubstr("'CUPTI for torch.profiler' holds CUPTI"));
}

TEST_F(Cupti, AnotherSubscriberOfAnOldCuptiIsNotNamedButSaid) {
  auto old = std::make_shared<Api>(*api_);
  old->subscribe_v2 = nullptr;
  fake_->hold("somebody");
  const auto subscriber = Subscriber::claim(old, &ignore, nullptr);
  ASSERT_FALSE(subscriber);
  EXPECT_THAT(subscriber.error().message, AllOf(HasSubstr("(39)"), HasSubstr("another tool holds CUPTI")));
}

TEST_F(Cupti, TheSubscriberIsGivenBack) {
  {
    const auto trace = make_cupti_trace();
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_TRUE(fake_->subscribed());
    EXPECT_TRUE(fake_->enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    EXPECT_FALSE(make_cupti_trace()) << "there can be but one";
  }
  EXPECT_FALSE(fake_->subscribed());
  EXPECT_FALSE(fake_->enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_TRUE(make_cupti_trace()) << "after it, another";
}

TEST_F(Cupti, AKernelIsJoinedToTheOpWhoseLaunchItWas) {
  auto trace = make_cupti_trace().value();
  trace->begin(41, "gemm");
  report(kernel(900, "_ZN3foo3barEv", 1000, 3500));
  trace->end();
  report(kernel(901, "other", 4000, 4001));
  ASSERT_TRUE(trace->finish());
  const std::vector<KernelRow> rows = trace->take();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].op, 41);
  EXPECT_EQ(rows[0].name, "foo::bar()");
  EXPECT_EQ(rows[1].name, "other");
  EXPECT_EQ(rows[0].start_ns, 1000);
  EXPECT_EQ(rows[0].duration_ns, 2500);
  const Json details = Json::parse(rows[0].details);
  EXPECT_EQ(details["kind"], "kernel");
  EXPECT_EQ(details["grid"], (std::vector<int>{12, 3, 1}));
  EXPECT_EQ(details["block"], (std::vector<int>{128, 2, 1}));
  EXPECT_EQ(details["registers"], 96);
  EXPECT_EQ(details["shared_static"], 1024);
  EXPECT_EQ(details["shared_dynamic"], 49152);
  EXPECT_EQ(details["stream"], 7);
  EXPECT_EQ(rows[1].op, 0) << "launched by no op";
  EXPECT_TRUE(trace->take().empty()) << "each once";
}

TEST_F(Cupti, AnOpThatIsKnownLaterThanItsWorkIsJoinedAllTheSame) {
  Joiner joiner;
  Decoded work;
  work.activities.push_back({KernelRow{0, "k", 1, 2, "{}"}, 5});
  EXPECT_TRUE(joiner.join(std::move(work)).empty());
  Decoded external;
  external.external.push_back({5, 77});
  const auto rows = joiner.join(std::move(external));
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].op, 77);
  EXPECT_TRUE(joiner.rest().empty());
}

TEST_F(Cupti, LaunchesOfLongAgoAreForgotten) {
  Joiner joiner;
  const auto last = static_cast<std::uint32_t>(3 * Joiner::kRemembered);
  for (std::uint32_t i = 1; i <= last; ++i) joiner.know(i, std::int64_t{i} + 1000);
  Decoded work;
  const auto kept = static_cast<std::uint32_t>(last - Joiner::kRemembered + 1);
  for (const std::uint32_t correlation : {1U, kept, last}) {
    work.activities.push_back({KernelRow{0, "k", 1, 2, "{}"}, correlation});
  }
  const auto rows = joiner.join(std::move(work));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].op, kept + 1000);
  EXPECT_EQ(rows[1].op, last + 1000);
  EXPECT_EQ(joiner.rest().size(), 1U);
}

TEST_F(Cupti, CopiesFillsWaitsAndMarkersAreRows) {
  auto trace = ActivityTrace::start(api_).value();
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.bytes = 4096;
  copy.start = 10;
  copy.end = 30;
  copy.correlationId = 3;
  fake_->report(&copy, sizeof copy, 0);
  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.value = 255;
  fill.bytes = 64;
  fill.start = 31;
  fill.end = 32;
  fake_->report(&fill, sizeof fill, 0);
  CUpti_ActivitySynchronization2 wait{};
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  wait.start = 40;
  wait.end = 90;
  fake_->report(&wait, sizeof wait, 0);
  CUpti_ActivityMarker2 marker{};
  marker.kind = CUPTI_ACTIVITY_KIND_MARKER;
  marker.flags = CUPTI_ACTIVITY_FLAG_MARKER_START;
  marker.timestamp = 95;
  marker.id = 12;
  marker.name = "layer \"3\"";
  marker.domain = "torch\n";
  fake_->report(&marker, sizeof marker, 0);
  ASSERT_TRUE(trace->flush(true));
  const Decoded decoded = trace->take();
  ASSERT_EQ(decoded.activities.size(), 4U);
  EXPECT_EQ(decoded.activities[0].row.name, "memcpy HtoD");
  EXPECT_EQ(Json::parse(decoded.activities[0].row.details)["bytes"], 4096);
  EXPECT_EQ(decoded.activities[0].correlation, 3U);
  EXPECT_EQ(Json::parse(decoded.activities[1].row.details)["value"], 255);
  EXPECT_EQ(Json::parse(decoded.activities[2].row.details)["type"], "stream");
  EXPECT_EQ(decoded.activities[2].row.duration_ns, 50);
  EXPECT_EQ(decoded.activities[3].row.name, "layer \"3\"");
  EXPECT_EQ(Json::parse(decoded.activities[3].row.details)["edge"], "begin");
  EXPECT_EQ(Json::parse(decoded.activities[3].row.details)["domain"], "torch\n");
}

TEST_F(Cupti, ManyBuffersAreGivenAndGivenBackInOrder) {
  ActivityOptions options;
  options.buffer_bytes = 3 * sizeof(CUpti_ActivityKernel10) + 5;  // no multiple of 8, room for three
  options.buffers = 2;
  auto trace = ActivityTrace::start(api_, options).value();
  for (std::uint32_t i = 1; i <= 100; ++i) report(kernel(i, "k", i, i + 1));
  ASSERT_TRUE(trace->flush(true));
  const Decoded decoded = trace->take();
  ASSERT_EQ(decoded.activities.size(), 100U);
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(decoded.activities[i].correlation, i + 1);
  EXPECT_EQ(fake_->buffers_held(), 0);
  EXPECT_EQ(trace->dropped(), 0);
}

TEST_F(Cupti, WhatFindsNoBufferIsDroppedAndCounted) {
  ActivityOptions options;
  options.buffers = 0;
  auto trace = ActivityTrace::start(api_, options).value();
  for (std::uint32_t i = 1; i <= 5; ++i) report(kernel(i, "k", i, i + 1));
  EXPECT_TRUE(trace->take().activities.empty());
  trace.reset();
  options.buffers = 1;
  trace = ActivityTrace::start(api_, options).value();
  report(kernel(6, "k", 6, 7));
  ASSERT_TRUE(trace->flush(true));
  EXPECT_EQ(trace->take().activities.size(), 1U);
  EXPECT_EQ(trace->dropped(), 5);
}

TEST_F(Cupti, WhatIsDroppedAgainIsAdded) {
  auto trace = ActivityTrace::start(api_).value();
  for (const std::size_t lost : {3U, 0U, 4U}) {
    fake_->lose(lost);
    report(kernel(1, "k", 1, 2));
    ASSERT_TRUE(trace->flush(true));
  }
  EXPECT_EQ(trace->dropped(), 7);
}

TEST_F(Cupti, AFailedStartLeavesNothingEnabled) {
  fake_->answer(CUPTI_ERROR_UNKNOWN);
  EXPECT_FALSE(ActivityTrace::start(api_));
  fake_->answer(CUPTI_SUCCESS);
  EXPECT_TRUE(ActivityTrace::start(api_));
}

}  // namespace
}  // namespace nanscope::cupti
