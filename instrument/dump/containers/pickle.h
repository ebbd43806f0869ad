#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/files/read_budget.h"

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

/// One value, of which a pickle may hold one a byte: hence small.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  std::uint32_t offset = 0;  ///< of the opcode that made it, in the pickle
  std::uint32_t first = 0;   ///< of its text in the pickle, or of its items in the list of all items
  std::uint32_t count = 0;   ///< bytes of its text, or items
  /// The value of integers, booleans and globals, the bits of a real; for how many items there is room.
  std::int64_t integer = 0;
};

/// A tree of values, out of views of the pickle's bytes. A value can be an item of several, even of itself.
struct Pickle {
  std::string_view bytes;
  std::deque<PickleNode> nodes;  ///< which never doubles as it grows
  std::vector<std::uint32_t> all_items;
  std::uint32_t root = 0;

  const PickleNode& operator[](std::uint32_t index) const { return nodes[index]; }
  /// Places of its items in `nodes`; of a global or a text none.
  std::span<const std::uint32_t> items(const PickleNode& node) const;
  /// Of texts, bytes, wide integers and globals; empty for others.
  std::string_view text(const PickleNode& node) const;
  static double real(const PickleNode& node) { return std::bit_cast<double>(node.integer); }
};

inline constexpr std::uint64_t kMaxPickleBytes = 64 << 20;

/// The caller's number of a global, or nothing when it may not occur.
using KnownGlobal = std::optional<std::int64_t> (*)(std::string_view module, std::string_view name);

struct PickleOptions {
  bool objects = false;             ///< NEWOBJ is read as a call of its class, which must be known
  std::uint64_t* length = nullptr;  ///< set to the pickle's length, behind which there may be more; null: there may not
};

/// Reads a whole pickle, whose bytes must stay. `file` and `base`, the pickle's offset in it, are for errors. A
/// pickle whose values would take more than `budget` is refused at the opcode where that is so.
Result<Pickle> read_pickle(std::span<const std::byte> bytes, std::string_view file, std::uint64_t base,
                           KnownGlobal known, ReadBudget& budget, PickleOptions options = {});

}  // namespace nanscope
