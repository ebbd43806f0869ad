#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "tests/ptx/ptx_device.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {

/// Cases on executed PTX, held to the bits of the CPU.
class AgainstCpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto made = PtxDevice::create(NANSCOPE_OPS_PTX);
    ASSERT_TRUE(made) << made.error().message;
    device_ = std::move(*made);
    auto cpu = kernels::make_cpu_device(kernels::Isa::best, 1);
    ASSERT_TRUE(cpu) << cpu.error().message;
    cpu_ = std::move(*cpu);
  }
  static void TearDownTestSuite() {
    device_.reset();
    cpu_.reset();
  }

  /// `shift`: elements by which all tensors are moved from an aligned address.
  static void expect_the_cpus_bits(const kernels::cases::OpCase& op_case, std::int64_t shift) {
    const auto expected = run_case(op_case, *cpu_);
    ASSERT_TRUE(expected) << op_case.name << ": " << expected.error().message;
    kernels::cases::Placement placement;
    placement.shift = shift;
    const auto found = run_case(op_case, *device_, placement);
    ASSERT_TRUE(found) << op_case.name << ": " << found.error().message;
    EXPECT_EQ(first_difference(*expected, *found), "") << op_case.name << ", shifted by " << shift;
  }

  inline static std::unique_ptr<PtxDevice> device_;
  inline static std::unique_ptr<kernels::Device> cpu_;
};

}  // namespace nanscope::ptx
