#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/run/recording_view.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/diagnosis/why.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope {
namespace {

using testing::constant;
using ::testing::HasSubstr;
using testing::kNan;
using ::testing::Not;
using testing::RunBuilder;

/// An MLP's product over two tokens and 40 channels: three blocks of 16 and a table of four scales.
struct Product {
  struct How {
    float x = 3;                  ///< what token 1 holds throughout
    std::int64_t nan_scale = -1;  ///< of token 1; -1: none
    bool reads_padding = false;
    bool nan_out = false;
    std::string attributes = R"("packing":"rounded","tensor_scale":1)";
    Format scales = Format::e4m3;
  };
  explicit Product(const How& how) {
    b.request(0, {5, 6});
    b.step(0, 0, 0, 2);
    b.op(0, "mlp_norm", "layer_norm", {});
    x = b.output("out", {2, 40, 0, 1}, [=](auto row, auto) { return row == 1 ? how.x : 1.0F; });
    b.op(0, "mlp_quantise", "block_quantise", {{"x", x}},
         fmt::format(R"({{"format":"nvfp4","block":16,"blocks":3,{}}})", how.attributes));
    const auto codes = b.output("codes", {2, 40, 0, 1}, constant(6), Format::e2m1);
    scales = b.output(
        "scales", {2, 4, 0, 1}, [=](auto row, auto i) { return row == 1 && i == how.nan_scale ? kNan : 0.5F; },
        how.scales);
    b.op(0, "up_proj", "block_gemm", {{"codes", codes}, {"scales", scales}},
         fmt::format(R"({{"blocks":3,"read_padding":{}}})", how.reads_padding));
    const float bad = how.nan_out ? kNan : 2.0F;
    out = b.output("out", {2, 8, 0, 1}, [=](auto row, auto) { return row == 1 ? bad : 2.0F; });
    b.op(-1, "lm_head", "gemm", {{"x", out}});
    b.output("logits", {2, 4, 0, 1}, [=](auto row, auto) { return row == 1 ? bad : 1.0F; });
  }
  Diagnosis diagnosis() { return testing::diagnosis_of(b); }
  Fault fault() {
    const Diagnosis found = diagnosis();
    EXPECT_TRUE(found.root_cause.has_value());
    return found.root_cause ? found.faults[*found.root_cause] : Fault{};
  }

  RunBuilder b;
  std::int64_t x = 0;
  std::int64_t scales = 0;
  std::int64_t out = 0;
};

TEST(BlockScales, NanInPaddingThatIsReadIsTheCause) {
  Product made({.nan_scale = 3, .reads_padding = true, .nan_out = true});
  const Fault fault = made.fault();
  EXPECT_EQ(fault.fault_class, "scale-invalid");
  EXPECT_EQ(fault.tensor, "0/0/0/mlp_quantise.scales");
  EXPECT_EQ(fault.where.tokens, (Range{1, 1}));
  EXPECT_THAT(fault.summary, HasSubstr("no block stands behind scale 3"));
  EXPECT_THAT(fault.summary, HasSubstr("0x7F"));
  EXPECT_THAT(fault.fix, HasSubstr("zero the table"));
}

TEST(BlockScales, NanInPaddingThatIsNotReadIsNoFault) {
  const Diagnosis found = Product({.nan_scale = 3}).diagnosis();
  EXPECT_TRUE(found.healthy()) << (found.faults.empty() ? "" : found.faults.front().summary);
}

TEST(BlockScales, AScaleBeyondItsFormatIsTold) {
  Product made({.x = 2880, .nan_scale = 1, .nan_out = true});
  const Fault fault = made.fault();
  EXPECT_EQ(fault.fault_class, "scale-invalid");
  EXPECT_THAT(fault.summary, HasSubstr("a scale of 480 was stored as NaN (0x7F); the largest finite e4m3 is 448"));
  EXPECT_THAT(fault.fix, HasSubstr("saturate"));
}

TEST(BlockScales, OfAPackingTheMantissasAreTold) {
  Product made({.nan_scale = 0,
                .nan_out = true,
                .attributes = R"("packing":"unmasked","tensor_scale":1)",
                .scales = Format::e8m0});
  const Fault fault = made.fault();
  EXPECT_EQ(fault.fault_class, "scale-invalid");
  EXPECT_THAT(fault.summary, HasSubstr("a scale of 0.5 was stored as NaN (0xFF); it was packed with its mantissa"));
  EXPECT_THAT(fault.fix, HasSubstr("before they are packed"));
}

TEST(BlockScales, ThatOfABlockWithNanIsAConsequence) {
  Product made({.x = kNan, .nan_scale = 0, .nan_out = true});
  for (const Fault& fault : made.diagnosis().faults) {
    EXPECT_NE(fault.fault_class, "scale-invalid");
    EXPECT_NE(fault.fault_class, "nan-laundered") << "codes of e2m1 have no NaN; their scale has";
  }
}

TEST(BlockScales, TheWalkGoesThroughTheScaleThatIsRead) {
  Product made({.x = kNan, .nan_scale = 1, .nan_out = true});
  RecordingView run(made.b.run, made.b.tensors);
  const auto back = why(run, Element{made.out, 1, 2});
  ASSERT_TRUE(back);
  ASSERT_GE(back->hops.size(), 3U);
  EXPECT_EQ(place_text(back->hops[1].where), "0/0/0/mlp_quantise.scales[1,1]");
  EXPECT_EQ(place_text(back->hops[2].where), "0/0/0/mlp_norm.out[1,16]");
  EXPECT_THAT(back->hops[0].text, Not(HasSubstr("0 * NaN")));
}

TEST(BlockScales, OfAHealthyProductTheWalkGoesToTheLargestCode) {
  Product made({});
  RecordingView run(made.b.run, made.b.tensors);
  const auto back = why(run, Element{made.out, 1, 2});
  ASSERT_TRUE(back);
  ASSERT_GE(back->hops.size(), 3U);
  EXPECT_EQ(place_text(back->hops[1].where), "0/0/0/mlp_quantise.codes[1,0]");
  EXPECT_EQ(place_text(back->hops[2].where), "0/0/0/mlp_norm.out[1,0]");
}

}  // namespace
}  // namespace nanscope
