#pragma once
/// Attention scores on a GPU: for each head of keys, the product of its query rows (a token's head each) and its keys.
#include "kernels/math/softcap.h"
#include "kernels/ops/kv_operand_gpu.h"
#include "kernels/ops/product_tiles_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_CALLED float capped(float score, float cap) { return softcap(score, cap); }

struct ScoresProblem {
  const AttentionScoresArgs& args;
  std::int64_t kv_head;

  NANSCOPE_HOST std::int64_t group(const AttentionScoresArgs& args) { return args.heads / args.kv_heads; }
  NANSCOPE_HOST std::int64_t width(const AttentionScoresArgs& args) { return args.k_columns() / args.kv_heads; }
  NANSCOPE_FN std::int64_t token_of(const ScoresProblem& of, std::int64_t row) { return row / group(of.args); }
  NANSCOPE_FN std::int64_t head_of(const ScoresProblem& of, std::int64_t row) {
    return of.kv_head * group(of.args) + row % group(of.args);
  }

  NANSCOPE_FN std::int64_t rows(const ScoresProblem& of) { return of.args.q.rows * group(of.args); }
  NANSCOPE_HOST std::int64_t columns(const ScoresProblem& of) { return of.args.keys(); }
  NANSCOPE_HOST std::int64_t depth(const ScoresProblem& of) { return width(of.args); }

  NANSCOPE_FN Format x_format(const ScoresProblem& of) { return of.args.q.format; }
  NANSCOPE_FN bool x_whole(const ScoresProblem& of) { return has_quads(of.args.q) && width(of.args) % 4 == 0; }
  NANSCOPE_FN const char* x_row(const ScoresProblem& of, std::int64_t row) {
    return address_of(of.args.q, token_of(of, row), head_of(of, row) * width(of.args));
  }
  NANSCOPE_FN float x_at(const ScoresProblem& of, std::int64_t row, std::int64_t k) {
    return load_float(of.args.q, token_of(of, row), head_of(of, row) * width(of.args) + k);
  }

  NANSCOPE_HOST Format weight_format(const ScoresProblem& /*of*/) { return Format::f32; }
  NANSCOPE_HOST bool weight_whole(const ScoresProblem& of) {
    return !of.args.cache.given() && has_quads(of.args.k) && width(of.args) % 4 == 0;
  }
  NANSCOPE_HOST std::int64_t weight_step(const ScoresProblem& /*of*/) { return 0; }
  NANSCOPE_HOST const char* weight_row(const ScoresProblem& of, std::int64_t key) {
    return address_of(of.args.k, key, of.kv_head * width(of.args));
  }
  NANSCOPE_FN float weight_at(const ScoresProblem& of, std::int64_t key, std::int64_t k) {
    const std::int64_t channel = of.kv_head * width(of.args) + k;
    return of.args.cache.given() ? cached_value(of.args.cache, key, channel) : load_f32_scalar(of.args.k, key, channel);
  }

  /// Where the row's scores begin.
  NANSCOPE_FN std::int64_t out_row(const ScoresProblem& of, std::int64_t row) {
    return token_of(of, row) * of.args.out.stride + head_of(of, row) * of.args.keys();
  }
  NANSCOPE_FN float summand(const ScoresProblem& /*of*/, std::int64_t /*key*/) { return 0.0F; }
  NANSCOPE_FN void store(const ScoresProblem& of, std::int64_t out_row, std::int64_t key, float /*summand*/,
                         float total) {
    const float score = total * of.args.factor;
    store_element(of.args.out, 0, out_row + key, of.args.softcap > 0.0F ? capped(score, of.args.softcap) : score);
  }
};

struct AttentionScores {
  using Args = AttentionScoresArgs;
  using Products = ProductForms<AttentionScores, FewWeights::f32_along_k, FewWeights::each>;
  using Forms = Products::List;

  NANSCOPE_HOST ProductShape shape(const Args& args) {
    return {args.q.rows * ScoresProblem::group(args), args.keys(), ScoresProblem::width(args), args.kv_heads};
  }
  NANSCOPE_HOST ScoresProblem problem(const Args& args, std::int64_t kv_head) { return {args, kv_head}; }

  NANSCOPE_HOST int form(const Args& args) { return Products::form(args); }
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return tile_warps(shape(args)); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return tile_work(shape(args)); }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
