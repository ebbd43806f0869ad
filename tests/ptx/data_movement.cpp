/// mov, selp, cvta, ld and st (PTX ISA 9.7.9). Loads extend to the register, stores cut off; what is not aligned to the
/// whole access is an error.
#include <array>
#include <cstdint>
#include <cstring>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

template <class T>
struct Select {
  static void run(Lanes& lanes, const Instruction& of) {
    const std::uint32_t chosen = lanes.predicate(of.operands[3]);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!lanes.has(lane)) continue;
      lanes.of<T>(of.operands[0])[lane] = lanes.of<T>(of.operands[(chosen >> lane & 1U) != 0 ? 1 : 2])[lane];
    }
  }
};

template <class T>
void add_of_width(InstructionTable& table, std::initializer_list<const char*> types) {
  for (const char* type : types) {
    add_elementwise<T, T>(table, std::string("mov.") + type, [](T a) { return a; });
    table[std::string("selp.") + type] = {&Select<T>::run,
                                          {{sizeof(T), true}, {sizeof(T), false}, {sizeof(T), false}, {0, false}}};
  }
}

/// A register as two halves, the lower first.
template <class Whole, class Half>
void unpack(Lanes& lanes, const Instruction& of) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const Whole whole = lanes.of<Whole>(of.operands[2])[lane];
    lanes.of<Half>(of.operands[0])[lane] = static_cast<Half>(whole);
    lanes.of<Half>(of.operands[1])[lane] = static_cast<Half>(whole >> (8 * sizeof(Half)));
  }
}
void pack(Lanes& lanes, const Instruction& of) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!lanes.has(lane)) continue;
    const std::uint64_t upper = lanes.of<std::uint32_t>(of.operands[2])[lane];
    lanes.of<std::uint64_t>(of.operands[0])[lane] = upper << 32 | lanes.of<std::uint32_t>(of.operands[1])[lane];
  }
}

/// Of `kCount` elements next to each other; `kSigned`: a load extends their sign. The address is the last operand.
template <class T, int kCount>
struct Access {
  using Values = std::array<T, kCount>;
  static constexpr std::uint64_t kNoAddress = ~std::uint64_t{0};

  static std::uint64_t address_of(const Lanes& lanes, const Instruction& of, int lane) {
    const std::uint64_t address = read_lane(lanes, of.operands[kCount], lane) + static_cast<std::uint64_t>(of.offset);
    return of.operands[kCount].width == 4 ? address & 0xffffffffU : address;
  }

  static bool check(const Lanes& lanes, const Instruction& of, std::uint64_t address) {
    if (address % (sizeof(T) * kCount) != 0) {
      lanes.report("an address that is not a multiple of the access's size");
      return false;
    }
    const bool local = (address & kLocalWindow) != 0;
    const bool param = (address & kParamWindow) != 0;
    const bool shared = (address & kSharedWindow) != 0;
    const bool fits = of.space == Space::generic || (of.space == Space::local && local) ||
                      (of.space == Space::param && param) || (of.space == Space::shared && !local && !param) ||
                      (of.space == Space::global && !local && !param && !shared);
    if (!fits) lanes.report("an address of another state space");
    return fits;
  }

  static std::string load(const Lanes& lanes, const Instruction& of, std::uint64_t address, int lane, Values& values) {
    if (of.space == Space::shared || (address & kSharedWindow) != 0) {
      return lanes.shared->load(address, values.data(), sizeof(values));
    }
    const bool own = (address & (kLocalWindow | kParamWindow)) != 0;
    return own ? lanes.own->load(address, lane, values.data(), sizeof(values))
               : lanes.memory->load(address, values.data(), sizeof(values));
  }
  static std::string store(const Lanes& lanes, const Instruction& of, std::uint64_t address, int lane,
                           const Values& values) {
    if (of.space == Space::shared || (address & kSharedWindow) != 0) {
      return lanes.shared->store(address, values.data(), sizeof(values));
    }
    const bool own = (address & (kLocalWindow | kParamWindow)) != 0;
    return own ? lanes.own->store(address, lane, values.data(), sizeof(values))
               : lanes.memory->store(address, values.data(), sizeof(values));
  }

  static void load_all(Lanes& lanes, const Instruction& of) {
    Values values{};
    std::uint64_t loaded = kNoAddress;  // by the lane before, and not of its own memory
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!lanes.has(lane)) continue;
      const std::uint64_t address = address_of(lanes, of, lane);
      if (address != loaded) {
        if (!check(lanes, of, address)) return;
        std::string wrong = load(lanes, of, address, lane, values);
        if (!wrong.empty()) return lanes.report(std::move(wrong));
        loaded = (address & (kLocalWindow | kParamWindow)) == 0 ? address : kNoAddress;
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        write_lane(lanes, of.operands[i], lane, static_cast<std::uint64_t>(values[i]));
      }
    }
  }

  static void store_all(Lanes& lanes, const Instruction& of) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!lanes.has(lane)) continue;
      const std::uint64_t address = address_of(lanes, of, lane);
      if (!check(lanes, of, address)) return;
      Values values{};
      for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<T>(read_lane(lanes, of.operands[i], lane));
      std::string wrong = store(lanes, of, address, lane, values);
      if (!wrong.empty()) return lanes.report(std::move(wrong));
    }
  }
};

template <class T, int kCount>
void add_access(InstructionTable& table, const std::string& type) {
  const std::string vector = kCount == 1 ? "" : "v" + std::to_string(kCount) + ".";
  for (const char* space : {"", "global.", "local.", "param.", "shared."}) {
    for (const bool stores : {false, true}) {
      InstructionForm form;
      form.run = stores ? &Access<T, kCount>::store_all : &Access<T, kCount>::load_all;
      form.operands.assign(kCount, {kAnyWidth, !stores});
      form.operands.push_back({8, false});
      form.bytes = sizeof(T);
      form.elements = kCount;
      form.stores = stores;
      table[std::string(stores ? "st." : "ld.") + space + vector + type] = std::move(form);
    }
  }
}

template <class T>
void add_accesses(InstructionTable& table, std::initializer_list<const char*> types) {
  for (const char* type : types) {
    add_access<T, 1>(table, type);
    add_access<T, 2>(table, type);
    add_access<T, 4>(table, type);
  }
}

}  // namespace

void add_data_movement(InstructionTable& table) {
  add_of_width<std::uint16_t>(table, {"b16", "u16", "s16"});
  add_of_width<std::uint32_t>(table, {"b32", "u32", "s32", "f32"});
  add_of_width<std::uint64_t>(table, {"b64", "u64", "s64", "f64"});
  // With braces around the halves; the reader writes them behind the name.
  table["mov.b64{}="] = {&unpack<std::uint64_t, std::uint32_t>, {{4, true}, {4, true}, {8, false}}};
  table["mov.b32{}="] = {&unpack<std::uint32_t, std::uint16_t>, {{2, true}, {2, true}, {4, false}}};
  table["mov.b64={}"] = {&pack, {{8, true}, {4, false}, {4, false}}};
  // An address says by itself where it points.
  for (const char* name : {"cvta.to.global.u64", "cvta.to.local.u64", "cvta.local.u64", "cvta.param.u64"}) {
    table[name] = table["mov.u64"];
  }
  add_elementwise<std::uint64_t, std::uint64_t>(table, "cvta.shared.u64",
                                                [](std::uint64_t a) { return a | kSharedWindow; });
  add_elementwise<std::uint64_t, std::uint64_t>(table, "cvta.to.shared.u64",
                                                [](std::uint64_t a) { return a & ~kSharedWindow; });
  add_accesses<std::uint8_t>(table, {"b8", "u8"});
  add_accesses<std::int8_t>(table, {"s8"});
  add_accesses<std::uint16_t>(table, {"b16", "u16"});
  add_accesses<std::int16_t>(table, {"s16"});
  add_accesses<std::uint32_t>(table, {"b32", "u32", "f32"});
  add_accesses<std::int32_t>(table, {"s32"});
  add_accesses<std::uint64_t>(table, {"b64", "u64", "f64", "s64"});
}

}  // namespace nanscope::ptx
