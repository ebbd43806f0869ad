/// Products with weights: plain, with a bias, of codes with scales of any grid.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/numbers/codec.h"
#include "core/run/ranks.h"
#include "core/run/scale_grid.h"
#include "core/run/scales.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/input_cast.h"
#include "instrument/recompute/product_rounding.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/recompute.h"
#include "instrument/recompute/scaled.h"

namespace nanscope {
namespace {

constexpr std::int64_t kOutputsAtOnce = 512;

struct Linear {
  const Tensor* weight = nullptr;
  const Tensor* scale = nullptr;
  const Tensor* second = nullptr;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool transposed = false;
  double largest = 0;  ///< magnitude of the weight, where it goes through a format that needs a scale
  StepId step = 0;     ///< of the product
};

double largest_of(RunView& run, const Tensor& weight) {
  double largest = 0;
  run.each_block(weight, [&](std::int64_t, std::span<const float> numbers) {
    for (const float one : numbers) largest = std::max(largest, double{std::abs(one)});
    return true;
  });
  return largest;
}

bool linear_of(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t inputs, Linear& into,
               std::string& why) {
  RunView& run = values.run();
  into.weight = form.other != 0 && form.variant == kAsDumped
                    ? run.tensor(form.other)
                    : run.input(op, form.rounded_scales ? "weight_served" : "weight");
  if (into.weight == nullptr || !into.weight->known || into.weight->stated) {
    why = kWeightNotDumped;
    return false;
  }
  into.scale =
      form.other != 0 && form.variant == kScaleOfWeight ? run.tensor(form.other) : run.input(op, "weight_scale");
  into.second = run.input(op, "weight_scale_2");
  const Tensor& w = *into.weight;
  into.inputs = inputs;
  into.step = op.step;
  into.outputs = out.known ? out.channels : (w.channels == inputs ? w.tokens : w.channels);
  const bool plain = w.tokens == into.outputs && w.channels == inputs;
  const bool turned = w.tokens == inputs && w.channels == into.outputs;
  // GPT-2's Conv1D keeps (in, out); of a square weight the module's name tells.
  const bool conv = w.name.find("c_attn") != std::string::npos || w.name.find("c_proj") != std::string::npos ||
                    w.name.find("c_fc") != std::string::npos;
  into.transposed = turned && (!plain || conv);
  if (form.turned && plain && turned) into.transposed = !into.transposed;
  if (form.weight_as && info(*form.weight_as).bits < 16) into.largest = largest_of(run, w);
  if (!plain && !turned) why = "the shape of its weight is not that of its input and output";
  return plain || turned;
}

/// Columns [first, first + count) count as nothing.
void leave_out(std::int64_t first, std::int64_t count, Block& x) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t k = first; k < std::min(first + count, x.columns); ++k) {
      const auto at = static_cast<std::size_t>(row * x.columns + k);
      x.value[at] = 0;
      if (!x.error.empty()) x.error[at] = 0;
    }
  }
}

/// Numbers as a cast to a format leaves them; below 16 bits with a scale that the largest of the tensor sets.
void cast(Format format, double largest, std::span<float> numbers) {
  const bool scaled = info(format).bits < 16;
  const auto scale = scaled && largest > 0 ? static_cast<float>(largest / double{info(format).max_finite}) : 1.0F;
  for (float& one : numbers) one = decode(format, encode(format, one / scale, Overflow::saturate)) * scale;
}

void cast_rows(RunView& run, const Op& op, Format format, Block& x) {
  const Tensor* in = run.input(op, "x");
  double largest = in != nullptr && in->known ? double{in->health.absmax} : 0;
  for (const float one : x.value) largest = std::max(largest, double{std::abs(one)});
  cast(format, largest, x.value);
}

/// x as the product reads it, with what it may be off.
bool operand(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
             std::int64_t count, Block& x, std::string& why) {
  const Tensor* codes = values.run().input(op, "codes");
  const bool by_codes = form.variant == kCodes || form.variant == kScaleOfCodes || form.variant == kNoZeroPoint;
  if (form.variant == kCastInput) {
    return input_rows(values, op, "x", out, first, count, x, why) && cast_input(values, op, out, form, first, x, why);
  }
  if (const auto cast = input_cast(values.run(), op); cast && cast->scales == CastScales::fixed) {
    why = "its input was cast, and the codes were not dumped";
    return false;
  } else if (!cast && cast.error().why == Unknown::not_understood) {
    why = cast.error().text;
    return false;
  }
  if (!by_codes || codes == nullptr) {
    if (!input_rows(values, op, "x", out, first, count, x, why)) return false;
    if (form.variant == kRangeOfK) leave_out(form.shift, form.heads, x);
    if (form.x_as) cast_rows(values.run(), op, *form.x_as, x);
    return true;
  }
  if (!input_rows(values, op, "codes", out, first, count, x, why)) return false;
  const Tensor* scale = values.run().input(op, "x_scale");
  if (scale == nullptr) return true;
  const auto grid = ScaleGrid::of(values.run(), *scale, *codes);
  if (!grid) {
    why = "the shape of its input's scale fits no grid";
    return false;
  }
  const int power = form.variant == kScaleOfCodes ? form.scale_power : 1;
  const auto zeros =
      form.variant == kNoZeroPoint ? std::nullopt : zero_points(values.run(), op, "x_zero_point", *codes);
  for (std::int64_t row = 0; row < count; ++row) {
    const auto at = values.run().same_row(out, first + row, *codes).value_or(first + row);
    for (std::int64_t k = 0; k < x.columns; ++k) {
      float& value = x.value[static_cast<std::size_t>(row * x.columns + k)];
      value = static_cast<float>((double{value} - (zeros ? zeros->at(at, k) : 0)) * powered(grid->at(at, k), power));
    }
  }
  if (form.rounded == kOperandRounded) cast(values.activation_format(op.step), 0, x.value);
  return true;
}

/// Rows of the weight as numbers with their scales.
bool scaled_rows(Values& values, const Linear& linear, const OpForm& form, std::int64_t first, std::int64_t count,
                 std::vector<float>& into) {
  const auto block = values.rows(*linear.weight, first, count);
  if (!block) return false;
  into = block->value;
  if (form.as && form.variant == kAsDumped) {
    const Fact<TensorData> data = values.run().read(*linear.weight, first, count);
    if (!data || info(*form.as).bits != info(linear.weight->format).bits) return false;
    into = data->values_as(*form.as);
  }
  if (form.weight_as) cast(*form.weight_as, linear.largest, into);
  if (linear.scale == nullptr) return true;
  const auto grid = ScaleGrid::of(values.run(), *linear.scale, *linear.weight);
  if (!grid) return false;
  const int power = form.variant == kScaleOfWeight ? form.scale_power : 1;
  double second = 1;
  if (linear.second != nullptr && form.variant != kNoSecond) {
    const auto two = values.run().values(*linear.second);
    if (two && !two->empty()) second = form.number == 2 ? 1 / double{two->front()} : double{two->front()};
  }
  const std::int64_t width = linear.weight->channels;
  const Format format = values.activation_format(linear.step);
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t k = 0; k < width; ++k) {
      const bool turned = form.variant == kTransposedScale;
      const double scale =
          turned ? grid->at(k % linear.weight->tokens, (first + row) % width) : grid->at(first + row, k);
      float& value = into[static_cast<std::size_t>(row * width + k)];
      value = static_cast<float>(double{value} * powered(scale, power) * second);
      if (form.rounded == kWeightRounded) value = decode(format, encode(format, value, Overflow::saturate));
    }
  }
  return true;
}

/// Squares of x, each row divided by its largest magnitude first, so that they stay in f32.
struct Squares {
  Squares() = default;
  explicit Squares(const Block& x) : values(x.value.size()), largest(static_cast<std::size_t>(x.rows)) {
    for (std::int64_t t = 0; t < x.rows; ++t) {
      float& most = largest[static_cast<std::size_t>(t)];
      for (std::int64_t k = 0; k < x.columns; ++k) most = std::max(most, std::abs(x.row(t)[k]));
      for (std::int64_t k = 0; most > 0 && k < x.columns; ++k)
        values[static_cast<std::size_t>(t * x.columns + k)] = x.row(t)[k] / most * (x.row(t)[k] / most);
    }
  }

  std::vector<float> values;
  std::vector<float> largest;  ///< of each row
};

/// The products with some rows of a weight, from number `first` on, or with all of them where it is transposed.
class ProductsOfRows {
 public:
  ProductsOfRows(Values& values, const Linear& linear, const Block& x, bool squared, Products& into)
      : values_(values),
        linear_(linear),
        x_(x),
        into_(into),
        squared_(squared),
        squares_(squared ? Squares(x) : Squares()) {}

  bool sums(std::int64_t first, std::int64_t count, std::span<const float> rows) {
    const auto from = linear_.transposed ? 0 : static_cast<std::size_t>(first);
    const auto squares = std::span(into_.squares).subspan(from, static_cast<std::size_t>(outputs(count)));
    if (!multiply(x_.value, count, rows, squares)) return false;
    for (std::int64_t t = 0; t < x_.rows; ++t)
      std::copy_n(part_.begin() + static_cast<std::ptrdiff_t>(t * outputs(count)), outputs(count),
                  into_.sums.begin() + static_cast<std::ptrdiff_t>(at(t, first)));
    return true;
  }

  /// Of the squares: rows of the weight are replaced by them.
  bool squared(std::int64_t first, std::int64_t count, std::span<float> rows) {
    if (!squared_) return true;
    for (float& one : rows) one *= one;
    std::vector<float> unused(static_cast<std::size_t>(outputs(count)));
    if (!multiply(squares_.values, count, rows, unused)) return false;
    for (std::int64_t t = 0; t < x_.rows; ++t) {
      const double most = double{squares_.largest[static_cast<std::size_t>(t)]};
      for (std::int64_t n = 0; n < outputs(count); ++n)
        into_.squared[static_cast<std::size_t>(at(t, first) + n)] =
            double{part_[static_cast<std::size_t>(t * outputs(count) + n)]} * most * most;
    }
    return true;
  }

 private:
  std::int64_t outputs(std::int64_t count) const { return linear_.transposed ? linear_.outputs : count; }
  std::int64_t at(std::int64_t row, std::int64_t first) const {
    return row * linear_.outputs + (linear_.transposed ? 0 : first);
  }
  bool multiply(std::span<const float> x, std::int64_t count, std::span<const float> rows, std::span<float> squares) {
    const std::int64_t width = linear_.weight->channels;
    const MatrixView view{std::as_bytes(rows), Format::f32, count, width, width};
    part_.resize(static_cast<std::size_t>(x_.rows * outputs(count)));
    return values_.arithmetic().product(x, x_.rows, view, linear_.transposed, part_, squares);
  }

  Values& values_;
  const Linear& linear_;
  const Block& x_;
  Products& into_;
  bool squared_;
  Squares squares_;
  std::vector<float> part_;
};

/// `squared`: also the sums of the squares of the products, from which the deviation of their rounding follows.
bool products(Values& values, const Linear& linear, const OpForm& form, const Block& x, bool squared, Products& into,
              std::string& why) {
  into.sums.resize(static_cast<std::size_t>(x.rows * linear.outputs));
  into.squares.resize(static_cast<std::size_t>(linear.outputs));
  if (squared) into.squared.resize(into.sums.size());
  const Tensor& weight = *linear.weight;
  const auto stored =
      linear.scale == nullptr && !form.as && !form.weight_as ? values.run().stored(weight) : std::nullopt;
  if (stored) {
    const MatrixView view{stored->bytes, weight.format, weight.tokens, weight.channels, weight.channels};
    if (!values.arithmetic().product(x.value, x.rows, view, linear.transposed, into.sums, into.squares)) {
      why = "out of memory";
      return false;
    }
    if (!squared) return true;
  }
  ProductsOfRows of_rows(values, linear, x, squared, into);
  std::vector<float> rows;
  const std::int64_t at_once = linear.transposed ? weight.tokens : kOutputsAtOnce;
  for (std::int64_t first = 0; first < weight.tokens; first += at_once) {
    const std::int64_t count = std::min(at_once, weight.tokens - first);
    if (!scaled_rows(values, linear, form, first, count, rows)) {
      why = "its weight, or its scale, cannot be read";
      return false;
    }
    if ((!stored && !of_rows.sums(first, count, rows)) || !of_rows.squared(first, count, rows)) return false;
  }
  return true;
}

/// Numbers of a wrong output as far as each edge of a grid over k: what they would be if the sums ended there.
struct Partial {
  double missing = 0;         ///< what the output lacks
  std::vector<double> until;  ///< one an edge
};

/// Of a few wrong rows and outputs evenly over all. Nothing when the operands cannot be had.
std::vector<Partial> partial_sums(Values& values, const Op& op, const Tensor& out, const Recomputed& result,
                                  std::int64_t step) {
  constexpr std::size_t kRows = 4;
  constexpr std::int64_t kOutputs = 64;
  std::vector<Partial> found;
  std::vector<float> weights;
  std::string why;
  for (std::size_t i = 0; i < std::min(kRows, result.bad_rows.size()); ++i) {
    const std::int64_t row = result.bad_rows[i * result.bad_rows.size() / std::min(kRows, result.bad_rows.size())];
    Block x;
    Linear linear;
    Prediction whole;
    const auto actual = values.run().row_values(out, row);
    if (!actual || !predict_gemm(values, op, out, result.form, row, 1, whole, why) ||
        !operand(values, op, out, result.form, row, 1, x, why) ||
        !linear_of(values, op, out, result.form, x.columns, linear, why))
      return {};
    const std::int64_t width = linear.weight->channels;
    if (linear.transposed && linear.weight->count() > RunView::kMostValues) return {};
    for (std::int64_t n = 0; n < linear.outputs; n += std::max<std::int64_t>(1, linear.outputs / kOutputs)) {
      const bool read = linear.transposed && !weights.empty();
      if (!read && !scaled_rows(values, linear, result.form, linear.transposed ? 0 : n,
                                linear.transposed ? linear.weight->tokens : 1, weights))
        return {};
      Partial one{double{whole.value[static_cast<std::size_t>(n)]} - double{(*actual)[static_cast<std::size_t>(n)]},
                  {0}};
      double sum = 0;
      for (std::int64_t k = 0; k < x.columns; ++k) {
        sum += double{x.row(0)[k]} * double{weights[static_cast<std::size_t>(linear.transposed ? k * width + n : k)]};
        if ((k + 1) % step == 0 || k + 1 == x.columns) one.until.push_back(sum);
      }
      if (std::isfinite(one.missing)) found.push_back(std::move(one));
    }
  }
  return found;
}

/// The same product on all other ranks; none where one of them lacks it.
std::vector<std::pair<const Op*, const Tensor*>> on_other_ranks(Values& values, const Op& op, const Tensor& out) {
  RunView& run = values.run();
  std::vector<std::pair<const Op*, const Tensor*>> found;
  const Step* step = run.step(op.step);
  if (step == nullptr) return found;
  for (const Step* other : values.recomputer().ranks().others(*step)) {
    const Op* same = run.find_op(other->id, op.layer, op.name);
    const Tensor* made = same != nullptr ? run.result(*same) : nullptr;
    if (made == nullptr || made->tokens != out.tokens || made->channels != out.channels) return {};
    found.emplace_back(same, made);
  }
  return found;
}

/// Where ranks have not the same sum, it is not one of what they have now: such rows are not judged.
void pass_over_differing(RunView& run, const Tensor& out, const Tensor& other, std::int64_t first, Prediction& into) {
  for (std::int64_t row = 0; row < into.rows; ++row) {
    const auto own = run.row_values(out, first + row);
    const auto its = run.row_values(other, first + row);
    if (own && its && *own == *its) continue;
    const auto begin = into.bound.begin() + static_cast<std::ptrdiff_t>(row * into.columns);
    std::fill(begin, begin + static_cast<std::ptrdiff_t>(into.columns), -1.0F);
  }
}

/// Row-parallel products (Megatron-LM, arXiv:1909.08053, section 3): each rank rounds what it has of the sum.
bool predict_over_ranks(Values& values, const Op& op, const Tensor& out, std::int64_t first, std::int64_t count,
                        Prediction& into, std::string& why) {
  if (!predict_gemm(values, op, out, OpForm{}, first, count, into, why)) return false;
  into.deviation.clear();
  const double u = stored_roundoff(values, out);
  const auto others = on_other_ranks(values, op, out);
  for (const auto& [other, made] : others) {
    Prediction part;
    if (!predict_gemm(values, *other, *made, OpForm{.text = {}, .variant = kNoBias}, first, count, part, why))
      return false;
    for (std::size_t i = 0; i < into.value.size(); ++i) {
      into.value[i] += part.value[i];
      into.bound[i] += part.bound[i] + static_cast<float>(u * std::abs(double{into.value[i]}));
    }
  }
  for (const auto& [other, made] : others) {
    if (out.known && made->known) pass_over_differing(values.run(), out, *made, first, into);
  }
  return true;
}

/// A tile of k that is in no sum: the edges between which lies what the outputs lack, by least squares.
std::optional<OpForm> range_left_out(Values& values, const Op& op, const Tensor& out) {
  constexpr std::int64_t kSmallestTile = 8;
  constexpr std::int64_t kMostEdges = 128;
  // Of the squares of what is missing. Of n random numbers, the sums of a tile come as near in less than
  // kMostLeft^((n - 1) / 2) of all cases: that is the part of a sphere around a point of it.
  constexpr double kMostLeft = 0.01;
  const Recomputed* result = values.recomputer().result(out.id);
  const Tensor* x = values.run().input(op, "x");
  if (result == nullptr || result->bad_rows.empty() || x == nullptr || op.input("codes") != 0) return std::nullopt;
  std::int64_t step = kSmallestTile;
  while (x->channels / step > kMostEdges) step *= 2;
  const std::vector<Partial> sums = partial_sums(values, op, out, *result, step);
  double all = 0;
  for (const Partial& one : sums) all += one.missing * one.missing;
  if (sums.empty() || all <= 0) return std::nullopt;
  double least = kMostLeft * all;
  std::pair<std::size_t, std::size_t> best;
  const std::size_t edges = sums.front().until.size();
  const double tiles = static_cast<double>(edges) * static_cast<double>(edges - 1) / 2;
  if (std::log10(tiles) + 0.5 * static_cast<double>(sums.size() - 1) * std::log10(kMostLeft) > kShownByChance)
    return std::nullopt;
  for (std::size_t begin = 0; begin + 1 < edges; ++begin) {
    for (std::size_t end = begin + 1; end < edges; ++end) {
      double left = 0;
      for (std::size_t i = 0; i < sums.size() && left < least; ++i)
        left += std::pow(sums[i].missing - (sums[i].until[end] - sums[i].until[begin]), 2);
      if (left < least) least = left, best = {begin, end};
    }
  }
  if (best.second == 0 || (best.first == 0 && best.second + 1 == edges)) return std::nullopt;
  const std::int64_t first = static_cast<std::int64_t>(best.first) * step;
  const std::int64_t end = std::min(static_cast<std::int64_t>(best.second) * step, x->channels);
  OpForm form = result->form;
  form.text = fmt::format("k {} to {} left out of the sums", first, end - 1);
  form.variant = kRangeOfK;
  form.shift = static_cast<int>(first);
  form.heads = end - first;
  form.fault = true;
  return form;
}

/// A weight of fp8 read as another format of 8 bits.
void add_readings(const Tensor& weight, std::vector<OpForm>& forms) {
  if (info(weight.format).bits != 8 || info(weight.format).exponent_bits == 0) return;
  for (const Format as : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz}) {
    if (as == weight.format) continue;
    forms.push_back(
        {.text = "the weight read as " + std::string(name(as)), .as = as, .fault = true, .about = About::format});
  }
}

/// The same products with a decoded weight whose scales were rounded to the activations' format when they were loaded.
void add_rounded_scales(Values& values, const Op& op, std::vector<OpForm>& forms) {
  if (values.run().input(op, "weight_served") == nullptr) return;
  const std::size_t as_stored = forms.size();
  for (std::size_t i = 0; i < as_stored; ++i) {
    if (forms[i].other != 0 || (forms[i].variant != kAsDumped && forms[i].variant != kCastInput)) continue;
    OpForm form = forms[i];
    form.rounded_scales = true;
    form.text += ", with scales of W rounded when they were loaded";
    forms.push_back(std::move(form));
  }
}

}  // namespace

std::vector<OpForm> forms_gemm(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  if (values.run().input(op, "codes") != nullptr)
    forms.push_back({.text = "of the quantised input", .variant = kCodes});
  if (!forms.empty() && values.run().input(op, "x_scale") != nullptr &&
      roundoff(values.activation_format(op.step)) > roundoff(Format::f32)) {
    forms.push_back({.text = "of the quantised input, rounded when it was dequantised",
                     .variant = kCodes,
                     .rounded = kOperandRounded});
  }
  if (const auto cast = input_cast(values.run(), op)) add_casts(values, op, *cast, forms);
  forms.push_back({.text = "x W' + b"});
  if (values.run().input(op, "weight_scale") != nullptr &&
      roundoff(values.activation_format(op.step)) > roundoff(Format::f32)) {
    forms.push_back({.text = "x W' with W rounded when it was dequantised", .rounded = kWeightRounded});
  }
  if (values.run().input(op, "weight_scale_2") != nullptr) {
    forms.push_back({.text = "x W' with the second scale as a divisor", .number = 2, .about = About::scale});
  }
  if (!on_other_ranks(values, op, out).empty())
    forms.push_back({.text = "x W' summed over the ranks", .variant = kOverRanks});
  const Tensor* x = values.run().input(op, "x");
  const Tensor* weight = values.run().input(op, "weight");
  if (x != nullptr && weight != nullptr && roundoff(weight->format) > roundoff(x->format) &&
      info(weight->format).bits >= 16) {
    forms.push_back({.text = "x W' with x rounded to the weight's format", .variant = kRoundedOperand});
  }
  if (const auto served = values.served_format(op, "weight")) {
    forms.push_back({.text = fmt::format("x W' with W and b rounded to {} when they were loaded", name(*served)),
                     .weight_as = *served});
  }
  add_rounded_scales(values, op, forms);
  return forms;
}

std::vector<OpForm> faults_gemm(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms;
  RunView& run = values.run();
  const auto powers = [&](int variant, std::string_view whose) {
    for (const int power : {0, 2, -1}) {
      forms.push_back({.text = std::string("the scale of ") + std::string(whose) + ' ' + std::string(power_text(power)),
                       .variant = variant,
                       .scale_power = power,
                       .fault = true,
                       .about = About::scale});
    }
  };
  if (run.input(op, "weight_scale") != nullptr) {
    powers(kScaleOfWeight, "the weight");
    if (run.input(op, "weight_scale_2") != nullptr) {
      forms.push_back(
          {.text = "the second scale left out", .variant = kNoSecond, .fault = true, .about = About::scale});
    }
    forms.push_back({.text = "rows and columns of the weight's scales swapped",
                     .variant = kTransposedScale,
                     .fault = true,
                     .about = About::scale});
  }
  if (run.input(op, "codes") != nullptr && run.input(op, "x_scale") != nullptr) powers(kScaleOfCodes, "the input");
  if (run.input(op, "codes") != nullptr && run.input(op, "x_zero_point") != nullptr) {
    forms.push_back({.text = "the zero point of the input left out",
                     .variant = kNoZeroPoint,
                     .fault = true,
                     .about = About::scale});
  }
  if (run.input(op, "bias") != nullptr)
    forms.push_back({.text = "the bias left out", .variant = kNoBias, .fault = true});
  const Tensor* weight = run.input(op, "weight");
  if (weight != nullptr) add_readings(*weight, forms);
  // Weights and scales of other layers, experts and steps.
  const auto others = [&](const Tensor* own, int variant, std::string_view what) {
    if (own == nullptr) return;
    std::size_t count = 0;
    for (const StepId step : {kBeforeSteps, op.step}) {
      for (const Tensor& other : run.content(step).tensors) {
        const Op* maker = run.maker(other);
        const Op* own_maker = run.maker(*own);
        if (maker == nullptr || own_maker == nullptr || maker->kind != OpKind::parameter || other.id == own->id)
          continue;
        if (other.role != own->role || other.tokens != own->tokens || other.channels != own->channels) continue;
        if (maker->name != own_maker->name && maker->layer != own_maker->layer) continue;
        if (++count > 64) return;
        forms.push_back({.text = std::string(what) + " is " + values.facts().name_of(other),
                         .variant = variant,
                         .other = other.id,
                         .fault = true,
                         .about = variant == kScaleOfWeight ? About::scale : About::arithmetic});
      }
    }
  };
  if (auto tile = range_left_out(values, op, out)) forms.push_back(std::move(*tile));
  others(weight, kAsDumped, "the weight");
  others(run.input(op, "weight_scale"), kScaleOfWeight, "the weight's scale");
  if (out.format == Format::f16) forms.push_back({.text = "sums kept in f16", .variant = kHalfSums, .fault = true});
  return forms;
}

/// c tanh(y / c) of each product y, in three ops that each round what they store: the quotient, its tanh, the result.
void cap_products(double cap, double stored, Prediction& into) {
  for (std::size_t i = 0; i < into.value.size(); ++i) {
    const double turned = std::tanh(double{into.value[i]} / cap);
    const double slope = 1 - turned * turned;
    const double capped = cap * turned;
    const double rounded = std::abs(double{into.value[i]}) * slope + 2 * std::abs(capped);
    into.value[i] = static_cast<float>(capped);
    into.bound[i] = static_cast<float>(slope * double{into.bound[i]} + 1.01 * stored * rounded);
  }
  into.deviation.clear();
}

/// Each product times a number, which rounds what is stored once more.
void scale_products(double factor, double stored, Prediction& into) {
  for (std::size_t i = 0; i < into.value.size(); ++i) {
    const double scaled = factor * double{into.value[i]};
    into.value[i] = static_cast<float>(scaled);
    into.bound[i] = static_cast<float>(std::abs(factor) * double{into.bound[i]} + 1.01 * stored * std::abs(scaled));
  }
  into.deviation.clear();
}

bool predict_gemm(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                  std::int64_t count, Prediction& into, std::string& why) {
  // Looked at before the input is computed: without a weight nothing is.
  if (values.run().input(op, "weight") == nullptr) {
    why = kWeightNotDumped;
    return false;
  }
  if (form.variant == kOverRanks) return predict_over_ranks(values, op, out, first, count, into, why);
  Block x;
  if (!operand(values, op, out, form, first, count, x, why)) return false;
  Linear linear;
  if (!linear_of(values, op, out, form, x.columns, linear, why)) return false;
  const Tensor* bias = form.variant == kNoBias ? nullptr : values.run().input(op, "bias");
  const auto offsets = bias != nullptr ? values.run().values(*bias) : nullptr;
  const bool biased = offsets && static_cast<std::int64_t>(offsets->size()) == linear.outputs;
  into.resize(count, linear.outputs);
  const auto rounded_bias = [&](float value) {
    const bool served = form.weight_as && info(*form.weight_as).bits >= 16;
    return double{served ? decode(*form.weight_as, encode(*form.weight_as, value, Overflow::saturate)) : value};
  };
  Rounding rounding{stored_roundoff(values, out), stored_format(values, out)};
  rounding.inner = form.variant == kHalfSums ? roundoff(Format::f16) : kF32;
  rounding.operand = form.variant == kRoundedOperand ? roundoff(linear.weight->format) : 0;
  Products made;
  if (!products(values, linear, form, x, rounding.by_deviation(), made, why)) return false;
  if (rounding.by_deviation()) into.deviation.assign(into.bound.size(), 0.0F);
  std::vector<double> biases;
  for (std::int64_t n = 0; biased && n < linear.outputs; ++n)
    biases.push_back(rounded_bias((*offsets)[static_cast<std::size_t>(n)]));
  put_products(x, made, biases, rounding, into);
  if (form.alpha != 0) scale_products(form.alpha, rounding.output, into);
  if (form.cap > 0) cap_products(form.cap, rounding.output, into);
  return true;
}

std::int64_t cost_gemm(Values& values, const Op& op, const Tensor&) {
  const Tensor* weight = values.run().input(op, "weight");
  return weight == nullptr ? 1 : std::min(weight->tokens, weight->channels);
}

}  // namespace nanscope
