#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/region.h"

namespace nanscope {
namespace {

constexpr double kOutlier = 4096;      ///< times the median: trained weights stay far below
constexpr std::int64_t kZeroRun = 16;  ///< consecutive zeros that no training leaves
/// Rows of a block of zeros: where three of four elements are zero at random, some block of 16 x 8 of 2^28 elements is
/// zero in (3/4)^128 * 2^28 = 3e-8 cases; of 7 rows it is in more than 10^-6.
constexpr std::int64_t kZeroRows = 8;
constexpr std::int64_t kSampled = std::int64_t{1} << 20;

bool is_weight(std::string_view role) { return role == "weight" || role == "bias"; }

/// A weight and the first op that uses it; in a checkpoint, which no op uses, the op that states it.
struct Used {
  const Tensor* weight = nullptr;
  const Op* op = nullptr;
  std::string role;
};

/// Weights, and scales of theirs, where nothing was dumped that could use them or not. Elsewhere a bad weight that no
/// op uses harms nobody.
std::vector<Used> checkpoint_weights(Survey& survey) {
  std::vector<Used> all;
  std::vector<StepId> places{kBeforeSteps};
  for (const Step& step : survey.run().steps()) places.push_back(step.id);
  for (const StepId place : places) {
    for (const Op& op : survey.run().content(place).ops) {
      if (op.kind != OpKind::parameter) return {};
      const Tensor* tensor = survey.run().result(op);
      if (tensor != nullptr && tensor->known && is_weight(tensor->role)) all.push_back({tensor, &op, tensor->role});
    }
  }
  return all;
}

/// Whether what is stated as a weight is one, and no scale or largest value of one.
bool holds_values(const Used& used) { return used.op->kind != OpKind::parameter || used.op->name.ends_with(used.role); }

std::vector<Used> used_weights(Survey& survey) {
  std::vector<Used> all;
  std::set<TensorId> known;
  for (const Step& step : survey.run().steps()) {
    for (const Op& op : survey.run().content(step.id).ops) {
      if (op.kind == OpKind::parameter) continue;
      for (const Input& input : op.inputs) {
        const Tensor* tensor = is_weight(input.role) ? survey.run().tensor(input.tensor) : nullptr;
        if (tensor != nullptr && tensor->known && known.insert(tensor->id).second)
          all.push_back({tensor, &op, input.role});
      }
    }
  }
  return all.empty() ? checkpoint_weights(survey) : all;
}

Finding finding_of(Survey& survey, const Op& op, std::string_view role, std::string name) {
  Finding finding;
  finding.fault.where = survey.facts.where(op);
  finding.fault.where.role = role;
  finding.fault.tensor = std::move(name);
  finding.fault.ops = {op.id};
  finding.fault.fix = "load the weight again and compare its hash with the checkpoint's";
  return finding;
}

/// Weights that hold NaN or Inf: those that a birth shows, and those whose outputs were not dumped.
void look_for_bad(Survey& survey, Findings& out, std::set<std::string>& told) {
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Op& op = survey.op(survey.births[i]);
    for (const Input& input : op.inputs) {
      const auto& bad = survey.births[i].bad_parameters;
      const bool learned = is_weight(input.role) || input.role == "sinks";
      if (!learned || std::find(bad.begin(), bad.end(), input.role) == bad.end()) continue;
      const Health* health = survey.facts.parameter_health(input);
      Finding finding = finding_of(survey, op, input.role, survey.facts.parameter_name(input));
      finding.tensor = input.tensor;
      finding.fault.breaks = true;
      finding.rank = Rank::recomputed;
      finding.fault.certainty = Certainty::proved;
      finding.explains = {{Symptom::Kind::birth, i}};
      finding.fault.evidence = {{"nan", static_cast<std::int64_t>(health->nan)},
                                {"inf", static_cast<std::int64_t>(health->pos_inf + health->neg_inf)},
                                {"elements", static_cast<std::int64_t>(health->count)},
                                {"first_at", health->first_bad}};
      finding.fault.summary = fmt::format("{} holds {} NaN or Inf among {}, and {} is bad where it is used",
                                          finding.fault.tensor, health->bad(), counted(health->count, "element"),
                                          survey.facts.name_of(survey.tensor(survey.births[i])));
      told.insert(finding.fault.tensor);
      out.found.push_back(std::move(finding));
    }
  }
}

/// Channels that are NaN or Inf in a row; nothing where it cannot be read.
std::optional<std::vector<std::int64_t>> bad_channels(RunView& run, const Tensor& tensor, std::int64_t row) {
  const auto values = run.row_values(tensor, row);
  if (!values) return std::nullopt;
  std::vector<std::int64_t> bad;
  for (std::size_t c = 0; c < values->size(); ++c) {
    if (!std::isfinite((*values)[c])) bad.push_back(static_cast<std::int64_t>(c));
  }
  return bad;
}

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return std::sqrt(squares);
}

/// How much longer than any other row of the weight row `channel` must be at least, if each row r of the output only
/// left its format's range there: |w . x_r| <= |w| |x_r| (Cauchy and Schwarz). Empty: NaN, or not readable.
std::optional<double> longer_than_others(Survey& survey, const Tensor& made, const Tensor& x, std::int64_t channel) {
  double needed = 0;
  double others = 0;
  for (std::int64_t row = 0; row < made.tokens; ++row) {
    const auto from = survey.run().same_row(made, row, x);
    const auto inputs = from ? survey.run().row_values(x, *from) : nullptr;
    const auto outputs = survey.run().row_values(made, row);
    if (!inputs || !outputs || std::isnan((*outputs)[static_cast<std::size_t>(channel)])) return std::nullopt;
    const double length = norm_of(*inputs);
    if (length == 0) return std::nullopt;
    needed = std::max(needed, double{info(made.format).max_finite} / length);
    for (const float value : *outputs) {
      if (std::isfinite(value)) others = std::max(others, std::abs(double{value}) / length);
    }
  }
  return needed / others;
}

/// Whether a weight like a trained one explains the channels: the output's format is too narrow for them.
bool leaves_the_range(Survey& survey, const Tensor& made, const Tensor& x, const std::vector<std::int64_t>& channels) {
  return std::all_of(channels.begin(), channels.end(), [&](std::int64_t channel) {
    const auto ratio = longer_than_others(survey, made, x, channel);
    return ratio && *ratio < kOutlier;
  });
}

/// A product whose input is finite and whose output is bad in the same few channels of every row: what all rows share
/// is the weight's rows and the bias's elements of these channels. The weight was not dumped.
void look_for_bad_channels(Survey& survey, Findings& out) {
  // A channel at random is the first row's in one of so many cases; in all other rows, too, by chance below 10^-6.
  const auto by_chance = [](const Tensor& made) {
    const auto others = static_cast<double>(made.tokens - 1);
    return -others * std::log10(static_cast<double>(std::max<std::int64_t>(1, made.channels))) > kShownByChance;
  };
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    const Tensor& made = survey.tensor(birth);
    const bool alone = op.kind == OpKind::gemm && survey.run().input(op, "weight") == nullptr;
    const Tensor* x = survey.run().input(op, "x");
    if (!alone || x == nullptr || !x->known || x->health.bad() > 0 || made.stated) continue;
    if (std::ssize(birth.rows) != made.tokens || by_chance(made)) continue;
    const auto first = bad_channels(survey.run(), made, 0);
    if (!first || first->empty() || 4 * std::ssize(*first) > made.channels) continue;
    const bool same = std::all_of(birth.rows.begin(), birth.rows.end(),
                                  [&](std::int64_t row) { return bad_channels(survey.run(), made, row) == first; });
    if (!same || leaves_the_range(survey, made, *x, *first)) continue;
    Finding finding = finding_at(survey, i);
    finding.rank = Rank::writer_named;
    finding.fault.certainty = Certainty::shown;
    finding.fault.where.channels = Range{first->front(), first->back()};
    finding.fault.evidence = {{"channels", ranges_text(*first)},
                              {"rows", made.tokens},
                              {"largest_input", double{x->health.absmax}},
                              {"weight_dumped", std::int64_t{0}}};
    finding.fault.summary = fmt::format(
        "{} is NaN or Inf in channel {} of all {}, and its inputs are finite, up to {:.4g}: row {} of its weight, or "
        "that element of its bias, holds NaN, Inf or a number that large. Neither was dumped",
        finding.fault.tensor, ranges_text(*first), counted(made.tokens, "row"), x->health.absmax, ranges_text(*first));
    finding.fault.fix = "check the weight: nanscope inspect DIR, or nanscope verify DUMP --model DIR";
    out.found.push_back(std::move(finding));
  }
}

/// A finite output of a product with all of the weight: each NaN or Inf of it would be in the output, even times zero.
bool finite_in_spite_of(Survey& survey, const Used& used, const Tensor& made) {
  const Tensor* x = survey.run().input(*used.op, "x");
  const bool whole = x != nullptr && used.weight->count() == x->channels * made.channels;
  return used.op->kind == OpKind::gemm && used.role == "weight" && whole && !made.stated && made.count() > 0 &&
         made.health.bad() == 0;
}

/// Weights that hold NaN or Inf where no birth shows it: their outputs were not dumped, or are finite all the same.
void look_at_unseen(Survey& survey, const Used& used, Findings& out, std::set<std::string>& told) {
  const Health& health = used.weight->health;
  const std::string name = survey.facts.name_of(*used.weight);
  const Tensor* made = used.op->kind == OpKind::parameter ? nullptr : survey.run().result(*used.op);
  // An embedding's row is used by its token alone; what was dumped and is finite did not use it.
  if (health.bad() == 0 || used.op->kind == OpKind::embedding || told.contains(name)) return;
  const bool dumped = made != nullptr && made->known;
  if (dumped && !finite_in_spite_of(survey, used, *made)) return;
  Finding finding = finding_of(survey, *used.op, used.role, name);
  finding.tensor = used.weight->id;
  finding.rank = Rank::recomputed;
  finding.fault.certainty = Certainty::proved;
  finding.fault.evidence = {{"nan", static_cast<std::int64_t>(health.nan)},
                            {"inf", static_cast<std::int64_t>(health.pos_inf + health.neg_inf)},
                            {"elements", static_cast<std::int64_t>(health.count)},
                            {"first_at", health.first_bad}};
  finding.fault.summary =
      fmt::format("{} holds {} NaN or Inf among {}", name, health.bad(), counted(health.count, "element"));
  if (dumped)
    finding.fault.summary +=
        fmt::format(", and {} is finite: it was not computed from these elements", survey.facts.name_of(*made));
  told.insert(name);
  out.found.push_back(std::move(finding));
}

/// An element that is larger than a bit flip leaves it among trained ones.
void look_for_outlier(Survey& survey, const Used& used, Findings& out) {
  const double largest = double{used.weight->health.absmax};
  // The largest code of a narrow format is there by its scale, and what that does to the others is outlier-squash.
  const bool codes = info(used.weight->format).bits <= 8;
  if (codes || used.weight->stated || !holds_values(used) || used.weight->count() < 32 || largest < 8) return;
  std::vector<float> sample;
  std::int64_t at = -1;
  survey.run().each_block(*used.weight, [&](std::int64_t first, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float magnitude = std::abs(values[i]);
      if (static_cast<std::int64_t>(sample.size()) < kSampled && magnitude > 0) sample.push_back(magnitude);
      if (double{magnitude} == largest && at < 0) at = first * used.weight->channels + static_cast<std::int64_t>(i);
    }
    return at < 0 || static_cast<std::int64_t>(sample.size()) < kSampled;
  });
  if (sample.size() < 32) return;
  const auto middle = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
  std::nth_element(sample.begin(), middle, sample.end());
  const double median = double{*middle};
  if (largest < kOutlier * median) return;
  Finding finding = finding_of(survey, *used.op, used.role, survey.facts.name_of(*used.weight));
  finding.tensor = used.weight->id;
  finding.rank = Rank::element_named;
  finding.fault.evidence = {{"largest", largest}, {"median", median}, {"ratio", largest / median}, {"at", at}};
  finding.fault.summary = fmt::format(
      "{} holds {:.4g} at [{},{}] where the median magnitude is {:.4g}: {:.3g} times as much, as a flipped bit of the "
      "exponent leaves it",
      finding.fault.tensor, largest, at / std::max<std::int64_t>(1, used.weight->channels),
      at % std::max<std::int64_t>(1, used.weight->channels), median, largest / median);
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    if (survey.births[i].op == used.op->id) finding.explains.push_back({Symptom::Kind::birth, i});
  }
  out.found.push_back(std::move(finding));
}

/// Bits do not flip in the same weight of most layers: an element that stands out in each of them was trained so, as
/// the large channels of Qwen2's key biases are.
void drop_repeated(const std::vector<Used>& weights, std::vector<Finding>& found) {
  const auto same_weight = [](const Finding& a, const Finding& b) {
    return find(a.fault.evidence, "at") != nullptr && find(b.fault.evidence, "at") != nullptr &&
           a.fault.where.op == b.fault.where.op && a.fault.where.role == b.fault.where.role;
  };
  const auto by_most_layers = [&](const Finding& one) {
    std::set<std::optional<std::int64_t>> layers;
    std::set<std::optional<std::int64_t>> alike;
    for (const Used& used : weights) {
      if (used.op->name == one.fault.where.op && used.role == one.fault.where.role) layers.insert(used.op->layer);
    }
    for (const Finding& other : found) {
      if (same_weight(one, other)) alike.insert(other.fault.where.layer);
    }
    return alike.size() > 1 && 2 * alike.size() > layers.size();
  };
  std::vector<Finding> kept;
  for (const Finding& one : found) {
    if (!by_most_layers(one)) kept.push_back(one);
  }
  found = std::move(kept);
}

// A flip of the exponent bit that counts 16, or of a higher one, makes a value 2^16 times as large or more.
constexpr double kLone = 65536;
// Codes without their scale are larger by the scale's inverse, which is in the thousands for trained weights in e4m3.
constexpr double kUnscaled = 256;

double root_mean_square(const Health& health) { return std::sqrt(health.sum_sq / static_cast<double>(health.count)); }

/// Of all elements but the largest; where their squares vanish in the sum's rounding, what it is at most.
double rms_of_rest(const Health& health) {
  constexpr double kRounding = 1e-13;  // of a sum of some thousand squares in double
  const double square = double{health.absmax} * double{health.absmax};
  const auto rest = static_cast<double>(health.count) - 1;
  return rest < 1 ? 0 : std::sqrt(std::max(kRounding * square, health.sum_sq - square) / rest);
}

/// The extreme of the other sign.
double other_extreme(const Health& health) {
  return std::abs(double{health.absmax == health.max ? health.min : health.max});
}

bool lone_outlier(const Health& health) {
  if (health.bad() > 0 || health.count < 64) return false;
  const double rest = std::max(rms_of_rest(health), other_extreme(health));
  return other_extreme(health) > 0 && double{health.absmax} >= kLone * rest;
}

/// "q_proj.weight" of "layers.3.q_proj.weight"; empty outside the layers.
std::string_view kind_of(std::string_view name) {
  if (!name.starts_with("layers.")) return {};
  name.remove_prefix(std::string_view("layers.").size());
  return name.substr(std::min(name.size(), name.find('.') + 1));
}

/// The largest root mean square of the same weight in other layers; 0 when there is none.
double peers_rms(std::span<const WeightRow> weights, const WeightRow& weight) {
  double largest = 0;
  for (const WeightRow& other : weights) {
    if (other.name == weight.name || kind_of(other.name) != kind_of(weight.name)) continue;
    if (other.health.count > 0 && other.health.bad() == 0) largest = std::max(largest, root_mean_square(other.health));
  }
  return largest;
}

/// The 8-bit format whose codes a weight holds unscaled: its largest value is the format's, and the same weight of
/// every other layer is far smaller.
std::optional<Format> unscaled_codes(const WeightRow& weight, double peers) {
  if (!(peers > 0) || weight.health.bad() > 0 || root_mean_square(weight.health) < kUnscaled * peers)
    return std::nullopt;
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz}) {
    if (weight.health.absmax == info(format).max_finite) return format;
  }
  return std::nullopt;
}

/// The first output of an op that reads a weight which is more than the rest of the weight could have made.
const Tensor* harmed(Survey& survey, const WeightRow& weight, double rest) {
  RunView& run = survey.run();
  for (const Step& step : run.steps()) {
    for (const Op& op : run.content(step.id).ops) {
      const bool reads =
          std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Input& one) { return one.weight == weight.name; });
      const Tensor* x = reads ? run.input(op, "x") : nullptr;
      for (const TensorId id : reads ? op.outputs : std::vector<TensorId>{}) {
        const Tensor* output = run.tensor(id);
        if (output == nullptr) continue;
        const double bound = x != nullptr ? double{x->health.absmax} * rest * static_cast<double>(weight.columns)
                                          : double{weight.health.absmax} / 2;
        if (output->health.bad() > 0 || double{output->health.absmax} > bound) return output;
      }
    }
  }
  return nullptr;
}

/// Weights of a recording, of which the health alone is kept.
void look_at_rows(Survey& survey, Findings& out) {
  const std::span<const WeightRow> weights = survey.run().weights();
  for (const WeightRow& weight : weights) {
    if (weight.health.count == 0) continue;
    const bool lone = lone_outlier(weight.health);
    const double peers = lone || kind_of(weight.name).empty() ? 0 : peers_rms(weights, weight);
    const auto format = lone ? std::nullopt : unscaled_codes(weight, peers);
    const Tensor* output = lone || format ? harmed(survey, weight, lone ? rms_of_rest(weight.health) : peers) : nullptr;
    if (output == nullptr) continue;
    Finding finding = finding_at(survey, *output);
    finding.rank = Rank::recomputed;
    finding.fault.certainty = Certainty::shown;
    finding.fault.fix = "load the weight again and compare its hash with the checkpoint's";
    finding.fault.evidence = {{"weight", weight.name}, {"largest", double{weight.health.absmax}}};
    if (lone) {
      const double other = other_extreme(weight.health);
      finding.fault.evidence.push_back({"ratio", double{weight.health.absmax} / other});
      finding.fault.summary = fmt::format(
          "one of {} elements of {} is {:.6g} in magnitude where the extreme of the other sign is {:.6g}, as a flipped "
          "exponent bit makes it; {} reaches {:.6g}",
          weight.health.count, weight.name, weight.health.absmax, other, finding.fault.tensor, output->health.absmax);
    } else {
      finding.fault.fix =
          "look for the weight's scale under another name in the checkpoint, and multiply by it when loading";
      finding.fault.evidence.push_back({"ratio", root_mean_square(weight.health) / peers});
      finding.fault.summary = fmt::format(
          "the largest element of {} is exactly {:g}, as {} codes have it, and its root mean square {:.4g} is {:.0f} "
          "times "
          "that of any other layer: its scale was not applied",
          weight.name, weight.health.absmax, name(*format), root_mean_square(weight.health),
          root_mean_square(weight.health) / peers);
    }
    for (std::size_t i = 0; i < survey.births.size(); ++i) {
      if (survey.births[i].op == output->op) finding.explains.push_back({Symptom::Kind::birth, i});
    }
    finding.fault.breaks = !finding.explains.empty();
    out.found.push_back(std::move(finding));
  }
}

/// Rows of zeros, and blocks of them, of one weight.
struct Zeros {
  std::vector<std::int64_t> rows;
  std::int64_t first_channel = 0;
  std::int64_t channels = 0;

  bool any() const { return !rows.empty(); }
};

/// The longest run of zeros of a row.
std::pair<std::int64_t, std::int64_t> zero_run(std::span<const float> row) {
  std::pair<std::int64_t, std::int64_t> best{0, 0};
  std::int64_t begin = 0;
  for (std::size_t c = 0; c <= row.size(); ++c) {
    if (c < row.size() && row[c] == 0) continue;
    const auto at = static_cast<std::int64_t>(c);
    if (at - begin > best.second) best = {begin, at - begin};
    begin = at + 1;
  }
  return best;
}

Zeros zeros_of(Survey& survey, const Tensor& weight) {
  Zeros found;
  Zeros block;
  std::vector<std::int64_t> whole;
  survey.run().each_block(weight, [&](std::int64_t first, std::span<const float> values) {
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(1, weight.channels));
    for (std::size_t at = 0; at + width <= values.size(); at += width) {
      const std::int64_t row = first + static_cast<std::int64_t>(at / width);
      const auto [begin, length] = zero_run(values.subspan(at, width));
      if (length == weight.channels) whole.push_back(row);
      const bool goes_on = !block.rows.empty() && block.rows.back() == row - 1 && begin <= block.first_channel &&
                           begin + length >= block.first_channel + block.channels;
      if (length >= kZeroRun && goes_on) {
        block.rows.push_back(row);
      } else if (length >= kZeroRun) {
        block = {{row}, begin, length};
      } else {
        block = {};
      }
      if (static_cast<std::int64_t>(block.rows.size()) >= kZeroRows && block.rows.size() > found.rows.size())
        found = block;
    }
    return true;
  });
  if (found.any()) return found;
  return {whole, 0, weight.channels};
}

/// A weight with zeros where its like, in other layers, has none.
void look_for_zeros(Survey& survey, const std::vector<Used>& weights, Findings& out) {
  std::map<std::string, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Used& used = weights[i];
    const bool looked_at = used.op->kind == OpKind::gemm && used.role == "weight" && !used.weight->stated &&
                           used.weight->tokens > 1 && used.weight->channels >= kZeroRun;
    if (!looked_at) continue;
    alike[fmt::format("{}|{}x{}", used.op->name, used.weight->tokens, used.weight->channels)].push_back(i);
  }
  for (const auto& [name, members] : alike) {
    if (members.size() < 2) continue;
    std::vector<std::pair<std::size_t, Zeros>> with;
    for (const std::size_t i : members) {
      const double zeros = static_cast<double>(weights[i].weight->health.zero);
      if (zeros < static_cast<double>(kZeroRun)) continue;
      if (Zeros zero = zeros_of(survey, *weights[i].weight); zero.any()) with.emplace_back(i, std::move(zero));
    }
    if (with.empty() || 2 * with.size() > members.size()) continue;
    for (const auto& [i, zero] : with) {
      const Used& used = weights[i];
      Finding finding = finding_of(survey, *used.op, used.role, survey.facts.name_of(*used.weight));
      finding.tensor = used.weight->id;
      finding.rank = Rank::counted;
      finding.fault.certainty = Certainty::shown;
      finding.fault.where.channels = Range{zero.first_channel, zero.first_channel + zero.channels - 1};
      finding.fault.evidence = {{"zero_rows", static_cast<std::int64_t>(zero.rows.size())},
                                {"first_row", zero.rows.front()},
                                {"first_channel", zero.first_channel},
                                {"channels", zero.channels},
                                {"alike", static_cast<std::int64_t>(members.size())}};
      finding.fault.summary = fmt::format(
          "{} of {} from {} on hold nothing but zeros in channels {} to {}, and none of the {} like it does",
          counted(zero.rows.size(), "row"), finding.fault.tensor, zero.rows.front(), zero.first_channel,
          zero.first_channel + zero.channels - 1, counted(members.size() - with.size(), "weight"));
      out.found.push_back(std::move(finding));
    }
  }
}

/// Of an embedding a row may be bad that no token used.
std::string sound_weights(const std::vector<Used>& used, std::span<const WeightRow> rows) {
  const auto bad = static_cast<std::size_t>(
      std::count_if(used.begin(), used.end(), [](const Used& one) { return one.weight->health.bad() > 0; }) +
      std::count_if(rows.begin(), rows.end(), [](const WeightRow& row) { return row.health.bad() > 0; }));
  std::string text = fmt::format("{} hold neither NaN nor Inf, nor an element or a block apart from the others",
                                 counted(used.size() + rows.size() - bad, "weight"));
  if (bad > 0) text += fmt::format("; {} with NaN or Inf harmed no output that was dumped", counted(bad, "weight"));
  return text;
}

}  // namespace

/// A weight that no training left behind, and that was used.
Findings detect_weight_corruption(Survey& survey) {
  Findings out;
  std::set<std::string> told;
  look_for_bad(survey, out, told);
  look_for_bad_channels(survey, out);
  const std::vector<Used> weights = used_weights(survey);
  for (const Used& used : weights) {
    look_at_unseen(survey, used, out, told);
    look_for_outlier(survey, used, out);
  }
  drop_repeated(weights, out.found);
  look_for_zeros(survey, weights, out);
  look_at_rows(survey, out);
  merge_alike(out.found);
  if (weights.empty() && survey.run().weights().empty()) {
    out.not_in_dump("no weight was dumped: dump the checkpoint beside the activations");
  } else {
    exclude(out, survey, sound_weights(weights, survey.run().weights()));
  }
  return out;
}

}  // namespace nanscope
