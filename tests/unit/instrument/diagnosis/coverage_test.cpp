/// What counts as judged, and as absent.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "instrument/diagnosis/diagnosis.h"
#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/found.h"

namespace nanscope {
namespace {

using testing::MemoryDump;

constexpr std::int64_t kTableRows = 8;
constexpr std::int64_t kEmbedded = 4;

Diagnosis of_dump(MemoryDump& dump) {
  const auto run = dump.run();
  return testing::diagnosis_of(*run);
}

/// An embedding of three tokens; the third has the id `id` and a row of 9.
Diagnosis embedding(std::int64_t id) {
  MemoryDump dump;
  std::vector<double> table;
  for (std::int64_t i = 0; i < kTableRows * kEmbedded; ++i) table.push_back(static_cast<double>(i));
  std::vector<double> rows;
  for (const std::int64_t token : {std::int64_t{1}, std::int64_t{2}, id}) {
    for (std::int64_t c = 0; c < kEmbedded; ++c)
      rows.push_back(token < kTableRows ? static_cast<double>(token * kEmbedded + c) : 9.0);
  }
  dump.add("model.embed_tokens.weight", "f32", {kTableRows, kEmbedded}, table);
  dump.add("model.embed_tokens.input", "i64", {3}, {1, 2, static_cast<double>(id)});
  dump.add("model.embed_tokens.output", "f32", {3, kEmbedded}, rows);
  return of_dump(dump);
}

TEST(Coverage, AnOutputOfWhichOnlyAPartWasRecomputedIsNotClean) {
  const Diagnosis whole = embedding(3);
  EXPECT_EQ(whole.coverage.judged, 1);
  EXPECT_EQ(whole.coverage.in_part, 0);
  EXPECT_EQ(whole.verdict(), Verdict::clean);
  // The id of an image's token has no row in the table: nothing says what its features should be.
  const Diagnosis part = embedding(100);
  EXPECT_TRUE(part.faults.empty());
  EXPECT_EQ(part.coverage.judged, 1);
  EXPECT_EQ(part.coverage.in_part, 1);
  EXPECT_EQ(part.verdict(), Verdict::no_fault_found);
}

/// Two stages of a pipeline: each rank has layers of its own.
TEST(Coverage, TensorsOfOneRankAreNotAbsentFromAnother) {
  MemoryDump dump;
  for (const char* step : {"step_0", "step_1", "step_2"}) {
    for (const auto& [rank, layer] : {std::pair("rank_0", "0"), std::pair("rank_1", "1")}) {
      const std::string folder = std::string(rank) + "/" + step + "/model.layers." + layer;
      dump.add(folder + ".mlp.input", "f32", {3, kEmbedded});
      dump.add(folder + ".mlp.output", "f32", {3, kEmbedded});
    }
  }
  EXPECT_EQ(of_dump(dump).coverage.absent, 0) << of_dump(dump).coverage.first_absent;
  dump.add("rank_0/step_0/model.layers.0.self_attn.output", "f32", {3, kEmbedded});
  dump.add("rank_0/step_2/model.layers.0.self_attn.output", "f32", {3, kEmbedded});
  const Coverage lost = of_dump(dump).coverage;
  EXPECT_EQ(lost.absent, 1);
  EXPECT_EQ(lost.first_absent, "rank_0/step_1/model.layers.0.self_attn.output");
}

}  // namespace
}  // namespace nanscope
