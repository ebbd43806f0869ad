#include "gui/prepare/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nanscope::gui {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<OpRow> kOps = {
    {1, 1, -1, "embed", "embedding", "{}"}, {2, 1, 0, "q_proj", "gemm", "{}"}, {3, 1, 0, "k_proj", "gemm", "{}"}};

TEST(Timeline, WithoutKernelsOpsAreCountedByKind) {
  const std::vector<std::int64_t> bad = {3, 3};
  const Timeline timeline = lay_out_timeline(kOps, bad, {}, 100);
  EXPECT_EQ(timeline.kernels, 0);
  ASSERT_EQ(timeline.lanes.size(), 2U);
  EXPECT_EQ(timeline.lanes[0].kind, "gemm") << "the most frequent first";
  EXPECT_EQ(timeline.lanes[0].ops, 2);
  EXPECT_EQ(timeline.lanes[0].bad_ops, 1) << "an op with two bad outputs is one op";
  EXPECT_EQ(timeline.lanes[0].first_bad, 3);
  EXPECT_EQ(timeline.lanes[1].first_bad, 0);
}

TEST(Timeline, KernelsLieWhereTheirTimesAre) {
  const std::vector<KernelRow> kernels = {
      {3, "third", 1750, 250, "{}"}, {1, "first", 1000, 100, "{}"}, {2, "second", 1500, 100, "{}"}};
  const Timeline timeline = lay_out_timeline(kOps, {}, kernels, 100);
  EXPECT_EQ(timeline.span_ns, 1000);
  EXPECT_EQ(timeline.busy_ns, 450);
  const TimelineLane& gemm = timeline.lanes[0];
  EXPECT_EQ(gemm.kind, "gemm") << "the busiest first";
  ASSERT_EQ(gemm.bars.size(), 2U);
  EXPECT_EQ(gemm.bars[0].name, "second");
  EXPECT_EQ(gemm.bars[0].first, 50);
  EXPECT_EQ(gemm.bars[0].last, 59);
  EXPECT_EQ(gemm.bars[1].last, 99);
  EXPECT_EQ(timeline.lanes[1].bars[0].first, 0);
}

TEST(Timeline, KernelsOfOneColumnAreOneBarAndABadOneShows) {
  std::vector<KernelRow> kernels;
  for (int i = 0; i < 1000; ++i) kernels.push_back({i == 617 ? 3 : 2, "k", i * 10, 5, "{}"});
  const std::vector<std::int64_t> bad = {3};
  const Timeline timeline = lay_out_timeline(kOps, bad, kernels, 4);
  ASSERT_LE(timeline.lanes[0].bars.size(), 4U);
  std::int64_t drawn = 0;
  bool shows = false;
  for (const TimelineBar& bar : timeline.lanes[0].bars) {
    drawn += bar.kernels;
    shows = shows || bar.bad;
  }
  EXPECT_EQ(drawn, 1000);
  EXPECT_TRUE(shows);
}

TEST(Timeline, WorkOfNoOpHasLanesOfItsOwn) {
  const std::vector<KernelRow> kernels = {{2, "gemm", 1000, 100, "{}"},
                                          {0, "memcpy HtoD", 1100, 500, "{}"},
                                          {0, "memcpy DtoH", 1600, 100, "{}"},
                                          {0, "nvtx range", 1700, 0, "{}"},
                                          {0, "records that were dropped", 0, 0, "{}"}};
  const Timeline timeline = lay_out_timeline(kOps, {}, kernels, 100);
  EXPECT_EQ(timeline.kernels, 4);
  EXPECT_EQ(timeline.span_ns, 700) << "what has no time is at none";
  EXPECT_EQ(timeline.lanes[0].kind, "memcpy");
  EXPECT_EQ(timeline.lanes[0].kernels, 2);
  EXPECT_EQ(timeline.lanes[0].ops, 0);
  EXPECT_EQ(timeline.lanes[0].busy_ns, 600);
  EXPECT_EQ(timeline.lanes.back().kind, "other work");
}

TEST(Timeline, ForeignTimesDoNoHarm) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<KernelRow> kernels = {{1, "far", kMost, kMost, "{}"},
                                          {2, "before", -5, 1, "{}"},
                                          {99, "of no op", 1, 1, "{}"},
                                          {2, "instant", 7, 0, "{}"}};
  const Timeline timeline = lay_out_timeline(kOps, {}, kernels, 10);
  EXPECT_EQ(timeline.kernels, 1);
  EXPECT_EQ(timeline.span_ns, 0);
}

TEST(TimelineWords, SayWhatRecordsTheTimesThatAreMissing) {
  Timeline timeline;
  timeline.scenario = "kv-scale-lock";
  EXPECT_EQ(words_of(timeline).title, "No times: run without --trace");
  EXPECT_EQ(words_of(timeline).command, "nanscope run kv-scale-lock --trace");
  EXPECT_THAT(words_of(timeline).words, HasSubstr("The length of a bar is a number of ops"));
  EXPECT_THAT(words_of(timeline).words, HasSubstr("--device cuda"));
  timeline.on_cpu = false;
  EXPECT_EQ(words_of(timeline).command, "nanscope run kv-scale-lock --trace --device cuda");
  timeline.of_dump = true;
  EXPECT_EQ(words_of(timeline).title, "No times: a dump holds none");
  EXPECT_THAT(words_of(timeline).command, StartsWith("nanscope attach --run"));
}

TEST(TimelineWords, TrustNoNameOfAScenario) {
  Timeline timeline;
  for (const char* name : {"a; rm -rf x", "-o", "$(x)", "\n"}) {
    timeline.scenario = name;
    EXPECT_EQ(words_of(timeline).command, "nanscope run SCENARIO --trace");
  }
}

TEST(TimelineWords, NeedNoCommandWhereThereAreTimes) {
  const std::vector<KernelRow> kernels = {{2, "gemm", 1000, 100, "{}"}, {0, "memcpy HtoD", 1100, 500, "{}"}};
  const TimelineWords words = words_of(lay_out_timeline(kOps, {}, kernels, 100));
  EXPECT_EQ(words.title, "1 kernel and 1 other record in 600 ns");
  EXPECT_EQ(words.command, "");
}

TEST(Timeline, DurationsHaveUnits) {
  EXPECT_EQ(duration_text(812), "812 ns");
  EXPECT_EQ(duration_text(4200), "4.2 \u00B5s");
  EXPECT_EQ(duration_text(1300000), "1.3 ms");
  EXPECT_EQ(duration_text(2100000000), "2.1 s");
}

}  // namespace
}  // namespace nanscope::gui
