/// Block quantization down the columns, as recordings have it: codes, and a scale a block of rows and column.
#include <algorithm>
#include <cmath>

#include "core/blocks/block_scale.h"
#include "core/blocks/presets.h"
#include "core/numbers/codec.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"

namespace nanscope {
namespace {

struct Columns {
  const Tensor* x = nullptr;
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;
  const BlockFormat* format = nullptr;
  std::int64_t block = 1;  ///< rows
};

bool columns_of(Values& values, const Op& op, Columns& into, std::string& why) {
  RunView& run = values.run();
  into.x = run.input(op, "x");
  into.codes = run.output(op, "codes");
  into.scales = run.output(op, "scales");
  const auto* form = op.get<BlockAttributes>();
  const BlockPreset* preset = form != nullptr && form->format ? find_block_preset(*form->format) : nullptr;
  if (preset == nullptr) {
    why = "its block format is not known";
    return false;
  }
  into.format = &preset->format;
  into.block = std::max<std::int64_t>(preset->format.block.columns, 1);
  if (into.x == nullptr || into.codes == nullptr || into.scales == nullptr) {
    why = "what it quantizes was not dumped";
    return false;
  }
  return true;
}

/// What a number is rounded to, and how far that is from what it would be a little below or above.
struct Rounded {
  double value = 0;
  double bound = 0;
};

template <class Round>
Rounded between(double low, double at, double high, const Round& round) {
  const double value = round(at);
  return {value, std::max(std::abs(round(low) - value), std::abs(round(high) - value))};
}

void put(Prediction& into, std::int64_t row, std::int64_t column, const Rounded& rounded) {
  const auto at = static_cast<std::size_t>(row * into.columns + column);
  into.value[at] = static_cast<float>(rounded.value);
  const bool known = std::isfinite(rounded.value) && std::isfinite(rounded.bound);
  into.bound[at] = known ? static_cast<float>(rounded.bound) : -1.0F;
}

/// The scale is the rule's of the largest magnitude: of exact numbers it is exact.
bool predict_scales(Values& values, const Columns& columns, std::int64_t first, std::int64_t count, Prediction& into,
                    std::string& why) {
  into.resize(count, columns.x->channels);
  RunView& run = values.run();
  const Tensor& codes = *columns.codes;
  const double u = columns.x->known ? 0 : roundoff(values.precision(*columns.x));
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t row = (first + t) * columns.block;
    // One sequence may have been quantized of rows of several.
    const std::int64_t from = run.same_row(codes, row, *columns.x).value_or(row);
    const auto x = values.rows(*columns.x, from, std::min(columns.block, codes.tokens - row));
    if (!x) {
      why = "what it quantizes cannot be had";
      return false;
    }
    for (std::int64_t c = 0; c < x->columns; ++c) {
      double amax = 0;
      double off = 0;
      for (std::int64_t r = 0; r < x->rows; ++r) {
        const double one = std::abs(double{x->row(r)[c]});
        if (!(one <= amax)) amax = one;  // NaN stays
        off = std::max(off, double{x->off(r, c)} + u * one);
      }
      const auto scale_of = [&](double largest) {
        const BlockScale scale = block_scale(*columns.format, static_cast<float>(largest), 1.0F, 0);
        return double{block_scale_value(*columns.format, scale.code)};
      };
      put(into, t, c, between(std::max(amax - off, 0.0), amax, amax + off, scale_of));
    }
  }
  return true;
}

/// code = x / scale, rounded once to the element's format; a quotient in f32 is off by up to 2 u more.
bool predict_codes(Values& values, const Op& op, const Tensor& out, const Columns& columns, std::int64_t first,
                   std::int64_t count, Prediction& into, std::string& why) {
  Block x;
  if (!input_rows(values, op, "x", out, first, count, x, why)) return false;
  into.resize(count, x.columns);
  const double u = columns.x->known ? 0 : roundoff(values.precision(*columns.x));
  const Format element = columns.format->element;
  const auto code_of = [element](double scaled) {
    return double{decode(element, encode(element, static_cast<float>(scaled), Overflow::saturate))};
  };
  for (std::int64_t t = 0; t < count; ++t) {
    const auto scales = values.run().row_values(*columns.scales, (first + t) / columns.block);
    if (!scales || static_cast<std::int64_t>(scales->size()) != x.columns) {
      why = "its scales cannot be read";
      return false;
    }
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const double scale = double{(*scales)[static_cast<std::size_t>(c)]};
      if (scale == 0) {  // nothing is divided by it
        put(into, t, c, {});
        continue;
      }
      const double scaled = double{x.row(t)[c]} / scale;
      const double off =
          (u * std::abs(double{x.row(t)[c]}) + double{x.off(t, c)}) / std::abs(scale) + 2 * kF32 * std::abs(scaled);
      put(into, t, c, between(scaled - off, scaled, scaled + off, code_of));
    }
  }
  return true;
}

}  // namespace

std::vector<OpForm> forms_quantise_columns(Values& values, const Op& op, const Tensor& out) {
  std::vector<OpForm> forms = one_form(values, op, out);
  forms.front().text = out.role == "scales" ? "the scale of the largest of the block's rows"
                                            : "x over the scale of its block of rows, rounded";
  return forms;
}
std::vector<OpForm> faults_quantise_columns(Values&, const Op&, const Tensor&) { return {}; }

std::int64_t cost_quantise_columns(Values& values, const Op& op, const Tensor& out) {
  constexpr std::int64_t kRows = 32;  // that a scale is of
  return unit_cost(values, op, out) * (out.role == "scales" ? kRows : 4);
}

bool predict_quantise_columns(Values& values, const Op& op, const Tensor& out, const OpForm&, std::int64_t first,
                              std::int64_t count, Prediction& into, std::string& why) {
  Columns columns;
  if (!columns_of(values, op, columns, why)) return false;
  if (out.role == "scales") return predict_scales(values, columns, first, count, into, why);
  const auto* form = op.get<BlockAttributes>();
  if (form != nullptr && form->stochastic.value_or(false)) {
    why = "its elements are rounded stochastically";
    return false;
  }
  if (!columns.scales->known) {
    why = "its scales were not dumped";
    return false;
  }
  return predict_codes(values, op, out, columns, first, count, into, why);
}

}  // namespace nanscope
