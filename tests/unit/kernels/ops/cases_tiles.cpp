// Attention over tiles of keys, and blocks of columns.
#include "kernels/ops/block_dequantise.h"
#include "kernels/ops/quantise_columns.h"
#include "kernels/ops/tile_mix.h"
#include "kernels/ops/tile_softmax.h"
#include "tests/unit/kernels/ops/case_data.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::kernels::cases {
namespace {

struct TileBlocks {
  std::string name;
  BlockFormat format;
};

BlockFormat tile_format(Format element, float largest, Format scale, std::int32_t rows) {
  BlockFormat format;
  format.element = element;
  format.largest = largest;
  format.scale = scale;
  format.block = {rows, 1};
  if (scale != Format::e8m0) format.rule = ScaleRule::amax_over_max;
  return format;
}

std::vector<TileBlocks> tile_blocks() {
  BlockFormat away = tile_format(Format::e2m1, 6, Format::e8m0, 32);
  away.ties = Ties::away;
  away.scaling = Scaling::reciprocal;
  return {{"mxfp4", tile_format(Format::e2m1, 6, Format::e8m0, 32)},
          {"nvfp4", tile_format(Format::e2m1, 6, Format::e4m3, 16)},
          {"int8", tile_format(Format::int8, 127, Format::f32, 5)},
          {"away", away}};
}

void add_columns(std::vector<OpCase>& cases, const TileBlocks& blocks, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t groups = (shape.rows + blocks.format.block.rows - 1) / blocks.format.block.rows;
    QuantiseColumnsArgs args;
    args.x = memory.input(Format::f32, shape.rows, shape.columns,
                          fill(shape.fill, Format::f32, shape.rows, shape.columns, 81), shape.padding);
    args.codes = memory.output("codes", blocks.format.element, shape.rows, shape.columns, shape.padding);
    args.scales = memory.output("scales", blocks.format.scale, groups, shape.columns, 1);
    args.format = blocks.format;
    memory.launch(args);
    BlockDequantiseArgs back;
    back.codes = args.codes;
    back.scales = args.scales;
    back.out = memory.output("out", Format::f32, shape.rows, shape.columns, shape.padding);
    back.format = blocks.format;
    memory.launch(back);
  };
  cases.push_back({"quantise_columns_" + blocks.name + "_" + shape.name, OpId::QuantiseColumns, build});
}

void add_rows_back(std::vector<OpCase>& cases, const Shape& shape) {
  const auto build = [=](CaseMemory& memory) {
    BlockDequantiseArgs args;
    args.format = tile_format(Format::e4m3, 448, Format::e4m3, 1);
    args.format.block = {1, 16};
    args.format.second = SecondScale::divisor;
    args.second = 3;
    const std::int64_t blocks = (shape.columns + 15) / 16;
    args.codes = memory.input(Format::e4m3, shape.rows, shape.columns,
                              fill(shape.fill, Format::e4m3, shape.rows, shape.columns, 82), shape.padding);
    args.scales =
        memory.input(Format::e4m3, shape.rows, blocks, fill(shape.fill, Format::e4m3, shape.rows, blocks, 83), 2);
    args.out = memory.output("out", Format::bf16, shape.rows, shape.columns, shape.padding);
    memory.launch(args);
  };
  cases.push_back({"block_dequantise_rows_" + shape.name, OpId::BlockDequantise, build});
}

/// T queries after `before` keys of a sequence whose attention goes over S.
struct Tiles {
  std::string name;
  Fill fill;
  std::int64_t queries, before, keys, width, heads, kv_heads, tile;

  std::int64_t tiles() const { return (keys + tile - 1) / tile; }
};

const Tiles kTiles[] = {
    {"prefill", Fill::ordinary, 70, 0, 70, 32, 2, 1, 32},
    {"decode", Fill::ordinary, 1, 70, 80, 40, 4, 4, 32},
    {"wide_tile", Fill::ordinary, 9, 60, 69, 24, 6, 2, 64},
    {"zoo", Fill::zoo, 29, 40, 69, 33, 2, 1, 32},
};

struct SoftmaxForm {
  const char* name;
  bool whole = false;
  bool exact = false;
  bool sinks = false;
  std::int64_t window = 0;
  NanRule rule = NanRule::propagate;
};
constexpr SoftmaxForm kForms[] = {{"online"},
                                  {"whole", true},
                                  {"exact", false, true, false, 0, NanRule::ignore},
                                  {"sinks_sliding", false, false, true, 40}};

void add_tile_softmax(std::vector<OpCase>& cases, const Tiles& size, const SoftmaxForm& form) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t columns = size.heads * size.keys;
    const auto scores = [&](std::uint64_t seed) {
      return memory.input(Format::f32, size.queries, columns,
                          fill(size.fill, Format::f32, size.queries, columns, seed, 20.0F), 3);
    };
    TileSoftmaxArgs args;
    args.scores = scores(84);
    if (form.exact) args.exact_scores = scores(85);
    if (form.sinks) {
      args.sinks = memory.input(Format::bf16, 1, size.heads, fill(Fill::ordinary, Format::bf16, 1, size.heads, 86));
    }
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.tiles() * size.tile, 2);
    args.max = memory.output("max", Format::f32, size.queries, size.heads * size.tiles());
    args.sum = memory.output("sum", Format::f32, size.queries, size.heads * size.tiles(), 1);
    args.heads = size.heads;
    args.tile = size.tile;
    args.first_position = args.own_position = size.before;
    args.first_key = 2;
    args.window = form.window;
    args.max_nan = form.rule;
    args.whole = form.whole;
    memory.launch(args);
  };
  cases.push_back({std::string("tile_softmax_") + form.name + "_" + size.name, OpId::TileSoftmax, build});
}

void add_tile_mix(std::vector<OpCase>& cases, const Tiles& size, Diagonal diagonal, const std::string& label) {
  const auto build = [=](CaseMemory& memory) {
    const std::int64_t p_columns = size.heads * size.tiles() * size.tile;
    const std::int64_t v_columns = size.kv_heads * size.width;
    const auto matrix = [&](std::int64_t rows, std::int64_t columns, Fill kind, std::uint64_t seed) {
      return memory.input(Format::f32, rows, columns, fill(kind, Format::f32, rows, columns, seed), 1);
    };
    TileMixArgs args;
    args.p = matrix(size.queries, p_columns, Fill::ordinary, 87);
    args.exact_p = matrix(size.queries, p_columns, Fill::ordinary, 88);
    args.v = matrix(size.keys, v_columns, Fill::ordinary, 89);
    args.exact_v = matrix(size.keys, v_columns, size.fill, 90);
    args.max = matrix(size.queries, size.heads * size.tiles(), Fill::ordinary, 91);
    args.sum = matrix(size.queries, size.heads * size.tiles(), Fill::ordinary, 92);
    args.out = memory.output("out", Format::f32, size.queries, size.heads * size.width, 4);
    args.heads = size.heads;
    args.kv_heads = size.kv_heads;
    args.tile = size.tile;
    args.first_position = args.own_position = size.before;
    args.window = 50;
    args.diagonal = diagonal;
    args.format = tile_format(Format::e2m1, 6, Format::e8m0, 32);
    memory.launch(args);
  };
  cases.push_back({"tile_mix_" + label + "_" + size.name, OpId::TileMix, build});
}

}  // namespace

void add_tile_cases(std::vector<OpCase>& cases, std::span<const Shape> shapes) {
  for (const Shape& shape : shapes) {
    for (const TileBlocks& blocks : tile_blocks()) add_columns(cases, blocks, shape);
    add_rows_back(cases, shape);
  }
  for (const Tiles& size : kTiles) {
    for (const SoftmaxForm& form : kForms) add_tile_softmax(cases, size, form);
    add_tile_mix(cases, size, Diagonal::quantized, "quantized");
    add_tile_mix(cases, size, Diagonal::exact, "exact");
    add_tile_mix(cases, size, Diagonal::past, "past");
  }
}

}  // namespace nanscope::kernels::cases
