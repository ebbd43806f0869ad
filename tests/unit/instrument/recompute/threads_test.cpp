#include <bit>
#include <set>
#include <tuple>

#include "tests/unit/instrument/recompute/again.h"

/// What is recomputed on several threads has the bits of one.
namespace nanscope::testing::threads {
namespace {

constexpr std::int64_t kTokens = 160;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kHead = 32;

/// Ops of every kind of loop, large enough to be shared. No output is what it should be: all sums are of many numbers.
void fill(DumpGraph& g) {
  g.pass({Span{0, 0, 0, kTokens, 0, kTokens}}, kTokens);
  const auto tensor = [&](const std::string& name, OpKind kind, std::vector<std::pair<std::string, TensorId>> inputs,
                          std::int64_t channels, std::uint32_t seed, const std::string& role = "out") {
    return g.op(name, kind, std::move(inputs),
                {.role = role, .tokens = kTokens, .channels = channels, .fill = noise(seed, 2), .heads = kHeads});
  };
  const TensorId q = tensor("q_rope", OpKind::dumped, {}, kHeads * kHead, 3);
  const TensorId k = tensor("k_rope", OpKind::dumped, {}, kHeads * kHead, 4);
  const TensorId v = tensor("v_proj", OpKind::dumped, {}, kHeads * kHead, 5);
  const TensorId scores = tensor("scores", OpKind::attention_scores, {{"q", q}, {"k", k}}, kHeads * kTokens, 6);
  const TensorId probs = tensor("softmax", OpKind::softmax, {{"scores", scores}}, kHeads * kTokens, 7, "probs");
  const TensorId mix = tensor("attn_mix", OpKind::attention_mix, {{"probs", probs}, {"v", v}}, kHeads * kHead, 8);
  const TensorId fused = tensor("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}}, kHeads * kHead, 9);
  const TensorId sum = tensor("attn_residual", OpKind::residual_add, {{"a", mix}, {"b", fused}}, kHeads * kHead, 10);
  const TensorId active = tensor("act", OpKind::activation, {{"x", sum}}, kHeads * kHead, 11);
  tensor("copied", OpKind::copy, {{"x", active}}, kHeads * kHead, 12);
}

RecomputerOptions on(int threads) {
  RecomputerOptions options;
  options.distances = true;
  options.threads = threads;
  return options;
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

/// All that is said of an output, doubles by their bits.
auto all_of(const Recomputed& one) {
  std::vector<std::uint64_t> distances;
  for (const RowDistance& row : one.distances) distances.push_back(std::bit_cast<std::uint32_t>(row.largest));
  return std::tuple(one.tensor, one.form.text, one.elements, one.explained, one.open, one.rows, one.worst.row,
                    one.worst.channel, bits(one.worst.ratio), bits(one.bounds), bits(one.distance), bits(one.squares),
                    one.bad_rows, one.not_finite, distances);
}

TEST(RecomputeThreads, GiveTheBitsOfOne) {
  DumpGraph graph;
  fill(graph);
  const std::vector<StepId> steps = {graph.steps().front().id};
  PlainArithmetic arithmetic;
  Facts facts(graph);
  Recomputer alone(facts, arithmetic, on(1));
  alone.run(steps);
  ASSERT_EQ(alone.results().size(), 7U);
  std::set<std::uint64_t> sums;
  for (const Recomputed& one : alone.results()) sums.insert(bits(one.squares));
  EXPECT_GT(sums.size(), 4U) << "most tell something of their own";
  for (const int threads : {2, 3, 7}) {
    for (int time = 0; time < 4; ++time) {
      Recomputer together(facts, arithmetic, on(threads));
      together.run(steps);
      ASSERT_EQ(together.results().size(), alone.results().size());
      for (std::size_t i = 0; i < alone.results().size(); ++i)
        EXPECT_EQ(all_of(together.results()[i]), all_of(alone.results()[i])) << i << ' ' << threads;
    }
  }
}

TEST(RecomputeThreads, EndWhenTheyAreStopped) {
  DumpGraph graph;
  fill(graph);
  const std::vector<StepId> steps = {graph.steps().front().id};
  PlainArithmetic arithmetic;
  Facts facts(graph);
  std::stop_source stop;
  RecomputerOptions options = on(3);
  options.stop = stop.get_token();
  options.progress = [&](std::size_t done, std::size_t) {
    if (done == 6) stop.request_stop();
  };
  Recomputer recomputer(facts, arithmetic, options);
  recomputer.run(steps);
  EXPECT_GT(recomputer.results().size(), 0U);
  EXPECT_LT(recomputer.results().size(), 6U);
}

}  // namespace
}  // namespace nanscope::testing::threads
