#include <array>
#include <string_view>
#include <vector>

#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"

/// Knobs of tensor parallelism.
namespace nanscope::knob_entry {

using kernels::AllReduceOrder;

template <>
struct Texts<AllReduceOrder> {
  static constexpr std::array<std::string_view, 3> names{"rank", "ring", "tree"};
};
template <>
struct Texts<RankScales> {
  static constexpr std::array<std::string_view, 2> names{"own", "rank_0"};
};

}  // namespace nanscope::knob_entry

namespace nanscope {

using knob_entry::knob;

std::vector<Knob> rank_knobs() {
  return {
      knob(
          "engine.ranks", "1..8", "ranks of tensor parallelism, which run beside each other in this process",
          [](auto& c) -> auto& { return c.ranks.count; }),
      knob(
          "kv.rank_scales", "own|rank_0",
          "scale that attention reads a rank's cache with: the one it stored under, or the copy that came from rank 0 "
          "(modelexpress PR #783)",
          [](auto& c) -> auto& { return c.kv.rank_scales; }),
      knob(
          "allreduce.order", "rank|ring|tree",
          "order of the sums over ranks: ascending and rounded once, or NCCL's ring or tree, rounded at every rank",
          [](auto& c) -> auto& { return c.ranks.order; }),
      knob(
          "allreduce.stuck_rank", "-1..7", "rank in whose memory of sums one bit is always 1; -1: in none",
          [](auto& c) -> auto& { return c.ranks.stuck_rank; }),
      knob(
          "allreduce.stuck_element", "0..1073741824", "where that bit is: element of the sum, row by row",
          [](auto& c) -> auto& { return c.ranks.stuck_element; }),
      knob(
          "allreduce.stuck_bit", "0..31", "which bit of the element it is, 0 the lowest",
          [](auto& c) -> auto& { return c.ranks.stuck_bit; }),
  };
}

}  // namespace nanscope
