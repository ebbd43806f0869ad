#pragma once
/// Attention mix on a GPU: for each head of values, and each block of keys where they are split, the product of its
/// rows of probabilities (a token's head each) and its values, whose channels lie side by side. Where hidden keys are
/// left out, rows have chains of their own lengths, and take AttentionMixRows.
#include "kernels/ops/kv_operand_gpu.h"
#include "kernels/ops/product_tiles_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// kSplit: of one block of keys; a problem of its own, so that what all keys are one for does not pay for it.
template <bool kSplit>
struct MixProblem {
  const AttentionMixArgs& args;
  std::int64_t kv_head;
  std::int64_t block = 0;
  std::int64_t blocks = 1;

  NANSCOPE_HOST std::int64_t first_key(const MixProblem& of) { return kSplit ? of.block * of.args.split : 0; }
  NANSCOPE_HOST std::int64_t group(const AttentionMixArgs& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t width(const AttentionMixArgs& args) { return args.v_columns() / args.kv_heads; }
  NANSCOPE_FN std::int64_t token_of(const MixProblem& of, std::int64_t row) { return row / group(of.args); }
  NANSCOPE_FN std::int64_t head_of(const MixProblem& of, std::int64_t row) {
    return of.kv_head * group(of.args) + row % group(of.args);
  }

  NANSCOPE_FN std::int64_t rows(const MixProblem& of) { return of.args.p.rows * group(of.args); }
  NANSCOPE_HOST std::int64_t columns(const MixProblem& of) { return width(of.args); }
  NANSCOPE_HOST std::int64_t depth(const MixProblem& of) {
    if (!kSplit) return of.args.keys();
    const std::int64_t left = of.args.keys() - first_key(of);
    return left < of.args.split ? left : of.args.split;
  }

  NANSCOPE_FN Format x_format(const MixProblem& of) { return of.args.p.format; }
  NANSCOPE_FN bool x_whole(const MixProblem& of) { return has_quads(of.args.p) && of.args.keys() % 4 == 0; }
  NANSCOPE_FN const char* x_row(const MixProblem& of, std::int64_t row) {
    return address_of(of.args.p, token_of(of, row), head_of(of, row) * of.args.keys() + first_key(of));
  }
  NANSCOPE_FN float x_at(const MixProblem& of, std::int64_t row, std::int64_t key) {
    return load_float(of.args.p, token_of(of, row), head_of(of, row) * of.args.keys() + first_key(of) + key);
  }

  NANSCOPE_HOST Format weight_format(const MixProblem& /*of*/) { return Format::f32; }
  NANSCOPE_HOST bool weight_whole(const MixProblem& of) { return !of.args.cache.given(); }
  NANSCOPE_HOST std::int64_t weight_step(const MixProblem& of) {
    return of.args.v.stride * static_cast<std::int64_t>(sizeof(float));
  }
  NANSCOPE_HOST const char* weight_row(const MixProblem& of, std::int64_t channel) {
    return address_of(of.args.v, first_key(of), of.kv_head * width(of.args) + channel);
  }
  NANSCOPE_FN float weight_at(const MixProblem& of, std::int64_t channel, std::int64_t key) {
    const std::int64_t column = of.kv_head * width(of.args) + channel;
    const std::int64_t row = first_key(of) + key;
    return of.args.cache.given() ? cached_value(of.args.cache, row, column) : load_f32_scalar(of.args.v, row, column);
  }

  /// Of a cache: whether four channels of a position are read as one; where it lies, below 0 if nowhere; and the
  /// reading, in two halves.
  NANSCOPE_HOST bool codes_whole(const MixProblem& of) {
    return of.args.cache.given() && has_code_quads(of.args.cache, width(of.args));
  }
  NANSCOPE_FN std::int64_t slot_of(const MixProblem& of, std::int64_t key) {
    const std::int64_t slot = read_index(of.args.cache.slots, first_key(of) + key);
    return slot < of.args.cache.pool.rows ? slot : -1;
  }
  NANSCOPE_FN float4 load_codes(const MixProblem& of, std::int64_t slot, std::int64_t channel) {
    return load_code_quad(of.args.cache, slot, of.kv_head * width(of.args) + channel);
  }
  NANSCOPE_FN float4 decode_codes(const MixProblem& of, const float4& quad) {
    return decode_code_quad(of.args.cache, quad);
  }

  /// Where the row's channels begin.
  NANSCOPE_FN std::int64_t out_row(const MixProblem& of, std::int64_t row) {
    const std::int64_t part = kSplit ? head_of(of, row) * of.blocks + of.block : head_of(of, row);
    return token_of(of, row) * of.args.out.stride + part * width(of.args);
  }
  NANSCOPE_FN float summand(const MixProblem& /*of*/, std::int64_t /*channel*/) { return 0.0F; }
  NANSCOPE_FN void store(const MixProblem& of, std::int64_t out_row, std::int64_t channel, float /*summand*/,
                         float total) {
    store_element(of.args.out, 0, out_row + channel, total * of.args.factor);
  }
};

/// kSplit: the products of blocks of keys.
template <bool kSplit>
struct AttentionMixSource {
  using Args = AttentionMixArgs;

  NANSCOPE_HOST ProductShape shape(const Args& args) {
    return {args.p.rows * MixProblem<kSplit>::group(args), MixProblem<kSplit>::width(args), args.keys_a_block(),
            args.kv_heads * args.blocks()};
  }
  NANSCOPE_HOST MixProblem<kSplit> problem(const Args& args, std::int64_t batch) {
    if (!kSplit) return {args, batch};
    const std::int64_t blocks = args.blocks();
    return {args, batch / blocks, batch % blocks, blocks};
  }
};

struct AttentionMix {
  using Args = AttentionMixArgs;
  using Whole = AttentionMixSource<false>;
  using Products =
      ProductForms<Whole, FewWeights::f32_along_columns, FewWeights::codes_along_columns, FewWeights::each>;
  using Split = ProductForms<AttentionMixSource<true>, FewWeights::f32_along_columns, FewWeights::codes_along_columns,
                             FewWeights::each>;
  using Forms = JoinedForms<Products::List, Split::List, FormList<AttentionMixRows>>;

  NANSCOPE_HOST int form(const Args& args) {
    if (args.visible_only) return Products::kCount + Split::kCount;
    return args.split > 0 ? Products::kCount + Split::form(args) : Products::form(args);
  }
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.visible_only ? AttentionMixRows::warps(args) : tile_warps(Whole::shape(args));
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.visible_only ? AttentionMixRows::work_per_warp(args) : tile_work(Whole::shape(args));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
