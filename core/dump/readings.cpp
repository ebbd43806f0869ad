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

double powered(double scale, int power) {
  return power == 0 ? 1 : power == 1 ? scale : power == 2 ? scale * scale : 1 / scale;
}

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

/// The output of a linear module whose weight is codes.
std::optional<ReadingReport> linear(DumpFacts& facts, const Quantized& quantized, const Codes& codes) {
  const DumpTensor& weight = facts.tensor(quantized.codes);
  std::optional<TensorIndex> out;
  for (TensorIndex i = 0; i < facts.size() && !out; ++i) {
    const TensorName& at = facts.tensor(i).at;
    if (at.module == weight.at.module && at.tower == weight.at.tower && at.port == Port::output) out = i;
  }
  if (!out) return std::nullopt;
  const auto in = facts.input_of(*out);
  if (!in || facts.tensor(*in).channels() != weight.channels() || facts.tensor(*out).channels() != weight.rows())
    return std::nullopt;
  const auto x = facts.values(*in);
  const auto y = facts.values(*out);
  const std::int64_t width = weight.channels();
  if (!x || !y || width > kWidest) return std::nullopt;
  const auto bias_index = facts.of_module(*out, "bias");
  const auto bias = bias_index ? facts.values(*bias_index) : nullptr;
  const double largest = double{facts.tensor(*out).health.absmax};
  std::vector<Sample> samples;
  const std::size_t stride = std::max<std::size_t>(1, y->size() / 61);  // odd, so that it walks over rows and channels
  for (std::size_t i = 0; i < y->size(); i += stride | 1U) {
    // Inputs are often quantized on the way: one percent of the largest output, and a code's rounding, is no error.
    if (std::isfinite((*y)[i])) samples.push_back({i, double{(*y)[i]}, 0.03 * largest});
  }
  ReadingReport report = report_of(facts, quantized, codes, *out, "x W'");
  judge(report, samples, codes.scale.has_value(), [&](const Sample& sample, const Reading& reading) {
    const std::int64_t row = static_cast<std::int64_t>(sample.element) / weight.rows();
    const std::int64_t channel = static_cast<std::int64_t>(sample.element) % weight.rows();
    double sum = bias && static_cast<std::int64_t>(bias->size()) == weight.rows()
                     ? double{(*bias)[static_cast<std::size_t>(channel)]}
                     : 0;
    for (std::int64_t k = 0; k < width; ++k) {
      sum += double{(*x)[static_cast<std::size_t>(row * width + k)]} * codes.value(channel, k, reading);
    }
    return sum;
  });
  return report;
}

}  // namespace

std::string_view power_text(int power) {
  return power == 0 ? "left out" : power == 1 ? "applied once" : power == 2 ? "applied twice" : "inverted";
}

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
    if (facts.tensor(quantized.codes).at.role == "weight") take(linear(facts, quantized, *codes));
    if (quantized.scale) take(attention_reading(facts, quantized));
  }
  std::stable_sort(reports.begin(), reports.end(),
                   [](const ReadingReport& a, const ReadingReport& b) { return a.shown < b.shown; });
  return reports;
}

}  // namespace nanscope
