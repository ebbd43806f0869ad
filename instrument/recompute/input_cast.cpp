#include "instrument/recompute/input_cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/numbers/codec.h"
#include "core/run/scale_grid.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/variants.h"

namespace nanscope {
namespace {

/// Kernels divide by a scale, multiply by its inverse, or divide a magnitude by the format's largest in another order:
/// each is off by three roundings of f32 at most, of 2^-24 each.
constexpr double kTie = 0x1p-22;

/// int8 takes its whole range, -128 included.
float cast(Format format, double value) {
  if (format == Format::int8) return static_cast<float>(std::nearbyint(std::clamp(value, -128.0, 127.0)));
  return decode(format, encode(format, static_cast<float>(value), Overflow::saturate));
}

/// What the largest magnitude is divided by. compressed-tensors takes half the range of int8, 127.5
/// (quantization/utils/helpers.py, calculate_qparams); vLLM's kernels 127 (csrc/quantization/w8a8/int8).
double largest_code(Format format, bool as_torch) {
  return format == Format::int8 && as_torch ? 127.5 : double{info(format).max_finite};
}

/// One form of a cast over some rows of an input.
class Cast {
 public:
  Cast(Format format, bool as_torch, Format between) : format_(format), as_torch_(as_torch), between_(between) {}

  double scale_of(double largest) const { return round(largest / largest_code(format_, as_torch_)); }

  /// Replaces an element by what its code stands for, and adds what it may be off.
  void apply(double scale, double zero, float& value, float& error) const {
    if (!(scale > 0)) return void(value = 0);
    if (as_torch_) {
      const double s = round(scale);
      value = static_cast<float>(round((cast(format_, round(round(value / s) + zero)) - zero) * s));
      return;
    }
    const auto back = [&](double scaled) { return (double{cast(format_, scaled + zero)} - zero) * scale; };
    const double scaled = double{value} / scale;
    const double off = std::abs(scaled) * kTie + double{error} / scale;
    value = static_cast<float>(back(scaled));
    error = static_cast<float>(back(scaled + off) - back(scaled - off) + std::abs(double{value}) * kTie);
  }

 private:
  double round(double value) const { return as_torch_ ? double{cast(between_, value)} : value; }

  Format format_;
  bool as_torch_;
  Format between_;
};

double largest_of(std::span<const float> numbers) {
  double largest = 0;
  for (const float one : numbers) largest = std::max(largest, double{std::abs(one)});
  return largest;
}

bool cast_by_grid(Values& values, const Op& op, const Tensor& out, const Cast& cast, std::int64_t first, Block& x,
                  std::string& why) {
  const Tensor* scale = values.run().input(op, "x_scale");
  const Tensor* in = values.run().input(op, "x");
  const auto grid = scale != nullptr && in != nullptr ? ScaleGrid::of(values.run(), *scale, *in) : std::nullopt;
  if (!grid || (!grid->single() && in->tokens != out.tokens)) {
    why = "the shape of its input's scale fits no grid";
    return false;
  }
  double zero = 0;
  if (const Tensor* point = values.run().input(op, "x_zero_point"); point != nullptr) {
    const auto one = values.run().values(*point);
    if (!one || one->size() != 1) {
      why = "the zero point of its input is not one number";
      return false;
    }
    zero = double{one->front()};
  }
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t k = 0; k < x.columns; ++k) {
      const auto at = static_cast<std::size_t>(row * x.columns + k);
      cast.apply(grid->at(first + row, k), zero, x.value[at], x.error[at]);
    }
  }
  return true;
}

/// By the largest magnitude of each `group` elements of a row, or of all elements of the input.
bool cast_by_largest(Values& values, const Op& op, const Cast& cast, CastScales scales, std::int64_t group, Block& x,
                     std::string& why) {
  const Tensor* in = values.run().input(op, "x");
  if (scales == CastScales::tensor && (in == nullptr || !in->known || in->stated)) {
    why = "its input is cast by its largest magnitude, and was not dumped as a whole";
    return false;
  }
  const std::int64_t width = scales == CastScales::group ? group : x.columns;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t k = 0; k < x.columns; k += width) {
      const auto at = static_cast<std::size_t>(row * x.columns + k);
      const auto count = static_cast<std::size_t>(std::min(width, x.columns - k));
      const auto numbers = std::span(x.value).subspan(at, count);
      const double scale =
          cast.scale_of(scales == CastScales::tensor ? double{in->health.absmax} : largest_of(numbers));
      for (std::size_t i = 0; i < count; ++i) cast.apply(scale, 0, numbers[i], x.error[at + i]);
    }
  }
  return true;
}

std::string_view text_of(CastScales scales) {
  switch (scales) {
    case CastScales::fixed:
      return "under its scale";
    case CastScales::tensor:
      return "by the largest magnitude of all";
    case CastScales::row:
    case CastScales::row_or_tensor:
      return "by the largest magnitude of each row";
    case CastScales::group:
      return "by the largest magnitude of each group";
  }
  return {};
}

}  // namespace

Fact<InputCast> input_cast(RunView& run, const Op& op) {
  const auto* said = op.get<GemmAttributes>();
  const bool scaled = run.input(op, "x_scale") != nullptr;
  if (run.input(op, "codes") != nullptr) return absent("its codes were dumped");
  if (said != nullptr && said->input_format) {
    const std::optional<Format> format = format_from_name(*said->input_format);
    if (!format) return not_understood("its input is cast when it runs, and how is not known");
    const std::string scales = said->input_scales.value_or("");
    if (scales == "row") return InputCast{*format, CastScales::row, 0};
    if (scales == "row or tensor") return InputCast{*format, CastScales::row_or_tensor, 0};
    if (scales == "tensor") return InputCast{*format, CastScales::tensor, 0};
    if (scales == "group") return InputCast{*format, CastScales::group, said->input_group.value_or(1)};
    if (!scaled) return not_understood("its input is cast under a scale that was not dumped");
    return InputCast{*format, CastScales::fixed, 0};
  }
  const Tensor* weight = run.input(op, "weight");
  if (!scaled || weight == nullptr) return absent("nothing says that its input is cast");
  const bool whole = info(weight->format).exponent_bits == 0;
  if (whole && info(weight->format).bits != 8)
    return not_understood("its input was cast, and the codes were not dumped");
  // Of a weight that was decoded, the format of inputs in use: OCP 8-bit floating point specification, section 4.
  return InputCast{info(weight->format).bits == 8 ? weight->format : Format::e4m3, CastScales::fixed, 0};
}

void add_casts(Values& values, const Op& op, const InputCast& cast, std::vector<OpForm>& forms) {
  const auto served = values.served_format(op, "weight");
  const auto add = [&](CastScales scales, bool as_torch, std::optional<Format> weight_as) {
    OpForm form;
    form.text = fmt::format("of the input, cast to {} {}{}", name(cast.format), text_of(scales),
                            as_torch ? ", each step rounded" : "");
    if (weight_as) form.text += fmt::format(", with W and b rounded to {} when they were loaded", name(*weight_as));
    form.variant = kCastInput;
    form.x_as = cast.format;
    form.shift = static_cast<int>(scales);
    form.heads = cast.group;
    form.rounded = as_torch ? 1 : 0;
    form.weight_as = weight_as;
    forms.push_back(std::move(form));
  };
  std::vector<CastScales> all{cast.scales};
  if (cast.scales == CastScales::row_or_tensor) all = {CastScales::row, CastScales::tensor};
  for (const CastScales scales : all) {
    for (const bool as_torch : {false, true}) {
      add(scales, as_torch, std::nullopt);
      if (served) add(scales, as_torch, *served);
    }
  }
}

bool cast_input(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first, Block& x,
                std::string& why) {
  const Cast cast(*form.x_as, form.rounded == 1, values.activation_format(op.step));
  if (x.error.empty()) x.error.assign(x.value.size(), 0.0F);
  const auto scales = static_cast<CastScales>(form.shift);
  return scales == CastScales::fixed ? cast_by_grid(values, op, out, cast, first, x, why)
                                     : cast_by_largest(values, op, cast, scales, form.heads, x, why);
}

}  // namespace nanscope
