#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/ptx/lanes.h"

/// Instructions by their full names; each file of handlers adds its own.
namespace nanscope::ptx {

using InstructionTable = std::unordered_map<std::string, InstructionForm>;

void add_async_instructions(InstructionTable& table);
void add_integer_instructions(InstructionTable& table);
void add_float_instructions(InstructionTable& table);
void add_conversions(InstructionTable& table);
void add_data_movement(InstructionTable& table);
void add_warp_instructions(InstructionTable& table);
void add_matrix_instructions(InstructionTable& table);
void add_packed_instructions(InstructionTable& table);

/// "s64" and the like, by type.
template <class T>
struct TypeName;
#define NANSCOPE_PTX_TYPE(Type, text)          \
  template <>                                  \
  struct TypeName<Type> {                      \
    static constexpr const char* value = text; \
  };
NANSCOPE_PTX_TYPE(std::uint8_t, "u8")
NANSCOPE_PTX_TYPE(std::uint16_t, "u16")
NANSCOPE_PTX_TYPE(std::uint32_t, "u32")
NANSCOPE_PTX_TYPE(std::uint64_t, "u64")
NANSCOPE_PTX_TYPE(std::int8_t, "s8")
NANSCOPE_PTX_TYPE(std::int16_t, "s16")
NANSCOPE_PTX_TYPE(std::int32_t, "s32")
NANSCOPE_PTX_TYPE(std::int64_t, "s64")
NANSCOPE_PTX_TYPE(float, "f32")
NANSCOPE_PTX_TYPE(double, "f64")
#undef NANSCOPE_PTX_TYPE

template <class Out, class... In>
std::vector<OperandForm> operands_of() {
  return {{sizeof(Out), true}, {sizeof(In), false}...};
}

/// d = operation(a, b, ...) in each active lane; `Operation` is a stateless callable.
template <class Operation, class Out, class... In>
struct Elementwise {
  template <std::size_t... I>
  static void run_all(const Lanes& lanes, const Instruction& of, std::index_sequence<I...>) {
    Out* out = lanes.of<Out>(of.operands[0]);
    if (lanes.active == ~0U) {
      for (int lane = 0; lane < kLanes; ++lane) {
        out[lane] = Operation{}(lanes.of<const In>(of.operands[I + 1])[lane]...);
      }
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lanes.has(lane)) out[lane] = Operation{}(lanes.of<const In>(of.operands[I + 1])[lane]...);
    }
  }
  static void run(Lanes& lanes, const Instruction& of) { run_all(lanes, of, std::index_sequence_for<In...>{}); }
};

/// `names` are those of one instruction; "add" of an int64 is "add.s64".
template <class Out, class... In, class Operation>
void add_elementwise(InstructionTable& table, const std::string& name, Operation /*stateless*/) {
  table[name] = {&Elementwise<Operation, Out, In...>::run, operands_of<Out, In...>()};
}

template <class T, class Operation>
void add_unary(InstructionTable& table, const std::string& name, Operation operation) {
  add_elementwise<T, T>(table, name + "." + TypeName<T>::value, operation);
}
template <class T, class Operation>
void add_binary(InstructionTable& table, const std::string& name, Operation operation) {
  add_elementwise<T, T, T>(table, name + "." + TypeName<T>::value, operation);
}

/// Sets the bits of the active lanes.
inline void write_predicate(const Lanes& lanes, const Operand& operand, std::uint32_t bits) {
  std::uint32_t& all = lanes.predicate(operand);
  all = (all & ~lanes.active) | (bits & lanes.active);
}

}  // namespace nanscope::ptx
