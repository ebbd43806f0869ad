// Attention over blocks of keys: statistics, the softmax of them, mixes of blocks, and their sum.
#include <algorithm>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/combine_partials.h"
#include "kernels/ops/softmax_partials.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

/// T queries after `before` keys of a sequence whose attention goes over S.
struct SplitAttention {
  std::string name;
  Fill fill;
  std::int64_t queries, before, keys, width, heads, kv_heads, split;

  std::int64_t statistics() const { return heads * blocks_of(keys, split); }
};

const SplitAttention kSplits[] = {
    {"ragged", Fill::ordinary, 5, 64, 77, 24, 6, 2, 32},
    {"decode", Fill::ordinary, 1, 190, 200, 64, 4, 4, 64},
    {"many", Fill::ordinary, 2, 1100, 1105, 8, 2, 1, 32},  // more blocks than a warp has lanes
    {"zoo", Fill::zoo, 29, 40, 99, 33, 2, 1, 32},
};

/// Which keys a row sees, and how.
struct SplitMask {
  const char* name;
  MaskMode mode = MaskMode::select;
  NanRule rule = NanRule::propagate;
  std::int64_t window = 0;
  bool sinks = false;
  bool zero_guard = false;
  bool empty = false;
};
constexpr SplitMask kSplitMasks[] = {
    {"additive", MaskMode::additive},
    {"select_ignore", MaskMode::select, NanRule::ignore},
    {"sliding", MaskMode::select, NanRule::propagate, 35},
    {"multiply", MaskMode::multiply},
    {"sinks", MaskMode::select, NanRule::propagate, 0, true},
    {"empty", MaskMode::select, NanRule::ignore, 0, false, false, true},
    {"guard_empty", MaskMode::additive, NanRule::propagate, 0, false, true, true},
};

template <class Args>
Args masked(const SplitAttention& size, const SplitMask& mask) {
  Args args;
  args.heads = size.heads;
  args.split = size.split;
  args.first_position = size.before;
  args.first_key = mask.empty ? size.before + size.queries : 2;
  args.window = mask.window;
  args.mask = mask.mode;
  args.max_nan = mask.rule;
  return args;
}

TensorView split_scores(CaseMemory& memory, const SplitAttention& size) {
  const std::int64_t columns = size.heads * size.keys;
  return memory.input(Format::f32, size.queries, columns,
                      fill(size.fill, Format::f32, size.queries, columns, 101, 20.0F), 3);
}

void add_softmax_partials(std::vector<OpCase>& cases, const SplitAttention& size, const SplitMask& mask) {
  const auto build = [=](CaseMemory& memory) {
    auto args = masked<SoftmaxPartialsArgs>(size, mask);
    args.scores = split_scores(memory, size);
    args.max = memory.output("max", Format::f32, size.queries, size.statistics());
    args.sum = memory.output("sum", Format::f32, size.queries, size.statistics(), 1);
    memory.launch(args);
  };
  cases.push_back({std::string("softmax_partials_") + mask.name + "_" + size.name, OpId::SoftmaxPartials, build});
}

/// Statistics of anything, of blocks without a key among them.
void add_split_softmax(std::vector<OpCase>& cases, const SplitAttention& size, const SplitMask& mask) {
  const auto build = [=](CaseMemory& memory) {
    auto args = masked<SoftmaxArgs>(size, mask);
    args.scores = split_scores(memory, size);
    auto max = fill(size.fill, Format::f32, size.queries, size.statistics(), 102, 20.0F);
    for (std::size_t i = 0; i < max.size(); i += 3) {
      if (mask.empty || i % 2 == 0) max[i] = 0xff800000U;
    }
    if (mask.empty) std::fill(max.begin(), max.end(), 0xff800000U);
    args.max = memory.input(Format::f32, size.queries, size.statistics(), max);
    auto sum = fill(size.fill, Format::f32, size.queries, size.statistics(), 103, 9.0F);
    for (std::uint32_t& code : sum) code = mask.empty ? 0U : code & 0x7fffffffU;
    args.sum = memory.input(Format::f32, size.queries, size.statistics(), sum, 1);
    if (mask.sinks) {
      args.sinks = memory.input(Format::bf16, 1, size.heads, fill(Fill::ordinary, Format::bf16, 1, size.heads, 104));
    }
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.keys, 3);
    args.zero_guard = mask.zero_guard;
    memory.launch(args);
  };
  cases.push_back({std::string("softmax_split_") + mask.name + "_" + size.name, OpId::Softmax, build});
}

void add_split_mix(std::vector<OpCase>& cases, const SplitAttention& size, bool visible_only, std::int64_t window) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t v_columns = size.kv_heads * size.width;
    AttentionMixArgs args;
    args.p = memory.input(Format::f32, size.queries, p_columns,
                          fill(Fill::ordinary, Format::f32, size.queries, p_columns, 105), visible_only ? 1 : 0);
    args.v =
        memory.input(Format::f32, size.keys, v_columns, fill(size.fill, Format::f32, size.keys, v_columns, 106), 5);
    args.out = memory.output("out", Format::f32, size.queries, size.width * size.statistics(), 4);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.first_position = size.before;
    args.first_key = visible_only ? 2 : 0;
    args.window = window;
    args.visible_only = visible_only;
    args.split = size.split;
    memory.launch(args);
  };
  const std::string form = !visible_only ? "all_" : window > 0 ? "sliding_" : "visible_";
  cases.push_back({"attention_mix_split_" + form + size.name, OpId::AttentionMix, build});
}

/// Codes of e4m3 in slots of another order, one position without a slot.
void add_split_cached_mix(std::vector<OpCase>& cases, const SplitAttention& size, bool visible_only) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.keys;
    const std::int64_t channels = size.kv_heads * size.width;
    std::vector<std::uint32_t> slots(static_cast<std::size_t>(size.keys));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i] = static_cast<std::uint32_t>((i * 7 + 3) % static_cast<std::size_t>(size.keys + 5));
    }
    slots[slots.size() / 2] = 0xffffffffU;
    AttentionMixArgs args;
    args.cache.pool = memory.input(Format::e4m3, size.keys + 5, channels,
                                   fill(size.fill, Format::e4m3, size.keys + 5, channels, 107));
    args.cache.slots = memory.input(Format::i32, size.keys, 1, slots);
    args.cache.scale = 0.037F;
    args.p = memory.input(Format::bf16, size.queries, p_columns,
                          fill(Fill::ordinary, Format::bf16, size.queries, p_columns, 108));
    args.out = memory.output("out", Format::f32, size.queries, size.width * size.statistics());
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.first_position = size.before;
    args.visible_only = visible_only;
    args.split = size.split;
    memory.launch(args);
  };
  cases.push_back({std::string("attention_mix_split_cached_") + (visible_only ? "visible_" : "all_") + size.name,
                   OpId::AttentionMix, build});
}

void add_combine_partials(std::vector<OpCase>& cases, const SplitAttention& size, Format format) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.width * size.statistics();
    CombinePartialsArgs args;
    args.partials =
        memory.input(Format::f32, size.queries, columns, fill(size.fill, Format::f32, size.queries, columns, 109), 2);
    args.out = memory.output("out", format, size.queries, size.heads * size.width, 3);
    args.heads = size.heads;
    args.blocks = blocks_of(size.keys, size.split);
    memory.launch(args);
  };
  cases.push_back({"combine_partials_" + std::string(name(format)) + "_" + size.name, OpId::CombinePartials, build});
}

}  // namespace

void add_attention_split_cases(std::vector<OpCase>& cases) {
  for (const SplitAttention& size : kSplits) {
    for (const SplitMask& mask : kSplitMasks) {
      if (!mask.sinks && !mask.zero_guard) add_softmax_partials(cases, size, mask);
      add_split_softmax(cases, size, mask);
    }
    add_split_mix(cases, size, false, 0);
    add_split_mix(cases, size, true, 0);
    add_split_mix(cases, size, true, 35);
    add_split_cached_mix(cases, size, true);
    add_split_cached_mix(cases, size, false);
    for (const Format format : {Format::f32, Format::f16, Format::bf16}) add_combine_partials(cases, size, format);
  }
}

}  // namespace nanscope::kernels::cases
