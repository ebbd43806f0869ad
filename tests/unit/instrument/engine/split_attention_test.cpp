/// Attention over blocks of keys: an order of operations of its own, the same for whoever runs it; as far from the one
/// piece as its roundings are, and the same where one block holds all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/numbers/codec.h"
#include "double_model.h"
#include "engine_rig.h"

namespace nanscope {
namespace {

using testing::collect;
using testing::CollectProbe;
using testing::Knobs;
using testing::Rig;
using testing::Seen;
using testing::tiny_config;

constexpr const char* kLongPrompt =
    "Every evening the old keeper lights the great lamp. A storm rises over the sea. Moons pull tides, tides turn "
    "wheels, wheels grind grain. Fire gives light, light crosses water, and ships find home. Every night the great "
    "lamp shows the way; no storm is so dark that its light is lost. The keeper counts ships and songs, winds and "
    "stars.";

std::vector<RequestSpec> long_prompt(int max_tokens) { return {testing::text_request(kLongPrompt, max_tokens)}; }

Knobs joined_knobs(Knobs knobs, const Knobs& more) {
  knobs.insert(knobs.end(), more.begin(), more.end());
  return knobs;
}

CollectProbe run_split(const Knobs& knobs, const std::string& split, int max_tokens = 2) {
  return collect(tiny_config(joined_knobs(knobs, {{"attention.split", split}})), long_prompt(max_tokens));
}

bool of_blocks_alone(const Seen& seen) {
  return seen.op.starts_with("softmax_partials") || seen.op.starts_with("mix_partials");
}

/// Tensors that runs with and without blocks both have.
std::vector<const Seen*> common(const CollectProbe& probe) {
  std::vector<const Seen*> found;
  for (const Seen& seen : probe.tensors) {
    if (!of_blocks_alone(seen)) found.push_back(&seen);
  }
  return found;
}

void expect_same_tensors(const CollectProbe& a, const CollectProbe& b, const std::string& what) {
  const auto expected = common(a);
  const auto found = common(b);
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(expected[i]->op, found[i]->op) << what;
    ASSERT_EQ(expected[i]->bytes, found[i]->bytes)
        << what << ": " << found[i]->op << " of layer " << found[i]->layer << ", step " << found[i]->step;
  }
}

const Knobs kForms[] = {{},
                        {{"attention.mask", "additive"}},
                        {{"attention.mask", "multiply"}},
                        {{"model.window", "40"}},
                        {{"model.attention_softcap", "5"}},
                        {{"kv.format", "e4m3"}, {"kv.policy", "per_token"}},
                        {{"kv.format", "e4m3"}, {"kv.policy", "per_request"}, {"attention.fused", "true"}},
                        {{"kv.scheme", "vllm-int8-per-token-head"}},
                        {{"scores.format", "e4m3"}},
                        {{"activation.format", "bf16"}},
                        {{"engine.ranks", "2"}}};

std::string name_of(const Knobs& knobs) {
  std::string text;
  for (const auto& [name, value] : knobs) text += name + "=" + value + " ";
  return text;
}

TEST(SplitAttention, OneBlockOfAllKeysHasTheBitsOfNone) {
  for (const Knobs& form : kForms) {
    expect_same_tensors(run_split(form, "0"), run_split(form, "1024"), name_of(form));
  }
}

/// Of one layer's scores, which are the same bits: p is off by the exp's arguments (a difference of scores of at most D
/// is rounded twice at most, D u each), two exps below 1 ulp, a product, a division, and S additions; the mix by S
/// roundings more (Higham 2002, lemma 3.1). Both ways are that far from the exact one.
TEST(SplitAttention, IsOffByItsRoundingsAlone) {
  const CollectProbe whole = run_split({}, "0", 1);
  const CollectProbe split = run_split({}, "32", 1);
  const std::int64_t heads = 4;
  const Seen& scores = split.find(0, 0, 0, "scores", "out");
  ASSERT_EQ(scores.bytes, whole.find(0, 0, 0, "scores", "out").bytes);
  const Seen& probs = split.find(0, 0, 0, "softmax", "probs");
  const Seen& out = split.find(0, 0, 0, "attn_mix", "out");
  const Seen& v = split.find(0, 0, 0, "kv_read", "v_read");
  const std::int64_t keys = scores.columns / heads;
  ASSERT_GT(keys, 64);
  ASSERT_EQ(split.find(0, 0, 0, "softmax_partials", "max").columns, heads * ((keys + 31) / 32));
  ASSERT_EQ(split.find(0, 0, 0, "mix_partials", "partials").columns, out.columns * ((keys + 31) / 32));
  std::int64_t differing = 0;
  for (std::int64_t t = 0; t < out.rows; ++t) {
    const std::vector<float> s = scores.row(t);
    const std::vector<float> p = probs.row(t);
    const std::vector<float> expected = whole.find(0, 0, 0, "attn_mix", "out").row(t);
    const std::vector<float> got = out.row(t);
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto first = s.begin() + h * keys;
      const auto [least, most] = std::minmax_element(first, first + t + 1);
      const double reach = double{*most} - double{*least};
      const double u = std::ldexp(1.0, -24);
      const double relative = (2 * reach + 8 + 2 * static_cast<double>(t + 1)) * u;
      for (std::int64_t i = 0; i < 8; ++i) {
        double size = 0;
        for (std::int64_t key = 0; key <= t; ++key) {
          size += double{p[static_cast<std::size_t>(h * keys + key)]} *
                  std::abs(double{v.row(key)[static_cast<std::size_t>(h / 2 * 8 + i)]});
        }
        const auto at = static_cast<std::size_t>(h * 8 + i);
        ASSERT_NEAR(got[at], expected[at], 2.01 * relative * size) << t << " " << h << " " << i;
        differing += got[at] != expected[at] ? 1 : 0;
      }
    }
  }
  EXPECT_GT(differing, 0) << "no sum was split";
}

/// Logits of both ways, as far from double precision as reference_forward_test allows one, so twice that apart.
TEST(SplitAttention, LogitsAreThoseOfDoublePrecision) {
  for (const Knobs& form : {Knobs{}, Knobs{{"attention.mask", "additive"}}}) {
    const EngineConfig config = tiny_config(joined_knobs(form, {{"attention.split", "32"}}));
    Rig rig(config);
    const CollectProbe seen = rig.collect(long_prompt(1));
    const std::vector<std::int32_t> tokens = rig.result.requests[0].prompt_tokens;
    const auto weights = make_weight_source(config.model).value();
    const testing::Matrix expected =
        testing::DoubleModel(config, *weights)
            .logits(tokens, static_cast<std::int64_t>(testing::shipped_tokenizer()->vocab_size()));
    const std::vector<float> split = seen.last_logits(0, 0);
    const std::vector<float> whole = run_split(form, "0", 1).last_logits(0, 0);
    double largest = 0;
    for (const double value : expected.back()) largest = std::max(largest, std::abs(value));
    for (std::size_t v = 0; v < split.size(); ++v) {
      ASSERT_NEAR(double{split[v]}, expected.back()[v], 2e-5 * largest) << v;
      ASSERT_NEAR(double{split[v]}, double{whole[v]}, 4e-5 * largest) << v;
    }
  }
}

/// Codes read by attention itself, and a cache that keeps a window alone.
TEST(SplitAttention, DoesNotDependOnHowTheCacheIsRead) {
  const Knobs codes{{"kv.format", "e4m3"}, {"kv.policy", "per_token"}};
  for (const Knobs& mask : {Knobs{}, Knobs{{"attention.mask", "additive"}}}) {
    const Knobs plain = joined_knobs(codes, mask);
    expect_same_tensors(run_split(plain, "32"), run_split(joined_knobs(plain, {{"attention.fused", "true"}}), "32"),
                        name_of(mask));
  }
  const Knobs window{{"model.window", "40"}, {"kv.prefix_cache", "false"}};
  const CollectProbe all = run_split(window, "32", 9);
  const CollectProbe ring = run_split(joined_knobs(window, {{"kv.window_cache", "ring"}}), "32", 9);
  for (std::int64_t step = 0; step < 9; ++step) {
    EXPECT_EQ(all.find(0, step, 1, "attn_mix", "out").bytes, ring.find(0, step, 1, "attn_mix", "out").bytes) << step;
    EXPECT_TRUE(testing::same_bits(all.last_logits(0, step), ring.last_logits(0, step))) << step;
  }
}

/// The rows of all steps, one behind the other.
std::vector<std::byte> all_rows(const CollectProbe& probe) {
  std::vector<std::byte> rows;
  for (const Seen& seen : probe.tensors) {
    if (seen.op == "mlp_residual" && seen.layer == 1) rows.insert(rows.end(), seen.bytes.begin(), seen.bytes.end());
  }
  return rows;
}

/// How many blocks lie behind a row depends on the chunk that it comes in; its bits do not, nor on other requests.
TEST(SplitAttention, ChunksAndThreadsChangeNoBit) {
  for (const Knobs& form : {Knobs{}, Knobs{{"model.window", "50"}}, Knobs{{"kv.tail", "skip"}}}) {
    const Knobs own = joined_knobs(form, {{"kv.prefix_cache", "false"}});
    const std::vector<std::byte> alone = all_rows(run_split(own, "32", 5));
    ASSERT_GT(alone.size(), std::size_t{64 * 32 * sizeof(float)});
    for (const std::string chunk : {"7", "45"}) {
      const Knobs chunked =
          joined_knobs(own, {{"engine.batch", "2"}, {"engine.chunk", chunk}, {"engine.threads", "2"}});
      EXPECT_EQ(all_rows(run_split(chunked, "32", 5)), alone) << name_of(form) << chunk;
    }
  }
}

TEST(SplitAttention, TwoRequestsInAStepHaveBlocksOfTheirOwn) {
  const std::vector<RequestSpec> two{testing::text_request(kLongPrompt, 3),
                                     testing::text_request(std::string(kLongPrompt).substr(60), 3)};
  const Knobs own{{"attention.split", "32"}, {"kv.prefix_cache", "false"}, {"kv.blocks", "64"}};
  Rig serial(tiny_config(own));
  serial.collect(two);
  Rig batched(tiny_config(joined_knobs(own, {{"engine.batch", "2"}, {"engine.pad_to", "8"}})));
  const CollectProbe seen = batched.collect(two);
  ASSERT_EQ(serial.result.requests.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(serial.result.requests[i].output_tokens, batched.result.requests[i].output_tokens);
  }
  EXPECT_THAT(seen.ops, ::testing::IsSupersetOf({"softmax_partials_0", "softmax_partials_1", "mix_partials_1"}));
}

/// Token 70 is NaN: of keys that a row does not see nothing reaches it, and whoever sees it has it in one block.
TEST(SplitAttention, ANanStaysInItsBlockAndReachesEveryRowThatSeesIt) {
  Rig rig(tiny_config({{"attention.split", "32"}, {"model.layers", "1"}}));
  const CollectProbe clean = rig.collect(long_prompt(1));
  RunControl control;
  control.edit_embedding = [](kernels::Device& device, const kernels::TensorView& view, const StepRow&) -> Status {
    const std::vector<float> nan(static_cast<std::size_t>(view.columns), std::numeric_limits<float>::quiet_NaN());
    if (view.rows <= 70) return {};
    return device.upload(static_cast<float*>(view.data) + 70 * view.stride, std::as_bytes(std::span(nan)));
  };
  CollectProbe seen(*rig.device);
  ASSERT_TRUE(rig.engine->run(long_prompt(1), seen, control));
  const Seen& sums = seen.find(0, 0, 0, "softmax_partials", "sum");
  const Seen& partials = seen.find(0, 0, 0, "mix_partials", "partials");
  const Seen& out = seen.find(0, 0, 0, "attn_mix", "out");
  const std::int64_t blocks = sums.columns / 4;
  const auto is_nan = [](float value) { return std::isnan(value); };
  for (std::int64_t t = 0; t < out.rows; ++t) {
    const std::vector<float> mixed = out.row(t);
    if (t < 70) {
      EXPECT_EQ(mixed, clean.find(0, 0, 0, "attn_mix", "out").row(t)) << t;
      continue;
    }
    EXPECT_TRUE(std::all_of(mixed.begin(), mixed.end(), is_nan)) << t;
    for (std::int64_t b = 0; b < blocks && t > 70; ++b) {
      EXPECT_EQ(std::isnan(sums.row(t)[static_cast<std::size_t>(b)]), b == 2) << t << " " << b;
    }
  }
  EXPECT_EQ(partials.columns, out.columns * blocks);
}

TEST(SplitAttention, IsRefusedWhereItMeansNothing) {
  const auto refused = [](const Knobs& knobs) {
    const Status status = check(tiny_config(knobs));
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refused({{"attention.split", "64"}}), "");
  EXPECT_EQ(refused({{"attention.split", "40"}}), "attention.split=40 is no multiple of 32");
  EXPECT_EQ(refused({{"attention.split", "32"}, {"attention.blocks_v", "mxfp4"}}),
            "attention.split and attention.blocks_*: tiles have an order of their own; use one of them");
  EXPECT_EQ(refused({{"attention.split", "32"}, {"attention.causal", "block"}}),
            "attention.split and attention.causal=block: that mask is of attention in one piece; use one of them");
}

}  // namespace
}  // namespace nanscope
