#include "instrument/engine/reference_weights.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "instrument/engine/reference_head.h"
#include "instrument/weights/random.h"

namespace nanscope {
namespace {

constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kMlpWidth = 512;
constexpr std::uint64_t kSeed = 2026;

constexpr double kCommon = 0.5;         // weight of c in every text embedding
constexpr double kLookBack = 6.0;       // gain of the look-back heads on c
constexpr double kLookBackNoise = 0.1;  // what is left of layer 0's random queries and keys
constexpr double kOutlierValue = 40.0;  // gain of u into all channels of v
constexpr double kOutlierKey = 3.0;     // ... of k
constexpr double kOutlierQuery = 10.0;  // ... of q
constexpr double kBrightness = 12.0;    // u component of a white patch
constexpr double kBlackLevel = 0.06;    // mean brightness that gives no u component
constexpr double kPatchNoise = 4.0;     // spread of the rest of a patch's embedding
constexpr double kMlpGain = 0.1;
constexpr std::array<double, kLayers> kAttentionGain = {1.0, 0.15, 0.15, 0.15};

using Vector = std::vector<double>;

Vector draw(std::string_view stream, std::size_t count) {
  std::vector<float> values(count);
  fill_gaussian(values, kSeed, stream, 1.0F);
  return {values.begin(), values.end()};
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void remove(Vector& from, const Vector& direction) {
  const double share = dot(from, direction) / dot(direction, direction);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] -= share * direction[i];
}

/// Zero mean, no component along `others`, mean square 1.
Vector centred_direction(Vector values, std::initializer_list<const Vector*> others) {
  const Vector ones(values.size(), 1.0);
  remove(values, ones);
  for (const Vector* other : others) remove(values, *other);
  const double scale = std::sqrt(static_cast<double>(values.size()) / dot(values, values));
  for (double& value : values) value *= scale;
  return values;
}

/// Cosine and sine by their Taylor series in plain double arithmetic, for |x| <= 4: libm's may
/// differ between machines in the last bit, and these become weights.
std::pair<double, double> cos_sin(double x) {
  double cosine = 1, sine = x, cosine_term = 1, sine_term = x;
  for (int n = 1; n <= 20; ++n) {
    cosine_term *= -x * x / ((2.0 * n - 1) * (2.0 * n));
    sine_term *= -x * x / ((2.0 * n) * (2.0 * n + 1));
    cosine += cosine_term;
    sine += sine_term;
  }
  return {cosine, sine};
}

/// A vector of ones rotated by RoPE (base 10000, half-split pairs) to `position`.
Vector rotated_ones(double position) {
  constexpr double kRatio = 0.749894209332455827302;  // 10000^(-1/32)
  Vector values(kHeadDim);
  double frequency = 1;
  for (std::size_t i = 0; i < kHeadDim / 2; ++i, frequency *= kRatio) {
    const auto [cosine, sine] = cos_sin(position * frequency);
    values[i] = cosine - sine;
    values[i + kHeadDim / 2] = cosine + sine;
  }
  return values;
}

class ReferenceWeights final : public WeightSource {
 public:
  explicit ReferenceWeights(std::vector<float> head)
      : outlier_(centred_direction(draw("outlier", kWidth), {})),
        common_(centred_direction(draw("common", kWidth), {&outlier_})),
        head_(std::move(head)) {}

  Result<std::vector<float>> tensor(std::string_view name, std::int64_t rows, std::int64_t columns) override;

 private:
  std::vector<float> embedding(std::int64_t rows) const;
  std::vector<float> patch_weight(std::int64_t columns) const;
  std::vector<float> patch_bias() const;
  Result<std::vector<float>> layer_tensor(std::string_view name, std::int64_t layer, std::string_view part,
                                          std::int64_t rows, std::int64_t columns) const;
  std::vector<float> projection(std::string_view name, std::int64_t layer, std::string_view part, std::int64_t rows,
                                std::int64_t columns) const;
  void add_look_back(std::vector<double>& weight, bool query) const;

  Vector outlier_;
  Vector common_;
  std::vector<float> head_;
};

std::vector<float> rounded(const Vector& values) {
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = static_cast<float>(values[i]);
  return result;
}

Vector scaled_draw(std::string_view name, std::int64_t rows, std::int64_t columns, double gain) {
  Vector values = draw(name, static_cast<std::size_t>(rows * columns));
  const double scale = gain / std::sqrt(static_cast<double>(columns));
  for (double& value : values) value *= scale;
  return values;
}

std::vector<float> ReferenceWeights::embedding(std::int64_t rows) const {
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(rows * kWidth));
  const Vector all = draw("embed.weight", static_cast<std::size_t>(rows * kWidth));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = all.begin() + row * kWidth;
    Vector values = centred_direction(Vector(begin, begin + kWidth), {&outlier_, &common_});
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += kCommon * common_[i];
    for (double value : values) table.push_back(static_cast<float>(value));
  }
  return table;
}

std::vector<float> ReferenceWeights::patch_weight(std::int64_t columns) const {
  Vector values = scaled_draw("patch_embed.weight", kWidth, columns, kPatchNoise);
  for (std::int64_t row = 0; row < kWidth; ++row) {
    // Zero-sum noise rows: plain brightness then moves a patch along u alone.
    const auto begin = static_cast<std::size_t>(row * columns);
    double mean = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(columns); ++i) mean += values[begin + i];
    mean /= static_cast<double>(columns);
    const double along = kBrightness * outlier_[static_cast<std::size_t>(row)] / static_cast<double>(columns);
    for (std::size_t i = 0; i < static_cast<std::size_t>(columns); ++i) values[begin + i] += along - mean;
  }
  return rounded(values);
}

std::vector<float> ReferenceWeights::patch_bias() const {
  Vector values = centred_direction(draw("patch_embed.bias", kWidth), {&outlier_, &common_});
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= kBlackLevel * kBrightness * outlier_[i];
  return rounded(values);
}

/// Head h of layer 0 looks h tokens back; head 0 looks at its own token through random weights.
void ReferenceWeights::add_look_back(Vector& weight, bool query) const {
  for (double& value : weight) value *= kLookBackNoise;
  for (std::int64_t head = 1; head < kHeads; ++head) {
    const Vector pattern = rotated_ones(query ? -static_cast<double>(head) : 0.0);
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const std::size_t row = static_cast<std::size_t>(head * kHeadDim) + i;
      for (std::size_t j = 0; j < common_.size(); ++j) {
        weight[row * kWidth + j] += kLookBack * pattern[i] * common_[j] / static_cast<double>(kWidth);
      }
    }
  }
}

std::vector<float> ReferenceWeights::projection(std::string_view name, std::int64_t layer, std::string_view part,
                                                std::int64_t rows, std::int64_t columns) const {
  const bool down = part == "down_proj.weight";
  const double gain =
      part == "o_proj.weight" ? kAttentionGain[static_cast<std::size_t>(layer)] : (down ? kMlpGain : 1.0);
  Vector values = scaled_draw(name, rows, columns, gain);
  const bool query = part == "q_proj.weight";
  const bool key = part == "k_proj.weight";
  if (layer == 0) {
    if (query || key) add_look_back(values, query);
    return rounded(values);
  }
  const double outlier = query ? kOutlierQuery : (key ? kOutlierKey : (part == "v_proj.weight" ? kOutlierValue : 0.0));
  for (std::size_t i = 0; i < values.size() && outlier != 0; ++i) {
    values[i] += outlier * outlier_[i % kWidth] / static_cast<double>(kWidth);
  }
  return rounded(values);
}

Result<std::vector<float>> ReferenceWeights::layer_tensor(std::string_view name, std::int64_t layer,
                                                          std::string_view part, std::int64_t rows,
                                                          std::int64_t columns) const {
  const bool is_norm = part.find("norm.") != std::string_view::npos;
  const auto count = static_cast<std::size_t>(rows * columns);
  if (is_norm) return std::vector<float>(count, part.ends_with(".weight") ? 1.0F : 0.0F);
  if (part.ends_with("_proj.bias")) return std::vector<float>(count, 0.0F);
  if (part.ends_with("_proj.weight")) return projection(name, layer, part, rows, columns);
  return fail(fmt::format("weights 'reference': no tensor '{}' (a recurrent layer needs model.weights=random)", name));
}

Result<std::vector<float>> ReferenceWeights::tensor(std::string_view name, std::int64_t rows, std::int64_t columns) {
  const auto count = static_cast<std::size_t>(rows * columns);
  if (name == "embed.weight") return embedding(rows);
  if (name == "patch_embed.weight") return patch_weight(columns);
  if (name == "patch_embed.bias") return patch_bias();
  if (name == "final_norm.weight") return std::vector<float>(count, 1.0F);
  if (name == "final_norm.bias") return std::vector<float>(count, 0.0F);
  if (name == "lm_head.weight") {
    if (head_.empty()) return std::vector<float>(count, 0.0F);
    if (head_.size() == count) return head_;
    return fail(
        fmt::format("weights 'reference': the head is fitted for {} values, not {} x {}; use the shipped tokenizer",
                    head_.size(), rows, columns));
  }
  constexpr std::string_view kPrefix = "layers.";
  std::int64_t layer = -1;
  if (name.starts_with(kPrefix)) {
    const std::string_view rest = name.substr(kPrefix.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    if (error == std::errc{} && layer >= 0 && layer < kLayers && digits < rest.size()) {
      return layer_tensor(name, layer, rest.substr(digits + 1), rows, columns);
    }
  }
  return fail(fmt::format("weights 'reference': no tensor '{}'", name));
}

struct FixedShape {
  std::string_view knob;
  std::int64_t expected;
  std::int64_t found;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_reference_weights(const ModelConfig& model, std::vector<float> head) {
  const std::array<FixedShape, 6> shapes = {{{"model.layers", kLayers, model.layers},
                                             {"model.width", kWidth, model.width},
                                             {"model.heads", kHeads, model.heads},
                                             {"model.kv_heads", kHeads, model.kv_heads},
                                             {"model.head_dim", kHeadDim, model.head_dim},
                                             {"model.mlp_width", kMlpWidth, model.mlp_width}}};
  for (const FixedShape& shape : shapes) {
    if (shape.expected != shape.found) {
      return fail(fmt::format("weights 'reference': {} must be {}, found {}; use model.weights=random for other shapes",
                              shape.knob, shape.expected, shape.found));
    }
  }
  return std::make_unique<ReferenceWeights>(std::move(head));
}

Result<std::unique_ptr<WeightSource>> make_reference_weights(const ModelConfig& model) {
  return make_reference_weights(model, reference_head());
}

}  // namespace nanscope
