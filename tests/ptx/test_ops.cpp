// What nvcc makes of each op, executed: every case of the op table leaves the bytes that the CPU leaves, reads and
// writes nothing but the tensors' own elements, and no two warps meet on a byte. Also with all tensors shifted, which
// takes the paths of memory that is not aligned.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "kernels/op_table.h"
#include "tests/ptx/op_costs.h"

namespace nanscope::ptx {
namespace {

using kernels::Buffer;
using kernels::TensorView;
using kernels::cases::op_cases;
using kernels::cases::OpCase;
using kernels::cases::Placement;

std::map<std::string, std::uint64_t> golden_digests() {
  std::map<std::string, std::uint64_t> all;
  std::ifstream file(NANSCOPE_SOURCE_DIR "/tests/golden/op_digests.txt");
  std::string name;
  std::string digits;
  while (file >> name >> digits) all[name] = std::stoull(digits, nullptr, 16);
  return all;
}

/// Guards and the padding of rows are not the kernel's to touch.
void forbid_around(Memory& memory, const Buffer& allocation, const TensorView& view, std::size_t element) {
  memory.mark(allocation.data(), allocation.bytes(), Memory::State::forbidden);
  const auto stride = static_cast<std::size_t>(view.stride) * element;
  const auto width = static_cast<std::size_t>(view.columns) * element;
  for (std::size_t row = 0; row < static_cast<std::size_t>(view.rows); ++row) {
    memory.mark(static_cast<const std::byte*>(view.data) + row * stride, width, Memory::State::written);
  }
}

/// Of an op with several kernels, cases take each.
void expect_all_launched(const PtxDevice& device) {
  for (const Function& function : device.program().functions) {
    EXPECT_TRUE(!function.entry || device.launched(function)) << function.name;
  }
}

class PtxOps : public testing::TestWithParam<std::int64_t> {
 protected:
  static void SetUpTestSuite() {
    auto made = PtxDevice::create(NANSCOPE_OPS_PTX);
    ASSERT_TRUE(made) << made.error().message;
    device_ = std::move(*made);
  }
  static void TearDownTestSuite() { device_.reset(); }

  static std::unique_ptr<PtxDevice> device_;
};
std::unique_ptr<PtxDevice> PtxOps::device_;

TEST_P(PtxOps, LeaveTheBytesThatAreCheckedIn) {
  ASSERT_NE(device_, nullptr);
  const auto golden = golden_digests();
  Placement placement;
  placement.shift = GetParam();
  placement.placed = [&](const Buffer& allocation, const TensorView& view, std::size_t element) {
    forbid_around(device_->machine().memory(), allocation, view, element);
  };
  const bool all = placement.shift == 0 || std::getenv("NANSCOPE_LONG_TESTS") != nullptr;
  std::int64_t at = 0;
  for (const OpCase& op_case : op_cases()) {
    // Shifted they take the paths of memory that is not aligned, which others take in a tenth of the time.
    const bool long_one = op_case.name.ends_with("ordinary_large") || op_case.name.ends_with("zoo_large");
    if (long_one && placement.shift != 0) continue;
    // By 1 every other case, by 3 those between: NANSCOPE_LONG_TESTS=1 takes all.
    if (!all && ++at % 2 != placement.shift / 2) continue;
    const auto outputs = run_case(op_case, *device_, placement);
    if (!outputs) {
      ADD_FAILURE() << op_case.name << ": " << outputs.error().message;
      continue;
    }
    EXPECT_EQ(digest(*outputs), golden.at(op_case.name)) << op_case.name;
  }
  if (placement.shift == 0) expect_all_launched(*device_);
}

/// A kernel that takes more instructions than it did shows in a diff of the table.
TEST(PtxCosts, AreThoseOfTheTable) {
  const auto device = PtxDevice::create(NANSCOPE_OPS_PTX);
  ASSERT_TRUE(device) << device.error().message;
  std::ifstream file(NANSCOPE_SOURCE_DIR "/tests/golden/ptx_costs.txt");
  std::string line;
  std::getline(file, line);
  if (line != (*device)->program().compiler) GTEST_SKIP() << "the table is of " << line;
  std::map<std::string, std::string> table;
  while (std::getline(file, line)) table[line.substr(0, line.find(' '))] = line;
  std::set<kernels::OpId> listed;
  for (const OpCase& op_case : op_cases()) {
    const auto found = table.find(op_case.name);
    if (found == table.end()) continue;
    listed.insert(op_case.op);
    const auto cost = cost_of(op_case, **device);
    ASSERT_TRUE(cost) << cost.error().message;
    EXPECT_EQ(line_of(*cost), found->second) << "nanscope_ptx_costs prints the table";
  }
  EXPECT_EQ(listed.size(), static_cast<std::size_t>(kernels::kOpCount));
}

INSTANTIATE_TEST_SUITE_P(ShiftedBy, PtxOps, testing::Values(0, 1, 3));

}  // namespace
}  // namespace nanscope::ptx
