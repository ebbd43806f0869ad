#include "instrument/diagnosis/casts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "core/run/scales.h"
#include "instrument/kv_schemes/kv_scheme.h"
#include "instrument/recompute/bounds.h"
#include "instrument/recompute/scaled.h"

namespace nanscope {
namespace {

constexpr std::size_t kMostMagnitudes = std::size_t{1} << 18;  ///< that a median is taken of

/// The largest magnitude that still rounds to the largest finite code, over that code.
double rounds_to_top(Format format) {
  const FormatInfo& row = info(format);
  if (row.exponent_bits == 0) return 1 + 0.5 / double{row.max_finite};
  // Half a step of its binade, which begins below it.
  const double significand = double{row.max_finite} / std::ldexp(1.0, std::ilogb(double{row.max_finite}));
  return 1 + std::ldexp(0.5, -row.mantissa_bits) / significand;
}

/// Where codes beside the largest begin: an eighth of the range, and one code at least, which e5m2 has not within it.
double beside_top(Format format) {
  const FormatInfo& row = info(format);
  const double largest = double{row.max_finite};
  const double step = row.exponent_bits == 0 ? 1 : std::ldexp(1.0, std::ilogb(largest) - row.mantissa_bits);
  return std::min(0.875 * largest, largest - step);
}

/// Measures one cast, row by row.
class Measure {
 public:
  Measure(Values& values, Cast& cast) : values_(values), run_(values.run()), cast_(cast), row_(info(cast.format)) {}

  void run(const Op& op, const Tensor& codes, const Tensor* source, std::string_view scale_role) {
    // Keys that are cast as they were read have a row for each of them on both sides.
    const bool same_rows = source != nullptr && source->axis == codes.axis && source->tokens == codes.tokens;
    const bool pool = codes.axis == Axis::slots || (codes.axis == Axis::keys && !same_rows);
    const auto slots = pool ? own_slots(values_, codes) : std::unordered_map<std::int64_t, std::int64_t>{};
    const RowScale scale = row_scale(values_, op, scale_role, codes);
    // A pool alone, of which nothing says who has what: the codes tell all the same.
    const Step* step = run_.step(codes.step);
    const bool pool_alone = pool && slots.empty() && step != nullptr && step->spans.empty();
    // Nor does anything say which of the step's scales is whose.
    if (!pool_alone || !scale.by_step_row) cast_.grid = scale.grid;
    if (!cast_.grid && source != nullptr) imply(codes, *source, slots, pool);
    RowScale used{cast_.grid, scale.by_step_row};
    if (const Tensor* zero = run_.input(op, "zero_point"); zero != nullptr && row_.exponent_bits == 0) {
      const auto values = run_.values(*zero);
      if (values && values->size() == 1) cast_.zero_point = double{values->front()};
    }
    for (std::int64_t row = 0; row < codes.tokens; ++row) {
      std::int64_t step_row = row;
      if (pool) {
        const auto slot = slots.find(row);
        if (slot == slots.end() && !pool_alone) continue;
        step_row = pool_alone ? -1 : slot->second;
      } else if (run_.token_of(codes, row).span == nullptr) {
        continue;
      }
      look_at(codes, source, used, row, step_row, pool);
    }
    // Values that stand in the graph alone are none.
    if (!sourced_) cast_.source = 0;
    finish();
  }

 private:
  void imply(const Tensor& codes, const Tensor& source, const std::unordered_map<std::int64_t, std::int64_t>& slots,
             bool pool) {
    std::vector<float> made;
    std::vector<float> of;
    for (std::int64_t row = 0; row < codes.tokens && made.size() < kMostMagnitudes; ++row) {
      const auto slot = slots.find(row);
      if (pool && slot == slots.end()) continue;
      const auto values = run_.row_values(codes, row);
      const auto from = source_row(source, codes, row, pool ? slot->second : row, pool);
      if (!values || !from || from->value.size() != values->size()) continue;
      made.insert(made.end(), values->begin(), values->end());
      of.insert(of.end(), from->value.begin(), from->value.end());
    }
    const auto scale = implied_scale(of, made, cast_.format);
    if (!scale || !(*scale > 0) || !is_shown(*scale, of, made)) return;
    cast_.grid = ScaleGrid::uniform(*scale);
    cast_.implied = true;
  }

  /// Whether one scale serves nearly all: scales of rows have a median, too.
  bool is_shown(double scale, const std::vector<float>& of, const std::vector<float>& made) const {
    const double rounding = row_.exponent_bits > 0 ? std::ldexp(1.5, -row_.mantissa_bits - 1) : 0.1;
    const double least = row_.exponent_bits > 0 ? double{row_.min_normal} : 8;
    std::size_t told = 0;
    std::size_t fits = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const double code = std::abs(double{made[i]});
      if (!(code >= least) || !(code < double{row_.max_finite}) || !std::isfinite(of[i])) continue;
      ++told;
      fits += std::abs(double{of[i]} - scale * double{made[i]}) <= rounding * std::abs(double{of[i]}) ? 1 : 0;
    }
    return 10 * fits >= 9 * told;
  }

  std::optional<Block> source_row(const Tensor& source, const Tensor& codes, std::int64_t row, std::int64_t step_row,
                                  bool pool) {
    const std::int64_t from = pool ? step_row : run_.same_row(codes, row, source).value_or(-1);
    if (from < 0 || from >= source.tokens) return std::nullopt;
    return values_.rows(source, from, 1);
  }

  void look_at(const Tensor& codes, const Tensor* source, const RowScale& scale, std::int64_t row,
               std::int64_t step_row, bool pool) {
    const auto made = run_.row_values(codes, row);
    if (!made) return;
    const auto from = source != nullptr ? source_row(*source, codes, row, step_row, pool) : std::nullopt;
    const bool sourced = from && from->value.size() == made->size();
    sourced_ = sourced_ || sourced;
    ++cast_.rows;
    const double largest = double{row_.max_finite};
    const double beside = beside_top(cast_.format);
    const double fine = row_.exponent_bits > 0 ? double{row_.min_normal} : 3;
    bool clipped = false;
    bool top = false;
    for (std::size_t c = 0; c < made->size(); ++c) {
      const double code = std::abs(double{(*made)[c]});
      const auto channel = static_cast<std::int64_t>(c);
      const double x = sourced ? double{from->value[c]} : 0;
      ++cast_.elements;
      if (!std::isfinite(code)) {
        ++cast_.bad;
        cast_.bad_of_finite += sourced && std::isfinite(x) ? 1 : 0;
      } else {
        cast_.top += code >= largest ? 1 : 0;
        cast_.beside_top += code < largest && code >= beside ? 1 : 0;
        cast_.zero += code == 0 ? 1 : 0;
        cast_.coarse += code > 0 && code < fine ? 1 : 0;
        top = top || code >= largest;
      }
      const double s = scale.at(row, step_row, channel);
      if (cast_.grid) note_cell(row, step_row, channel);
      if (!sourced || !std::isfinite(x)) continue;
      note_value(x, double{from->off(0, channel)}, row, channel);
      cast_.lost += x != 0 && code == 0 ? 1 : 0;
      if (!cast_.grid || !scale_complaint(s).empty()) continue;
      double scaled = std::max(0.0, std::abs(x) - double{from->off(0, channel)}) / s / largest;
      // Of asymmetric codes the range ends at the largest code on the one side, and at the lowest on the other.
      if (const double zero = cast_.zero_point; zero != 0)
        scaled = 1 + std::max(x / s + zero - largest, -largest - 1 - (x / s + zero)) / largest;
      cast_.reach = std::max(cast_.reach, scaled);
      if (scaled <= rounds_to_top(cast_.format)) continue;
      ++cast_.clipped;
      cast_.elsewhere += code < largest ? 1 : 0;
      clipped = true;
      lost_ += std::pow((scaled - 1) * s * largest, 2);
    }
    if (clipped) cast_.clipped_rows.push_back(row);
    if (top) cast_.top_rows.push_back(row);
  }

  void note_cell(std::int64_t row, std::int64_t step_row, std::int64_t channel) {
    const ScaleGrid& grid = *cast_.grid;
    if (grid.single()) {
      cast_.cells = 1;
      return;
    }
    static_cast<void>(step_row);
    const std::int64_t r = grid.rows_a_cell() > 0 ? row / grid.rows_a_cell() : 0;
    const std::int64_t c = grid.channels_a_cell() > 0 ? channel / grid.channels_a_cell() : 0;
    cells_.insert({r, c});
  }

  void note_value(double x, double off, std::int64_t row, std::int64_t channel) {
    const double magnitude = std::abs(x);
    energy_ += magnitude * magnitude;
    if (magnitude > 0) {
      ++cast_.nonzero;
      if (magnitudes_.size() < kMostMagnitudes) magnitudes_.push_back(static_cast<float>(magnitude));
    }
    if (magnitude - off > cast_.absmax) {
      cast_.absmax = magnitude - off;
      cast_.at_row = row;
      cast_.at_channel = channel;
    }
  }

  void finish() {
    if (!cells_.empty()) cast_.cells = static_cast<std::int64_t>(cells_.size());
    if (energy_ > 0) cast_.clip_error = std::sqrt(lost_ / energy_);
    if (magnitudes_.empty()) return;
    const auto middle = magnitudes_.begin() + static_cast<std::ptrdiff_t>(magnitudes_.size() / 2);
    std::nth_element(magnitudes_.begin(), middle, magnitudes_.end());
    cast_.median = double{*middle};
  }

  Values& values_;
  RunView& run_;
  Cast& cast_;
  const FormatInfo& row_;
  bool sourced_ = false;  ///< some row of codes had the values that it was made of
  std::set<std::pair<std::int64_t, std::int64_t>> cells_;
  std::vector<float> magnitudes_;
  double energy_ = 0;
  double lost_ = 0;
};

/// What a recording measured when it was written, where elements are re-made at a price.
void by_health(RunView& run, Cast& cast, const Tensor& codes, const Tensor* source) {
  const Health& health = codes.health;
  const std::vector<Health>& rows = run.rows(codes);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].clipped > 0) cast.clipped_rows.push_back(static_cast<std::int64_t>(row));
    if (rows[row].saturated > 0) cast.top_rows.push_back(static_cast<std::int64_t>(row));
  }
  const FormatInfo& format = info(cast.format);
  cast.grid = ScaleGrid::uniform(cast.ledger->scale);
  cast.elements = static_cast<std::int64_t>(health.count);
  cast.cells = 1;
  cast.top = static_cast<std::int64_t>(health.saturated);
  cast.zero = static_cast<std::int64_t>(health.zero);
  cast.coarse = static_cast<std::int64_t>(health.subnormal);
  cast.bad = static_cast<std::int64_t>(health.bad());
  cast.clipped = static_cast<std::int64_t>(health.clipped);
  cast.lost = static_cast<std::int64_t>(health.flushed);
  cast.absmax = cast.ledger->absmax;
  const bool valid = scale_complaint(cast.ledger->scale).empty();
  cast.reach = valid && cast.ledger->headroom > 0 ? 1 / cast.ledger->headroom : 0;
  if (source == nullptr) return;
  cast.bad_of_finite = source->health.bad() == 0 ? cast.bad : 0;
  cast.nonzero = static_cast<std::int64_t>(source->health.finite() - source->health.zero);
  if (cast.nonzero > 0 && cast.lost + cast.coarse > 0) {
    // What is lost is below half the smallest code; with the coarse ones it is below the smallest normal number.
    const bool half_lost = 2 * cast.lost >= cast.nonzero;
    const float smallest = format.min_subnormal > 0 ? format.min_subnormal : format.min_normal;
    const bool tells = 2 * (cast.lost + cast.coarse) >= cast.nonzero;
    cast.median = tells ? double{half_lost ? smallest / 2 : format.min_normal} * cast.ledger->scale : cast.absmax;
  }
  if (!valid || source->health.sum_sq <= 0 || health.bad() > 0 || cast.reach <= 1) return;
  // A value r times the largest one loses r^2 - 1 of energy and errs by (r - 1)^2, that is (r - 1) / (r + 1) of it, at
  // most (1 - h) / (1 + h) as r <= 1 / h. Both sums are recorded.
  const double kept = health.sum_sq * cast.ledger->scale * cast.ledger->scale;
  const double lost = std::clamp(1.0 - kept / source->health.sum_sq, 0.0, 1.0);
  cast.clip_error = std::sqrt(lost * (1.0 - cast.headroom()) / (1.0 + cast.headroom()));
}

/// The share of values beyond the percentile that a scale is computed from; 0 where it is computed from all.
double cut_by_design(const Op& op, std::string_view target) {
  const auto* how = op.get<KvStoreAttributes>();
  if (how == nullptr) return 0;
  const std::string scheme = (target == "k" ? how->scheme_k : how->scheme_v).value_or("");
  if (scheme.find("statistic=percentile") == std::string::npos) return 0;
  constexpr std::string_view kStated = "percentile=";
  const std::size_t at = scheme.find(kStated);
  const double percentile =
      at != std::string::npos ? std::strtod(scheme.c_str() + at + kStated.size(), nullptr) : KvScheme().percentile;
  return std::clamp(1 - percentile / 100, 0.0, 1.0);
}

/// The largest clip_error of a percentile that leaves out a share p of values without spikes: of a Laplace distribution
/// what is left out is beyond the percentile by e, which is exponential, and has the mean square 2 as all have. So the
/// error is sqrt(p); of a normal distribution it is less. The sum of `clipped` squares of e has the variance 20 each.
double error_of_percentile(double p, std::int64_t clipped) {
  return clipped > 0 ? std::sqrt(p * (1 + kDeviations * std::sqrt(5 / static_cast<double>(clipped)))) : 0;
}

void add_cast(Values& values, const Op& op, const Tensor* codes, std::string target, std::string_view source_role,
              std::vector<Cast>& into) {
  if (codes == nullptr || !codes->known || codes->stated || !holds_codes(codes->format)) return;
  RunView& run = values.run();
  Cast cast;
  cast.op = op.id;
  cast.step = op.step;
  cast.layer = op.layer;
  cast.target = std::move(target);
  cast.codes = codes->id;
  cast.format = codes->format;
  const std::string scale_role = cast.target == "x" ? "scale" : cast.target + "_scale";
  cast.scale = op.input(scale_role);
  cast.ledger = values.facts().scale_of(op.id, cast.target);
  const Tensor* source = run.input(op, source_role);
  if (source != nullptr && !values.available(*source)) source = nullptr;
  cast.source = source != nullptr ? source->id : 0;
  // Scales of groups: the ledger's is the largest alone, and says of each whether it clips.
  const Tensor* made = run.output(op, cast.target == "x" ? "scale" : cast.target + "_scales");
  const bool grouped = made != nullptr && made->count() > 1;
  cast.cut_by_design = cut_by_design(op, cast.target);
  const bool clips = cast.ledger != nullptr && cast.ledger->headroom < 1;
  // Under a scheme with means or zero points, the scale divides other values than those of the source.
  const bool shifted = run.output(op, cast.target + "_zeros") != nullptr;
  if (cast.ledger == nullptr || (grouped && source != nullptr && clips && !shifted)) {
    Measure(values, cast).run(op, *codes, source, scale_role);
  } else {
    by_health(run, cast, *codes, source);
    if (grouped) cast.cells = made->count();
  }
  if (cast.elements > 0) into.push_back(std::move(cast));
}

}  // namespace

double rounding_error(Format format) {
  const FormatInfo& row = info(format);
  // Of an integer, half a step against values that fill a third of the range.
  if (row.exponent_bits == 0) return 0.3 * 3 / double{row.max_finite};
  return 0.6 * std::ldexp(1.0, -row.mantissa_bits - 1);
}

bool Cast::clips() const {
  const bool cut = clipped > 0 && 2 * elsewhere <= clipped;
  const double allowed = std::max(rounding_error(format), error_of_percentile(cut_by_design, clipped));
  return cut && (clip_error > allowed || bad_of_finite > 0);
}

std::vector<Cast> casts_of(Values& values) {
  std::vector<Cast> casts;
  RunView& run = values.run();
  for (const Step& step : run.steps()) {
    for (const Op& op : run.content(step.id).ops) {
      if (op.kind == OpKind::quantise) add_cast(values, op, run.result(op), "x", "x", casts);
      if (op.kind != OpKind::kv_store) continue;
      for (const std::string letter : {"k", "v"}) {
        const Tensor* codes = run.output(op, letter + "_cache");
        if (codes == nullptr) codes = run.output(op, letter + "_codes");
        add_cast(values, op, codes, letter, letter, casts);
      }
    }
  }
  return casts;
}

}  // namespace nanscope
