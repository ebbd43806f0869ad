#pragma once
#include <cstdint>
#include <string>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"

namespace nanscope::ptx {

/// A warp at one instruction: the registers of the function that it is in, and the lanes that are there.
struct Lanes {
  std::byte* registers = nullptr;
  std::uint32_t active = 0;
  Memory* memory = nullptr;
  WarpMemory* own = nullptr;
  SharedMemory* shared = nullptr;
  std::string* problem = nullptr;  ///< what is wrong, once something is

  template <class T>
  T* of(const Operand& operand) const {
    return reinterpret_cast<T*>(registers + operand.at);
  }
  std::uint32_t& predicate(const Operand& operand) const { return *of<std::uint32_t>(operand); }
  bool has(int lane) const { return (active >> lane & 1U) != 0; }
  void report(std::string text) const {
    if (problem->empty()) *problem = std::move(text);
  }
};

/// A lane of a register of any width as an unsigned number, and back: what does not fit is cut off.
inline std::uint64_t read_lane(const Lanes& lanes, const Operand& operand, int lane) {
  switch (operand.width) {
    case 2:
      return lanes.of<std::uint16_t>(operand)[lane];
    case 4:
      return lanes.of<std::uint32_t>(operand)[lane];
    default:
      return lanes.of<std::uint64_t>(operand)[lane];
  }
}
inline void write_lane(const Lanes& lanes, const Operand& operand, int lane, std::uint64_t value) {
  switch (operand.width) {
    case 2:
      lanes.of<std::uint16_t>(operand)[lane] = static_cast<std::uint16_t>(value);
      break;
    case 4:
      lanes.of<std::uint32_t>(operand)[lane] = static_cast<std::uint32_t>(value);
      break;
    default:
      lanes.of<std::uint64_t>(operand)[lane] = value;
  }
}

}  // namespace nanscope::ptx
