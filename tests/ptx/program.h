#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

/// PTX as nvcc writes it, read into something that can be run. Only what the kernels use is known; anything else stops
/// with its name. Source of all semantics: NVIDIA, "Parallel Thread Execution ISA", version 9.0.
namespace nanscope::ptx {

inline constexpr int kLanes = 32;

/// State spaces as addresses: an address says by its upper bits where it points, so that cvta changes nothing. Global
/// addresses are those of the host; of shared memory, addresses without the window count too, as 32 bits hold them.
enum class Space : std::uint8_t { generic, global, local, param, shared };
inline constexpr std::uint64_t kLocalWindow = std::uint64_t{1} << 60;
inline constexpr std::uint64_t kParamWindow = std::uint64_t{1} << 61;
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 62;

/// What an instruction works on: the lanes of a register or of a constant. Each lane takes `width` bytes; a predicate
/// (`width` 0) is one word with a bit a lane.
struct Operand {
  std::uint32_t at = 0;  ///< byte offset into the registers of the function
  std::uint8_t width = 0;
  bool given = false;
};

struct Instruction;
struct Lanes;
/// Runs an instruction on the active lanes.
using Handler = void (*)(Lanes& lanes, const Instruction& instruction);

enum class Control : std::uint8_t { none, branch, call, ret, barrier };

struct Instruction {
  Handler run = nullptr;
  Control control = Control::none;
  bool converges = false;   ///< all lanes of its member mask have to arrive
  bool whole_warp = false;  ///< it has no mask: all of the warp
  bool fma = false;         ///< in f32
  bool mma = false;
  std::array<Operand, 14> operands;
  Operand guard;
  bool guard_negated = false;
  std::int64_t offset = 0;         ///< of a memory access, beside the address
  std::int64_t second_offset = 0;  ///< and of where a copy is from
  std::uint8_t elements = 0;       ///< that it accesses in each lane
  Space space = Space::generic;
  std::int32_t target = -1;  ///< of a branch: index of an instruction; of a call: of a function
  std::int32_t call = -1;    ///< index into Function::calls
  std::int32_t line = 0;
  std::int32_t name = 0;  ///< index into Program::names
};

/// Where a call's parameters lie in the window, and where the callee wants them.
struct Call {
  struct Copy {
    std::uint32_t from = 0, to = 0, bytes = 0;
  };
  std::vector<Copy> before;
  std::vector<Copy> after;
};

struct Function {
  std::string name;
  bool entry = false;
  bool has_barriers = false;
  bool has_shared = false;  ///< memory, of its blocks
  std::vector<Instruction> code;
  std::vector<Call> calls;
  std::vector<std::byte> registers;       ///< with the constants in them
  std::vector<std::uint32_t> parameters;  ///< where each begins in the window
  std::vector<std::uint32_t> parameter_bytes;
  Operand tid, ctaid, nctaid, ntid;
};

struct Program {
  std::string compiler;  ///< "release 13.0, V13.0.88", as the file begins
  std::vector<Function> functions;
  std::vector<std::string> names;  ///< of instructions
  std::uint32_t local_bytes = 0;   ///< of a lane, over all functions
  std::uint32_t param_bytes = 0;
  std::uint32_t shared_bytes = 0;  ///< of a block, over all functions

  /// The kernel whose mangled name has this part; null where none has.
  const Function* entry(std::string_view part) const;
};

/// Errors name the line and what is not known there.
Result<Program> read_program(std::string_view text);

/// What is known of an instruction's operands.
struct OperandForm {
  /// Bytes of a lane; 0: a predicate; kAny: whatever the register has; kVector: of a brace, `count` of any width.
  std::uint8_t width = 0;
  bool written = false;
};
inline constexpr std::uint8_t kAnyWidth = 255;

struct InstructionForm {
  Handler run = nullptr;
  std::vector<OperandForm> operands;
  bool converges = false;
  bool whole_warp = false;
  std::uint8_t bytes = 0;     ///< a memory access: of an element
  std::uint8_t elements = 0;  ///< and how many
  bool stores = false;
  bool copies = false;  ///< 16 bytes, from global to shared memory
};

/// By the name with all of its suffixes, such as "add.s64" or "ld.global.v2.u32"; null where it is not known.
const InstructionForm* instruction_form(std::string_view name);

}  // namespace nanscope::ptx
