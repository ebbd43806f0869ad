#include <fmt/format.h>

#include <cstdio>

#include "tests/unit/kernels/ops/op_cases.h"

/// nanscope_op_digests [DEVICE]: one line a case, "name digest". The file in tests/golden is its output.
int main(int argc, char** argv) {
  using namespace nanscope::kernels;
  auto device = make_device(argc > 1 ? argv[1] : "cpu");
  if (!device) {
    fmt::print(stderr, "{}\n", device.error().message);
    return 2;
  }
  for (const cases::OpCase& op_case : cases::op_cases()) {
    const auto outputs = cases::run_case(op_case, **device);
    if (!outputs) {
      fmt::print(stderr, "{}: {}\n", op_case.name, outputs.error().message);
      return 1;
    }
    fmt::print("{} {:016x}\n", op_case.name, cases::digest(*outputs));
  }
  return 0;
}
