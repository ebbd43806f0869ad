/// Block-scaled inputs in the engine: what is recorded is what was multiplied, and padding is nobody's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/codec.h"
#include "engine_rig.h"

namespace nanscope::testing {
namespace {

const char* const kText = "A storm rises over the sea.";
const char* const kLongText =
    "Every evening the old keeper lights the great lamp. A storm rises over the sea. Moons pull tides, tides turn "
    "wheels, wheels grind grain. Fire gives light, light crosses water, and ships find home. Every night the great "
    "lamp shows the way; no storm is so dark that its light is lost. The keeper counts ships and songs, winds and "
    "stars.";

std::uint8_t code(const Seen& seen, std::int64_t row, std::int64_t column) {
  return static_cast<std::uint8_t>(seen.bytes[static_cast<std::size_t>(row * seen.columns + column)]);
}
float value(const Seen& seen, std::int64_t row, std::int64_t column) {
  return decode(seen.format, code(seen, row, column));
}
bool nan_in_padding(const Seen& scales, std::int64_t row, std::int64_t used) {
  for (std::int64_t i = used; i < scales.columns; ++i) {
    if (std::isnan(value(scales, row, i))) return true;
  }
  return false;
}

TEST(Blocks, TheProductIsThatOfCodesAndScales) {
  const Knobs formats[] = {{{"activation.blocks", "mxfp8"}},
                           {{"activation.blocks", "mxfp4"}},
                           {{"activation.blocks", "nvfp4"}, {"activation.tensor_scale", "0.002"}}};
  for (const Knobs& knobs : formats) {
    const EngineConfig config = tiny_config(knobs);
    const bool nvfp4 = knobs.size() > 1;
    const CollectProbe seen = collect(config, {text_request(kText, 2)});
    const std::vector<float> weight =
        make_weight_source(config.model).value()->tensor("layers.1.down_proj.weight", 32, 48).value();
    for (const std::int64_t step : {0, 1}) {
      const Seen& codes = seen.find(0, step, 1, "act_quantise", "codes");
      const Seen& scales = seen.find(0, step, 1, "act_quantise", "scales");
      const Seen& out = seen.find(0, step, 1, "down_proj", "out");
      const std::int64_t block = nvfp4 ? 16 : 32;
      ASSERT_EQ(scales.columns, 4) << "2 or 3 scales, and padding to a tile";
      for (std::int64_t token = 0; token < out.rows; ++token) {
        for (std::int64_t n = 0; n < 32; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < 48; ++k) {
            sum += double{value(codes, token, k)} * double{value(scales, token, k / block)} *
                   double{weight[static_cast<std::size_t>(n * 48 + k)]};
          }
          EXPECT_NEAR(out.row(token)[static_cast<std::size_t>(n)], nvfp4 ? sum * 0.002 : sum, 1e-4);
        }
      }
    }
  }
}

TEST(Blocks, CodesUnderTheirScalesAreTheActivations) {
  const CollectProbe seen = collect(tiny_config({{"activation.blocks", "mxfp8"}}), {text_request(kText)});
  for (const char* op : {"mlp_quantise", "act_quantise"}) {
    const Seen& codes = seen.find(0, 0, 0, op, "codes");
    const Seen& scales = seen.find(0, 0, 0, op, "scales");
    const Seen& x = seen.find(0, 0, 0, op == std::string("mlp_quantise") ? "mlp_norm" : "mlp_act", "out");
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const float scale = value(scales, 2, i / 32);
      EXPECT_NEAR(value(codes, 2, i) * scale, x.row(2)[static_cast<std::size_t>(i)],
                  std::max(std::abs(x.row(2)[static_cast<std::size_t>(i)]) / 16, scale / 1024));
    }
  }
}

TEST(Blocks, OfLinearsAreOfTheAttentionToo) {
  const EngineConfig config = tiny_config({{"activation.blocks", "mxfp8"}, {"activation.block_ops", "linears"}});
  const CollectProbe seen = collect(config, {text_request(kText)});
  const auto weights = make_weight_source(config.model).value();
  const std::pair<const char*, const char*> products[] = {{"attn_quantise", "q_proj"}, {"o_quantise", "o_proj"}};
  for (const auto& [quantise, product] : products) {
    const Seen& codes = seen.find(0, 0, 1, quantise, "codes");
    const Seen& scales = seen.find(0, 0, 1, quantise, "scales");
    const Seen& out = seen.find(0, 0, 1, product, "out");
    const std::vector<float> weight =
        weights->tensor(fmt::format("layers.1.{}.weight", product), out.columns, codes.columns).value();
    for (std::int64_t n = 0; n < out.columns; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < codes.columns; ++k) {
        sum += double{value(codes, 1, k)} * double{value(scales, 1, k / 32)} *
               double{weight[static_cast<std::size_t>(n * codes.columns + k)]};
      }
      EXPECT_NEAR(out.row(1)[static_cast<std::size_t>(n)], sum, 1e-4) << product << " " << n;
    }
  }
}

/// Under OCP's rule a scale is rounded down and what is beyond clips; under the other nothing does.
TEST(Blocks, ScalesFollowThePresetsRule) {
  const Knobs knobs{{"activation.blocks", "mxfp8"}, {"activation.block_preset", "mxfp8"}};
  const CollectProbe floor = collect(tiny_config(knobs), {text_request(kText)});
  const CollectProbe up = collect(tiny_config({{"activation.blocks", "mxfp8"}}), {text_request(kText)});
  const Seen& x = floor.find(0, 0, 0, "mlp_norm", "out");
  const Seen& down_scales = floor.find(0, 0, 0, "mlp_quantise", "scales");
  const Seen& up_scales = up.find(0, 0, 0, "mlp_quantise", "scales");
  for (std::int64_t token = 0; token < x.rows; ++token) {
    float amax = 0;
    for (std::int64_t i = 0; i < 32; ++i) amax = std::max(amax, std::abs(x.row(token)[static_cast<std::size_t>(i)]));
    const float exact = std::exp2(std::floor(std::log2(amax)) - 8);
    EXPECT_EQ(value(down_scales, token, 0), exact);
    EXPECT_EQ(value(up_scales, token, 0), amax > 448 * exact ? 2 * exact : exact);
  }
  EngineConfig config = tiny_config(knobs);
  for (const char* name : {"mxfp9", "fp8-block", "q4_0", "mxfp4-gguf", "nvfp4-4over6"}) {
    config.blocks.preset = name;
    const Status checked = check(config);
    ASSERT_FALSE(checked) << name;
    EXPECT_THAT(checked.error().message, ::testing::StartsWith("activation.block_preset"));
  }
}

TEST(Blocks, WithoutThemNothingIsQuantised) {
  const CollectProbe seen = collect(tiny_config(), {text_request(kText)});
  EXPECT_EQ(std::count(seen.ops.begin(), seen.ops.end(), "mlp_quantise"), 0);
  const CollectProbe blocks = collect(tiny_config({{"activation.blocks", "nvfp4"}}), {text_request(kText)});
  EXPECT_EQ(blocks.ops.size(), seen.ops.size() + 4) << "two a layer";
}

TEST(Blocks, EveryExpertHasItsOwn) {
  const EngineConfig config =
      tiny_config({{"activation.blocks", "mxfp8"}, {"model.experts", "3"}, {"model.bias", "true"}});
  Rig rig(config);
  const std::vector<RequestSpec> requests{text_request(kText, 2)};
  const CollectProbe seen = rig.collect(requests);
  EXPECT_EQ(rig.engine->expected_ops(requests).value().count, static_cast<std::int64_t>(seen.ops.size()));
  EXPECT_EQ(std::count(seen.ops.begin(), seen.ops.end(), "mlp_quantise"), 4) << "one a layer and step";
  EXPECT_NE(seen.find(0, 0, 0, "expert0_act_quantise", "codes").bytes,
            seen.find(0, 0, 0, "expert2_act_quantise", "codes").bytes);
}

TEST(Blocks, PaddingIsZeroOrWhatTheMemoryHeld) {
  const Knobs nvfp4{{"activation.blocks", "nvfp4"}};
  const CollectProbe zeroed = collect(tiny_config(nvfp4), {text_request(kText)});
  const CollectProbe recycled = collect(
      tiny_config({{"activation.blocks", "nvfp4"}, {"activation.scale_memory", "recycled"}}), {text_request(kText)});
  struct Table {
    const char* op;
    const char* before;  ///< the op whose output lay in that memory
    const char* role;
    std::int64_t used;
  };
  for (const Table& table : {Table{"mlp_quantise", "scores", "out", 2}, Table{"act_quantise", "gate_proj", "out", 3}}) {
    const Seen& clean = zeroed.find(0, 0, 1, table.op, "scales");
    const Seen& kept = recycled.find(0, 0, 1, table.op, "scales");
    const Seen& memory = recycled.find(0, 0, 1, table.before, table.role);
    for (std::int64_t row = 0; row < clean.rows; ++row) {
      for (std::int64_t i = 0; i < clean.columns; ++i) {
        const auto at = static_cast<std::size_t>(row * clean.columns + i);
        if (i < table.used) {
          EXPECT_EQ(clean.bytes[at], kept.bytes[at]);
        } else {
          EXPECT_EQ(clean.bytes[at], std::byte{0});
          EXPECT_EQ(kept.bytes[at], memory.bytes[at]) << table.op << row << ',' << i;
        }
      }
    }
  }
}

TEST(Blocks, ATileIsReadWholeUpTo32Tokens) {
  // Of one layer no output reaches another row: every row shows its own padding.
  const EngineConfig config = tiny_config({{"activation.blocks", "nvfp4"},
                                           {"activation.scale_memory", "recycled"},
                                           {"activation.scale_reads", "tile"},
                                           {"model.layers", "1"},
                                           {"model.mlp_width", "80"}});
  const CollectProbe seen = collect(config, {text_request(kLongText, 100), text_request(kText, 100)});
  ASSERT_GT(seen.steps.front().tokens, 32);
  int unread = 0;
  int read = 0;
  for (const StepRow& step : seen.steps) {
    const Seen& scales = seen.find(step.request, step.index, 0, "act_quantise", "scales");
    const Seen& out = seen.find(step.request, step.index, 0, "down_proj", "out");
    for (std::int64_t row = 0; row < scales.rows; ++row) {
      const bool nan = nan_in_padding(scales, row, 5);
      EXPECT_EQ(std::isnan(out.row(row)[0]), nan && step.tokens <= 32) << step.id << " " << row;
      (step.tokens > 32 ? unread : read) += nan ? 1 : 0;
    }
  }
  EXPECT_GT(unread, 0) << "no padding holds NaN: the test shows nothing";
  EXPECT_GT(read, 0) << "no padding holds NaN: the test shows nothing";
}

TEST(Blocks, ScalesArePackedUnmaskedAtOneTokenAlone) {
  const std::vector<RequestSpec> requests{text_request(kText, 2)};
  const Knobs wide{{"activation.blocks", "mxfp8"}, {"model.width", "128"}};
  Knobs broken = wide;
  broken.push_back({"activation.scale_packing", "unmasked"});
  const CollectProbe rounded = collect(tiny_config(wide), requests);
  const CollectProbe unmasked = collect(tiny_config(broken), requests);
  EXPECT_EQ(rounded.find(0, 0, 1, "mlp_quantise", "scales").bytes,
            unmasked.find(0, 0, 1, "mlp_quantise", "scales").bytes);
  const Seen& wrong = unmasked.find(0, 1, 0, "mlp_quantise", "scales");
  EXPECT_NE(rounded.find(0, 1, 0, "mlp_quantise", "scales").bytes, wrong.bytes);
  EXPECT_EQ(rounded.find(0, 1, 0, "mlp_norm", "out").bytes, unmasked.find(0, 1, 0, "mlp_norm", "out").bytes);
  // Of a word's four scales the last is behind the mantissas of none: it is truncated, not rounded up.
  EXPECT_EQ(code(rounded.find(0, 1, 0, "mlp_quantise", "scales"), 0, 3), code(wrong, 0, 3) + 1);
}

TEST(Blocks, AScaleBeyondE4m3IsTheLargestOrNan) {
  Knobs narrow{{"activation.blocks", "nvfp4"}, {"activation.tensor_scale", "0.0007"}};
  const CollectProbe saturated = collect(tiny_config(narrow), {text_request(kText)});
  narrow.push_back({"activation.scale_overflow", "overflow"});
  const CollectProbe lost = collect(tiny_config(narrow), {text_request(kText)});
  const Seen& x = saturated.find(0, 0, 0, "mlp_norm", "out");
  const Seen& kept = saturated.find(0, 0, 0, "mlp_quantise", "scales");
  const Seen& bad = lost.find(0, 0, 0, "mlp_quantise", "scales");
  int beyond = 0;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::vector<float> own = x.row(row);
    for (std::int64_t block = 0; block < 2; ++block) {
      float amax = 0;
      for (std::int64_t i = 16 * block; i < 16 * (block + 1); ++i) {
        amax = std::max(amax, std::abs(own[static_cast<std::size_t>(i)]));
      }
      if (amax / 6 / 0.0007F <= 464) continue;  // half way between 448 and 480, which is NaN's code
      ++beyond;
      EXPECT_EQ(code(kept, row, block), 0x7E);
      EXPECT_EQ(code(bad, row, block), 0x7F);
    }
  }
  EXPECT_GT(beyond, 0);
}

}  // namespace
}  // namespace nanscope::testing
