#include <fmt/format.h>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/softmax.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

/// Sizes of one attention case: T queries after `before` cached keys, S keys of which some may be tail.
struct Attention {
  std::string name;
  Fill fill;
  std::int64_t queries;
  std::int64_t before;
  std::int64_t keys;
  std::int64_t width;
  std::int64_t heads;
  std::int64_t kv_heads;
};

const Attention kSizes[] = {
    {"prefill", Fill::ordinary, 8, 0, 8, 32, 4, 2},
    {"ragged", Fill::ordinary, 5, 32, 37, 24, 6, 2},
    {"decode", Fill::ordinary, 1, 70, 80, 64, 4, 4},
    {"zoo", Fill::zoo, 29, 8, 48, 33, 2, 1},
};

void add_scores(std::vector<OpCase>& cases, const Attention& size, float softcap) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t q_columns = size.heads * size.width;
    const std::int64_t k_columns = size.kv_heads * size.width;
    AttentionScoresArgs args;
    args.q = memory.input(Format::f32, size.queries, q_columns,
                          fill(size.fill, Format::f32, size.queries, q_columns, 41), 3);
    args.k =
        memory.input(Format::f32, size.keys, k_columns, fill(Fill::ordinary, Format::f32, size.keys, k_columns, 42), 7);
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.keys, 2);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.factor = 0.17677669F;
    args.softcap = softcap;
    memory.launch(args);
  };
  cases.push_back(
      {std::string("attention_scores_") + (softcap > 0.0F ? "capped_" : "") + size.name, OpId::AttentionScores, build});
}

void add_softmax(std::vector<OpCase>& cases, const Attention& size, const std::string& label, MaskMode mask,
                 NanRule rule, std::int64_t first_key, bool zero_guard = false) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.heads * size.keys;
    SoftmaxArgs args;
    args.scores = memory.input(Format::f32, size.queries, columns,
                               fill(size.fill, Format::f32, size.queries, columns, 43, 20.0F), 3);
    args.out = memory.output("out", Format::f32, size.queries, columns, 3);
    args.heads = size.heads;
    args.first_position = size.before;
    args.first_key = first_key;
    args.mask = mask;
    args.max_nan = rule;
    args.zero_guard = zero_guard;
    memory.launch(args);
  };
  cases.push_back({"softmax_" + label + "_" + size.name, OpId::Softmax, build});
}

/// A learned score a head beside those of the keys, and of one head a NaN.
void add_sink_softmax(std::vector<OpCase>& cases, const Attention& size, MaskMode mask, const std::string& label) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.heads * size.keys;
    SoftmaxArgs args;
    args.scores = memory.input(Format::f32, size.queries, columns,
                               fill(size.fill, Format::f32, size.queries, columns, 59, 20.0F), 3);
    auto sinks = fill(Fill::ordinary, Format::bf16, 1, size.heads, 60, 20.0F);
    sinks.back() = 0x7fc1;
    args.sinks = memory.input(Format::bf16, 1, size.heads, sinks);
    args.out = memory.output("out", Format::f32, size.queries, columns, 3);
    args.heads = size.heads;
    args.first_position = size.before;
    args.window = 3;
    args.mask = mask;
    memory.launch(args);
  };
  cases.push_back({"softmax_sinks_" + label + "_" + size.name, OpId::Softmax, build});
}

/// The last keys alone, under each mask.
void add_sliding_softmax(std::vector<OpCase>& cases, const Attention& size, MaskMode mask, const std::string& label) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.heads * size.keys;
    SoftmaxArgs args;
    args.scores = memory.input(Format::f32, size.queries, columns,
                               fill(size.fill, Format::f32, size.queries, columns, 46, 20.0F), 3);
    args.out = memory.output("out", Format::f32, size.queries, columns, 3);
    args.heads = size.heads;
    args.first_position = size.before;
    args.window = 3;
    args.mask = mask;
    memory.launch(args);
  };
  cases.push_back({"softmax_sliding_" + label + "_" + size.name, OpId::Softmax, build});
}

void add_sliding_mix(std::vector<OpCase>& cases, const Attention& size) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t v_columns = size.kv_heads * size.width;
    AttentionMixArgs args;
    args.p = memory.input(Format::f32, size.queries, p_columns,
                          fill(Fill::ordinary, Format::f32, size.queries, p_columns, 47));
    args.v = memory.input(Format::f32, size.keys, v_columns, fill(size.fill, Format::f32, size.keys, v_columns, 48));
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.width, 4);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.first_position = size.before;
    args.window = 3;
    args.visible_only = true;
    memory.launch(args);
  };
  cases.push_back({"attention_mix_sliding_" + size.name, OpId::AttentionMix, build});
}

void add_mix(std::vector<OpCase>& cases, const Attention& size, bool visible_only) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t v_columns = size.kv_heads * size.width;
    AttentionMixArgs args;
    args.p = memory.input(Format::f32, size.queries, p_columns,
                          fill(Fill::ordinary, Format::f32, size.queries, p_columns, 44), 1);
    args.v = memory.input(Format::f32, size.keys, v_columns, fill(size.fill, Format::f32, size.keys, v_columns, 45), 5);
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.width, 4);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.first_position = size.before;
    args.first_key = visible_only ? 2 : 0;
    args.visible_only = visible_only;
    memory.launch(args);
  };
  cases.push_back(
      {std::string("attention_mix_") + (visible_only ? "visible_" : "all_") + size.name, OpId::AttentionMix, build});
}

/// A cache of which attention reads the codes: slots in another order than positions, one of them nowhere.
struct Cached {
  const char* name;
  Format format;
  std::int64_t scale_group;  ///< -1: one scale for all
  bool zeros;
  ZeroPoint counted;
};
constexpr Cached kCached[] = {
    {"e4m3", Format::e4m3, -1, false, ZeroPoint::code},
    {"bf16_slots", Format::bf16, 0, false, ZeroPoint::code},
    {"int8_heads", Format::int8, 32, true, ZeroPoint::code},
    {"e4m3_channels", Format::e4m3, 1, true, ZeroPoint::value},
};

KvOperand cache_of(CaseMemory& memory, const Cached& kind, Fill values, std::int64_t keys, std::int64_t channels) {
  const std::int64_t slots = keys + 5;
  std::vector<std::uint32_t> order(static_cast<std::size_t>(keys));
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::uint32_t>((i * 7 + 3) % static_cast<std::size_t>(slots));
  order[order.size() / 2] = 0xffffffffU;
  KvOperand cache;
  cache.pool = memory.input(kind.format, slots, channels, fill(values, kind.format, slots, channels, 49));
  cache.slots = memory.input(Format::i32, keys, 1, order);
  cache.scale = 0.037F;
  if (kind.scale_group < 0) return cache;
  cache.scale_group = kind.scale_group;
  const std::int64_t groups = group_count(channels, kind.scale_group);
  cache.slot_scales =
      memory.input(Format::f32, slots, groups, fill(Fill::ordinary, Format::f32, slots, groups, 50, 0.05F), 2);
  if (!kind.zeros) return cache;
  cache.zero_group = kind.scale_group;
  cache.zero = kind.counted;
  cache.slot_zeros = memory.input(Format::f32, slots, groups, fill(Fill::ordinary, Format::f32, slots, groups, 51));
  return cache;
}

void add_cached_scores(std::vector<OpCase>& cases, const Cached& kind, Fill values, std::int64_t queries) {
  const auto build = [=](CaseMemory& memory) {
    AttentionScoresArgs args;
    args.heads = 6;
    args.kv_heads = 3;
    args.cache = cache_of(memory, kind, values, 37, 96);
    args.q = memory.input(Format::f32, queries, 192, fill(Fill::ordinary, Format::f32, queries, 192, 52), 3);
    args.out = memory.output("out", Format::f32, queries, 6 * 37, 2);
    args.factor = 0.17677669F;
    memory.launch(args);
  };
  cases.push_back(
      {fmt::format("attention_scores_cached_{}_{}_{}", kind.name, values == Fill::zoo ? "zoo" : "ordinary", queries),
       OpId::AttentionScores, build});
}

void add_cached_mix(std::vector<OpCase>& cases, const Cached& kind, Fill values, std::int64_t queries) {
  const auto build = [=](CaseMemory& memory) {
    AttentionMixArgs args;
    args.heads = 6;
    args.kv_heads = 3;
    args.cache = cache_of(memory, kind, values, 37, 96);
    args.p = memory.input(Format::f32, queries, 6 * 37, fill(Fill::ordinary, Format::f32, queries, 6 * 37, 53), 1);
    args.out = memory.output("out", Format::f32, queries, 192, 4);
    args.first_position = 30;
    args.visible_only = true;
    memory.launch(args);
  };
  cases.push_back(
      {fmt::format("attention_mix_cached_{}_{}_{}", kind.name, values == Fill::zoo ? "zoo" : "ordinary", queries),
       OpId::AttentionMix, build});
}

/// Rows without gaps, as an engine has them: what kernels of a GPU read in whole vectors. `queries` with a context of
/// `keys`; split: keys of a block, 0 for one block.
struct Whole {
  const char* name;
  std::int64_t queries;
  std::int64_t keys;
  std::int64_t width;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t split;
};
/// Few rows, of more keys than a GPU takes at once and a part of as many more, and enough of them for its large tiles.
constexpr Whole kWholeContexts[] = {{"few", 1, 300, 32, 8, 2, 0},
                                    {"few_split", 1, 300, 32, 8, 2, 160},
                                    {"large", 600, 16, 64, 16, 8, 0},
                                    {"large_split", 300, 64, 32, 16, 8, 32}};

void add_whole_scores(std::vector<OpCase>& cases, const Whole& size) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t q_columns = size.heads * size.width;
    const std::int64_t k_columns = size.kv_heads * size.width;
    AttentionScoresArgs args;
    args.q = memory.input(Format::f32, size.queries, q_columns,
                          fill(Fill::ordinary, Format::f32, size.queries, q_columns, 121));
    args.k = memory.input(Format::f32, size.keys, k_columns, fill(Fill::zoo, Format::f32, size.keys, k_columns, 122));
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.keys);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.factor = 0.17677669F;
    memory.launch(args);
  };
  cases.push_back({std::string("attention_scores_whole_") + size.name, OpId::AttentionScores, build});
}

/// `kind`: of a cache, of which the codes are read; null: values.
void add_whole_mix(std::vector<OpCase>& cases, const Whole& size, const Cached* kind) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t v_columns = size.kv_heads * size.width;
    AttentionMixArgs args;
    args.p = memory.input(Format::f32, size.queries, p_columns,
                          fill(Fill::ordinary, Format::f32, size.queries, p_columns, 123));
    if (kind != nullptr) {
      args.cache = cache_of(memory, *kind, Fill::zoo, size.keys, v_columns);
    } else {
      args.v = memory.input(Format::f32, size.keys, v_columns, fill(Fill::zoo, Format::f32, size.keys, v_columns, 124));
    }
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.split = size.split;
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.width * args.blocks());
    memory.launch(args);
  };
  cases.push_back({fmt::format("attention_mix_whole_{}{}{}", size.name, kind == nullptr ? "" : "_cached_",
                               kind == nullptr ? "" : kind->name),
                   OpId::AttentionMix, build});
}

}  // namespace

void add_attention_cases(std::vector<OpCase>& cases) {
  for (const Attention& size : kSizes) {
    add_scores(cases, size, 0.0F);
    add_scores(cases, size, 5.0F);
    const std::int64_t behind = size.before + size.queries;  // every key masked
    add_softmax(cases, size, "additive", MaskMode::additive, NanRule::propagate, 0);
    add_softmax(cases, size, "additive_ignore", MaskMode::additive, NanRule::ignore, 0);
    add_softmax(cases, size, "additive_window", MaskMode::additive, NanRule::propagate, 3);
    add_softmax(cases, size, "additive_empty", MaskMode::additive, NanRule::propagate, behind);
    add_softmax(cases, size, "select", MaskMode::select, NanRule::propagate, 0);
    add_softmax(cases, size, "select_ignore", MaskMode::select, NanRule::ignore, 0);
    add_softmax(cases, size, "select_empty", MaskMode::select, NanRule::ignore, behind);
    add_softmax(cases, size, "select_guard", MaskMode::select, NanRule::ignore, 0, true);
    add_softmax(cases, size, "additive_guard_empty", MaskMode::additive, NanRule::propagate, behind, true);
    add_softmax(cases, size, "multiply", MaskMode::multiply, NanRule::propagate, 0);
    add_softmax(cases, size, "multiply_ignore", MaskMode::multiply, NanRule::ignore, 0);
    add_softmax(cases, size, "multiply_empty", MaskMode::multiply, NanRule::propagate, behind);
    add_sliding_softmax(cases, size, MaskMode::additive, "additive");
    add_sliding_softmax(cases, size, MaskMode::select, "select");
    add_sliding_softmax(cases, size, MaskMode::multiply, "multiply");
    add_sink_softmax(cases, size, MaskMode::additive, "additive");
    add_sink_softmax(cases, size, MaskMode::multiply, "multiply");
    add_sliding_mix(cases, size);
    add_mix(cases, size, false);
    add_mix(cases, size, true);
  }
  for (const Cached& kind : kCached) {
    for (const Fill values : {Fill::ordinary, Fill::zoo}) {
      for (const std::int64_t queries : {1, 5}) {
        add_cached_scores(cases, kind, values, queries);
        add_cached_mix(cases, kind, values, queries);
      }
    }
  }
  for (const Whole& size : kWholeContexts) {
    if (size.split == 0) add_whole_scores(cases, size);
    add_whole_mix(cases, size, nullptr);
    if (size.queries > 1) continue;
    for (const Cached& kind : kCached) add_whole_mix(cases, size, &kind);
  }
}

}  // namespace nanscope::kernels::cases
