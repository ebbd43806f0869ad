#include <bit>
#include <vector>

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

}  // namespace

void add_kv_cases(std::vector<OpCase>& cases) {
  const Format stored[] = {Format::f32,      Format::f16,      Format::bf16, Format::e4m3, Format::e5m2,
                           Format::e4m3fnuz, Format::e5m2fnuz, Format::int8, Format::e2m1};
  for (const Shape& shape : shapes()) {
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
  }
}

}  // namespace nanscope::kernels::cases
