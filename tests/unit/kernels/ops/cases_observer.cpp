#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <vector>

#include "kernels/ops/absmax.h"
#include "kernels/ops/argmax.h"
#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

void add_health(std::vector<OpCase>& cases, Format format, bool source, const Shape& shape, bool sums = true) {
  const auto build = [=](CaseMemory& memory) {
    HealthScanArgs args;
    args.x = data_input(memory, format, shape, 71);
    if (source) {
      args.source = memory.input(Format::f32, shape.rows, shape.columns,
                                 fill(shape.fill, Format::f32, shape.rows, shape.columns, 72, 600.0F), shape.padding);
      const std::vector<std::uint32_t> scale = {std::bit_cast<std::uint32_t>(0.5F)};
      args.source_scales = memory.input(Format::f32, 1, 1, scale);
    }
    const auto tiles = static_cast<std::size_t>(shape.rows * ((shape.columns + kTileChannels - 1) / kTileChannels));
    args.tiles = static_cast<Health*>(memory.output_bytes("tiles", tiles * sizeof(Health)));
    args.sums = sums;
    memory.launch(args);
  };
  const std::string_view kind = source ? "source_" : sums ? "" : "no_sums_";
  cases.push_back({fmt::format("health_scan_{}_{}{}", name(format), kind, shape.name), OpId::HealthScan, build});
}

/// Health and hash of one launch.
void add_both(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    HealthScanArgs args;
    args.x = data_input(memory, format, shape, 77);
    const auto tiles = static_cast<std::size_t>(shape.rows * ((shape.columns + kTileChannels - 1) / kTileChannels));
    args.tiles = static_cast<Health*>(memory.output_bytes("tiles", tiles * sizeof(Health)));
    const auto chunks = static_cast<std::size_t>(hash_chunks(args.x));
    args.chunks = static_cast<std::uint64_t*>(memory.output_bytes("chunks", chunks * sizeof(std::uint64_t)));
    args.several_from = 1;
    memory.launch(args);
  };
  cases.push_back({fmt::format("health_scan_{}_hash_{}", name(format), shape.name), OpId::HealthScan, build});
}

void add_argmax(std::vector<OpCase>& cases, const std::string& label, ArgmaxNan rule, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    ArgmaxArgs args;
    args.x = data_input(memory, Format::f32, shape, 73);
    args.out = memory.output("out", Format::i32, shape.rows, 1, 1);
    args.nan = rule;
    memory.launch(args);
  };
  cases.push_back({"argmax_" + label + "_" + shape.name, OpId::Argmax, build});
}

void add_absmax(std::vector<OpCase>& cases, NanRule rule, bool per_row, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    AbsmaxArgs args;
    args.x = data_input(memory, Format::f32, shape, 74);
    args.out = memory.output("out", Format::f32, per_row ? shape.rows : 1, 1, 2);
    args.nan = rule;
    memory.launch(args);
  };
  cases.push_back({std::string("absmax_") + (rule == NanRule::propagate ? "propagate_" : "ignore_") +
                       (per_row ? "row_" : "tensor_") + shape.name,
                   OpId::Absmax, build});
}

void add_hash(std::vector<OpCase>& cases, Format format, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    ContentHashArgs args;
    args.x = data_input(memory, format, shape, 75);
    const std::size_t bytes = static_cast<std::size_t>(args.x.elements()) * info(format).storage_bytes();
    const std::size_t chunks = (bytes + kHashChunk - 1) / kHashChunk;
    args.chunks = static_cast<std::uint64_t*>(memory.output_bytes("chunks", chunks * sizeof(std::uint64_t)));
    memory.launch(args);
  };
  cases.push_back({"content_hash_" + std::string(name(format)) + "_" + shape.name, OpId::ContentHash, build});
}

}  // namespace

void add_observer_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    for (const FormatInfo& format : formats()) add_health(cases, format.format, false, shape);
    for (const Format format : {Format::f16, Format::e4m3, Format::int8}) add_health(cases, format, true, shape);
    for (const Format format : {Format::f32, Format::f16, Format::bf16, Format::e4m3, Format::int8}) {
      add_health(cases, format, false, shape, false);
    }
    add_argmax(cases, "first_greater", ArgmaxNan::first_greater, shape);
    add_argmax(cases, "propagate", ArgmaxNan::propagate, shape);
    add_argmax(cases, "refuse", ArgmaxNan::refuse, shape);
    for (const bool per_row : {true, false}) {
      add_absmax(cases, NanRule::propagate, per_row, shape);
      add_absmax(cases, NanRule::ignore, per_row, shape);
    }
    for (const Format format : {Format::f32, Format::bf16, Format::e4m3}) {
      add_hash(cases, format, shape);
      add_both(cases, format, shape);
    }
  }
  // Large enough that a warp hashes what it scans; the last chunk is short.
  add_both(cases, Format::f32, {"large", Fill::ordinary, 4100, 128, 0});
  add_both(cases, Format::bf16, {"large", Fill::zoo, 1027, 1024, 0});
  add_both(cases, Format::e4m3, {"large", Fill::zoo, 259, 8192, 0});
  // Tiles of which a GPU's warp takes eight or more at once; behind the warps that do, some chunks are left over. In
  // the zoo most rows have a tile that such a warp has to scan in another way.
  add_both(cases, Format::f32, {"ordinary_large", Fill::ordinary, 1057, 1024, 0});
  add_both(cases, Format::f32, {"zoo_large", Fill::zoo, 531, 1024, 0});
  for (const Format format : {Format::f16, Format::bf16}) {
    add_both(cases, format, {"ordinary_large", Fill::ordinary, 1061, 1024, 0});
  }
  add_both(cases, Format::f16, {"zoo_large", Fill::zoo, 525, 2048, 0});
  for (const Format format : {Format::e4m3, Format::int8}) {
    add_both(cases, format, {"ordinary_large", Fill::ordinary, 473, 4608, 0});
  }
  add_both(cases, Format::int8, {"zoo_large", Fill::zoo, 473, 4608, 0});
}

}  // namespace nanscope::kernels::cases
