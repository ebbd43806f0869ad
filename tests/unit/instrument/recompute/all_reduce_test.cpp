#include "tests/unit/instrument/recompute/again.h"

/// Sums over ranks.
namespace nanscope::testing {
namespace {

constexpr std::int64_t kWide = 40;

/// Three ranks, each with a part of the sum and the sum; that of rank 1 is changed, which `out` is.
Case over_ranks(const std::function<void(Numbers& stored, const std::vector<Numbers>& parts)>& change,
                Format format = Format::bf16) {
  Case out;
  DumpGraph& g = *out.graph;
  std::vector<Numbers> parts;
  out.right = Numbers(4, kWide);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    DumpGraph apart;
    apart.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    const TensorId x = apart.source({.channels = kWide, .fill = noise(1 + rank), .format = format});
    parts.push_back(stored_numbers(apart, x, 4, kWide));
    for (std::size_t i = 0; i < parts.back().v.size(); ++i) out.right.v[i] += parts.back().v[i];
  }
  Numbers stored = out.right;
  change(stored, parts);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    g.pass({Span{0, 0, 0, 4, 0, 4}}, 4, 1, rank);
    const TensorId x = g.source({.channels = kWide, .fill = noise(1 + rank), .format = format});
    const TensorId sum = g.op("o_proj_all_reduce", OpKind::all_reduce, {{"x", x}},
                              {.channels = kWide, .fill = fill_of(rank == 1 ? stored : out.right), .format = format});
    if (rank == 1) out.out = sum;
  }
  return out;
}

TEST(RecomputeAllReduce, IsTheSumOfAllParts) {
  for (const Format format : {Format::f32, Format::bf16, Format::f16})
    expect_right(over_ranks([](Numbers&, const auto&) {}, format), "the sum of what all ranks put in");
}

TEST(RecomputeAllReduce, OneElementThatIsOffIsSeen) {
  const Case made = over_ranks([](Numbers& sum, const auto&) { sum.at(2, 7) *= 4; });
  Again again(*made.graph);
  const Recomputed* found = again.result(made.out);
  ASSERT_NE(found, nullptr) << again.why_not(made.out);
  EXPECT_EQ(found->bad_rows, std::vector<std::int64_t>{2});
  EXPECT_EQ(found->worst.channel, 7);
}

TEST(RecomputeAllReduce, APartThatIsMissingOrCountedTwiceIsNamed) {
  const auto best = [](double times, std::size_t rank) {
    const Case made = over_ranks([&](Numbers& sum, const std::vector<Numbers>& parts) {
      for (std::size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += times * parts[rank].v[i];
    });
    Again again(*made.graph);
    return again.alternatives(made.out).front().form.text;
  };
  EXPECT_EQ(best(-1, 2), "the part of rank 2 left out");
  EXPECT_EQ(best(1, 0), "the part of rank 0 added twice");
}

TEST(RecomputeAllReduce, OfOneRankAloneItSaysSo) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source();
  out.out = g.op("o_proj_all_reduce", OpKind::all_reduce, {{"x", x}});
  Again again(g);
  EXPECT_EQ(again.result(out.out), nullptr);
  EXPECT_EQ(again.why_not(out.out), "what other ranks put in was not dumped");
}

}  // namespace
}  // namespace nanscope::testing
