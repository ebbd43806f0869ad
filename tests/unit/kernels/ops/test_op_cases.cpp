// The kernel contract: the same bytes from every CPU build, thread count and compiler, and nothing
// written outside the outputs. A failure's case name is its filter: --gtest_filter='*<name>'.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

struct Build {
  const char* device;
  int threads;
};
constexpr std::array<Build, 6> kBuilds = {
    {{"cpu:baseline", 1}, {"cpu:baseline", 3}, {"cpu:avx2", 1}, {"cpu:avx2", 3}, {"cpu:avx512", 1}, {"cpu:avx512", 3}}};

/// The device of a build, made once; null where this CPU cannot run it.
Device* device(const Build& build) {
  static std::map<std::string, std::unique_ptr<Device>> made;
  const std::string key = std::string(build.device) + "/" + std::to_string(build.threads);
  const auto found = made.find(key);
  if (found != made.end()) return found->second.get();
  auto device = make_device(build.device, build.threads);
  return (made[key] = device ? *std::move(device) : nullptr).get();
}

/// What the others are compared with: the first that this program holds (NANSCOPE_LANES) and this CPU runs.
Device& first_device() {
  for (const Build& build : kBuilds) {
    if (Device* found = device(build)) return *found;
  }
  std::abort();
}

const std::map<std::string, std::uint64_t>& golden_digests() {
  static const auto digests = [] {
    std::map<std::string, std::uint64_t> all;
    std::ifstream file(NANSCOPE_SOURCE_DIR "/tests/golden/op_digests.txt");
    std::string name;
    std::string digits;
    while (file >> name >> digits) all[name] = std::stoull(digits, nullptr, 16);
    return all;
  }();
  return digests;
}

class OpCases : public testing::TestWithParam<OpCase> {};

TEST_P(OpCases, SameBytesFromEveryBuildAndThreadCount) {
  const auto expected = run_case(GetParam(), first_device());
  ASSERT_TRUE(expected) << expected.error().message;
  for (const Build& build : kBuilds) {
    SCOPED_TRACE(testing::Message() << build.device << ", " << build.threads << " threads");
    if (device(build) == nullptr) continue;  // EveryBuildRan reports it
    const auto found = run_case(GetParam(), *device(build));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(first_difference(*expected, *found), "");
  }
}

TEST_P(OpCases, DigestIsTheOneCheckedIn) {
  const auto outputs = run_case(GetParam(), first_device());
  ASSERT_TRUE(outputs) << outputs.error().message;
  const auto golden = golden_digests().find(GetParam().name);
  ASSERT_NE(golden, golden_digests().end()) << "not in tests/golden/op_digests.txt; nanscope_op_digests prints it";
  EXPECT_EQ(digest(*outputs), golden->second);
}

INSTANTIATE_TEST_SUITE_P(Table, OpCases, testing::ValuesIn(op_cases()),
                         [](const testing::TestParamInfo<OpCase>& info) { return info.param.name; });

TEST(OpCaseTable, NamesAreUniqueAndFilterable) {
  std::set<std::string> names;
  for (const OpCase& op_case : op_cases()) {
    EXPECT_TRUE(names.insert(op_case.name).second) << op_case.name;
    EXPECT_EQ(op_case.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos);
  }
}

TEST(OpCaseTable, CoversEveryOp) {
  std::set<OpId> seen;
  for (const OpCase& op_case : op_cases()) seen.insert(op_case.op);
#define NANSCOPE_OP(Name, stem, gradient) EXPECT_TRUE(seen.count(OpId::Name)) << #Name;
#include "kernels/ops.def"
#undef NANSCOPE_OP
}

/// "Gradient|of|ops", or one of the words of ops.def.
TEST(OpCaseTable, EveryGradientIsAnOp) {
  std::set<std::string> known = {"identity", "none"};
#define NANSCOPE_OP(Name, stem, gradient) known.insert(#Name);
#include "kernels/ops.def"
#undef NANSCOPE_OP
  const auto expect_known = [&](const std::string& op, const std::string& gradient) {
    std::istringstream words(gradient);
    std::string word;
    int count = 0;
    for (; std::getline(words, word, '|'); ++count) EXPECT_TRUE(known.count(word)) << op << ": " << word;
    EXPECT_TRUE(count == 1 || (gradient.find("none") == std::string::npos)) << op << ": " << gradient;
    EXPECT_GT(count, 0) << op;
  };
#define NANSCOPE_OP(Name, stem, gradient) expect_known(#Name, #gradient);
#include "kernels/ops.def"
#undef NANSCOPE_OP
}

TEST(OpCaseTable, GoldenFileHasNoCaseThatIsGone) {
  std::set<std::string> names;
  for (const OpCase& op_case : op_cases()) names.insert(op_case.name);
  for (const auto& [name, digest] : golden_digests()) EXPECT_TRUE(names.count(name)) << name;
}

/// Every instruction set of this build ran, unless the CPU lacks it; which did not is printed.
TEST(OpCaseTable, EveryInstructionSetOfThisBuildRan) {
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    if (std::string_view(NANSCOPE_BUILT_LANES).find(isa) == std::string_view::npos) continue;
    const auto made = make_device(std::string("cpu:") + isa, 1);
    if (made) continue;
    EXPECT_NE(made.error().message.find("this CPU has no"), std::string::npos) << made.error().message;
    std::printf("NOT RUN: kernels for %s: %s\n", isa, made.error().message.c_str());
  }
}

/// The guards themselves: an op told a wrong width must be caught.
TEST(CaseMemory, SeesAWriteOutsideAnOutput) {
  CaseMemory memory(first_device());
  const TensorView out = memory.output("out", Format::f32, 2, 8, 4);
  static_cast<float*>(out.data)[8] = 1.0F;  // the padding after row 0
  EXPECT_FALSE(memory.finish());
}
TEST(CaseMemory, SeesAWriteBeforeAnOutput) {
  CaseMemory memory(first_device());
  const TensorView out = memory.output("out", Format::f32, 2, 8);
  static_cast<float*>(out.data)[-1] = 1.0F;
  EXPECT_FALSE(memory.finish());
}
TEST(CaseMemory, SeesAChangedInput) {
  CaseMemory memory(first_device());
  const std::vector<std::uint32_t> codes(16, 0U);
  const TensorView in = memory.input(Format::f32, 2, 8, codes);
  static_cast<float*>(in.data)[3] = 1.0F;
  EXPECT_FALSE(memory.finish());
}
TEST(CaseMemory, AcceptsWhatIsInside) {
  CaseMemory memory(first_device());
  const TensorView out = memory.output("out", Format::f32, 2, 8, 4);
  static_cast<float*>(out.data)[12] = 1.0F;
  EXPECT_TRUE(memory.finish());
}

/// Between two kinds of devices products of tensor cores may differ within their bound, and nothing else may.
TEST(FirstDifference, OfOtherTensorCoresIsOneBeyondTheBound) {
  const auto outputs_of = [](const std::string& name) {
    const auto& all = op_cases();
    const auto found = std::find_if(all.begin(), all.end(), [&](const OpCase& one) { return one.name == name; });
    return run_case(*found, first_device()).value();
  };
  const auto changed = [](std::vector<Output> outputs, std::size_t byte, int by) {
    outputs.front().bytes[byte] = static_cast<std::byte>(std::to_integer<int>(outputs.front().bytes[byte]) ^ by);
    return outputs;
  };
  const auto product = outputs_of("gemm_tensor_core_f32_f32_bias_ordinary");
  EXPECT_EQ(first_difference(product, product, true), "");
  EXPECT_NE(first_difference(product, changed(product, 40, 1), false), "") << "on devices of one kind";
  EXPECT_EQ(first_difference(product, changed(product, 40, 1), true), "");
  EXPECT_NE(first_difference(product, changed(product, 42, 0x40), true), "") << "half of itself";
  const auto exact = outputs_of("gemm_f32_f32_bias_ordinary");
  EXPECT_NE(first_difference(exact, changed(exact, 40, 1), true), "");
}

}  // namespace

/// What gtest prints for a failing case.
void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

}  // namespace nanscope::kernels::cases
