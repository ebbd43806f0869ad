#include "instrument/recompute/activations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace nanscope {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double gelu(double x) { return 0.5 * x * (1 + std::erf(x * M_SQRT1_2)); }
double gelu_angle(double x) { return 0.7978845608028654 * (x + 0.044715 * x * x * x); }
/// Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv 1606.08415, section 2.
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(gelu_angle(x))); }
double quick_gelu(double x) { return x * sigmoid(1.702 * x); }
double relu(double x) { return x > 0 ? x : 0; }
double relu_squared(double x) { return x > 0 ? x * x : 0; }
double hyperbolic(double x) { return std::tanh(x); }
double identity(double x) { return x; }

/// Of openai/gpt-oss, gpt_oss/torch/model.py, `swiglu`: alpha, and what gate and up are held to.
constexpr double kAlpha = 1.702;
constexpr double kLimit = 7;
double clamped_swiglu(double x) { return std::min(x, kLimit) * sigmoid(kAlpha * std::min(x, kLimit)); }

constexpr std::array kActivations = {
    Activation{"silu", silu},
    Activation{"gelu", gelu},
    Activation{"gelu_tanh", gelu_tanh},
    Activation{"quick_gelu", quick_gelu},
    Activation{"relu", relu},
    Activation{"relu squared", relu_squared},
    Activation{"clamped swiglu", clamped_swiglu},
    Activation{"tanh", hyperbolic},
    Activation{"sigmoid", sigmoid},
    Activation{"no activation", identity},
};

}  // namespace

std::span<const Activation> activations() { return kActivations; }

const Activation& activation_at(int variant) {
  return kActivations[static_cast<std::size_t>(std::clamp(variant, 0, static_cast<int>(kActivations.size()) - 1))];
}

/// Of these functions at most 1.2, of a square twice its root.
double slope(const Activation& form, double x) { return form.function == relu_squared ? 2 * std::abs(x) : 1.2; }

bool is_clamped(const Activation& form) { return form.function == clamped_swiglu; }

Gated gated_element(const OpForm& form, double gate, std::optional<double> up) {
  const Activation& activation = activation_at(form.variant);
  if (!is_clamped(activation)) {
    // What the sigmoid of quick_gelu is taken of is rounded as well, of which its own relative error is that share.
    const double angle = kAlpha * gate;
    const double inner = activation.function == quick_gelu ? 1 + std::abs(angle) * (1 - sigmoid(angle)) : 0;
    return {gate, activation.function(gate), up.value_or(1), slope(activation, gate), inner};
  }
  const double limit = form.limit > 0 ? form.limit : kLimit;
  Gated made;
  made.gate = std::min(gate, limit);
  const double angle = (form.alpha > 0 ? form.alpha : kAlpha) * made.gate;
  made.active = made.gate * sigmoid(angle);
  if (up) made.other = std::clamp(*up, -limit, limit) + 1;
  // The sum with 1, and what the sigmoid is taken of, of which its own relative error is that share.
  made.roundings = 1 + std::abs(angle) * (1 - sigmoid(angle));
  return made;
}

double gelu_tanh_error(double x, double u) {
  const double t = std::tanh(gelu_angle(x));
  return 0.5 * std::abs(x) * u * (2 + std::abs(t) + 5 * std::abs(gelu_angle(x)) * (1 - t * t));
}

}  // namespace nanscope
