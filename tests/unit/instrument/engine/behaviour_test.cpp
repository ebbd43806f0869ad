/// What a serving engine does around the arithmetic: paging, caching, recycling, padding, refusing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine_rig.h"
#include "instrument/engine/cost.h"
#include "instrument/image/image.h"

namespace nanscope::testing {
namespace {

using ::testing::HasSubstr;

const char* const kStory = "The keeper of the lighthouse climbs the stairs every evening and lights the lamp.";

std::size_t count_nan(const std::vector<float>& values) {
  std::size_t count = 0;
  for (const float value : values) count += std::isnan(value) ? 1 : 0;
  return count;
}

/// Everything that was computed, except the KV codes and reads, whose rows depend on the paging.
std::vector<std::vector<std::byte>> computed(const CollectProbe& seen) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Seen& tensor : seen.tensors) {
    if (tensor.role == "out" && tensor.op != "scores") bytes.push_back(tensor.bytes);
    if (tensor.role == "logits" || tensor.role == "token") bytes.push_back(tensor.bytes);
  }
  return bytes;
}

RequestSpec image_request(std::uint8_t shade, int max_tokens = 1) {
  Image image{8, 8, std::vector<std::uint8_t>(8 * 8 * 3)};
  for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<std::uint8_t>(shade + i % 7);
  return {.name = "image",
          .parts = {ImagePart{"shade.png", encode_png(image).value()}, TextPart{kStory}},
          .max_tokens = max_tokens};
}

TEST(Engine, IsDeterministicAcrossThreadsAndInstructionSets) {
  const std::vector<RequestSpec> requests{text_request(kStory, 4), image_request(90, 3), text_request("A ship.", 2)};
  EngineConfig config = tiny_config({{"kv.format", "e4m3"}, {"kv.policy", "locked"}, {"model.inner_norm", "true"}});
  config.device = "cpu:baseline";
  config.threads = 1;
  const CollectProbe first = collect(config, requests);
  for (const char* device : {"cpu:baseline", "cpu:avx2", "cpu:avx512"}) {
    for (const int threads : {1, 3}) {
      config.device = device;
      config.threads = threads;
      if (!kernels::make_device(device, threads)) continue;  // not every machine has every instruction set
      const CollectProbe other = collect(config, requests);
      ASSERT_EQ(other.tensors.size(), first.tensors.size());
      for (std::size_t i = 0; i < first.tensors.size(); ++i) {
        ASSERT_EQ(other.tensors[i].bytes, first.tensors[i].bytes)
            << device << " x" << threads << " " << first.tensors[i].op << "." << first.tensors[i].role;
      }
    }
  }
}

TEST(Engine, ASecondRunOfTheSameEngineIsTheFirstOnceMore) {
  Rig rig(tiny_config({{"kv.format", "e4m3"}, {"kv.policy", "locked"}, {"kv.memory", "recycled"}}));
  const std::vector<RequestSpec> requests{text_request(kStory, 3), text_request("A ship.", 2)};
  const CollectProbe first = rig.collect(requests);
  const CollectProbe second = rig.collect(requests);
  ASSERT_EQ(first.tensors.size(), second.tensors.size());
  for (std::size_t i = 0; i < first.tensors.size(); ++i) ASSERT_EQ(first.tensors[i].bytes, second.tensors[i].bytes);
}

TEST(Engine, PagingChangesNoBit) {
  const std::vector<RequestSpec> requests{text_request("A storm rises over the sea.", 6), text_request(kStory, 12)};
  for (const char* tail : {"read", "skip"}) {
    const Knobs contiguous{
        {"kv.block_size", "128"}, {"kv.blocks", "4"}, {"kv.tail", tail}, {"kv.prefix_cache", "false"}};
    const Knobs paged{{"kv.block_size", "4"}, {"kv.blocks", "64"}, {"kv.tail", tail}, {"kv.reuse", "fifo"}};
    EXPECT_EQ(computed(collect(tiny_config(contiguous), requests)), computed(collect(tiny_config(paged), requests)))
        << tail;
  }
}

TEST(Engine, APrefixCacheHitGivesTheLogitsOfAColdRun) {
  const std::vector<RequestSpec> requests{image_request(90, 3), image_request(90, 3)};
  for (const char* policy : {"static", "per_token"}) {
    const Knobs knobs{{"kv.format", "e4m3"}, {"kv.policy", policy}, {"kv.block_size", "8"}};
    Rig warm(tiny_config(knobs));
    const CollectProbe hit = warm.collect(requests);
    Knobs without = knobs;
    without.emplace_back("kv.prefix_cache", "false");
    const CollectProbe cold = collect(tiny_config(without), requests);
    const auto tokens = static_cast<std::int64_t>(warm.result.requests[1].prompt_tokens.size());
    EXPECT_EQ(warm.result.requests[0].cached_tokens, 0);
    EXPECT_EQ(warm.result.requests[1].cached_tokens, (tokens - 1) / 8 * 8);
    EXPECT_EQ(hit.find(1, 0, -1, "embed", "out").rows, tokens - (tokens - 1) / 8 * 8);
    for (std::int64_t step = 0; step < 3; ++step) {
      EXPECT_TRUE(same_bits(hit.last_logits(1, step), cold.last_logits(1, step))) << policy << " step " << step;
    }
  }
}

TEST(Engine, AnotherImageOrTextIsNoPrefixHit) {
  Rig rig(tiny_config({{"kv.block_size", "4"}, {"kv.reuse", "fifo"}}));
  (void)rig.collect({image_request(90), image_request(91), text_request(kStory),
                     text_request(std::string("X") + kStory), text_request(kStory)});
  EXPECT_EQ(rig.result.requests[1].cached_tokens, 0);
  EXPECT_EQ(rig.result.requests[2].cached_tokens, 0);
  EXPECT_EQ(rig.result.requests[3].cached_tokens, 0);
  EXPECT_GT(rig.result.requests[4].cached_tokens, 0);
}

TEST(Engine, ARecycledBlockServesStaleBytesUntilItIsScrubbed) {
  const std::vector<RequestSpec> requests{text_request("The keeper of the lighthouse climbs the stairs."),
                                          text_request("A ship.")};
  const Knobs knobs{{"kv.block_size", "32"}, {"kv.prefix_cache", "false"}};
  const CollectProbe seen = collect(tiny_config(knobs), requests);
  const Seen& before = seen.find(0, 0, 0, "kv_read", "v_read");
  const Seen& after = seen.find(1, 0, 0, "kv_read", "v_read");
  const std::int64_t written = seen.find(1, 0, -1, "embed", "out").rows;
  ASSERT_EQ(after.rows, 32);
  ASSERT_LT(written, 32);
  // The last freed block comes first: its slots beyond the new tokens still hold what request 0 wrote there.
  const std::int64_t block = before.rows - 32;
  const std::int64_t old_tokens = seen.find(0, 0, -1, "embed", "out").rows - block;
  ASSERT_GT(old_tokens, written);
  for (std::int64_t slot = written; slot < old_tokens; ++slot) {
    EXPECT_TRUE(same_bits(after.row(slot), before.row(block + slot))) << slot;
    EXPECT_NE(after.row(slot), std::vector<float>(after.row(slot).size(), 0.0F));
  }
  Knobs scrubbing = knobs;
  scrubbing.emplace_back("kv.scrub", "true");
  const CollectProbe clean = collect(tiny_config(scrubbing), requests);
  const Seen& scrubbed = clean.find(1, 0, 0, "kv_read", "v_read");
  for (std::int64_t slot = written; slot < 32; ++slot) {
    EXPECT_EQ(scrubbed.row(slot), std::vector<float>(scrubbed.row(slot).size(), 0.0F));
  }
  std::size_t scrubs = 0;
  for (const KvRow& row : clean.kv) scrubs += row.action == KvAction::scrubbed ? 1 : 0;
  EXPECT_EQ(scrubs, clean.steps.empty() ? 0 : static_cast<std::size_t>((before.rows + 31) / 32 + 1));
}

TEST(Engine, TheMemoryOfAWarmUpPassIsHandedOverAsItIs) {
  const std::vector<RequestSpec> requests{text_request("A ship.")};
  const auto tail = [&](const char* memory) {
    const CollectProbe seen = collect(tiny_config({{"kv.memory", memory}}), requests);
    const Seen& read = seen.find(0, 0, 0, "kv_read", "k_read");
    return read.row(read.rows - 1);
  };
  EXPECT_EQ(tail("zeroed"), std::vector<float>(16, 0.0F));
  EXPECT_NE(tail("recycled"), std::vector<float>(16, 0.0F));
  EXPECT_TRUE(same_bits(tail("recycled"), tail("recycled")));
}

TEST(Engine, AnAttentionBlockCanInheritARecurrentState) {
  // One block of 4 slots x 16 f32 holds the state of 32 f32 in slots 0 and 1.
  const Knobs knobs{{"model.recurrent_layers", "1"}, {"kv.block_size", "4"}, {"kv.blocks", "8"}};
  const CollectProbe seen = collect(tiny_config(knobs), {text_request("A ship."), text_request("!")});
  const Seen& states = seen.find(0, 0, 1, "recurrent", "out");
  const std::vector<float> state = states.row(states.rows - 1);
  const Seen& read = seen.find(1, 0, 0, "kv_read", "k_read");
  ASSERT_EQ(seen.find(1, 0, -1, "embed", "out").rows, 1);
  EXPECT_TRUE(same_bits(read.row(1), std::vector<float>(state.begin() + 16, state.end())));
  const auto told = [&](const KvRow& row) {
    return row.writer == "recurrent_state" && row.action == KvAction::written;
  };
  const auto row = std::find_if(seen.kv.begin(), seen.kv.end(), told);
  ASSERT_NE(row, seen.kv.end());
  EXPECT_EQ(row->layer, 1);
  EXPECT_EQ(row->format, Format::f32);
}

TEST(Engine, LeftPaddingMakesRowsThatSeeNothing) {
  const Knobs knobs{{"kv.block_size", "16"}, {"engine.pad", "left"}};
  const std::vector<RequestSpec> requests{text_request("A ship sails home.")};
  Rig padded(tiny_config(knobs));
  const CollectProbe seen = padded.collect(requests);
  Rig plain(tiny_config());
  const CollectProbe unpadded = plain.collect(requests);
  const auto tokens = static_cast<std::int64_t>(plain.result.requests[0].prompt_tokens.size());
  const std::int64_t padding = 16 - tokens;
  ASSERT_GT(padding, 0);
  ASSERT_EQ(padded.result.requests[0].prompt_tokens.size(), 16U);
  const Seen& scores = seen.find(0, 0, 0, "scores", "out");
  EXPECT_EQ(count_nan(scores.floats()), 0U);
  const Seen& probs = seen.find(0, 0, 0, "softmax", "probs");
  for (std::int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(count_nan(probs.row(row)), row < padding ? static_cast<std::size_t>(probs.columns) : 0U) << row;
  }
  // Selecting shields the real tokens, whose rotary phases only moved.
  const std::vector<float> shifted = seen.last_logits(0, 0);
  const std::vector<float> expected = unpadded.last_logits(0, 0);
  for (std::size_t i = 0; i < shifted.size(); ++i) EXPECT_NEAR(shifted[i], expected[i], 1e-3) << i;
  // Adding does not: NaN + -Inf is NaN, so one layer later every row is lost.
  Knobs additive = knobs;
  additive.emplace_back("attention.mask", "additive");
  const CollectProbe poisoned = collect(tiny_config(additive), requests);
  EXPECT_EQ(count_nan(poisoned.last_logits(0, 0)), poisoned.last_logits(0, 0).size());
  EXPECT_EQ(count_nan(poisoned.find(0, 0, 0, "mlp_residual", "out").row(15)), 0U);
}

TEST(Engine, BlockTablesAreFilledUpWithTheNullBlock) {
  const Knobs knobs{{"kv.block_size", "16"}, {"kv.table_blocks", "3"}, {"engine.dummy_batch", "slot_0"}};
  const CollectProbe seen = collect(tiny_config(knobs), {text_request("A ship.", 2)});
  const Seen& read = seen.find(0, 1, 0, "kv_read", "k_read");
  ASSERT_EQ(read.rows, 48);
  const std::vector<float> dummy = seen.find(kDummyRequest, 0, 0, "k_rope", "out").row(0);
  EXPECT_TRUE(same_bits(read.row(16), dummy));
  EXPECT_TRUE(same_bits(read.row(32), dummy));
  std::int64_t null_rows = 0;
  for (const KvRow& row : seen.kv) {
    if (row.request < 0) continue;
    null_rows += row.writer == "null_block" ? 1 : 0;
    EXPECT_EQ(row.block, row.writer == "null_block" ? 0 : 1) << "block 0 is nobody's";
  }
  EXPECT_EQ(null_rows, 2);
  // What lies behind the context changes no bit while a mask selects.
  EXPECT_TRUE(
      same_bits(seen.last_logits(0, 1), collect(tiny_config(), {text_request("A ship.", 2)}).last_logits(0, 1)));
}

TEST(Engine, ADummyBatchLeavesItsNaNInTheNullBlockUnlessItsSlotIsMasked) {
  const auto run = [](const char* dummy_batch, const char* mask) {
    return collect(tiny_config({{"kv.block_size", "16"},
                                {"kv.table_blocks", "2"},
                                {"engine.dummy_batch", dummy_batch},
                                {"attention.mask", mask}}),
                   {text_request("A ship.")});
  };
  const CollectProbe written = run("slot_0", "multiply");
  EXPECT_EQ(written.steps.front().request, kDummyRequest);
  const Seen& keys = written.find(0, 0, 1, "kv_read", "k_read");
  EXPECT_EQ(count_nan(keys.row(16)), keys.row(16).size());
  EXPECT_EQ(count_nan(keys.row(17)), 0U);
  EXPECT_EQ(count_nan(written.last_logits(0, 0)), written.last_logits(0, 0).size());
  EXPECT_EQ(written.kv.front().writer, "dummy_batch");

  const CollectProbe masked = run("masked", "multiply");
  const Seen& codes = masked.find(kDummyRequest, 0, 1, "kv_store", "k_codes");
  EXPECT_EQ(count_nan(codes.floats()), codes.floats().size()) << "it is as bad";
  EXPECT_EQ(masked.find(0, 0, 1, "kv_read", "k_read").row(16), std::vector<float>(16, 0.0F));
  EXPECT_EQ(count_nan(masked.last_logits(0, 0)), 0U);
  EXPECT_TRUE(same_bits(masked.last_logits(0, 0), run("none", "multiply").last_logits(0, 0)));
  EXPECT_EQ(count_nan(run("slot_0", "select").last_logits(0, 0)), 0U);
}

TEST(Engine, APaddingRowBesideEveryDecodedTokenSparesThePrompt) {
  const CollectProbe seen = collect(tiny_config({{"kv.block_size", "16"},
                                                 {"kv.table_blocks", "2"},
                                                 {"engine.dummy_batch", "slot_0"},
                                                 {"engine.dummy_at", "decode"},
                                                 {"attention.mask", "multiply"}}),
                                    {text_request("A ship.", 3)});
  EXPECT_EQ(count_nan(seen.last_logits(0, 0)), 0U);
  EXPECT_EQ(count_nan(seen.last_logits(0, 1)), seen.last_logits(0, 1).size());
  std::vector<std::int64_t> requests;
  for (const StepRow& step : seen.steps) requests.push_back(step.request);
  EXPECT_THAT(requests, ::testing::ElementsAre(0, kDummyRequest, 0, kDummyRequest, 0));
  EXPECT_EQ(seen.steps.back().index, 2);
}

TEST(Engine, AnAnswerSpellsItsGrammarAndEnds) {
  const std::vector<RequestSpec> requests{text_request("A ship.", 20)};
  const auto answer = [&](const Knobs& knobs) {
    Rig rig(tiny_config(knobs));
    (void)rig.collect(requests);
    return rig.result.requests[0];
  };
  const RequestRow spelled = answer({{"engine.grammar", "the lamp"}});
  EXPECT_THAT(spelled.output_text, ::testing::StartsWith("the lamp"));
  EXPECT_LT(spelled.output_tokens.size(), 10U) << "it ends with the end token";
  const Knobs dead_end{{"engine.grammar", "the lamp"}, {"engine.grammar_stop", "false"}};
  EXPECT_EQ(answer(dead_end).output_tokens.size(), 20U) << "kept logits go on freely";
  Knobs masked = dead_end;
  masked.emplace_back("engine.grammar_empty", "mask");
  EXPECT_THAT(answer(masked).output_text, ::testing::EndsWith("!!!!!!!!"));
}

TEST(Engine, AMaskedRowWithoutALegalTokenIsNaNAndItsLogitsAreNot) {
  const CollectProbe seen = collect(
      tiny_config({{"engine.grammar", "x"}, {"engine.grammar_stop", "false"}, {"engine.grammar_empty", "mask"}}),
      {text_request("A ship.", 2)});
  const std::vector<float> first = seen.find(0, 0, -1, "token_softmax", "probs").floats();
  EXPECT_EQ(std::count(first.begin(), first.end(), 1.0F), 1);
  const std::vector<float> second = seen.find(0, 1, -1, "token_softmax", "probs").floats();
  EXPECT_EQ(count_nan(second), second.size());
  EXPECT_EQ(count_nan(seen.last_logits(0, 1)), 0U);
}

TEST(Engine, ArgmaxRulesOnNaNLogits) {
  const std::vector<RequestSpec> requests{text_request("A ship sails home.", 3)};
  const auto output = [&](const char* rule) {
    Rig rig(tiny_config({{"engine.pad", "left"}, {"attention.mask", "additive"}, {"engine.argmax_nan", rule}}));
    (void)rig.collect(requests);
    return rig.result.requests[0];
  };
  EXPECT_EQ(output("first_greater").output_text, "!!!");
  EXPECT_EQ(output("first_greater").output_tokens, (std::vector<std::int32_t>{0, 0, 0}));
  EXPECT_EQ(output("refuse").output_text, "[refused: NaN in logits]");
  EXPECT_TRUE(output("refuse").output_tokens.empty());
}

TEST(Engine, TheLedgerTellsTheLockedScale) {
  const CollectProbe seen = collect(tiny_config({{"kv.format", "e4m3"}, {"kv.policy", "locked"}}),
                                    {text_request("A ship."), text_request(kStory, 2)});
  const auto absmax = [&](std::int64_t request, std::int64_t step, const char* op) {
    float largest = 0;
    for (const float value : seen.find(request, step, 1, op, "out").floats())
      largest = std::max(largest, std::abs(value));
    return largest;
  };
  ASSERT_EQ(seen.scales.size(), 3U * 2 * 2);  // steps, layers, K and V
  const float k_scale = absmax(0, 0, "k_rope") / 200.0F;
  const float v_scale = absmax(0, 0, "v_proj") / 100.0F;
  for (const ScaleRow& row : seen.scales) {
    EXPECT_EQ(row.calibrated_request, 0);
    EXPECT_EQ(row.calibrated_step, 1);
    EXPECT_TRUE(row.locked);
    if (row.layer != 1) continue;
    const float scale = row.target == "k" ? k_scale : v_scale;
    EXPECT_EQ(row.scale, static_cast<double>(scale));
    const StepRow& step = seen.steps[static_cast<std::size_t>(row.step - 1)];
    const float largest = absmax(step.request, step.index, row.target == "k" ? "k_rope" : "v_proj");
    EXPECT_EQ(row.absmax, static_cast<double>(largest));
    EXPECT_DOUBLE_EQ(row.headroom, 448.0 * row.scale / row.absmax);
    EXPECT_EQ(seen.ops[static_cast<std::size_t>(row.op - 1)], "kv_store");
  }
}

TEST(Engine, AWarmUpCalibratesBeforeTheFirstRequest) {
  const Knobs knobs{{"kv.format", "e4m3"}, {"kv.policy", "locked"}, {"kv.warm_up", "true"}};
  Rig rig(tiny_config(knobs));
  const CollectProbe seen = rig.collect({text_request(kStory, 2)});
  EXPECT_EQ(rig.result.requests.size(), 1U);
  EXPECT_EQ(seen.steps.front().request, -1);
  for (const ScaleRow& row : seen.scales) {
    EXPECT_EQ(row.calibrated_request, -1);
    EXPECT_EQ(row.calibrated_step, 1);
  }
  EXPECT_EQ(seen.kv.front().writer, "warm_up");
}

TEST(Engine, AReaderThatErrsReadsTheSameCodesOtherwise) {
  const auto read = [](const Knobs& knobs) {
    Knobs all{{"kv.format", "e4m3"},
              {"kv.policy", "static"},
              {"kv.scale_k", "0.5"},
              {"kv.scale_v", "0.25"},
              {"kv.tail", "skip"}};
    all.insert(all.end(), knobs.begin(), knobs.end());
    const CollectProbe seen = collect(tiny_config(all), {text_request(kStory)});
    return std::pair(seen.find(0, 0, 0, "kv_store", "v_codes").bytes, seen.find(0, 0, 0, "kv_read", "v_read").floats());
  };
  const auto [codes, right] = read({});
  for (const auto& [knob, value, factor] : {std::tuple("kv.read_scale", "none", 4.0F),
                                            {"kv.read_scale", "twice", 0.25F},
                                            {"kv.read_scale", "inverse", 16.0F},
                                            {"kv.read_format", "e4m3fnuz", 0.5F}}) {
    const auto [same, wrong] = read({{knob, value}});
    EXPECT_EQ(same, codes);
    ASSERT_EQ(wrong.size(), right.size());
    for (std::size_t i = 0; i < right.size(); ++i) {
      if (codes[i] == std::byte{0x80}) continue;  // -0: NaN in e4m3fnuz
      ASSERT_EQ(wrong[i], right[i] * factor) << knob << "=" << value;
    }
  }
}

TEST(Engine, AnUnquantizedCacheHasOneFormat) {
  const Knobs knobs{{"kv.format", "bf16"}, {"kv.read_format", "e4m3fnuz"}};
  const CollectProbe seen = collect(tiny_config(knobs), {text_request(kStory)});
  EXPECT_EQ(seen.last_logits(0, 0),
            collect(tiny_config({{"kv.format", "bf16"}}), {text_request(kStory)}).last_logits(0, 0));
}

TEST(Engine, AfterSleepKeptScalesAreWhatLiesInTheirMemory) {
  const auto scales = [](const Knobs& knobs) {
    Knobs all{{"kv.format", "e4m3"}, {"kv.sleep_after", "1"}, {"kv.scale_k", "0.5"}, {"kv.scale_v", "0.5"}};
    all.insert(all.end(), knobs.begin(), knobs.end());
    const CollectProbe seen = collect(tiny_config(all), {text_request(kStory), text_request(kStory)});
    std::vector<double> found;
    for (const ScaleRow& row : seen.scales) found.push_back(row.scale);
    EXPECT_EQ(found.size(), 8U);  // two steps, two layers, K and V
    return found;
  };
  // The first thing in a profiling pass's workspace are its slot numbers: 0, 1, 2, 3 as bits of f32.
  const std::vector<double> stale{0.5, 0.5, 0.5, 0.5, 0.0, 0x1p-149, 0x1p-148, 0x1.8p-148};
  EXPECT_EQ(scales({{"kv.policy", "static"}, {"kv.wake", "stale"}}), stale);
  EXPECT_EQ(scales({{"kv.policy", "static"}, {"kv.wake", "restored"}}), std::vector<double>(8, 0.5));
  const std::vector<double> computed = scales({{"kv.policy", "per_request"}, {"kv.wake", "stale"}});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(computed[i], computed[i + 4]) << "computed anew, not kept";
}

TEST(Engine, AWarmUpCanStartFromAStateThatNobodyWrote) {
  const auto warm_up = [](const char* resume, const char* memory) {
    const Knobs knobs{{"model.recurrent_layers", "0"}, {"kv.warm_up", "true"},
                      {"kv.block_size", "64"},         {"kv.blocks", "8"},
                      {"kv.memory", memory},           {"kv.resume_state", resume}};
    const CollectProbe seen = collect(tiny_config(knobs), {text_request(kStory)});
    return std::pair(seen.find(-1, 0, 0, "recurrent", "out").floats(), seen.last_logits(0, 0));
  };
  const auto own = warm_up("own", "recycled");
  const auto stale = warm_up("warm_up", "recycled");
  EXPECT_NE(stale.first, own.first);
  EXPECT_EQ(stale.second, own.second) << "requests start from an empty state";
  EXPECT_NE(warm_up("always", "recycled").second, own.second);
  EXPECT_EQ(warm_up("warm_up", "zeroed").first, warm_up("own", "zeroed").first) << "a state of zeros is an empty one";
}

TEST(Engine, ASleepEmptiesCacheAndPrefixes) {
  const Knobs knobs{{"kv.sleep_after", "1"}, {"kv.block_size", "4"}};
  Rig rig(tiny_config(knobs));
  const CollectProbe seen = rig.collect({text_request(kStory), text_request(kStory)});
  EXPECT_EQ(rig.result.requests[1].cached_tokens, 0);
  EXPECT_EQ(seen.last_logits(0, 0), seen.last_logits(1, 0));
  EXPECT_EQ(std::count_if(seen.kv.begin(), seen.kv.end(),
                          [](const KvRow& row) { return row.writer == "wake_up" && row.action == KvAction::scrubbed; }),
            32);
}

TEST(Engine, ThePlanKnowsHowManyOpsWillRun) {
  for (const Knobs& knobs :
       {Knobs{}, Knobs{{"model.norm_placement", "post"}}, Knobs{{"model.norm_placement", "sandwich"}},
        Knobs{{"model.qk_norm", "true"}, {"model.inner_norm", "true"}, {"model.mlp", "gelu"}},
        Knobs{{"model.recurrent_layers", "0"}}, Knobs{{"kv.warm_up", "true"}},
        Knobs{{"engine.dummy_batch", "masked"}, {"kv.table_blocks", "16"}},
        Knobs{{"engine.dummy_batch", "slot_0"}, {"engine.dummy_at", "decode"}}}) {
    Rig rig(tiny_config(knobs));
    const std::vector<RequestSpec> requests{text_request(kStory, 3), image_request(90, 2), image_request(90, 2)};
    const ExpectedOps expected = rig.engine->expected_ops(requests).value();
    const CollectProbe seen = rig.collect(requests);
    EXPECT_EQ(static_cast<std::int64_t>(seen.ops.size()), expected.count);
    EXPECT_EQ(rig.result.ops, expected.count);
  }
}

TEST(Engine, OpsComeInTheContractsOrder) {
  const CollectProbe seen =
      collect(tiny_config({{"model.layers", "1"}, {"model.inner_norm", "true"}}), {image_request(90)});
  EXPECT_THAT(seen.ops,
              ::testing::ElementsAre("patch_embed", "embed", "attn_norm", "q_proj", "k_proj", "v_proj", "q_rope",
                                     "k_rope", "kv_store", "kv_read", "scores", "softmax", "attn_mix", "inner_norm",
                                     "o_proj", "attn_residual", "mlp_norm", "gate_proj", "up_proj", "mlp_act",
                                     "down_proj", "mlp_residual", "final_norm", "lm_head", "argmax"));
}

TEST(Engine, SlotHistoryCoversEveryWrittenToken) {
  const CollectProbe seen = collect(tiny_config({{"kv.block_size", "8"}}), {text_request(kStory, 4)});
  std::int64_t next = 0;
  for (const KvRow& row : seen.kv) {
    if (row.action != KvAction::written) continue;
    EXPECT_EQ(row.first_token, next);
    EXPECT_EQ(row.slot_begin, next % 8);
    next += row.slot_end - row.slot_begin;
  }
  EXPECT_EQ(next, seen.steps.back().context);
}

/// Ones; asks for the end when the fourth weight is read.
class WeightsThatAskToStop final : public WeightSource {
 public:
  Result<std::vector<float>> tensor(std::string_view, std::int64_t rows, std::int64_t columns) override {
    if (++read == 4) stop.request_stop();
    return std::vector<float>(static_cast<std::size_t>(rows * columns), 1.0F);
  }
  int read = 0;
  std::stop_source stop;
};

TEST(Engine, ALoadStopsBetweenTwoWeights) {
  const EngineConfig config = tiny_config({});
  const auto device = kernels::make_device(config.device, config.threads).value();
  WeightsThatAskToStop weights;
  const auto model = load_model(config, *device, weights, *shipped_tokenizer(), weights.stop.get_token());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message, "stopped");
  EXPECT_EQ(weights.read, 4);
}

TEST(Engine, StopsWhenItIsTold) {
  Rig rig(tiny_config());
  std::stop_source source;
  RunControl control;
  control.stop = source.get_token();
  std::int64_t ops = 0;
  control.progress = [&](const Progress& progress) {
    ops = progress.ops;
    if (progress.step == 2) source.request_stop();
  };
  NullProbe nobody;
  const std::vector<RequestSpec> requests{text_request(kStory, 9)};
  const Result<RunResult> run = rig.engine->run(requests, nobody, control);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().message, "stopped");
  EXPECT_EQ(ops, rig.engine->expected_ops(requests)->count / 9 * 2);
}

TEST(Engine, AProbesErrorEndsTheRun) {
  class Refuses final : public Probe {
   public:
    Status on_op(const ProbeOp& op) override { return op.id == 5 ? Status(fail("no more")) : Status(); }
  } probe;
  Rig rig(tiny_config());
  const std::vector<RequestSpec> requests{text_request(kStory)};
  const Result<RunResult> run = rig.engine->run(requests, probe);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("no more"));
}

TEST(Engine, ACacheThatFitsNoMemoryIsRefusedByItsKnobs) {
  Rig rig(tiny_config({{"kv.blocks", "1048576"}, {"kv.block_size", "4096"}, {"model.head_dim", "4096"}}));
  NullProbe nobody;
  const std::vector<RequestSpec> requests{text_request(kStory)};
  const Result<RunResult> run = rig.engine->run(requests, nobody);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("kv.blocks=1048576 blocks of kv.block_size=4096"));
}

TEST(Engine, ImpossibleRequestsAreRefusedByName) {
  Rig rig(tiny_config({{"kv.blocks", "2"}}));
  NullProbe nobody;
  const auto message = [&](RequestSpec request) {
    request.name = "big";
    const Result<RunResult> run = rig.engine->run(std::span(&request, 1), nobody);
    EXPECT_FALSE(run);
    return run ? std::string() : run.error().message;
  };
  EXPECT_THAT(message(text_request(kStory, 40)), HasSubstr("request 'big'"));
  EXPECT_THAT(message(text_request(kStory, 40)), HasSubstr("kv.blocks is 2"));
  EXPECT_THAT(message(text_request("", 1)), HasSubstr("no token"));
  EXPECT_THAT(message(text_request("x", 0)), HasSubstr("max_tokens"));
  RequestSpec broken{.name = "", .parts = {ImagePart{"x.png", std::vector<std::byte>(9)}}, .max_tokens = 1};
  EXPECT_THAT(message(broken), HasSubstr("x.png"));
}

TEST(Engine, NarrowActivationsAreStoredInTheirFormat) {
  const CollectProbe seen = collect(tiny_config({{"activation.format", "f16"}}), {text_request(kStory)});
  for (const Seen& tensor : seen.tensors) {
    const bool activation = tensor.role == "out" || tensor.role == "probs" || tensor.role == "logits";
    if (activation) {
      EXPECT_EQ(tensor.format, Format::f16) << tensor.op << "." << tensor.role;
    }
  }
}

TEST(Engine, WeightsOfAFileAreNoMemoryThatARunNeeds) {
  EngineConfig config;
  const RunCost own = cost_of_model(config, 1000);
  config.model.family = "llama";
  const RunCost mapped = cost_of_model(config, 1000);
  EXPECT_DOUBLE_EQ(own.bytes - mapped.bytes, 4 * own.work);
  EXPECT_GT(mapped.bytes, 0) << "the KV pool";
}

}  // namespace
}  // namespace nanscope::testing
