#include "tests/ptx/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace nanscope::ptx {
namespace {

/// Lanes that are at the same instruction.
struct Group {
  std::uint32_t lanes = 0;
  std::int32_t at = 0;
  bool waits = false;  ///< for others that the instruction names
};

}  // namespace

/// The lanes of a function: one group runs, the others are further on, or wait.
class Groups {
 public:
  explicit Groups(std::uint32_t lanes) : running_{lanes, 0, false}, absent_(~lanes) {}

  Group& running() { return running_; }
  std::uint32_t absent() const { return absent_; }
  bool parted() const { return !others_.empty(); }
  bool at_barrier() const { return at_barrier_; }
  /// All are there, or go on from it.
  void set_at_barrier(bool at_barrier) { at_barrier_ = at_barrier; }

  /// The running lanes part: `taken` go to `target`, the others to the next instruction.
  void branch(std::uint32_t taken, std::int32_t target) {
    const std::uint32_t stay = running_.lanes & ~taken;
    if (taken == 0) {
      ++running_.at;
    } else if (stay == 0) {
      running_.at = target;
    } else {
      others_.push_back({taken, target, false});
      running_ = {stay, running_.at + 1, false};
    }
  }
  /// `lanes` of the running ones are done.
  void leave(std::uint32_t lanes) {
    absent_ |= lanes;
    running_.lanes &= ~lanes;
    ++running_.at;
  }
  /// Those at one instruction meet; the lowest that need not wait runs next. False when none can.
  bool choose() {
    if (running_.lanes != 0) others_.push_back(running_);
    for (std::size_t i = 0; i < others_.size(); ++i) {
      for (std::size_t j = others_.size(); --j > i;) {
        if (others_[j].at != others_[i].at) continue;
        others_[i].lanes |= others_[j].lanes;
        others_[i].waits = false;
        others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(j));
      }
    }
    const auto before = [](const Group& a, const Group& b) {
      return std::pair(a.waits, a.at) < std::pair(b.waits, b.at);
    };
    const auto lowest = std::min_element(others_.begin(), others_.end(), before);
    if (lowest == others_.end()) {
      running_ = {};
      return false;
    }
    running_ = *lowest;
    others_.erase(lowest);
    return !running_.waits;
  }

 private:
  Group running_;
  std::uint32_t absent_;
  std::vector<Group> others_;
  bool at_barrier_ = false;
};

namespace {

/// The member mask of an instruction of the whole warp: its last operand.
std::uint32_t members_of(const Lanes& lanes, const Instruction& of) {
  if (of.control == Control::barrier || of.whole_warp) return ~0U;
  std::size_t last = of.operands.size() - 1;
  while (!of.operands[last].given) --last;
  const std::uint32_t* masks = lanes.of<std::uint32_t>(of.operands[last]);
  const std::uint32_t members = masks[std::countr_zero(lanes.active)];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lanes.has(lane) && masks[lane] != members) lanes.report("lanes that name other members");
  }
  if ((lanes.active & ~members) != 0) lanes.report("a lane that is not among the members it names");
  return members;
}

/// Which thread each lane is.
void place_warp(const Function& kernel, std::uint32_t block, std::uint32_t warp, const Machine::Launch& launch,
                std::span<std::byte> registers) {
  const auto set = [&](const Operand& operand, std::uint32_t first, std::uint32_t step) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t value = first + lane * step;
      std::memcpy(registers.data() + operand.at + lane * sizeof(value), &value, sizeof(value));
    }
  };
  set(kernel.tid, warp * kLanes, 1);
  set(kernel.ctaid, block, 0);
  set(kernel.nctaid, launch.blocks, 0);
  set(kernel.ntid, launch.threads, 0);
}

}  // namespace

/// A warp between two turns.
struct Machine::WaitingWarp {
  Groups groups{~0U};
  std::vector<std::byte> registers;  ///< of the kernel
  WarpMemory own;
  std::uint32_t serial = 0;  ///< in global memory
  bool done = false;
};

Machine::Machine(const Program& program)
    : program_(&program), shared_(program.shared_bytes), own_(program.local_bytes, program.param_bytes) {
  for (const Function& function : program.functions) registers_.push_back(function.registers);
}

Status Machine::launch(const Function& kernel, const Launch& launch,
                       std::span<const std::span<const std::byte>> arguments) {
  if (arguments.size() != kernel.parameters.size()) return fail(kernel.name + ": takes another number of arguments");
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].size() != kernel.parameter_bytes[i]) {
      return fail(fmt::format("{}: argument {} has {} bytes, {} are expected", kernel.name, i, arguments[i].size(),
                              kernel.parameter_bytes[i]));
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::memcpy(own_.param.data() + lane * own_.param_bytes + kernel.parameters[i], arguments[i].data(),
                  arguments[i].size());
    }
  }
  memory_.begin_launch();
  shared_.end_block();
  // Made once a launch: registers of a large kernel are megabytes.
  std::vector<WaitingWarp> waiting;
  const bool by_blocks = kernel.has_barriers || kernel.has_shared;
  if (by_blocks) {
    const WaitingWarp one{Groups(~0U), kernel.registers, own_, 0, false};
    waiting.assign(launch.threads / kLanes, one);
  }
  for (std::uint32_t block = 0; block < launch.blocks; ++block) {
    if (by_blocks) {
      if (Status status = run_block(kernel, block, launch, waiting); !status) return status;
      continue;
    }
    for (std::uint32_t warp = 0; warp * kLanes < launch.threads; ++warp) {
      if (Status status = run_warp(kernel, block, warp, launch); !status) return status;
    }
  }
  return {};
}

std::size_t Machine::index_of(const Function& function) const {
  return static_cast<std::size_t>(&function - program_->functions.data());
}

Status Machine::told(const Function& kernel, std::uint32_t block, std::uint32_t warp) const {
  if (problem_.empty()) return {};
  return fail(fmt::format("{}, {}, block {} warp {}: {}", kernel.name, place_, block, warp, problem_));
}

Status Machine::run_warp(const Function& kernel, std::uint32_t block, std::uint32_t warp, const Launch& launch) {
  memory_.begin_warp();
  own_.begin_warp();
  place_warp(kernel, block, warp, launch, registers_[index_of(kernel)]);
  problem_.clear();
  place_.clear();
  Groups groups(~0U);
  run_function(index_of(kernel), groups);
  return told(kernel, block, warp);
}

Status Machine::run_block(const Function& kernel, std::uint32_t block, const Launch& launch,
                          std::vector<WaitingWarp>& warps) {
  shared_.begin_block();
  for (std::uint32_t warp = 0; warp < warps.size(); ++warp) {
    WaitingWarp& one = warps[warp];
    one.groups = Groups(~0U);
    one.own.begin_warp();
    one.serial = memory_.begin_warp();
    one.done = false;
    place_warp(kernel, block, warp, launch, one.registers);
  }
  while (true) {
    std::size_t waiting = 0;
    for (std::uint32_t warp = 0; warp < warps.size(); ++warp) {
      if (warps[warp].done) continue;
      if (Status status = run_turn(kernel, block, warp, warps[warp]); !status) return status;
      if (!warps[warp].done) ++waiting;
    }
    if (waiting == 0) return {};
    if (waiting != warps.size()) {
      return fail(fmt::format("{}, block {}: {} of {} warps wait at a barrier, the others have left", kernel.name,
                              block, waiting, warps.size()));
    }
    shared_.pass_barrier();
  }
}

Status Machine::run_turn(const Function& kernel, std::uint32_t block, std::uint32_t warp, WaitingWarp& state) {
  const std::size_t function = index_of(kernel);
  const auto swap = [&] {
    std::swap(registers_[function], state.registers);
    std::swap(own_, state.own);
  };
  memory_.resume_warp(state.serial);
  shared_.begin_warp();
  problem_.clear();
  place_.clear();
  state.groups.set_at_barrier(false);
  swap();
  run_function(function, state.groups);
  swap();
  state.done = !state.groups.at_barrier();
  return told(kernel, block, warp);
}

void Machine::run_function(std::size_t function, Groups& groups) {
  const Function& of = program_->functions[function];
  Lanes state{registers_[function].data(), 0, &memory_, &own_, &shared_, &problem_};
  const auto place = [&](const Instruction& at) {
    if (place_.empty()) {
      place_ = fmt::format("line {} ({})", at.line, program_->names[static_cast<std::size_t>(at.name)]);
    }
  };
  while (true) {
    if (groups.running().lanes == 0 || groups.parted()) {
      const bool runs = groups.choose();
      if (groups.running().lanes == 0) return;
      if (!runs) {
        problem_ = "a lane is missing: it waits elsewhere";
        return place(of.code[static_cast<std::size_t>(groups.running().at)]);
      }
    }
    Group& group = groups.running();
    const Instruction& next = of.code[static_cast<std::size_t>(group.at)];
    state.active = group.lanes;
    if (next.guard.given) {
      const std::uint32_t guard = state.predicate(next.guard);
      state.active &= next.guard_negated ? ~guard : guard;
    }
    if (next.converges || next.control == Control::barrier) {
      const std::uint32_t members = state.active == 0 ? 0 : members_of(state, next);
      if ((members & groups.absent()) != 0) problem_ = "a lane is missing: it has left";
      if (!problem_.empty()) return place(next);
      if ((members & ~state.active) != 0) {
        group.waits = true;
        if (!groups.parted()) problem_ = "a lane is missing: its predicate is false";
        if (!problem_.empty()) return place(next);
        continue;
      }
    }
    ++counts_.warp_instructions;
    const auto lanes_here = static_cast<std::uint64_t>(std::popcount(state.active));
    counts_.lane_instructions += lanes_here;
    if (next.space == Space::global || next.space == Space::generic) counts_.elements += lanes_here * next.elements;
    if (next.space == Space::shared) counts_.shared_elements += lanes_here * next.elements;
    if (next.fma) counts_.fmas += lanes_here;
    if (next.mma) ++counts_.mmas;
    switch (next.control) {
      case Control::none:
        if (state.active != 0) next.run(state, next);
        ++group.at;
        break;
      case Control::branch:
        groups.branch(state.active, next.target);
        break;
      case Control::call:
        if (state.active != 0) call(of, next, state.active);
        ++group.at;
        break;
      case Control::ret:
        groups.leave(state.active);
        break;
      case Control::barrier:
        ++group.at;
        groups.set_at_barrier(true);
        return;
    }
    if (!problem_.empty()) return place(next);
  }
}

void Machine::call(const Function& from, const Instruction& of, std::uint32_t lanes) {
  const Call& call = from.calls[static_cast<std::size_t>(of.call)];
  copy_parameters(call.before, lanes);
  copy_place(from, static_cast<std::size_t>(of.target));
  Groups groups(lanes);
  run_function(static_cast<std::size_t>(of.target), groups);
  if (groups.at_barrier()) problem_ = "a barrier in a function that is called is not known";
  copy_parameters(call.after, lanes);
}

void Machine::copy_place(const Function& from, std::size_t to) {
  const std::byte* here = registers_[index_of(from)].data();
  const Function& called = program_->functions[to];
  const auto copy = [&](const Operand& special, const Operand& there) {
    std::memcpy(registers_[to].data() + there.at, here + special.at, std::size_t{special.width} * kLanes);
  };
  copy(from.tid, called.tid);
  copy(from.ctaid, called.ctaid);
  copy(from.nctaid, called.nctaid);
  copy(from.ntid, called.ntid);
}

void Machine::copy_parameters(std::span<const Call::Copy> copies, std::uint32_t lanes) {
  for (const Call::Copy& copy : copies) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes >> lane & 1U) == 0) continue;
      std::byte* own = own_.param.data() + lane * own_.param_bytes;
      std::memcpy(own + copy.to, own + copy.from, copy.bytes);
    }
  }
}

}  // namespace nanscope::ptx
