/// Sums of two terms: which of them count how often, and the one whose second term stands behind a gate.
#include <cmath>

#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recipes.h"
#include "instrument/recompute/terms.h"

namespace nanscope {

std::vector<OpForm> faults_of_sum(const std::string& first, const std::string& second, bool fault_alone) {
  const auto fault = [fault_alone](std::string text, int variant) {
    return OpForm{.text = std::move(text), .variant = variant, .fault = fault_alone};
  };
  return {fault(second + " left out", kFirstOnly), fault(first + " left out", kSecondOnly),
          fault(first + " added twice", kFirstTwice), fault(second + " added twice", kSecondTwice)};
}

std::pair<double, double> factors_of_sum(const OpForm& form) {
  switch (form.variant) {
    case kFirstOnly:
      return {1, 0};
    case kSecondOnly:
      return {0, 1};
    case kFirstTwice:
      return {2, 1};
    case kSecondTwice:
      return {1, 2};
    case kFirstTimes:
      return {form.number, 1};
    case kSecondTimes:
      return {1, form.number};
    default:
      return {1, 1};
  }
}

void multiply(Block& term, double factor, double u) {
  if (factor == 1) return;
  const bool exact = factor == 0 || factor == 2;  // as powers of two are
  if (!exact && term.error.empty()) term.error.assign(term.value.size(), 0);
  for (std::size_t i = 0; i < term.value.size(); ++i) {
    const double value = factor * double{term.value[i]};
    // The product is rounded, and the factor was rounded to f32 before.
    const double rounded = exact ? 0 : (1.01 * u + kF32) * std::abs(value);
    if (!term.error.empty()) term.error[i] = static_cast<float>(factor * double{term.error[i]} + rounded);
    term.value[i] = static_cast<float>(value);
  }
}

std::vector<OpForm> forms_of_block() {
  return {{.text = "the sum of the chosen experts and the shared one"},
          {.text = "what the experts put out, the shared one within it", .variant = kFirstOnly}};
}

std::vector<OpForm> forms_gated_add(Values&, const Op&, const Tensor&) { return forms_of_block(); }

std::vector<OpForm> faults_of_block() { return faults_of_sum("the routed experts", "the shared expert", false); }

std::vector<OpForm> faults_gated_add(Values&, const Op&, const Tensor&) {
  std::vector<OpForm> forms = faults_of_block();
  forms.push_back({.text = "the gate of the shared expert left out", .variant = kUngated});
  return forms;
}

std::int64_t cost_gated_add(Values& values, const Op& op, const Tensor& out) { return unit_cost(values, op, out); }

/// out = a + sigmoid(gate) * b, with one number of the gate a row. What is between may be rounded, as in PyTorch, or
/// not.
bool predict_gated_add(Values& values, const Op& op, const Tensor& out, const OpForm& form, std::int64_t first,
                       std::int64_t count, Prediction& into, std::string& why) {
  Block a;
  Block b;
  Block gate;
  if (!input_rows(values, op, "a", out, first, count, a, why) ||
      !input_rows(values, op, "b", out, first, count, b, why) ||
      !input_rows(values, op, "gate", out, first, count, gate, why))
    return false;
  if (a.columns != b.columns || gate.columns != 1) {
    why = "its inputs have different widths";
    return false;
  }
  const double u = stored_roundoff(values, out);
  const double least = least_error(stored_format(values, out));
  const auto [left, right] = factors_of_sum(form);
  multiply(a, left, u);
  multiply(b, right, u);
  into.resize(count, a.columns);
  for (std::int64_t t = 0; t < count; ++t) {
    const bool open = form.variant == kUngated;
    const double share = open ? 1 : 1 / (1 + std::exp(-double{gate.row(t)[0]}));
    // A sigmoid is nowhere steeper than 1/4.
    const double share_off = open ? 0 : 1.01 * (u + 4 * kF32) * share + double{gate.off(t, 0)} / 4;
    for (std::int64_t c = 0; c < a.columns; ++c) {
      const auto at = static_cast<std::size_t>(t * a.columns + c);
      const double whole = double{b.value[at]};
      const double value = double{a.value[at]} + share * whole;
      const double off = double{a.off(t, c)} + share * double{b.off(t, c)} + share_off * std::abs(whole) +
                         1.01 * u * std::abs(share * whole);
      into.value[at] = static_cast<float>(value);
      into.bound[at] = static_cast<float>(1.01 * u * std::abs(value) + kF32 * std::abs(value) + least + off);
    }
  }
  return true;
}

}  // namespace nanscope
