#include <bit>
#include <vector>

#include "kernels/ops/hadamard.h"
#include "kernels/ops/kv_read.h"
#include "kernels/ops/kv_store.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

constexpr std::int64_t kBlocks = 6;
constexpr std::int64_t kBlockSize = 8;
constexpr std::int64_t kSlots = kBlocks * kBlockSize;

std::vector<std::uint32_t> float_codes(std::initializer_list<float> values) {
  std::vector<std::uint32_t> codes;
  for (const float value : values) codes.push_back(std::bit_cast<std::uint32_t>(value));
  return codes;
}

/// Scattered slots, no two the same, every fifth row not written.
std::vector<std::uint32_t> scattered_slots(std::int64_t rows) {
  std::vector<std::uint32_t> slots;
  for (std::int64_t row = 0; row < rows; ++row) {
    slots.push_back(row % 5 == 4 ? 0xffffffffU : static_cast<std::uint32_t>(row * 7 % kSlots));
  }
  return slots;
}

void add_store(std::vector<OpCase>& cases, Format format, Overflow overflow, bool per_token, const Shape& shape,
               float clamp = 0.0F) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = shape.columns;
    KvStoreArgs args;
    args.x = memory.input(Format::f32, shape.rows, columns, fill(shape.fill, Format::f32, shape.rows, columns, 51),
                          shape.padding);
    args.pool = memory.in_out("pool", format, kSlots, columns, fill(Fill::ordinary, format, kSlots, columns, 52));
    args.slots = memory.input(Format::i32, shape.rows, 1, scattered_slots(shape.rows));
    auto scales = fill(Fill::ordinary, Format::f32, shape.rows, 1, 53, 0.01F);
    args.scales = per_token ? memory.input(Format::f32, shape.rows, 1, scales, 2)
                            : memory.input(Format::f32, 1, 1, float_codes({0.0123F}));
    if (per_token) args.slot_scales = memory.output("slot_scales", Format::f32, kSlots, 1);
    args.codes = memory.output("codes", format, shape.rows, columns, shape.padding);
    args.overflow = overflow;
    args.clamp = clamp;
    memory.launch(args);
  };
  const std::string cast = overflow == Overflow::saturate ? "saturate" : "overflow";
  const std::string mode = clamp > 0 ? "clamp_" + cast : cast;
  cases.push_back(
      {"kv_store_" + std::string(name(format)) + "_" + mode + (per_token ? "_per_token_" : "_") + shape.name,
       OpId::KvStore, build});
}

void add_read(std::vector<OpCase>& cases, Format format, bool per_slot, std::int64_t context, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = shape.columns;
    KvReadArgs args;
    args.pool = memory.input(format, kSlots, columns, fill(shape.fill, format, kSlots, columns, 54));
    const std::vector<std::uint32_t> blocks = {4, 1, 5, 0};
    args.blocks = memory.input(Format::i32, 4, 1, blocks);
    if (per_slot) {
      args.slot_scales = memory.input(Format::f32, kSlots, 1, fill(shape.fill, Format::f32, kSlots, 1, 55, 0.1F));
    }
    args.out = memory.output("out", Format::f32, context, columns, shape.padding);
    args.block_size = kBlockSize;
    args.scale = 0.025F;
    memory.launch(args);
  };
  cases.push_back(
      {"kv_read_" + std::string(name(format)) + (per_slot ? "_per_slot_" : "_") + shape.name, OpId::KvRead, build});
}

/// A reader that errs: the scale used otherwise, and codes of e4m3 taken for e4m3fnuz.
void add_misread(std::vector<OpCase>& cases, ScaleUse use, std::string_view use_name, Format as, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = shape.columns;
    KvReadArgs args;
    args.pool = memory.input(Format::e4m3, kSlots, columns, fill(shape.fill, Format::e4m3, kSlots, columns, 54));
    args.pool.format = as;
    args.blocks = memory.input(Format::i32, 4, 1, std::vector<std::uint32_t>{4, 1, 5, 0});
    args.slot_scales = memory.input(Format::f32, kSlots, 1, fill(shape.fill, Format::f32, kSlots, 1, 55, 0.1F));
    args.out = memory.output("out", Format::f32, 29, columns, shape.padding);
    args.block_size = kBlockSize;
    args.scale_use = use;
    memory.launch(args);
  };
  std::string title = "kv_read_scale_" + std::string(use_name) + "_as_" + std::string(name(as)) + "_";
  cases.push_back({title + shape.name, OpId::KvRead, build});
}

/// Scales and zero points of groups of channels.
struct Groups {
  const char* name;
  Format format;
  std::int64_t scale_group;
  std::int64_t zero_group;
  bool has_zeros;
  ZeroPoint zero;
  bool each_row;
  bool multiply;
  IntRounding rounding;
  std::int32_t low, high;
};

constexpr Groups kGroups[] = {
    {"int8_token_blocks_away", Format::int8, 16, 0, false, ZeroPoint::code, true, true, IntRounding::away, -127, 127},
    {"int4_channels_zero_code", Format::int8, 1, 1, true, ZeroPoint::code, false, false, IntRounding::even, 0, 15},
    {"int2_blocks_zero_value", Format::int8, 32, 32, true, ZeroPoint::value, true, false, IntRounding::even, 0, 3},
    {"int4_up_kept", Format::int8, 32, 0, false, ZeroPoint::code, true, true, IntRounding::up, -8, 7},
    {"e4m3_token_less_mean", Format::e4m3, 0, 1, true, ZeroPoint::value, true, false, IntRounding::even, 0, 0},
    {"e2m1_blocks", Format::e2m1, 16, 0, false, ZeroPoint::code, true, false, IntRounding::even, 0, 0},
};

void add_grouped_store(std::vector<OpCase>& cases, const Groups& groups, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = shape.columns;
    const std::int64_t rows = groups.each_row ? shape.rows : 1;
    const std::int64_t scales = group_count(columns, groups.scale_group);
    const std::int64_t zeros = group_count(columns, groups.zero_group);
    KvStoreArgs args;
    args.x = memory.input(Format::f32, shape.rows, columns, fill(shape.fill, Format::f32, shape.rows, columns, 61),
                          shape.padding);
    args.pool =
        memory.in_out("pool", groups.format, kSlots, columns, fill(Fill::ordinary, groups.format, kSlots, columns, 62));
    args.slots = memory.input(Format::i32, shape.rows, 1, scattered_slots(shape.rows));
    args.scales = memory.input(Format::f32, rows, scales, fill(Fill::ordinary, Format::f32, rows, scales, 63, 0.1F), 3);
    if (groups.rounding == IntRounding::up) {
      args.kept = memory.input(Format::f32, rows, scales, fill(Fill::ordinary, Format::f32, rows, scales, 64), 1);
    }
    if (groups.has_zeros) {
      args.zeros = memory.input(Format::f32, rows, zeros, fill(shape.fill, Format::f32, rows, zeros, 65, 8.0F), 2);
      args.slot_zeros = memory.output("slot_zeros", Format::f32, kSlots, zeros);
    }
    args.slot_scales = memory.output("slot_scales", Format::f32, kSlots, scales, 1);
    args.codes = memory.output("codes", groups.format, shape.rows, columns, shape.padding);
    args.scale_group = groups.scale_group;
    args.zero_group = groups.zero_group;
    args.zero = groups.zero;
    args.multiply = groups.multiply;
    args.rounding = groups.rounding;
    args.low = groups.low;
    args.high = groups.high;
    memory.launch(args);
  };
  cases.push_back({"kv_store_" + std::string(groups.name) + "_" + shape.name, OpId::KvStore, build});
}

void add_grouped_read(std::vector<OpCase>& cases, const Groups& groups, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = shape.columns;
    const std::int64_t scales = group_count(columns, groups.scale_group);
    const std::int64_t zeros = group_count(columns, groups.zero_group);
    KvReadArgs args;
    args.pool = memory.input(groups.format, kSlots, columns, fill(shape.fill, groups.format, kSlots, columns, 66));
    args.blocks = memory.input(Format::i32, 4, 1, std::vector<std::uint32_t>{4, 1, 5, 0});
    args.slot_scales =
        memory.input(Format::f32, kSlots, scales, fill(shape.fill, Format::f32, kSlots, scales, 67, 0.1F), 1);
    if (groups.has_zeros) {
      args.slot_zeros =
          memory.input(Format::f32, kSlots, zeros, fill(shape.fill, Format::f32, kSlots, zeros, 68, 8.0F), 2);
    } else {
      args.kept_rows = memory.input(Format::bf16, kSlots, columns, fill(shape.fill, Format::bf16, kSlots, columns, 69));
      args.coded_from = 2;
      args.coded_end = 21;
      args.outliers_beyond = groups.multiply ? 7.0F : 0.0F;
    }
    args.out = memory.output("out", Format::f32, 29, columns, shape.padding);
    args.block_size = kBlockSize;
    args.scale_group = groups.scale_group;
    args.zero_group = groups.zero_group;
    args.zero = groups.zero;
    args.scale_use = groups.each_row ? ScaleUse::once : ScaleUse::twice;
    memory.launch(args);
  };
  cases.push_back({"kv_read_" + std::string(groups.name) + "_" + shape.name, OpId::KvRead, build});
}

void add_hadamard(std::vector<OpCase>& cases, Format format, std::int64_t heads, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    HadamardArgs args;
    args.x = memory.input(format, shape.rows, shape.columns, fill(shape.fill, format, shape.rows, shape.columns, 70),
                          shape.padding);
    args.out = memory.output("out", format, shape.rows, shape.columns, shape.padding);
    args.heads = heads;
    memory.launch(args);
  };
  cases.push_back({"hadamard_" + std::string(name(format)) + "_" + shape.name, OpId::Hadamard, build});
}

}  // namespace

void add_kv_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  const Format stored[] = {Format::f32,      Format::f16,      Format::bf16, Format::e4m3, Format::e5m2,
                           Format::e4m3fnuz, Format::e5m2fnuz, Format::int8, Format::e2m1};
  for (const Shape& shape : shapes) {
    for (const Format format : stored) {
      add_store(cases, format, Overflow::saturate, false, shape);
      add_read(cases, format, false, 29, shape);
    }
    add_store(cases, Format::e4m3, Overflow::overflow, false, shape);
    add_store(cases, Format::e4m3, Overflow::saturate, true, shape);
    add_store(cases, Format::e4m3, Overflow::overflow, false, shape, 448.0F);
    add_read(cases, Format::e4m3, true, 32, shape);
    add_misread(cases, ScaleUse::none, "none", Format::e4m3, shape);
    add_misread(cases, ScaleUse::twice, "twice", Format::e4m3, shape);
    add_misread(cases, ScaleUse::inverse, "inverse", Format::e4m3, shape);
    add_misread(cases, ScaleUse::once, "once", Format::e4m3fnuz, shape);
    for (const Groups& groups : kGroups) {
      add_grouped_store(cases, groups, shape);
      add_grouped_read(cases, groups, shape);
    }
  }
  for (const Format format : {Format::f32, Format::bf16}) {
    add_hadamard(cases, format, 1, {"ordinary", Fill::ordinary, 4, 64, 0});
    add_hadamard(cases, format, 5, {"zoo", Fill::zoo, 9, 80, 3});
    add_hadamard(cases, format, 1, {"wide", Fill::ordinary, 2, 256, 5});
  }
}

}  // namespace nanscope::kernels::cases
