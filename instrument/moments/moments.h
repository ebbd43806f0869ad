#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "kernels/choices.h"

/// Mean and variance of a few numbers as norm kernels compute them: one row of kernels/ops/layer_norm.h for each form
/// of the variance and each order of the sum.
namespace nanscope {

/// One way of computing the moments.
struct MomentsForm {
  kernels::VarianceForm variance = kernels::VarianceForm::two_pass;
  kernels::SumOrder order = kernels::SumOrder::sequential;
  bool contract = false;  ///< one pass: E[x^2] - E[x]^2 in one fused multiply-add, as nvcc compiles it by default
};

struct Moments {
  MomentsForm form;
  float mean = 0;
  float variance = 0;  ///< before eps is added
  float inverse = 0;   ///< 1 / sqrt(variance + eps)
};

/// The same in double precision by the definition, of the values as stored.
struct ExactMoments {
  double mean = 0;
  double variance = 0;
  double inverse = 0;
};

struct MomentsReport {
  std::vector<float> values;  ///< as the format stores them
  Format format = Format::f32;
  float eps = 1e-5F;
  ExactMoments exact;
  std::vector<Moments> forms;
};

struct MomentsOptions {
  Format format = Format::f32;  ///< the values are rounded to it first; all sums are f32, as in kernels
  float eps = 1e-5F;            ///< 0 or greater
  std::string form = {};        ///< one-pass, one-pass-fused, two-pass, welford; empty: all
  std::string order = {};       ///< sequential, warp, pairwise; empty: all
};

/// Names of the forms, in the order of the report.
std::span<const std::string_view> moments_forms();
std::span<const std::string_view> sum_orders();
std::string_view form_name(const MomentsForm& form);
std::string_view order_name(kernels::SumOrder order);

/// Reads values as typed: "11.2 x 8 3" is eight times 11.2 and a 3. At most 2^20 values. Errors name the word.
Result<std::vector<double>> parse_moments_values(std::span<const std::string> words);

/// Computes the moments on the CPU, bit for bit as the engine's norms do.
Result<MomentsReport> compute_moments(std::span<const double> values, const MomentsOptions& options);

}  // namespace nanscope
