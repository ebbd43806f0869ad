#pragma once
/// Gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464), token by token. Each value head has a state S
/// of key channels by value channels, and reads the query and the key of head h * key heads / value heads:
///   q' = q / sqrt(q.q + 1e-6) / sqrt(d), k' = k / sqrt(k.k + 1e-6), d the channels of a key head
///   decay = exp(-exp(a_log) * softplus(a + dt_bias)), beta = sigmoid(b)
///   S = decay * S;  delta = (v - S^T k') * beta;  S = S + k' delta^T;  out = S^T q'
/// S is f32, zeros at first or, with `resume`, the state.
///
/// Order: q.q and k.k as SumOrder::warp; 1 / sqrt two f32 roundings, the factor 1 / sqrt(d) one more, q * both two. a +
/// dt_bias is one f32 rounding, the rest of decay f64, rounded once; softplus(x) is x above 20, as torch has it. All
/// else f32, a rounding an operation, sums over key channels ascending from +0. NaN in v stays in its channel of the
/// state for good, unless decay is no number: 0 * NaN is NaN. NaN in q reaches its row alone, in k, a or b all channels
/// of the head from its row on. Trap: a state that is resumed by mistake, or not at all, gives plausible numbers.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: q, k (T, key_heads * d); v, out (T, value_heads * e); a, b (T, value_heads); a_log, dt_bias (1,
/// value_heads); all f32, f16 or bf16, each its own. state (value_heads * d, e) f32, read when `resume`, written.
struct DeltaRuleArgs {
  TensorView q;
  TensorView k;
  TensorView v;
  TensorView a;
  TensorView b;
  TensorView a_log;
  TensorView dt_bias;
  TensorView state;
  TensorView out;
  std::int64_t key_heads = 1;
  std::int64_t value_heads = 1;
  bool resume = false;
};

inline Status check(const DeltaRuleArgs& args) {
  ArgsCheck check("delta_rule");
  const std::int64_t rows = args.out.rows;
  const std::int64_t heads = args.value_heads;
  const bool grouped = args.key_heads > 0 && heads > 0 && heads % args.key_heads == 0 &&
                       args.q.columns % args.key_heads == 0 && args.q.columns > 0 && args.out.columns % heads == 0 &&
                       args.out.columns > 0;
  check.that(grouped, "value heads to be a multiple of key heads, and columns of heads");
  if (!grouped) return check.done();
  check.floats("q", args.q).floats("k", args.k).floats("v", args.v).floats("out", args.out);
  check.floats("a", args.a).floats("b", args.b).floats("a_log", args.a_log).floats("dt_bias", args.dt_bias);
  check.shape("q", args.q, rows, args.q.columns).shape("k", args.k, rows, args.q.columns);
  check.shape("v", args.v, rows, args.out.columns).shape("a", args.a, rows, heads).shape("b", args.b, rows, heads);
  check.shape("a_log", args.a_log, 1, heads).shape("dt_bias", args.dt_bias, 1, heads);
  check.format("state", args.state, {Format::f32});
  check.shape("state", args.state, heads * (args.q.columns / args.key_heads), args.out.columns / heads);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/math/exp.h"
#include "kernels/math/log.h"
#include "kernels/math/sigmoid.h"
#include "kernels/ops/op_helpers.h"
#include "kernels/ops/row_sums.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct DeltaRule {
  using Args = DeltaRuleArgs;

  /// Warp = 32 channels of one value head: time is a chain, channels of values are independent.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return args.value_heads * div_up(args.out.columns / args.value_heads, kLanes);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return args.out.rows * (args.q.columns / args.key_heads) * 2 * kLanes;
  }

  /// One element of a float matrix, in all lanes.
  NANSCOPE_LANE F32 element(const TensorView& view, std::int64_t row, std::int64_t column) {
    return splat_f32(broadcast(load_range(view, row, column, 1, 0.0F), 0));
  }

  NANSCOPE_LANE float inverse_length(const RowPart& part) {
    const auto square = [](const F32& v) NANSCOPE_INLINE_LAMBDA { return v * v; };
    return 1.0F / sqrt_uniform(row_sum(part, SumOrder::warp, square) + 1e-6F);
  }

  NANSCOPE_LANE F32 decay(const Args& args, std::int64_t row, std::int64_t head) {
    const F64 one = splat_f64(1.0);
    const F64 x = to_f64(element(args.a, row, head) + element(args.dt_bias, 0, head));
    const F64 soft = select(splat_f64(20.0) < x, x, log(one + exp(x)));
    return to_f32(exp(-(exp(to_f64(element(args.a_log, 0, head))) * soft)));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t width = args.out.columns / args.value_heads;
    const std::int64_t keys = args.q.columns / args.key_heads;
    const std::int64_t parts = div_up(width, kLanes);
    const std::int64_t head = warp / parts;
    const std::int64_t first = warp % parts * kLanes;
    const std::int64_t left = width - first;
    const std::int64_t key = head / (args.value_heads / args.key_heads) * keys;
    const float scale = 1.0F / sqrt_uniform(static_cast<float>(keys));
    for (std::int64_t row = 0; row < args.out.rows; ++row) {
      const F32 of_q = splat_f32(inverse_length({args.q, row, key, keys}));
      const F32 of_k = splat_f32(inverse_length({args.k, row, key, keys}));
      const F32 fades = decay(args, row, head);
      const bool fresh = row == 0 && !args.resume;
      F32 held = splat_f32(0.0F);
      for (std::int64_t i = 0; i < keys; ++i) {
        const F32 before = fresh ? splat_f32(0.0F) : load_range(args.state, head * keys + i, first, left, 0.0F);
        const F32 faded = fades * before;
        store_range(args.state, head * keys + i, first, left, faded);
        held = held + faded * (element(args.k, row, key + i) * of_k);
      }
      const F32 value = load_range(args.v, row, head * width + first, left, 0.0F);
      const F32 delta = (value - held) * sigmoid(element(args.b, row, head));
      F32 out = splat_f32(0.0F);
      for (std::int64_t i = 0; i < keys; ++i) {
        const F32 faded = load_range(args.state, head * keys + i, first, left, 0.0F);
        const F32 state = faded + (element(args.k, row, key + i) * of_k) * delta;
        store_range(args.state, head * keys + i, first, left, state);
        out = out + state * ((element(args.q, row, key + i) * of_q) * splat_f32(scale));
      }
      store_range(args.out, row, head * width + first, left, out);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif
