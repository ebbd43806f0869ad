#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/kernels/ops/op_cases.h"

/// compare_devices [A] [B], by default cpu and cuda: runs the case table of every op on both and compares
/// every written byte; of products of tensor cores, whose bits are the device's own, between two kinds of devices that
/// they are within the bound of kernels/tensor_core_bound.h, and says how many have the same bits nevertheless, which
/// is what the CPU's model of them is worth. Exit 0 only when the table ran whole on both and nothing
/// differs; 2 when a device cannot be opened, so that a machine without a GPU never looks like one that passed.
namespace nanscope::kernels {
namespace {

/// All CPUs are one kind, and all GPUs of one architecture.
bool of_one_kind(const DeviceInfo& first, const DeviceInfo& second) {
  const auto is_gpu = [](const DeviceInfo& info) { return info.isa.starts_with("sm_"); };
  return is_gpu(first) || is_gpu(second) ? first.isa == second.isa : true;
}

/// Elements of products, and how many of them have the same bits.
struct Products {
  std::size_t elements = 0;
  std::size_t same = 0;

  void add(const std::vector<cases::Output>& expected, const std::vector<cases::Output>& found) {
    for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
      const cases::Output& a = expected[i];
      const cases::Output& b = found[i];
      const std::size_t element = info(a.format).storage_bytes();
      if (a.products == 0 || a.bytes.size() != b.bytes.size()) continue;
      for (std::size_t at = 0; at < a.bytes.size(); at += element) {
        ++elements;
        if (std::memcmp(&a.bytes[at], &b.bytes[at], element) == 0) ++same;
      }
    }
  }
};

int compare(Device& first, Device& second) {
  const bool other_kind = !of_one_kind(first.info(), second.info());
  int bounded = 0;
  Products products;
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
    if (other_kind && op_case.op == OpId::GemmTensorCore) {
      ++bounded;
      products.add(*expected, *found);
    }
    if (const std::string difference = cases::first_difference(*expected, *found, other_kind); !difference.empty()) {
      fmt::print("FAILED {}: {}\n", op_case.name, difference);
      ++failed;
    }
  }
  fmt::print("{} cases compared byte by byte and {} within the bound of tensor cores, {} failed\n", compared - bounded,
             bounded, failed);
  if (bounded > 0) {
    fmt::print("{} of {} products of tensor cores have the same bits on both\n", products.same, products.elements);
  }
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
