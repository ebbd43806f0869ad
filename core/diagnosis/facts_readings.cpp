#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/diagnosis/facts.h"
#include "core/diagnosis/scales.h"
#include "core/numbers/codec.h"

/// In which format and with how much of its scale attention read the cache. Codes of all fp8 flavours order as their
/// magnitudes do, so the smallest and largest value of a row that was read are those of the row's smallest and largest
/// code: recorded health tells the reading, and no element is needed.
namespace nanscope {
namespace {

constexpr std::array kFlavours = {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz};
constexpr std::array kPowers = {1, 0, 2, -1};
constexpr double kTolerance = 1.0 / 128;  ///< an imported run may hold what was read in bf16
/// Of each request the prefill and a decode step, of at most so many requests: kernels do not change in between.
constexpr std::int64_t kStepsOfARequest = 2;
constexpr std::int64_t kRequests = 8;
constexpr std::int64_t kRows = 16;  ///< of a read, spread over its context

bool is_fp8(Format format) { return std::find(kFlavours.begin(), kFlavours.end(), format) != kFlavours.end(); }

std::vector<Format> flavours_of(Format stated) {
  std::vector<Format> formats{stated};
  if (!is_fp8(stated)) return formats;
  for (const Format format : kFlavours) {
    if (format != stated) formats.push_back(format);
  }
  return formats;
}

bool near(double expected, double found) {
  return std::isfinite(expected) && std::abs(expected - found) <= kTolerance * std::abs(expected);
}

/// Whether codes with these extremes, read like this, give a row with those.
bool gives(const Health& codes, Format stated, double scale, int power, Format as, const Health& read) {
  const auto value = [&](float code) {
    return double{decode(as, encode(stated, code, Overflow::saturate))} * powered(scale, power);
  };
  return near(value(codes.min), double{read.min}) && near(value(codes.max), double{read.max});
}

}  // namespace

const std::vector<KvReading>& Facts::readings() {
  if (readings_) return *readings_;
  readings_.emplace();
  std::map<std::int64_t, std::int64_t> steps;
  for (const StepRow& step : run.steps()) {
    if (steps.size() >= static_cast<std::size_t>(kRequests) && !steps.contains(step.request)) break;
    if (steps[step.request]++ < kStepsOfARequest) collect_readings(step);
  }
  return *readings_;
}

void Facts::collect_readings(const StepRow& step) {
  OpFilter filter;
  filter.step = step.id;
  filter.name = "kv_read";
  for (const OpRow& op : run.ops(filter)) {
    for (const char* target : {"k", "v"}) {
      const std::optional<TensorRow> read = run.output(op.id, std::string(target) + "_read");
      if (!read) continue;
      KvReading reading = reading_of(step, op, *read, target);
      if (reading.rows > 0) readings_->push_back(std::move(reading));
    }
  }
}

KvReading Facts::reading_of(const StepRow& step, const OpRow& op, const TensorRow& read, const std::string& target) {
  KvReading out;
  out.op = op;
  out.read = read;
  std::map<std::pair<Format, int>, std::int64_t> hits;
  const std::vector<Health>& values = rows(read);
  const std::int64_t context = std::min(step.context, static_cast<std::int64_t>(values.size()));
  for (std::int64_t row = 0; row < context; row += std::max<std::int64_t>(1, context / kRows)) {
    const KeyRow key = key_row(step, op.layer, row);
    if (key.writer == nullptr || !key.slot) continue;
    const std::optional<StoredRow> stored = stored_row(*key.writer, *key.slot, op.layer, target);
    const ScaleRow* scale = stored ? scale_of(stored->codes.op, target) : nullptr;
    if (scale == nullptr || info(scale->format).bits != 8 || !scale_complaint(scale->scale).empty()) continue;
    const std::vector<Health>& codes = rows(stored->codes);
    if (codes.empty()) continue;
    const Health& code = codes[static_cast<std::size_t>(stored->row)];
    if (code.bad() > 0 || code.absmax == 0) continue;
    out.stated = scale->format;
    out.scale = scale->scale;
    out.scale_policy = scale->policy;
    ++out.rows;
    const Health& value = values[static_cast<std::size_t>(row)];
    for (const Format as : flavours_of(scale->format)) {
      for (const int power : kPowers) {
        if (gives(code, scale->format, scale->scale, power, as, value)) ++hits[{as, power}];
      }
    }
  }
  out.as = out.stated;
  out.rows_as_stated = out.rows_explained = hits[{out.stated, 1}];
  // The stated format comes first, so that a scale of 0.5 or 2 that was used wrongly is no other flavour.
  for (const Format as : flavours_of(out.stated)) {
    for (const int power : kPowers) {
      const std::int64_t explained = hits[{as, power}];
      if (explained <= out.rows_explained) continue;
      out.rows_explained = explained;
      out.as = as;
      out.power = power;
    }
  }
  return out;
}

}  // namespace nanscope
