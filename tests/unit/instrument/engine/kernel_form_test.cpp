/// engine.kernel_form: what tensor cores make is near what the exact form makes, and what they do not make is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine_rig.h"

namespace nanscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const char* const kSentence = "A storm rises over the sea.";

/// The first product of all has the same input in both forms: each of its operands is rounded to bf16, and the
/// instruction is off by the bound of kernels/tensor_core_bound.h, which is far less.
TEST(KernelForm, TheFirstProductIsWithinTheRoundingOfItsOperands) {
  const EngineConfig config = tiny_config();
  const CollectProbe exact = collect(config, {text_request(kSentence)});
  const CollectProbe form = collect(tiny_config({{"engine.kernel_form", "tensor_core"}}), {text_request(kSentence)});
  const Seen& x = form.find(0, 0, 0, "attn_norm", "out");
  EXPECT_TRUE(same_bits(x.floats(), exact.find(0, 0, 0, "attn_norm", "out").floats()));
  const std::vector<float> weight =
      make_weight_source(config.model).value()->tensor("layers.0.q_proj.weight", 32, 32).value();
  const Seen& a = exact.find(0, 0, 0, "q_proj", "out");
  const Seen& b = form.find(0, 0, 0, "q_proj", "out");
  EXPECT_FALSE(same_bits(a.floats(), b.floats()));
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t n = 0; n < a.columns; ++n) {
      double magnitude = 0;
      for (std::int64_t k = 0; k < 32; ++k) {
        magnitude += std::abs(double{x.row(row)[static_cast<std::size_t>(k)]} *
                              double{weight[static_cast<std::size_t>(n * 32 + k)]});
      }
      EXPECT_NEAR(a.row(row)[static_cast<std::size_t>(n)], b.row(row)[static_cast<std::size_t>(n)],
                  0x1.1p-7 * magnitude);
    }
  }
}

TEST(KernelForm, LogitsAreNearThoseOfTheExactForm) {
  const CollectProbe exact = collect(tiny_config(), {text_request(kSentence)});
  const CollectProbe form = collect(tiny_config({{"engine.kernel_form", "tensor_core"}}), {text_request(kSentence)});
  const std::vector<float> a = exact.last_logits(0, 0);
  const std::vector<float> b = form.last_logits(0, 0);
  double squares = 0;
  double apart = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += double{a[i]} * double{a[i]};
    apart += std::pow(double{a[i]} - double{b[i]}, 2);
  }
  EXPECT_GT(apart, 0);
  // Operands of 2^-8 each, in some 16 products one behind the other.
  EXPECT_LT(std::sqrt(apart / squares), 16 * 0x1p-8);
}

/// Attention's products and the ops between the linear layers stay what they are.
TEST(KernelForm, TheSameOpsRun) {
  const CollectProbe exact = collect(tiny_config(), {text_request(kSentence, 2)});
  const CollectProbe form = collect(tiny_config({{"engine.kernel_form", "tensor_core"}}), {text_request(kSentence, 2)});
  EXPECT_EQ(exact.ops, form.ops);
}

TEST(KernelForm, WhatTensorCoresDoNotMakeIsRefusedByName) {
  const auto refused = [](const Knobs& knobs) {
    EngineConfig config = tiny_config(knobs);
    config.kernel_form = KernelForm::tensor_core;
    const Status status = check(config);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({{"engine.batch", "4"}}), "");
  const std::pair<Knobs, const char*> all[] = {{{{"activation.blocks", "mxfp8"}}, "activation.blocks"},
                                               {{{"activation.blocks", "fp8"}}, "activation.blocks"},
                                               {{{"activation.partial_sums", "f16"}}, "activation.partial_sums"},
                                               {{{"engine.ranks", "2"}}, "engine.ranks"},
                                               {{{"train.steps", "3"}}, "train.steps"}};
  for (const auto& [knobs, name] : all) {
    EXPECT_THAT(refused(knobs), HasSubstr("engine.kernel_form=tensor_core"));
    EXPECT_THAT(refused(knobs), HasSubstr(name));
    EXPECT_THAT(refused(knobs), Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace nanscope::testing
