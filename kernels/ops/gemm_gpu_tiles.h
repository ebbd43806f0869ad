#pragma once
/// The product of gemm.h on a GPU.
#include "kernels/ops/gemm_gpu.h"
#include "kernels/ops/product_tiles_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

static_assert(kPartDepth == kPartialDepth);

/// Panels, which are made for a CPU's registers, are a weight whose columns lie side by side. Codes and scales come
/// element by element.
struct GemmProblem {
  GemmArgs args;

  NANSCOPE_FN std::int64_t rows(const GemmProblem& of) { return of.args.out.rows; }
  NANSCOPE_HOST std::int64_t columns(const GemmProblem& of) { return of.args.out.columns; }
  NANSCOPE_HOST std::int64_t depth(const GemmProblem& of) { return of.args.x.columns; }

  NANSCOPE_FN Format x_format(const GemmProblem& of) { return of.args.x.format; }
  NANSCOPE_FN bool x_whole(const GemmProblem& of) { return has_quads(of.args.x); }
  NANSCOPE_FN const char* x_row(const GemmProblem& of, std::int64_t row) { return address_of(of.args.x, row, 0); }
  NANSCOPE_FN float x_at(const GemmProblem& of, std::int64_t row, std::int64_t k) {
    return load_float(of.args.x, row, k);
  }

  NANSCOPE_HOST Format weight_format(const GemmProblem& of) {
    return of.args.packed.given() ? Format::f32 : of.args.weight.format;
  }
  NANSCOPE_HOST bool weight_whole(const GemmProblem& of) {
    return !of.args.scaled.given() && (of.args.packed.given() || has_quads(of.args.weight));
  }
  NANSCOPE_HOST std::int64_t weight_step(const GemmProblem& of) {
    return of.args.packed.given() ? kPanelColumns * static_cast<std::int64_t>(sizeof(float)) : 0;
  }
  NANSCOPE_HOST const char* weight_row(const GemmProblem& of, std::int64_t n) {
    return of.args.packed.given() ? address_of(of.args.packed, n / kPanelColumns * of.args.x.columns, n % kPanelColumns)
                                  : address_of(of.args.weight, n, 0);
  }
  NANSCOPE_FN float weight_at(const GemmProblem& of, std::int64_t n, std::int64_t k) {
    return NANSCOPE_ISA::weight_at(of.args, n, k);
  }

  NANSCOPE_FN std::int64_t out_row(const GemmProblem& /*of*/, std::int64_t row) { return row; }
  /// -0: nothing is added.
  NANSCOPE_FN float summand(const GemmProblem& of, std::int64_t column) {
    return of.args.bias.given() ? load_float(of.args.bias, 0, column) : -0.0F;
  }
  NANSCOPE_FN void store(const GemmProblem& of, std::int64_t row, std::int64_t column, float bias, float total) {
    store_element(of.args.out, row, column, total + bias);
  }
};

/// Sums in parts, of any number of rows.
template <class Source>
struct GemmPartsForm {
  using Args = typename Source::Args;

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ float4 memory[tile_memory(kSmallRows)];
    ProductTile<GemmProblem, kSmallRows, true>::run(Source::problem(args, 0), warp / kBlockWarps, memory);
  }
};

template <class Source>
using GemmProducts = ProductForms<Source, FewWeights::f32_along_k, FewWeights::halves_along_k,
                                  FewWeights::f32_along_columns, FewWeights::each>;

struct Gemm {
  using Args = GemmArgs;
  using Products = GemmProducts<Gemm>;
  using Forms = JoinedForms<Products::List, FormList<GemmPartsForm<Gemm>>>;

  NANSCOPE_HOST bool in_parts(const Args& args) { return args.partial != Format::f32; }
  NANSCOPE_HOST ProductShape shape(const Args& args) { return {args.out.rows, args.out.columns, args.x.columns}; }
  NANSCOPE_HOST GemmProblem problem(const Args& args, std::int64_t /*batch*/) { return {args}; }

  NANSCOPE_HOST int form(const Args& args) { return in_parts(args) ? Products::kCount : Products::form(args); }
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return in_parts(args) ? kBlockWarps * tile_count(shape(args), kSmallRows) : tile_warps(shape(args));
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return tile_work(shape(args)); }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
