/// cp.async and its groups (PTX ISA 9.7.9.25.3): what a lane copies to shared memory is there once it has waited for
/// the group; until then nobody has written it. Then the carry of extended-precision arithmetic (9.7.2).
#include <cstdint>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

using U = std::uint32_t;

void copy(Lanes& lanes, const Instruction& of) {
  constexpr std::size_t kBytes = sizeof(AsyncCopy::data);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    AsyncCopy made;
    made.lane = lane;
    made.group = lanes.own->groups[static_cast<std::size_t>(lane)];
    made.to = read_lane(lanes, of.operands[0], lane) + static_cast<std::uint64_t>(of.offset);
    const std::uint64_t from = read_lane(lanes, of.operands[1], lane) + static_cast<std::uint64_t>(of.second_offset);
    if (made.to % kBytes != 0 || from % kBytes != 0) return lanes.report("an address that is not a multiple of 16");
    std::string wrong = lanes.memory->load(from, made.data.data(), kBytes);
    if (wrong.empty()) wrong = lanes.shared->store(made.to, made.data.data(), kBytes);
    if (!wrong.empty()) return lanes.report(std::move(wrong));
    lanes.shared->forget(made.to, kBytes);
    lanes.own->copies.push_back(made);
  }
}

void commit(Lanes& lanes, const Instruction& /*of*/) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes.has(lane)) ++lanes.own->groups[static_cast<std::size_t>(lane)];
  }
}

void wait(Lanes& lanes, const Instruction& of) {
  std::string wrong;
  std::erase_if(lanes.own->copies, [&](const AsyncCopy& one) {
    const auto pending = static_cast<std::uint32_t>(read_lane(lanes, of.operands[0], one.lane));
    if (!lanes.has(one.lane) || one.group + pending >= lanes.own->groups[static_cast<std::size_t>(one.lane)]) {
      return false;
    }
    if (wrong.empty()) wrong = lanes.shared->store(one.to, one.data.data(), one.data.size());
    return true;
  });
  if (!wrong.empty()) lanes.report(std::move(wrong));
}

/// The low half of a * b, plus c; the carry is kept.
void multiply_low(Lanes& lanes, const Instruction& of) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const U low = lanes.of<U>(of.operands[1])[lane] * lanes.of<U>(of.operands[2])[lane];
    const std::uint64_t sum = std::uint64_t{low} + lanes.of<U>(of.operands[3])[lane];
    lanes.of<U>(of.operands[0])[lane] = static_cast<U>(sum);
    lanes.own->carries = (lanes.own->carries & ~(1U << lane)) | static_cast<U>(sum >> 32) << lane;
  }
}
/// The high half of a * b, plus c and the carry.
void multiply_high(Lanes& lanes, const Instruction& of) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const std::uint64_t product = std::uint64_t{lanes.of<U>(of.operands[1])[lane]} * lanes.of<U>(of.operands[2])[lane];
    const U carry = lanes.own->carries >> lane & 1U;
    lanes.of<U>(of.operands[0])[lane] = static_cast<U>(product >> 32) + lanes.of<U>(of.operands[3])[lane] + carry;
  }
}

}  // namespace

void add_async_instructions(InstructionTable& table) {
  InstructionForm form;
  form.run = &copy;
  form.operands = {{4, false}, {8, false}};
  form.copies = true;
  table["cp.async.cg.shared.global"] = form;
  table["cp.async.commit_group"] = {&commit, {}};
  table["cp.async.wait_group"] = {&wait, {{4, false}}};
  const std::vector<OperandForm> operands = {{4, true}, {4, false}, {4, false}, {4, false}};
  table["mad.lo.cc.u32"] = {&multiply_low, operands};
  table["madc.hi.u32"] = {&multiply_high, operands};
}

}  // namespace nanscope::ptx
