// Every op of the table that takes a shape, on executed PTX against the CPU: random rows, columns, gaps between rows,
// special values and misaligned tensors. NANSCOPE_LONG_TESTS=1 draws ten times as many shapes, and others each time;
// NANSCOPE_SEED=N repeats them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/ptx/against_cpu.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {
namespace {

using kernels::cases::Fill;
using kernels::cases::op_cases;
using kernels::cases::OpCase;
using kernels::cases::Shape;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }
  /// `whole`: as wide as lanes are, whose vector paths are others.
  Shape shape(bool whole) {
    Shape of{"", whole || below(2) == 0 ? Fill::wide : Fill::zoo, 1 + below(6), 1 + below(140), 0};
    if (below(4) == 0) of.columns *= 5;
    if (whole) of.columns = (of.columns + 31) / 32 * 32;
    if (below(2) == 0) of.padding = 1 + below(7);
    of.name =
        fmt::format("{}x{}_padding_{}_{}", of.rows, of.columns, of.padding, of.fill == Fill::zoo ? "zoo" : "wide");
    return of;
  }

 private:
  std::mt19937_64 random_;
};

class PtxShapes : public AgainstCpu {};

TEST_F(PtxShapes, RandomOnesHaveTheCpusBitsInEveryOp) {
  const bool many = std::getenv("NANSCOPE_LONG_TESTS") != nullptr;
  const char* given = std::getenv("NANSCOPE_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : many ? std::random_device{}() : 7;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Draw draw(seed);
  std::vector<Shape> shapes;
  for (int i = 0; i < (many ? 30 : 3); ++i) shapes.push_back(draw.shape(i % 3 == 0));
  std::set<std::string> fixed;
  for (const OpCase& op_case : op_cases()) fixed.insert(op_case.name);

  std::set<kernels::OpId> ran;
  for (const OpCase& op_case : kernels::cases::op_cases_of(shapes)) {
    if (fixed.contains(op_case.name)) continue;
    expect_the_cpus_bits(op_case, draw.below(4));
    ran.insert(op_case.op);
  }
  EXPECT_GE(ran.size(), 30U);
}

}  // namespace
}  // namespace nanscope::ptx
