/// Integers, logic and their comparisons (PTX ISA 9.7.1, 9.7.6, 9.7.8).
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <type_traits>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

/// Additions and products of signed numbers wrap around.
template <class T>
void add_wrapping(InstructionTable& table) {
  add_binary<T>(table, "add", [](T a, T b) { return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b)); });
  add_binary<T>(table, "sub", [](T a, T b) { return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b)); });
  add_binary<T>(table, "mul.lo",
                [](T a, T b) { return static_cast<T>(std::uint64_t{Unsigned<T>(a)} * std::uint64_t{Unsigned<T>(b)}); });
  add_elementwise<T, T, T, T>(table, std::string("mad.lo.") + TypeName<T>::value, [](T a, T b, T c) {
    return static_cast<T>(std::uint64_t{Unsigned<T>(a)} * std::uint64_t{Unsigned<T>(b)} +
                          std::uint64_t{Unsigned<T>(c)});
  });
  add_binary<T>(table, "min", [](T a, T b) { return std::min(a, b); });
  add_binary<T>(table, "max", [](T a, T b) { return std::max(a, b); });
}

/// What a division by zero gives is left to the machine, and so is that of the smallest number by -1.
template <class T, bool kRemainder>
struct Division {
  static void run(Lanes& lanes, const Instruction& of) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!lanes.has(lane)) continue;
      const T a = lanes.of<T>(of.operands[1])[lane];
      const T b = lanes.of<T>(of.operands[2])[lane];
      const bool beyond = std::is_signed_v<T> && b == static_cast<T>(-1) && a == std::numeric_limits<T>::min();
      if (b == 0 || beyond) {
        lanes.report("a division whose result the ISA leaves open");
        return;
      }
      lanes.of<T>(of.operands[0])[lane] = static_cast<T>(kRemainder ? a % b : a / b);
    }
  }
};

template <class T>
void add_division(InstructionTable& table) {
  const std::string type = TypeName<T>::value;
  table["div." + type] = {&Division<T, false>::run, operands_of<T, T, T>()};
  table["rem." + type] = {&Division<T, true>::run, operands_of<T, T, T>()};
}

template <class T>
void add_bits(InstructionTable& table, const std::string& type) {
  add_elementwise<T, T, T>(table, "and." + type, [](T a, T b) { return static_cast<T>(a & b); });
  add_elementwise<T, T, T>(table, "or." + type, [](T a, T b) { return static_cast<T>(a | b); });
  add_elementwise<T, T, T>(table, "xor." + type, [](T a, T b) { return static_cast<T>(a ^ b); });
  add_elementwise<T, T>(table, "not." + type, [](T a) { return static_cast<T>(~a); });
  constexpr std::uint32_t kBits = sizeof(T) * 8;
  add_elementwise<T, T, std::uint32_t>(table, "shl." + type,
                                       [](T a, std::uint32_t b) { return static_cast<T>(b >= kBits ? 0 : a << b); });
}

/// Shifts by more than the width give what shifting by the width would: 0, or the sign everywhere.
template <class T>
void add_right_shift(InstructionTable& table) {
  constexpr std::uint32_t kMost = sizeof(T) * 8 - 1;
  add_elementwise<T, T, std::uint32_t>(table, std::string("shr.") + TypeName<T>::value, [](T a, std::uint32_t b) {
    if (std::is_unsigned_v<T> && b > kMost) return T{0};
    return static_cast<T>(a >> (b > kMost ? kMost : b));
  });
}

template <class Wide, class T>
void add_wide_product(InstructionTable& table) {
  add_elementwise<Wide, T, T>(table, std::string("mul.wide.") + TypeName<T>::value,
                              [](T a, T b) { return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b)); });
  add_elementwise<Wide, T, T, Wide>(table, std::string("mad.wide.") + TypeName<T>::value, [](T a, T b, Wide c) {
    using Modulo = Unsigned<Wide>;
    return static_cast<Wide>(Modulo(static_cast<Wide>(a) * static_cast<Wide>(b)) + Modulo(c));
  });
}

template <class T, class Compare>
struct Comparison {
  static void run(Lanes& lanes, const Instruction& of) {
    const T* a = lanes.of<T>(of.operands[1]);
    const T* b = lanes.of<T>(of.operands[2]);
    std::uint32_t bits = 0;
    for (int lane = 0; lane < kLanes; ++lane) bits |= std::uint32_t{Compare{}(a[lane], b[lane])} << lane;
    write_predicate(lanes, of.operands[0], bits);
  }
};

template <class T, class Compare>
void add_comparison(InstructionTable& table, const std::string& name) {
  table["setp." + name + "." + TypeName<T>::value] = {&Comparison<T, Compare>::run,
                                                      {{0, true}, {sizeof(T), false}, {sizeof(T), false}}};
}

template <class T>
void add_comparisons(InstructionTable& table) {
  add_comparison<T, std::equal_to<T>>(table, "eq");
  add_comparison<T, std::not_equal_to<T>>(table, "ne");
  add_comparison<T, std::less<T>>(table, "lt");
  add_comparison<T, std::less_equal<T>>(table, "le");
  add_comparison<T, std::greater<T>>(table, "gt");
  add_comparison<T, std::greater_equal<T>>(table, "ge");
}

template <class Operation>
struct OnPredicates {
  static void run(Lanes& lanes, const Instruction& of) {
    const std::uint32_t b = of.operands[2].given ? lanes.predicate(of.operands[2]) : 0;
    write_predicate(lanes, of.operands[0], Operation{}(lanes.predicate(of.operands[1]), b));
  }
};

template <class Operation>
void add_on_predicates(InstructionTable& table, const std::string& name, Operation /*stateless*/, bool binary = true) {
  std::vector<OperandForm> operands = {{0, true}, {0, false}};
  if (binary) operands.push_back({0, false});
  table[name] = {&OnPredicates<Operation>::run, operands};
}

/// Four products of bytes, added to c modulo 2^32.
template <class Byte>
void add_byte_products(InstructionTable& table, const std::string& name) {
  using U = std::uint32_t;
  add_elementwise<U, U, U, U>(table, name, [](U a, U b, U c) {
    for (int at = 0; at < 32; at += 8) {
      const int product = static_cast<Byte>(a >> at) * static_cast<Byte>(b >> at);
      c += static_cast<U>(product);
    }
    return c;
  });
}

/// Two numbers of 16 bits in a register, each by itself.
template <class T, bool kMax>
std::uint32_t extreme_halves(std::uint32_t a, std::uint32_t b) {
  const auto one = [](std::uint32_t x, std::uint32_t y) {
    const T left = static_cast<T>(x);
    const T right = static_cast<T>(y);
    return static_cast<std::uint16_t>(kMax ? std::max(left, right) : std::min(left, right));
  };
  return std::uint32_t{one(a >> 16, b >> 16)} << 16 | one(a, b);
}
template <class T>
void add_halves(InstructionTable& table, const std::string& type) {
  using U = std::uint32_t;
  add_elementwise<U, U, U>(table, "min." + type, [](U a, U b) { return extreme_halves<T, false>(a, b); });
  add_elementwise<U, U, U>(table, "max." + type, [](U a, U b) { return extreme_halves<T, true>(a, b); });
}

template <class... T, class Add>
void each_type(Add add) {
  (add(T{}), ...);
}

}  // namespace

void add_integer_instructions(InstructionTable& table) {
  each_type<std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>([&](auto of) {
    using T = decltype(of);
    add_wrapping<T>(table);
    add_division<T>(table);
    add_right_shift<T>(table);
    add_comparisons<T>(table);
    if constexpr (std::is_signed_v<T>) {
      add_unary<T>(table, "neg", [](T a) { return static_cast<T>(Unsigned<T>{0} - Unsigned<T>(a)); });
      add_unary<T>(table, "abs", [](T a) { return a < 0 ? static_cast<T>(Unsigned<T>{0} - Unsigned<T>(a)) : a; });
    }
  });
  add_bits<std::uint16_t>(table, "b16");
  add_bits<std::uint32_t>(table, "b32");
  add_bits<std::uint64_t>(table, "b64");
  for (const char* name : {"setp.eq.", "setp.ne."}) {
    table[std::string(name) + "b32"] = table[std::string(name) + "u32"];
    table[std::string(name) + "b64"] = table[std::string(name) + "u64"];
  }
  for (const char* bits : {"16", "32", "64"}) {
    table[std::string("shr.b") + bits] = table[std::string("shr.u") + bits];
  }
  add_wide_product<std::uint32_t, std::uint16_t>(table);
  add_wide_product<std::int32_t, std::int16_t>(table);
  add_wide_product<std::uint64_t, std::uint32_t>(table);
  add_wide_product<std::int64_t, std::int32_t>(table);
  using U = std::uint32_t;
  add_elementwise<U, U>(table, "popc.b32", [](U a) { return static_cast<U>(std::popcount(a)); });
  add_elementwise<U, U>(table, "clz.b32", [](U a) { return static_cast<U>(std::countl_zero(a)); });
  add_elementwise<U, U>(table, "brev.b32", [](U a) {
    U out = 0;
    for (int bit = 0; bit < 32; ++bit) out |= (a >> bit & 1U) << (31 - bit);
    return out;
  });
  // With shiftamt: by how much to shift left for the highest bit to be at the top; all ones for 0.
  add_elementwise<U, U>(table, "bfind.shiftamt.u32",
                        [](U a) { return a == 0 ? ~U{0} : static_cast<U>(std::countl_zero(a)); });
  add_byte_products<std::int8_t>(table, "dp4a.s32.s32");
  add_byte_products<std::uint8_t>(table, "dp4a.u32.u32");
  // Bit i of the table is what three bits give that are i as a number, a's first.
  add_elementwise<U, U, U, U, U>(table, "lop3.b32", [](U a, U b, U c, U truth) {
    U out = 0;
    for (int at = 0; at < 32; ++at) {
      const U bits = (a >> at & 1U) << 2 | (b >> at & 1U) << 1 | (c >> at & 1U);
      out |= (truth >> bits & 1U) << at;
    }
    return out;
  });
  add_halves<std::int16_t>(table, "s16x2");
  add_halves<std::uint16_t>(table, "u16x2");
  // The low `length` bits of a, put into b at `at`.
  add_elementwise<U, U, U, U, U>(table, "bfi.b32", [](U a, U b, U at, U length) {
    at &= 0xff;
    length &= 0xff;
    U out = b;
    for (U i = 0; i < length && at + i < 32; ++i) {
      const U bit = U{1} << (at + i);
      out = (a >> i & 1U) != 0 ? out | bit : out & ~bit;
    }
    return out;
  });
  add_on_predicates(table, "and.pred", [](U a, U b) { return a & b; });
  add_on_predicates(table, "or.pred", [](U a, U b) { return a | b; });
  add_on_predicates(table, "xor.pred", [](U a, U b) { return a ^ b; });
  add_on_predicates(
      table, "not.pred", [](U a, U) { return ~a; }, false);
  add_on_predicates(
      table, "mov.pred", [](U a, U) { return a; }, false);
}

}  // namespace nanscope::ptx
