#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/numbers/codec.h"
#include "tests/unit/instrument/diagnosis/found.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

/// Attention reads the cache in another way than it was written: told from the extremes of rows.
namespace nanscope {
namespace {

using ::testing::HasSubstr;
using testing::number;
using testing::root_of;
using testing::RunBuilder;

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kChannels = 8;

struct Server {
  Format written = Format::e4m3;
  Format read = Format::e4m3;
  double scale = 0.25;
  double factor = 0.25;   ///< what the kernel multiplies codes by
  std::string code = {};  ///< replaced by -0 in row 2 when not empty
};

/// A request of kTokens tokens whose K and V are stored and read back by `server`.
RunBuilder served(const Server& server) {
  RunBuilder b;
  b.request(0, {1, 2, 3, 4, 5}, {7});
  b.step(0, 0, 0, kTokens);
  b.kv(0, 3, 0, kTokens, 0, KvAction::written, "attention", server.written);
  b.op(0, "k_proj", "gemm", {});
  const auto x = b.output("out", {kTokens, kChannels, 0, 1}, [&](std::int64_t row, std::int64_t channel) {
    if (!server.code.empty() && row == 2 && channel == 3) return -1e-6F;
    return static_cast<float>(row + 1) * (static_cast<float>(channel) - 3.25F);
  });
  b.op(0, "kv_store", "kv_store", {{"k", x}, {"v", x}});
  ScaleRow scale;
  scale.format = server.written;
  scale.policy = "per_request";
  scale.scale = server.scale;
  scale.source = ScaleSource::calibrated;
  scale.calibrated_step = 1;
  const auto codes = b.store("k", x, scale);
  b.store("v", x, scale);
  b.op(0, "kv_read", "kv_read", {{"pool"}});
  const auto read = [&](std::int64_t row, std::int64_t channel) {
    const std::uint32_t code = b.tensors.data.at(codes).code(row, channel);
    return decode(server.read, code) * static_cast<float>(server.factor);
  };
  const auto k = b.output("k_read", {kTokens, kChannels, 0, 1}, read);
  b.output("v_read", {kTokens, kChannels, 0, 1}, read);
  b.op(-1, "lm_head", "gemm", {{"x", k}});
  b.output("logits", {1, 4, kTokens - 1, 1}, [&](auto, std::int64_t channel) {
    return b.value(k, 2, 3) != b.value(k, 2, 3) ? b.value(k, 2, 3) : static_cast<float>(channel);
  });
  return b;
}

Diagnosis diagnosis_of(RunBuilder b) { return testing::diagnosis_of(b, true); }

TEST(Readings, AScaleAppliedOnceIsClean) {
  const Diagnosis found = diagnosis_of(served({}));
  EXPECT_EQ(root_of(found), "clean");
  EXPECT_EQ(testing::check(found, "scale-misapplied").state, Checked::excluded);
}

TEST(Readings, EveryFlavourReadAsItselfIsClean) {
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz, Format::int8}) {
    EXPECT_EQ(root_of(diagnosis_of(served({.written = format, .read = format}))), "clean") << name(format);
  }
}

TEST(Readings, AScaleLeftOutTwiceOrInverted) {
  const std::vector<std::pair<double, std::string>> misuses{
      {1, "left out"}, {0.0625, "applied twice"}, {4, "inverted"}};
  for (const auto& [factor, text] : misuses) {
    const Diagnosis found = diagnosis_of(served({.factor = factor}));
    ASSERT_EQ(root_of(found), "scale-misapplied") << text;
    EXPECT_THAT(found.faults[0].summary, HasSubstr(text));
    EXPECT_EQ(found.faults[0].where.op, "kv_read");
  }
}

TEST(Readings, AScaleOfOneCannotBeMisapplied) {
  EXPECT_EQ(root_of(diagnosis_of(served({.scale = 1, .factor = 1}))), "clean");
}

TEST(Readings, ARoundedCopyOfWhatWasReadIsClean) {
  EXPECT_EQ(root_of(diagnosis_of(served({.factor = 0.25 * (1 + 1.0 / 256)}))), "clean");
}

TEST(Readings, SomeOtherFactorIsNoKnownMisuse) {
  EXPECT_NE(root_of(diagnosis_of(served({.factor = 0.4}))), "scale-misapplied");
}

TEST(Readings, CodesOfOneFlavourReadAsAnother) {
  for (const Format as : {Format::e4m3fnuz, Format::e5m2, Format::e5m2fnuz}) {
    const Diagnosis found = diagnosis_of(served({.read = as, .scale = 0.3, .factor = static_cast<double>(0.3F)}));
    ASSERT_EQ(root_of(found), "fp8-format-mismatch") << name(as);
    EXPECT_EQ(number(found.faults[0], "stated"), "e4m3");
    EXPECT_EQ(number(found.faults[0], "taken_as"), name(as));
    EXPECT_FALSE(found.faults[0].breaks);
  }
}

TEST(Readings, MinusZeroIsTheOtherFlavoursNaN) {
  const Diagnosis found =
      diagnosis_of(served({.read = Format::e4m3fnuz, .scale = 0.3, .factor = static_cast<double>(0.3F), .code = "-0"}));
  ASSERT_EQ(root_of(found), "fp8-format-mismatch");
  EXPECT_TRUE(found.faults[0].breaks);
}

TEST(Readings, ASentinelThatIsSquaredBreaksWhereItIsRead) {
  const auto sentinel = static_cast<double>(-std::numeric_limits<float>::max());
  const Diagnosis found = diagnosis_of(served({.scale = sentinel, .factor = sentinel * sentinel}));
  ASSERT_EQ(root_of(found), "scale-invalid");
  EXPECT_TRUE(found.faults[0].breaks);
  EXPECT_THAT(found.faults[0].summary, HasSubstr("sentinel"));
}

}  // namespace
}  // namespace nanscope
