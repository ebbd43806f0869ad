// Prints tests/golden/ptx_costs.txt: what the PTX of each op executes in its longest case, and what health and hash of
// a large tensor and a product in large tiles do.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "tests/ptx/op_costs.h"

int main() {
  using namespace nanscope;
  const auto device = ptx::PtxDevice::create(NANSCOPE_OPS_PTX);
  if (!device) {
    fmt::print(stderr, "{}\n", device.error().message);
    return 2;
  }
  std::map<std::string, ptx::CaseCost> longest;
  std::vector<ptx::CaseCost> large;
  for (const auto& op_case : kernels::cases::op_cases()) {
    const auto cost = ptx::cost_of(op_case, **device);
    if (!cost) {
      fmt::print(stderr, "{}: {}\n", op_case.name, cost.error().message);
      return 1;
    }
    if (op_case.name.ends_with("_large") || op_case.name.ends_with("_tall")) large.push_back(*cost);
    ptx::CaseCost& known = longest[kernels::op_name(op_case.op)];
    if (cost->counts.lane_instructions > known.counts.lane_instructions) known = *cost;
  }
  fmt::print("{}\n", (*device)->program().compiler);
  std::map<std::string, ptx::CaseCost> table;
  for (const auto& [op, cost] : longest) table.emplace(cost.name, cost);
  for (const ptx::CaseCost& cost : large) table.emplace(cost.name, cost);
  for (const auto& [name, cost] : table) fmt::print("{}\n", ptx::line_of(cost));
}
