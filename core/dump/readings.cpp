#include "core/dump/readings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

constexpr std::array kFloats = {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz};
constexpr std::array kPowers = {1, 0, 2, -1};
constexpr std::size_t kSamples = 256;
constexpr std::int64_t kWidest = 16384;  ///< of a sum that is done again

/// An element that a reading should reproduce.
struct Sample {
  std::size_t element = 0;
  double actual = 0;
  double tolerance = 0;  ///< absolute, what rounding explains
};

using Predict = std::function<double(const Sample&, const Reading&)>;

std::vector<Format> candidate_formats(Format own) {
  std::vector<Format> formats{own};
  if (std::find(kFloats.begin(), kFloats.end(), own) == kFloats.end()) return formats;
  for (const Format format : kFloats) {
    if (format != own) formats.push_back(format);
  }
  return formats;
}

/// Every so many elements, so that at most kSamples are looked at.
std::size_t stride_of(std::size_t count) { return std::max<std::size_t>(1, count / kSamples); }

void judge(ReadingReport& report, const std::vector<Sample>& samples, bool scaled, const Predict& predict) {
  report.elements = samples.size();
  if (samples.empty()) return;
  for (const Format format : candidate_formats(report.proper.format)) {
    for (const int power : kPowers) {
      if (!scaled && power != 1) continue;
      const Reading reading{format, power};
      const auto hits = std::count_if(samples.begin(), samples.end(), [&](const Sample& sample) {
        return std::abs(predict(sample, reading) - sample.actual) <= sample.tolerance;
      });
      const double share = static_cast<double>(hits) / static_cast<double>(samples.size());
      if (reading == report.proper) report.proper_share = share;
      if (share > report.best_share + 1e-9) {
        report.best_share = share;
        report.best = reading;
      }
    }
  }
}

/// Codes with their scale, ready to be read in any way.
struct Codes {
  std::shared_ptr<const std::vector<std::uint32_t>> codes;
  std::optional<ScaleGrid> scale;
  std::int64_t channels = 1;

  double value(std::int64_t row, std::int64_t channel, const Reading& reading) const {
    const double decoded = double{decode(reading.format, (*codes)[static_cast<std::size_t>(row * channels + channel)])};
    return scale ? decoded * powered(double{scale->at(row, channel)}, reading.power) : decoded;
  }
};

std::optional<Codes> codes_of(DumpFacts& facts, const Quantized& quantized) {
  Codes out{facts.codes(quantized.codes), {}, facts.tensor(quantized.codes).channels()};
  if (!out.codes) return std::nullopt;
  if (quantized.scale) {
    out.scale = ScaleGrid::of(facts, *quantized.scale, quantized.codes);
    if (!out.scale) return std::nullopt;
  }
  return out;
}

ReadingReport report_of(DumpFacts& facts, const Quantized& quantized, const Codes& codes, TensorIndex shown,
                        std::string how) {
  ReadingReport report;
  report.codes = quantized.codes;
  report.scale = quantized.scale;
  report.shown = shown;
  report.how = std::move(how);
  report.proper = report.best = {*facts.tensor(quantized.codes).format, 1};
  if (codes.scale) report.scale_value = double{codes.scale->first()};
  return report;
}

/// Relative rounding of what a tensor's dtype stores, generously.
double rounding_of(const DumpTensor& tensor) {
  const int mantissa = tensor.format ? info(*tensor.format).mantissa_bits : 23;
  return std::ldexp(1.0, -std::min(mantissa, 20)) * 1.01;
}

std::optional<ReadingReport> elementwise(DumpFacts& facts, const Quantized& quantized, const Codes& codes,
                                         TensorIndex other, bool is_source) {
  const auto values = facts.values(other);
  if (!values || values->size() != codes.codes->size()) return std::nullopt;
  ReadingReport report =
      report_of(facts, quantized, codes, is_source ? quantized.codes : other, is_source ? "stored from" : "read back");
  const FormatInfo& format = info(*facts.tensor(quantized.codes).format);
  // A store rounds to the codes' own precision; whatever flavour, two mantissa bits are kept.
  const double relative =
      is_source ? std::ldexp(1.0, -std::min(format.mantissa_bits, 3)) : rounding_of(facts.tensor(other));
  std::vector<Sample> samples;
  const std::size_t stride = stride_of(values->size());
  for (std::size_t i = 0; i < values->size(); i += stride) {
    const double actual = double{(*values)[i]};
    const float code = std::abs(decode(format.format, (*codes.codes)[i]));
    if (!std::isfinite(actual) || actual == 0 || !(code >= 8 * format.min_normal)) continue;
    if (is_source && code >= format.max_finite) continue;  // cut off
    samples.push_back({i, actual, std::abs(actual) * relative});
  }
  judge(report, samples, codes.scale.has_value(), [&](const Sample& sample, const Reading& reading) {
    const auto index = static_cast<std::int64_t>(sample.element);
    return codes.value(index / codes.channels, index % codes.channels, reading);
  });
  return report;
}

/// x, W and y of a linear module, by which elements of y are made again. W is (out, in), or GPT-2's (in, out).
struct Linear {
  TensorIndex out = 0;
  std::shared_ptr<const std::vector<float>> x;       ///< null when x is the codes that are tried
  std::shared_ptr<const std::vector<float>> weight;  ///< null when the weight is
  std::optional<ScaleGrid> weight_scale;
  std::shared_ptr<const std::vector<float>> bias;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  bool transposed = false;

  std::int64_t weight_row(std::int64_t channel, std::int64_t k) const { return transposed ? k : channel; }
  std::int64_t weight_column(std::int64_t channel, std::int64_t k) const { return transposed ? channel : k; }
};

std::optional<TensorIndex> output_of_module(const DumpFacts& facts, TensorIndex beside) {
  const TensorName& at = facts.tensor(beside).at;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const TensorName& other = facts.tensor(i).at;
    const bool same_pass = is_parameter(facts.tensor(beside)) || facts.pass_of(i) == facts.pass_of(beside);
    if (same_pass && other.module == at.module && other.tower == at.tower && other.port == Port::output) return i;
  }
  return std::nullopt;
}

/// Of the module of `codes`, which are its weight or its input.
std::optional<Linear> linear_of(DumpFacts& facts, TensorIndex codes, bool codes_are_weight) {
  const auto out = output_of_module(facts, codes);
  const auto weight = codes_are_weight ? std::optional(codes) : out ? facts.of_module(*out, "weight") : std::nullopt;
  const auto in = codes_are_weight && out ? facts.input_of(*out) : std::optional(codes);
  if (!out || !weight || !in) return std::nullopt;
  Linear linear;
  linear.out = *out;
  linear.width = facts.tensor(*in).channels();
  linear.channels = facts.tensor(*out).channels();
  const DumpTensor& w = facts.tensor(*weight);
  linear.transposed = w.rows() == linear.width && w.channels() == linear.channels && w.rows() != w.channels();
  const bool fits = linear.transposed || (w.rows() == linear.channels && w.channels() == linear.width);
  if (!fits || linear.width > kWidest || linear.channels == 0 || facts.tensor(*in).rows() < facts.tensor(*out).rows())
    return std::nullopt;
  if (codes_are_weight) {
    linear.x = facts.values(*in);
    if (!linear.x) return std::nullopt;
  } else {
    linear.weight = facts.values(*weight);
    const auto scale = facts.of_module(*weight, "weight_scale");
    if (scale) linear.weight_scale = ScaleGrid::of(facts, *scale, *weight);
    if (!linear.weight || (scale && !linear.weight_scale)) return std::nullopt;
  }
  const auto bias = facts.of_module(*out, "bias");
  if (bias && facts.tensor(*bias).count() == linear.channels) linear.bias = facts.values(*bias);
  return linear;
}

double weight_at(const Linear& linear, std::int64_t channel, std::int64_t k) {
  const std::int64_t row = linear.weight_row(channel, k);
  const std::int64_t column = linear.weight_column(channel, k);
  const double value = double{
      (*linear.weight)[static_cast<std::size_t>(row * (linear.transposed ? linear.channels : linear.width) + column)]};
  return linear.weight_scale ? value * double{linear.weight_scale->at(row, column)} : value;
}

/// The output of a linear module whose weight or input is codes.
std::optional<ReadingReport> linear_reading(DumpFacts& facts, const Quantized& quantized, const Codes& codes,
                                            bool codes_are_weight) {
  const std::optional<Linear> linear = linear_of(facts, quantized.codes, codes_are_weight);
  if (!linear) return std::nullopt;
  const auto y = facts.values(linear->out);
  if (!y) return std::nullopt;
  const double largest = double{facts.tensor(linear->out).health.absmax};
  std::vector<Sample> samples;
  const std::size_t stride =
      std::max<std::size_t>(1, y->size() / 61) | 1U;  // odd, so that it walks over rows and channels
  for (std::size_t i = 0; i < y->size(); i += stride) {
    // What is multiplied is often rounded on the way: a few percent of the largest output are no error.
    if (std::isfinite((*y)[i])) samples.push_back({i, double{(*y)[i]}, 0.03 * largest});
  }
  ReadingReport report =
      report_of(facts, quantized, codes, linear->out, codes_are_weight ? "x W'" : "x W' with the codes as x");
  judge(report, samples, codes.scale.has_value(), [&](const Sample& sample, const Reading& reading) {
    const std::int64_t row = static_cast<std::int64_t>(sample.element) / linear->channels;
    const std::int64_t channel = static_cast<std::int64_t>(sample.element) % linear->channels;
    double sum = linear->bias ? double{(*linear->bias)[static_cast<std::size_t>(channel)]} : 0;
    for (std::int64_t k = 0; k < linear->width; ++k) {
      sum += codes_are_weight
                 ? double{(*linear->x)[static_cast<std::size_t>(row * linear->width + k)]} *
                       codes.value(linear->weight_row(channel, k), linear->weight_column(channel, k), reading)
                 : codes.value(row, k, reading) * weight_at(*linear, channel, k);
    }
    return sum;
  });
  return report;
}

}  // namespace

// Attention is in readings_attention.cpp.
std::optional<ReadingReport> attention_reading(DumpFacts& facts, const Quantized& quantized);

std::vector<ReadingReport> reading_reports(DumpFacts& facts) {
  std::vector<ReadingReport> reports;
  for (const Quantized& quantized : quantized_tensors(facts)) {
    const std::optional<Codes> codes = codes_of(facts, quantized);
    if (!codes) continue;
    const auto take = [&](std::optional<ReadingReport> report) {
      if (report && report->elements > 0) reports.push_back(std::move(*report));
    };
    if (quantized.source) take(elementwise(facts, quantized, *codes, *quantized.source, true));
    if (quantized.readback) take(elementwise(facts, quantized, *codes, *quantized.readback, false));
    const std::string& role = facts.tensor(quantized.codes).at.role;
    if (role == "weight") take(linear_reading(facts, quantized, *codes, true));
    if (role == "x_codes") take(linear_reading(facts, quantized, *codes, false));
    if (quantized.scale) take(attention_reading(facts, quantized));
  }
  std::stable_sort(reports.begin(), reports.end(),
                   [](const ReadingReport& a, const ReadingReport& b) { return a.shown < b.shown; });
  return reports;
}

}  // namespace nanscope
