#pragma once
/// Sums over part of a row in the three orders of SumOrder, and Welford's recurrence in the same three.
///
/// sequential: one accumulator from +0, ascending.
/// warp: lane l adds elements l, l + 32, ... from +0, ascending; then the butterfly 16 8 4 2 1.
/// pairwise: the balanced tree that splits n at the largest power of two below n. It is computed as
///   a butterfly 1 2 4 8 16 over 32 neighbours (missing ones -0.0, which adding leaves unseen), then
///   a binary counter of equal trees over the groups, folded from the smallest.
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Columns [first, first + count) of one row.
struct RowPart {
  const TensorView& view;
  std::int64_t row;
  std::int64_t first;
  std::int64_t count;
};

NANSCOPE_FN F32 load_part(const RowPart& part, std::int64_t i, float fill) {
  return load_range(part.view, part.row, part.first + i, part.count - i, fill);
}

NANSCOPE_FN int lanes_left(const RowPart& part, std::int64_t i) {
  return static_cast<int>(part.count - i < kLanes ? part.count - i : kLanes);
}

/// Trees of 32, 64, 128 ... groups waiting for a partner of their size; 64 levels hold any row.
template <class Node>
struct TreeStack {
  Node nodes[40];
  int height = 0;

  template <class Join>
  NANSCOPE_LANE void push(TreeStack& stack, Node node, std::int64_t group, const Join& join) {
    for (std::int64_t bits = group; (bits & 1) != 0; bits >>= 1) node = join(stack.nodes[--stack.height], node);
    stack.nodes[stack.height++] = node;
  }
  template <class Join>
  NANSCOPE_LANE Node fold(TreeStack& stack, const Join& join) {
    Node node = stack.nodes[--stack.height];
    while (stack.height > 0) node = join(stack.nodes[--stack.height], node);
    return node;
  }
};

/// Sum of term(x) over the part.
template <class Term>
NANSCOPE_FN float row_sum(const RowPart& part, SumOrder order, const Term& term) {
  if (order == SumOrder::sequential) {
    float total = 0.0F;
    for (std::int64_t i = 0; i < part.count; i += kLanes) {
      const F32 terms = term(load_part(part, i, 0.0F));
      for (int lane = 0; lane < lanes_left(part, i); ++lane) total = total + broadcast(terms, lane);
    }
    return total;
  }
  if (order == SumOrder::warp) {
    F32 lanes = splat_f32(0.0F);
    for (std::int64_t i = 0; i < part.count; i += kLanes) {
      const F32 terms = term(load_part(part, i, 0.0F));
      lanes = lanes + select(lanes_below(part.count - i), terms, splat_f32(-0.0F));
    }
    return sum(lanes);
  }
  const auto join = [](float a, float b) NANSCOPE_INLINE_LAMBDA { return a + b; };
  TreeStack<float> stack;
  for (std::int64_t i = 0; i < part.count; i += kLanes) {
    F32 lanes = select(lanes_below(part.count - i), term(load_part(part, i, 0.0F)), splat_f32(-0.0F));
    for (int m = 1; m < kLanes; m <<= 1) lanes = lanes + xor_lane(lanes, m);
    TreeStack<float>::push(stack, broadcast(lanes, 0), i / kLanes, join);
  }
  return TreeStack<float>::fold(stack, join);
}

/// Count, mean and sum of squared deviations of what was seen.
struct Running {
  float count;
  float mean;
  float m2;
};

/// Chan, Golub and LeVeque 1979, eq. 2.1 in this order: d = b.mean - a.mean, n = a.n + b.n,
/// mean = a.mean + d * (b.n / n), m2 = (a.m2 + b.m2) + (d * d) * (a.n * (b.n / n)).
NANSCOPE_FN Running join_running(Running a, Running b) {
  if (b.count == 0.0F) return a;
  if (a.count == 0.0F) return b;
  const float n = a.count + b.count;
  const float share = b.count / n;
  const float d = b.mean - a.mean;
  return {n, a.mean + d * share, (a.m2 + b.m2) + (d * d) * (a.count * share)};
}

struct RunningLanes {
  F32 count;
  F32 mean;
  F32 m2;
};

/// One butterfly step: both lanes of a pair get join(lower lane, upper lane).
NANSCOPE_FN RunningLanes join_across(const RunningLanes& self, int m) {
  const RunningLanes other{xor_lane(self.count, m), xor_lane(self.mean, m), xor_lane(self.m2, m)};
  const U32 zero = splat_u32(0U);
  const Mask upper = !((lane_id() & splat_u32(static_cast<std::uint32_t>(m))) == zero);
  const RunningLanes a{select(upper, other.count, self.count), select(upper, other.mean, self.mean),
                       select(upper, other.m2, self.m2)};
  const RunningLanes b{select(upper, self.count, other.count), select(upper, self.mean, other.mean),
                       select(upper, self.m2, other.m2)};
  const F32 n = a.count + b.count;
  const F32 share = b.count / n;
  const F32 d = b.mean - a.mean;
  const F32 mean = a.mean + d * share;
  const F32 m2 = (a.m2 + b.m2) + (d * d) * (a.count * share);
  const Mask no_a = a.count == splat_f32(0.0F);
  const Mask no_b = b.count == splat_f32(0.0F);
  return {n, select(no_b, a.mean, select(no_a, b.mean, mean)), select(no_b, a.m2, select(no_a, b.m2, m2))};
}

NANSCOPE_FN Running first_of(const RunningLanes& lanes) {
  return {broadcast(lanes.count, 0), broadcast(lanes.mean, 0), broadcast(lanes.m2, 0)};
}

/// Welford 1962 element by element: d = x - mean, mean += d / n, m2 += d * (x - mean).
/// warp: every lane over its strided elements, then join_across 16 8 4 2 1; pairwise: the tree of joins.
NANSCOPE_FN Running row_welford(const RowPart& part, SumOrder order) {
  if (order == SumOrder::sequential) {
    Running seen{0.0F, 0.0F, 0.0F};
    for (std::int64_t i = 0; i < part.count; i += kLanes) {
      const F32 values = load_part(part, i, 0.0F);
      for (int lane = 0; lane < lanes_left(part, i); ++lane) {
        const float x = broadcast(values, lane);
        seen.count = seen.count + 1.0F;
        const float d = x - seen.mean;
        seen.mean = seen.mean + d / seen.count;
        seen.m2 = seen.m2 + d * (x - seen.mean);
      }
    }
    return seen;
  }
  if (order == SumOrder::warp) {
    RunningLanes seen{splat_f32(0.0F), splat_f32(0.0F), splat_f32(0.0F)};
    for (std::int64_t i = 0; i < part.count; i += kLanes) {
      const Mask valid = lanes_below(part.count - i);
      const F32 x = load_part(part, i, 0.0F);
      const F32 n = seen.count + splat_f32(1.0F);
      const F32 d = x - seen.mean;
      const F32 mean = seen.mean + d / n;
      const F32 m2 = seen.m2 + d * (x - mean);
      seen = {select(valid, n, seen.count), select(valid, mean, seen.mean), select(valid, m2, seen.m2)};
    }
    for (int m = kLanes / 2; m > 0; m >>= 1) seen = join_across(seen, m);
    return first_of(seen);
  }
  const auto join = [](const Running& a, const Running& b) NANSCOPE_INLINE_LAMBDA { return join_running(a, b); };
  TreeStack<Running> stack;
  for (std::int64_t i = 0; i < part.count; i += kLanes) {
    const F32 one = select(lanes_below(part.count - i), splat_f32(1.0F), splat_f32(0.0F));
    RunningLanes leaf{one, load_part(part, i, 0.0F), splat_f32(0.0F)};
    for (int m = 1; m < kLanes; m <<= 1) leaf = join_across(leaf, m);
    TreeStack<Running>::push(stack, first_of(leaf), i / kLanes, join);
  }
  return TreeStack<Running>::fold(stack, join);
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
