#pragma once
/// Attention mix on a GPU: for each head of values, the product of its rows of probabilities (a token's head each) and
/// its values, whose channels lie side by side. Where hidden keys are left out, rows have chains of their own lengths,
/// and take AttentionMixRows.
#include "kernels/ops/kv_operand_gpu.h"
#include "kernels/ops/product_tiles_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct MixProblem {
  const AttentionMixArgs& args;
  std::int64_t kv_head;

  NANSCOPE_HOST std::int64_t group(const AttentionMixArgs& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t width(const AttentionMixArgs& args) { return args.v_columns() / args.kv_heads; }
  NANSCOPE_FN std::int64_t token_of(const MixProblem& of, std::int64_t row) { return row / group(of.args); }
  NANSCOPE_FN std::int64_t head_of(const MixProblem& of, std::int64_t row) {
    return of.kv_head * group(of.args) + row % group(of.args);
  }

  NANSCOPE_FN std::int64_t rows(const MixProblem& of) { return of.args.p.rows * group(of.args); }
  NANSCOPE_FN std::int64_t columns(const MixProblem& of) { return width(of.args); }
  NANSCOPE_FN std::int64_t depth(const MixProblem& of) { return of.args.keys(); }

  NANSCOPE_FN Format x_format(const MixProblem& of) { return of.args.p.format; }
  NANSCOPE_FN bool x_whole(const MixProblem& of) { return has_quads(of.args.p) && of.args.keys() % 4 == 0; }
  NANSCOPE_FN const char* x_row(const MixProblem& of, std::int64_t row) {
    return address_of(of.args.p, token_of(of, row), head_of(of, row) * of.args.keys());
  }
  NANSCOPE_FN float x_at(const MixProblem& of, std::int64_t row, std::int64_t key) {
    return load_float(of.args.p, token_of(of, row), head_of(of, row) * of.args.keys() + key);
  }

  NANSCOPE_FN Format weight_format(const MixProblem& /*of*/) { return Format::f32; }
  NANSCOPE_FN bool weight_whole(const MixProblem& of) { return !of.args.cache.given(); }
  NANSCOPE_FN std::int64_t weight_step(const MixProblem& of) {
    return of.args.v.stride * static_cast<std::int64_t>(sizeof(float));
  }
  NANSCOPE_FN const char* weight_row(const MixProblem& of, std::int64_t channel) {
    return address_of(of.args.v, 0, of.kv_head * width(of.args) + channel);
  }
  NANSCOPE_FN float weight_at(const MixProblem& of, std::int64_t channel, std::int64_t key) {
    const std::int64_t column = of.kv_head * width(of.args) + channel;
    return of.args.cache.given() ? cached_value(of.args.cache, key, column) : load_f32_scalar(of.args.v, key, column);
  }

  /// Where the row's channels begin.
  NANSCOPE_FN std::int64_t out_row(const MixProblem& of, std::int64_t row) {
    return token_of(of, row) * of.args.out.stride + head_of(of, row) * width(of.args);
  }
  NANSCOPE_FN float summand(const MixProblem& /*of*/, std::int64_t /*channel*/) { return 0.0F; }
  NANSCOPE_FN void store(const MixProblem& of, std::int64_t out_row, std::int64_t channel, float /*summand*/,
                         float total) {
    store_element(of.args.out, 0, out_row + channel, total * of.args.factor);
  }
};

struct AttentionMix {
  using Args = AttentionMixArgs;

  NANSCOPE_HOST ProductShape shape(const Args& args) {
    return {args.p.rows * MixProblem::group(args), MixProblem::width(args), args.keys(), args.kv_heads};
  }
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.visible_only ? AttentionMixRows::warps(args) : tile_warps(shape(args));
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.visible_only ? AttentionMixRows::work_per_warp(args) : tile_work(shape(args));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ float4 memory[kTileMemory];
    if (args.visible_only) return AttentionMixRows::run(args, warp);
    run_tile(shape(args), warp, memory, [&](std::int64_t kv_head) { return MixProblem{args, kv_head}; });
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
