#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"

/// Python's pickles (docs.python.org/3/library/pickletools.html), read as data. A pickle is a program
/// that may call anything; here it builds a tree, nothing is imported or called. Opcodes of protocols 2
/// to 5 that data needs are known, and the caller names the globals that may occur; all else is refused
/// by name and offset.
namespace nanscope {

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  wide_integer,  ///< beyond 64 bits: `text` is its bytes
  real,
  text,
  bytes,
  tuple,
  list,
  dict,        ///< items are key, value, key, value ...
  global,      ///< `integer` is what the caller calls it, `text` its name without the module
  call,        ///< items are the global, the tuple of arguments, then key, value ... set on the result
  persistent,  ///< its item is the id of what is stored elsewhere
};

/// One value. Items are places in Pickle::nodes; a value can be an item of several, even of itself.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  std::uint32_t offset = 0;  ///< of the opcode that made it, in the pickle
  std::int64_t integer = 0;  ///< also of booleans
  double real = 0;
  std::string_view text{};  ///< a view of the pickle
  std::vector<std::uint32_t> items{};
};

struct Pickle {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;

  const PickleNode& operator[](std::uint32_t index) const { return nodes[index]; }
};

inline constexpr std::uint64_t kMaxPickleBytes = 64 << 20;
inline constexpr std::size_t kMaxPickleNodes = 2'000'000;

/// The caller's number of a global, or nothing when it may not occur.
using KnownGlobal = std::optional<std::int64_t> (*)(std::string_view module, std::string_view name);

/// Reads a whole pickle. `file` and `base`, the pickle's offset in it, are for errors.
Result<Pickle> read_pickle(std::span<const std::byte> bytes, std::string_view file, std::uint64_t base,
                           KnownGlobal known);

}  // namespace nanscope
