#pragma once
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "instrument/engine/config.h"
#include "instrument/engine/weight_source.h"

/// The reference transformer once more, in double precision and plain loops: what the engine is
/// compared with. Shares nothing with it but the configuration and the weights.
namespace nanscope::testing {

using Matrix = std::vector<std::vector<double>>;

class DoubleModel {
 public:
  DoubleModel(const EngineConfig& config, WeightSource& weights) : config_(config), weights_(weights) {}

  /// Logits (tokens x vocabulary) of a prompt. `vocabulary` is the embedding's rows.
  Matrix logits(const std::vector<std::int32_t>& tokens, std::int64_t vocabulary) {
    const ModelConfig& m = config_.model;
    const Matrix table = weight("embed.weight", vocabulary, m.width);
    Matrix x;
    for (const std::int32_t token : tokens) x.push_back(table[static_cast<std::size_t>(token)]);
    for (std::int64_t layer = 0; layer < m.layers; ++layer) x = run_layer(layer, x);
    return linear(norm(x, "final_norm", m.width), "lm_head", vocabulary, false);
  }

 private:
  Matrix weight(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const std::vector<float> flat = weights_.tensor(name, rows, columns).value();
    Matrix result(static_cast<std::size_t>(rows));
    for (std::size_t r = 0; r < result.size(); ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        result[r].push_back(
            static_cast<double>(flat[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)]));
      }
    }
    return result;
  }

  Matrix linear(const Matrix& x, const std::string& name, std::int64_t out, bool with_bias) {
    const Matrix w = weight(name + ".weight", out, static_cast<std::int64_t>(x[0].size()));
    const std::vector<double> bias =
        with_bias ? weight(name + ".bias", 1, out)[0] : std::vector<double>(static_cast<std::size_t>(out), 0.0);
    Matrix y(x.size(), bias);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t n = 0; n < w.size(); ++n) {
        for (std::size_t k = 0; k < x[t].size(); ++k) y[t][n] += x[t][k] * w[n][k];
      }
    }
    return y;
  }

  /// Normalises each row in groups of `size` channels.
  Matrix norm(Matrix x, const std::string& name, std::int64_t size, bool may_have_bias = true) {
    const bool rms = config_.model.norm == kernels::NormKind::rms_norm;
    const std::vector<double> gain = weight(name + ".weight", 1, size)[0];
    const std::vector<double> bias =
        rms || !may_have_bias ? std::vector<double>(gain.size(), 0.0) : weight(name + ".bias", 1, size)[0];
    const std::size_t n = gain.size();
    for (std::vector<double>& row : x) {
      for (std::size_t first = 0; first < row.size(); first += n) {
        double mean = 0;
        for (std::size_t i = 0; i < n && !rms; ++i) mean += row[first + i] / static_cast<double>(n);
        double variance = 0;
        for (std::size_t i = 0; i < n; ++i) variance += std::pow(row[first + i] - mean, 2) / static_cast<double>(n);
        const double scale = 1 / std::sqrt(variance + static_cast<double>(config_.norm.eps));
        for (std::size_t i = 0; i < n; ++i) row[first + i] = (row[first + i] - mean) * scale * gain[i] + bias[i];
      }
    }
    return x;
  }

  static Matrix sum(const Matrix& a, const Matrix& b) {
    Matrix y = a;
    for (std::size_t t = 0; t < y.size(); ++t) {
      for (std::size_t i = 0; i < y[t].size(); ++i) y[t][i] += b[t][i];
    }
    return y;
  }

  /// Dynamic NTK scaling as transformers has it, for more positions than trained for alone.
  double rope_base() const {
    const double s = static_cast<double>(config_.rope.served) / static_cast<double>(config_.rope.trained);
    if (config_.rope.scaling == RopeScaling::none || s <= 1) return config_.model.rope_base;
    const auto d = static_cast<double>(config_.model.head_dim);
    return config_.model.rope_base * std::pow(config_.rope.factor * s - (config_.rope.factor - 1), d / (d - 2));
  }

  void rope(Matrix& x) const {
    const auto d = static_cast<std::size_t>(config_.model.head_dim);
    const double base = rope_base();
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t head = 0; head < x[t].size(); head += d) {
        for (std::size_t i = 0; i < d / 2; ++i) {
          const double angle =
              static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(d));
          const double a = x[t][head + i];
          const double b = x[t][head + i + d / 2];
          x[t][head + i] = a * std::cos(angle) - b * std::sin(angle);
          x[t][head + i + d / 2] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
  }

  Matrix attention(const std::string& prefix, const Matrix& x) {
    const ModelConfig& m = config_.model;
    Matrix q = linear(x, prefix + "q_proj", m.heads * m.head_dim, m.bias);
    Matrix k = linear(x, prefix + "k_proj", m.kv_heads * m.head_dim, m.bias);
    const Matrix v = linear(x, prefix + "v_proj", m.kv_heads * m.head_dim, m.bias);
    if (m.qk_norm) {
      q = norm(q, prefix + "q_norm", m.head_dim, false);
      k = norm(k, prefix + "k_norm", m.head_dim, false);
    }
    rope(q);
    rope(k);
    const auto d = static_cast<std::size_t>(m.head_dim);
    const auto group = static_cast<std::size_t>(m.heads / m.kv_heads);
    Matrix out(x.size(), std::vector<double>(static_cast<std::size_t>(m.heads) * d, 0.0));
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t h = 0; h < static_cast<std::size_t>(m.heads); ++h) {
        const std::size_t g = h / group;
        std::vector<double> p(t + 1, 0.0);
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (std::size_t i = 0; i < d; ++i) dot += q[t][h * d + i] * k[s][g * d + i];
          p[s] = std::exp(dot / std::sqrt(static_cast<double>(d)));
          total += p[s];
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < d; ++i) out[t][h * d + i] += p[s] / total * v[s][g * d + i];
        }
      }
    }
    if (m.inner_norm) out = norm(out, prefix + "inner_norm", m.heads * m.head_dim);
    return linear(out, prefix + "o_proj", m.width, m.bias);
  }

  Matrix recurrence(const std::string& prefix, const Matrix& x) {
    const ModelConfig& m = config_.model;
    Matrix y = linear(x, prefix + "recurrent.in_proj", m.width, false);
    const std::vector<double> decay = weight(prefix + "recurrent.decay", 1, m.width)[0];
    std::vector<double> state(decay.size(), 0.0);
    for (std::vector<double>& row : y) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        state[i] = decay[i] * state[i] + (1 - decay[i]) * row[i];
        row[i] = state[i];
      }
    }
    return linear(y, prefix + "recurrent.out_proj", m.width, false);
  }

  double activate(double x) const {
    switch (config_.model.mlp) {
      case kernels::ActivationKind::gelu:
        return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
      case kernels::ActivationKind::gelu_tanh:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      default:
        return x / (1 + std::exp(-x));
    }
  }

  Matrix mlp(const std::string& prefix, const Matrix& x) {
    const ModelConfig& m = config_.model;
    Matrix hidden = linear(x, prefix + "up_proj", m.mlp_width, m.bias);
    if (m.mlp == kernels::ActivationKind::swiglu) {
      const Matrix gate = linear(x, prefix + "gate_proj", m.mlp_width, m.bias);
      for (std::size_t t = 0; t < hidden.size(); ++t) {
        for (std::size_t i = 0; i < hidden[t].size(); ++i) hidden[t][i] *= activate(gate[t][i]);
      }
    } else {
      for (std::vector<double>& row : hidden) {
        for (double& value : row) value = activate(value);
      }
    }
    return linear(hidden, prefix + "down_proj", m.width, m.bias);
  }

  Matrix run_layer(std::int64_t layer, const Matrix& x) {
    const ModelConfig& m = config_.model;
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const auto mixed = [&](const Matrix& input) {
      return is_recurrent(m, layer) ? recurrence(prefix, input) : attention(prefix, input);
    };
    const auto normed = [&](const Matrix& input, const char* name) { return norm(input, prefix + name, m.width); };
    if (m.norm_placement == NormPlacement::pre) {
      const Matrix h = sum(x, mixed(normed(x, "attn_norm")));
      return sum(h, mlp(prefix, normed(h, "mlp_norm")));
    }
    if (m.norm_placement == NormPlacement::post) {
      const Matrix h = normed(sum(x, mixed(x)), "attn_post_norm");
      return normed(sum(h, mlp(prefix, h)), "mlp_post_norm");
    }
    const Matrix h = sum(x, normed(mixed(normed(x, "attn_norm")), "attn_post_norm"));
    return sum(h, normed(mlp(prefix, normed(h, "mlp_norm")), "mlp_post_norm"));
  }

  const EngineConfig& config_;
  WeightSource& weights_;
};

}  // namespace nanscope::testing
