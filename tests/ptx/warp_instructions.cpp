/// What a warp's lanes do together: shfl.sync, vote.sync, redux.sync (PTX ISA 9.7.9.6, 9.7.13). The machine has brought
/// all lanes of the member mask here.
#include <algorithm>
#include <cstdint>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

enum class Shuffle : std::uint8_t { up, down, bfly, idx };

/// d, in range or not (a predicate, or nothing), a, b, c, members.
template <Shuffle kMode>
void shuffle(Lanes& lanes, const Instruction& of) {
  std::array<std::uint32_t, kLanes> source{};
  std::copy_n(lanes.of<std::uint32_t>(of.operands[2]), kLanes, source.begin());
  std::uint32_t in_range = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const std::uint32_t c = lanes.of<std::uint32_t>(of.operands[4])[lane];
    const int by = static_cast<int>(lanes.of<std::uint32_t>(of.operands[3])[lane] & 31U);
    const int clamp = static_cast<int>(c & 31U);
    const int segment = static_cast<int>(c >> 8 & 31U);
    const int last = (lane & segment) | (clamp & ~segment & 31);
    const int first = lane & segment;
    int from = lane;
    bool inside = true;
    if constexpr (kMode == Shuffle::up) {
      from = lane - by;
      inside = from >= last;
    } else if constexpr (kMode == Shuffle::down) {
      from = lane + by;
      inside = from <= last;
    } else if constexpr (kMode == Shuffle::bfly) {
      from = lane ^ by;
      inside = from <= last;
    } else {
      from = first | (by & ~segment & 31);
      inside = from <= last;
    }
    if (!inside) from = lane;
    if (!lanes.has(from)) return lanes.report("a shuffle that reads a lane which is not there");
    in_range |= std::uint32_t{inside} << lane;
    lanes.of<std::uint32_t>(of.operands[0])[lane] = source[static_cast<std::size_t>(from)];
  }
  if (of.operands[1].given) write_predicate(lanes, of.operands[1], in_range);
}

void ballot(Lanes& lanes, const Instruction& of) {
  const std::uint32_t bits = lanes.predicate(of.operands[1]) & lanes.active;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes.has(lane)) lanes.of<std::uint32_t>(of.operands[0])[lane] = bits;
  }
}

template <class Operation>
void vote(Lanes& lanes, const Instruction& of) {
  const std::uint32_t bits = lanes.predicate(of.operands[1]) & lanes.active;
  write_predicate(lanes, of.operands[0], Operation{}(bits, lanes.active) ? ~0U : 0U);
}
struct Any {
  bool operator()(std::uint32_t bits, std::uint32_t) const { return bits != 0; }
};
struct All {
  bool operator()(std::uint32_t bits, std::uint32_t active) const { return bits == active; }
};

template <class T, class Operation>
void reduce(Lanes& lanes, const Instruction& of) {
  const T* source = lanes.of<T>(of.operands[1]);
  bool first = true;
  T all{};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    all = first ? source[lane] : Operation{}(all, source[lane]);
    first = false;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes.has(lane)) lanes.of<T>(of.operands[0])[lane] = all;
  }
}
struct Smaller {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};
struct Larger {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};

/// Modulo 2^32, of either sign.
struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};

template <class T>
void add_reductions(InstructionTable& table) {
  const std::vector<OperandForm> operands = {{4, true}, {4, false}, {4, false}};
  const std::string type = TypeName<T>::value;
  table["redux.sync.min." + type] = {&reduce<T, Smaller>, operands, true};
  table["redux.sync.max." + type] = {&reduce<T, Larger>, operands, true};
  table["redux.sync.add." + type] = {&reduce<T, Sum>, operands, true};
}

}  // namespace

void add_warp_instructions(InstructionTable& table) {
  // The lanes of a warp are at one instruction at a time, so that what one has stored the others see.
  table["bar.warp.sync"] = {[](Lanes&, const Instruction&) {}, {{4, false}}, true};
  const std::vector<OperandForm> operands = {{4, true}, {0, true}, {4, false}, {4, false}, {4, false}, {4, false}};
  table["shfl.sync.up.b32"] = {&shuffle<Shuffle::up>, operands, true};
  table["shfl.sync.down.b32"] = {&shuffle<Shuffle::down>, operands, true};
  table["shfl.sync.bfly.b32"] = {&shuffle<Shuffle::bfly>, operands, true};
  table["shfl.sync.idx.b32"] = {&shuffle<Shuffle::idx>, operands, true};
  table["vote.sync.ballot.b32"] = {&ballot, {{4, true}, {0, false}, {4, false}}, true};
  table["vote.sync.any.pred"] = {&vote<Any>, {{0, true}, {0, false}, {4, false}}, true};
  table["vote.sync.all.pred"] = {&vote<All>, {{0, true}, {0, false}, {4, false}}, true};
  add_reductions<std::int32_t>(table);
  add_reductions<std::uint32_t>(table);
}

namespace {

InstructionTable all_instructions() {
  InstructionTable table;
  add_async_instructions(table);
  add_integer_instructions(table);
  add_float_instructions(table);
  add_conversions(table);
  add_data_movement(table);
  add_warp_instructions(table);
  add_matrix_instructions(table);
  add_packed_instructions(table);
  return table;
}

}  // namespace

const InstructionForm* instruction_form(std::string_view name) {
  static const InstructionTable table = all_instructions();
  const auto found = table.find(std::string(name));
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace nanscope::ptx
