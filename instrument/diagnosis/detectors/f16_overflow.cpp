#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

constexpr double kLargest = 65504;  ///< of f16

/// The largest magnitude that rows should have had, done again in a wider format; 0 when that cannot be done.
struct Factors {
  double largest = 0;
  std::string of;       ///< what is that large
  bool summed = false;  ///< the sum of squares, which most norms keep in f32
};

double largest_of(const Prediction& made) {
  double largest = 0;
  for (std::size_t i = 0; i < made.value.size(); ++i) {
    if (made.bound[i] >= 0 && std::isfinite(made.value[i]))
      largest = std::max(largest, std::abs(double{made.value[i]}));
  }
  return largest;
}

/// The sum of squares of an input's row.
double squares_of(Survey& survey, const Op& op, const Tensor& out, std::int64_t row) {
  const Tensor* x = survey.run().input(op, "x");
  const auto from = x != nullptr ? survey.run().same_row(out, row, *x) : std::nullopt;
  const auto block = from ? survey.values().rows(*x, *from, 1) : std::nullopt;
  double sum = 0;
  if (block) {
    for (const float one : block->value) sum += double{one} * double{one};
  }
  return std::isfinite(sum) ? sum : 0;
}

Factors factors_of(Survey& survey, const Op& op, const Tensor& out, const std::vector<std::int64_t>& rows) {
  Factors found;
  const OpForm form = recipe_of(op.kind) != nullptr ? survey.recomputer.form_of(op, out) : OpForm{};
  constexpr std::size_t kRows = 8;
  for (std::size_t i = 0; i < rows.size() && i < kRows; ++i) {
    const auto made = survey.recomputer.predict(op, out, form, rows[i], 1);
    if (made && largest_of(*made) > found.largest) found = {largest_of(*made), "the result"};
    if (op.kind == OpKind::attention_scores && form.number > 0 && form.number < 1) {
      // The product is scaled after it is summed, and it is the sum that overflows.
      OpForm unscaled = form;
      unscaled.number = 1;
      unscaled.cap = 0;
      const auto product = survey.recomputer.predict(op, out, unscaled, rows[i], 1);
      if (product && largest_of(*product) > found.largest)
        found = {largest_of(*product), "the product before it is scaled"};
    }
    if (op.kind == OpKind::layer_norm) {
      const double squares = squares_of(survey, op, out, rows[i]);
      if (squares > found.largest) found = {squares, "the sum of squares of its row", true};
    }
  }
  return found;
}

void describe(Finding& finding, const Factors& factors, std::int64_t rows, std::string_view became) {
  finding.fault.evidence = {{"expected", factors.largest}, {"largest_finite", kLargest}, {"rows", rows}};
  finding.fault.summary = fmt::format(
      "{} of {}: {} reaches {:.5g}, beyond {:g}, the largest of f16, and {}", counted(rows, "row"),
      finding.fault.tensor, factors.of.empty() ? "the result" : factors.of, factors.largest, kLargest, became);
  finding.fault.fix = "compute this op in f32 or bf16, or scale its inputs down before the product and back behind it";
}

bool is_half(const Tensor& tensor) { return tensor.format == Format::f16; }

/// NaN and Inf of a birth; of the whole tensor where its rows are not known.
struct Bad {
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
};

Bad bad_of(Survey& survey, const Birth& birth) {
  const Tensor& tensor = survey.tensor(birth);
  const std::vector<Health>& rows = survey.run().rows(tensor);
  Bad bad;
  const auto add = [&](const Health& health) {
    bad.nan += health.nan;
    bad.inf += health.pos_inf + health.neg_inf;
  };
  for (const std::int64_t row : birth.rows) {
    if (row < std::ssize(rows)) add(rows[static_cast<std::size_t>(row)]);
  }
  if (birth.rows.empty() || rows.empty()) add(tensor.health);
  return bad;
}

void look_at_births(Survey& survey, Findings& out) {
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Tensor& tensor = survey.tensor(birth);
    if (!is_half(tensor) || birth.read != 0 || !birth.bad_parameters.empty()) continue;
    const Op& op = survey.op(birth);
    const Factors factors = factors_of(survey, op, tensor, birth.rows);
    const Bad bad = bad_of(survey, birth);
    if (factors.largest <= kLargest && bad.inf == 0) continue;
    Finding finding = finding_at(survey, i);
    const bool proved = factors.largest > kLargest && !factors.summed;
    finding.rank = proved ? Rank::recomputed : op.kind == OpKind::softmax ? Rank::unexplained : Rank::resemblance;
    if (proved || birth.inputs_known) finding.fault.certainty = proved ? Certainty::proved : Certainty::shown;
    describe(finding, factors, static_cast<std::int64_t>(birth.rows.size()),
             bad.nan > 0 ? "became Inf and then NaN" : "became Inf");
    if (factors.largest <= kLargest) {
      finding.fault.evidence.erase(finding.fault.evidence.begin());
      if (birth.rows.empty()) finding.fault.evidence.pop_back();
      finding.fault.summary =
          birth.rows.empty()
              ? fmt::format("{} holds Inf in f16, and what it is made of is finite", finding.fault.tensor)
              : fmt::format("{} {} Inf in f16, and what {} made of is finite", rows_text(birth, finding.fault.tensor),
                            birth.rows.size() == 1 ? "is" : "are", birth.rows.size() == 1 ? "it is" : "they are");
    }
    out.found.push_back(std::move(finding));
  }
}

/// Rows of zeros of a norm whose input has a sum of squares beyond f16 in them. Rows of one number are a LayerNorm's
/// own.
std::vector<std::int64_t> rows_over_infinity(Survey& survey, const Op& op, const Tensor& out, const Tensor& x) {
  std::vector<std::int64_t> zero;
  const std::vector<Health>& rows = survey.run().rows(out);
  const std::vector<Health>& given = survey.run().rows(x);
  for (std::int64_t row = 0; row < std::ssize(rows); ++row) {
    const Health& made = rows[static_cast<std::size_t>(row)];
    const auto from = survey.run().same_row(out, row, x);
    if (made.count == 0 || made.min != 0 || made.max != 0 || made.bad() > 0 || !from || *from >= std::ssize(given))
      continue;
    const Health& of = given[static_cast<std::size_t>(*from)];
    if (of.bad() == 0 && of.min < of.max && squares_of(survey, op, out, row) > kLargest) zero.push_back(row);
  }
  return zero;
}

/// A norm whose sum of squares overflowed divides by infinity: a row of exact zeros. Where most rows are, the norm is
/// not understood and has no deviation; the zeros show it all the same. A weight that was not dumped may be zero,
/// unless another row is not.
void look_at_norms(Survey& survey, Findings& out) {
  for (const Step& step : survey.run().steps()) {
    for (const Op& op : survey.run().content(step.id).ops) {
      const Tensor* x = op.kind == OpKind::layer_norm ? survey.run().input(op, "x") : nullptr;
      const Tensor* made = x != nullptr && x->known && !x->stated ? survey.run().result(op) : nullptr;
      if (made == nullptr || !made->known || made->stated || (!is_half(*made) && !is_half(*x))) continue;
      if (double{x->health.absmax} * double{x->health.absmax} * static_cast<double>(x->channels) <= kLargest) continue;
      const Tensor* weight = survey.run().input(op, "weight");
      const bool known = (weight != nullptr && weight->known) || made->health.absmax > 0;
      if (weight != nullptr && weight->known && weight->health.absmax == 0) continue;
      const std::vector<std::int64_t> zero = rows_over_infinity(survey, op, *made, *x);
      if (zero.empty()) continue;
      Finding finding = finding_at(survey, *made, zero);
      finding.rank = Rank::left_the_range;
      finding.fault.certainty = known ? Certainty::proved : Certainty::possible;
      for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
        if (survey.deviations[i].tensor == made->id) finding.explains.push_back({Symptom::Kind::deviation, i});
      }
      describe(finding, {squares_of(survey, op, *made, zero.front()), "the sum of squares"},
               static_cast<std::int64_t>(zero.size()), "a row divided by its root is zero");
      out.found.push_back(std::move(finding));
    }
  }
}

/// Rows with elements at one largest magnitude, as a clamp leaves them.
std::vector<std::int64_t> plateau(Survey& survey, const Tensor& tensor, double& level) {
  std::vector<std::int64_t> rows;
  constexpr double kLeastClamp = kLargest - 1000;  ///< to which transformers clamps Inf, as in modeling_t5.py
  if (double{tensor.health.absmax} < kLeastClamp) return rows;
  level = double{tensor.health.absmax};
  survey.run().each_block(tensor, [&](std::int64_t first, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::abs(double{values[i]}) != level) continue;
      const std::int64_t row = first + static_cast<std::int64_t>(i) / std::max<std::int64_t>(1, tensor.channels);
      if ((rows.empty() || rows.back() != row) && survey.facts.live(tensor, row)) rows.push_back(row);
    }
    return true;
  });
  return rows;
}

void look_at_clamps(Survey& survey, Findings& out) {
  for (const Step& step : survey.run().steps()) {
    for (const Tensor& tensor : survey.run().content(step.id).tensors) {
      const Op* op = survey.run().maker(tensor);
      if (!tensor.known || tensor.stated || !is_half(tensor) || op == nullptr || tensor.health.bad() > 0) continue;
      if (op->kind == OpKind::parameter || op->kind == OpKind::copy || tensor.role == "mask" || may_hide(tensor.role))
        continue;
      double level = 0;
      const std::vector<std::int64_t> rows = plateau(survey, tensor, level);
      if (rows.empty()) continue;
      const Factors factors = factors_of(survey, *op, tensor, rows);
      if (factors.largest <= kLargest || factors.of != "the result") continue;
      Finding finding = finding_at(survey, tensor, rows);
      finding.rank = Rank::left_the_range;
      finding.fault.certainty = Certainty::proved;
      describe(finding, factors, static_cast<std::int64_t>(rows.size()), fmt::format("a clamp left {:g} of it", level));
      finding.fault.evidence.push_back({"plateau", level});
      for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
        if (survey.deviations[i].tensor == tensor.id) finding.explains.push_back({Symptom::Kind::deviation, i});
      }
      out.found.push_back(std::move(finding));
    }
  }
}

}  // namespace

/// A finite computation that left the range of f16: proved by doing it again from the dumped numbers.
Findings detect_f16_overflow(Survey& survey) {
  Findings out;
  std::int64_t halves = 0;
  double largest = 0;
  for (const Step& step : survey.run().steps()) {
    for (const Tensor& tensor : survey.run().content(step.id).tensors) {
      if (!tensor.known || !is_half(tensor) || tensor.role == "mask") continue;
      ++halves;
      largest = std::max(largest, double{tensor.health.absmax});
    }
  }
  look_at_births(survey, out);
  look_at_norms(survey, out);
  look_at_clamps(survey, out);
  merge_alike(out.found);
  if (halves == 0) {
    out.excluded("no tensor of f16 was dumped");
  } else {
    exclude(out, survey, fmt::format("the largest value of {} in f16 is {:.5g}", counted(halves, "tensor"), largest));
  }
  return out;
}

}  // namespace nanscope
