#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tests/unit/kernels/ops/op_cases.h"

/// compare_devices [A] [B], by default cpu and cuda: runs the case table of every op on both and compares
/// every written byte; of products of tensor cores, whose bits are the device's own, between two kinds of devices that
/// they are within the bound of kernels/tensor_core_bound.h. Exit 0 only when the table ran whole on both and nothing
/// differs; 2 when a device cannot be opened, so that a machine without a GPU never looks like one that passed.
namespace nanscope::kernels {
namespace {

/// All CPUs are one kind, and all GPUs of one architecture.
bool of_one_kind(const DeviceInfo& first, const DeviceInfo& second) {
  const auto is_gpu = [](const DeviceInfo& info) { return info.isa.starts_with("sm_"); };
  return is_gpu(first) || is_gpu(second) ? first.isa == second.isa : true;
}

int compare(Device& first, Device& second) {
  const bool other_kind = !of_one_kind(first.info(), second.info());
  int bounded = 0;
  int failed = 0;
  int compared = 0;
  for (const cases::OpCase& op_case : cases::op_cases()) {
    const auto expected = cases::run_case(op_case, first);
    const auto found = cases::run_case(op_case, second);
    if (!expected || !found) {
      fmt::print("FAILED {}: {}\n", op_case.name, (expected ? found : expected).error().message);
      ++failed;
      continue;
    }
    ++compared;
    if (other_kind && op_case.op == OpId::GemmTensorCore) ++bounded;
    if (const std::string difference = cases::first_difference(*expected, *found, other_kind); !difference.empty()) {
      fmt::print("FAILED {}: {}\n", op_case.name, difference);
      ++failed;
    }
  }
  fmt::print("{} cases compared byte by byte and {} within the bound of tensor cores, {} failed\n", compared - bounded,
             bounded, failed);
  return failed == 0 && compared > 0 ? 0 : 1;
}

int run(const std::string& a, const std::string& b) {
  const auto first = make_device(a);
  const auto second = make_device(b);
  for (const auto* device : {&first, &second}) {
    if (*device) continue;
    fmt::print(stderr, "{}\n", device->error().message);
    return 2;
  }
  fmt::print("{} ({}) against {} ({})\n", (*first)->info().name, (*first)->info().isa, (*second)->info().name,
             (*second)->info().isa);
  return compare(**first, **second);
}

}  // namespace
}  // namespace nanscope::kernels

int main(int argc, char** argv) {
  return nanscope::kernels::run(argc > 1 ? argv[1] : "cpu", argc > 2 ? argv[2] : "cuda");
}
