#include "gui/prepare/policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "core/counted.h"
#include "core/numbers/format.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/spectral/score_policy.h"

namespace nanscope::gui {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// As the device would measure it: NaN wins, then Inf.
float magnitude_of(const Health& health) {
  if (health.nan > 0) return kNaN;
  if (health.pos_inf + health.neg_inf > 0) return std::numeric_limits<float>::infinity();
  return health.absmax;
}

/// What one step stored, by its recorded health.
struct StoredRows {
  float whole = 0;
  std::vector<float> rows;  ///< empty when it was recorded without detail
  std::int64_t tokens = 0;
};

class RecordedMagnitudes final : public RowMagnitudes {
 public:
  explicit RecordedMagnitudes(const StoredRows& stored) : stored_(stored) {}
  Result<float> tensor() override { return stored_.whole; }
  Result<std::span<const float>> rows() override {
    if (stored_.rows.empty() && stored_.tokens > 0) return fail("the magnitudes of single tokens are not recorded");
    return std::span<const float>(stored_.rows);
  }

 private:
  const StoredRows& stored_;
};

/// The rows that an entry stored: the input of its op. Without it, the ledger's own number.
StoredRows stored_rows(RunView& run, const LedgerEntry& entry) {
  StoredRows stored;
  stored.whole = static_cast<float>(entry.row.absmax);
  if (const Step* step = run.step(entry.row.step)) stored.tokens = step->tokens();
  const Op* op = run.op(entry.row.op);
  const Tensor* source = op != nullptr ? run.input(*op, entry.row.target) : nullptr;
  if (source == nullptr) return stored;
  stored.whole = magnitude_of(source->health);
  stored.tokens = source->tokens;
  for (const Health& row : run.rows(*source)) stored.rows.push_back(magnitude_of(row));
  if (static_cast<std::int64_t>(stored.rows.size()) != stored.tokens) stored.rows.clear();
  return stored;
}

PolicyEntry judge(const StoredRows& stored, const ScaleChoice& choice, Format format, std::size_t index) {
  PolicyEntry out;
  out.entry = index;
  out.tokens = stored.tokens;
  out.headroom = std::numeric_limits<double>::quiet_NaN();
  const float most = info(format).max_finite;
  float largest = choice.scales.front();
  for (const float scale : choice.scales) largest = std::isnan(scale) || scale > largest ? scale : largest;
  out.scale = static_cast<double>(largest);
  out.limit = static_cast<double>(most) * out.scale;
  const auto weigh = [&](float magnitude, float scale) {
    const double room = headroom(format, static_cast<double>(scale), static_cast<double>(magnitude));
    if (!std::isnan(room) && !(out.headroom <= room)) out.headroom = room;
    // As the store divides; a scale that was computed from this very magnitude is a rounding off.
    return magnitude / scale > most * 1.000001F;
  };
  if (stored.rows.empty()) {
    out.exact = false;
    if (weigh(stored.whole, largest)) out.clipped_tokens = stored.tokens;
    return out;
  }
  for (std::size_t i = 0; i < stored.rows.size(); ++i) {
    const float scale = choice.scales.size() == stored.rows.size() ? choice.scales[i] : choice.scales.front();
    if (weigh(stored.rows[i], scale)) ++out.clipped_tokens;
  }
  return out;
}

void sum_up(PolicyLine& line) {
  line.least_scale = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < line.entries.size(); ++i) {
    const PolicyEntry& entry = line.entries[i];
    line.clipped_steps += entry.clipped_tokens > 0 ? 1 : 0;
    line.clipped_tokens += entry.clipped_tokens;
    line.nan_steps += std::isnan(entry.scale) ? 1 : 0;
    line.exact = line.exact && (entry.exact || entry.clipped_tokens == 0);
    line.least_scale = std::min(line.least_scale, entry.scale);
    line.largest_scale = std::max(line.largest_scale, entry.scale);
    line.limits.cover(entry.limit);
    const bool lower = !line.lowest || entry.headroom < line.entries[*line.lowest].headroom;
    if (!std::isnan(entry.headroom) && lower) line.lowest = i;
  }
}

/// A policy of attention's scores, which chooses one scale from the largest of them.
class OfScores final : public ScalePolicy {
 public:
  explicit OfScores(std::unique_ptr<ScorePolicy> policy) : policy_(std::move(policy)) {}
  Result<ScaleChoice> choose(const ScaleContext&, RowMagnitudes& rows) override {
    const Result<float> absmax = rows.tensor();
    if (!absmax) return tl::unexpected(absmax.error());
    ScaleChoice choice{.scales = {static_cast<float>(policy_->scale(double{*absmax}))}, .origin = {}};
    policy_->seen(double{*absmax});
    return choice;
  }

 private:
  std::unique_ptr<ScorePolicy> policy_;
};

struct Chooser {
  std::string_view name, doc;
  std::unique_ptr<ScalePolicy> policy;  ///< null: what it needs is not in a run
};

bool is_of_scores(RunView& run, const LedgerEntry& entry) {
  const Op* op = run.op(entry.row.op);
  const Tensor* x = op != nullptr ? run.input(*op, "x") : nullptr;
  const Op* maker = x != nullptr ? run.maker(*x) : nullptr;
  return maker != nullptr && maker->kind == OpKind::attention_scores;
}

/// Of scores, or of what goes into the cache.
std::vector<Chooser> choosers_of(const LedgerLine& line, const LedgerEntry& entry, bool of_scores,
                                 const KvConfig& config) {
  std::vector<Chooser> all;
  if (!of_scores) {
    const KvTarget target = line.target == "k" ? KvTarget::k : KvTarget::v;
    for (const ScalePolicyEntry& one : scale_policies()) all.push_back({one.name, one.doc, one.make(config, target)});
    return all;
  }
  ScorePolicySettings settings;
  settings.largest = double{info(entry.row.format).max_finite};
  for (const ScorePolicyEntry& one : score_policies()) {
    all.push_back({one.name, one.doc, one.of_weights ? nullptr : std::make_unique<OfScores>(one.make(settings))});
  }
  return all;
}

}  // namespace

Result<PolicyComparison> compare_policies(RunView& run, const Ledger& ledger, std::size_t line,
                                          const KvConfig& config) {
  const LedgerLine& of = ledger.lines[line];
  PolicyComparison out;
  out.line = line;
  std::vector<StoredRows> stored;
  for (const std::size_t entry : of.entries) {
    stored.push_back(stored_rows(run, ledger.entries[entry]));
    out.tokens += stored.back().tokens;
  }
  const LedgerEntry& first = ledger.entries[of.entries.front()];
  const bool of_scores = is_of_scores(run, first);
  for (Chooser& chooser : choosers_of(of, first, of_scores, config)) {
    PolicyLine policy;
    policy.name = chooser.name;
    policy.doc = chooser.doc;
    policy.recorded = (of_scores ? first.row.policy : config.policy) == chooser.name;
    if (chooser.policy == nullptr) policy.problem = "it follows from weights: nanscope scales tries it";
    for (std::size_t i = 0; i < stored.size() && policy.problem.empty(); ++i) {
      const LedgerEntry& entry = ledger.entries[of.entries[i]];
      const std::int64_t request = entry.target.place.request.value_or(0);
      RecordedMagnitudes magnitudes(stored[i]);
      const Result<ScaleChoice> choice =
          chooser.policy->choose({of.layer, KvTarget::k, request, entry.row.step, stored[i].tokens}, magnitudes);
      if (choice && !choice->scales.empty()) {
        policy.entries.push_back(judge(stored[i], *choice, entry.row.format, of.entries[i]));
      } else {
        policy.problem = choice ? "it gives no scale" : choice.error().message;
      }
    }
    if (!policy.problem.empty()) policy.entries.clear();
    sum_up(policy);
    out.policies.push_back(std::move(policy));
  }
  out.caveat = of.layer == ledger.lines.front().layer
                   ? "Exact for these tokens: nothing below this layer reads the cache."
                   : "On the values of this run: above the first layer, another policy changes the values too.";
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return out;
}

std::size_t line_of(const Ledger& ledger, const Selection& selection) {
  const std::size_t entry = ledger.find(selection).value_or(ledger.by_headroom.front());
  const std::string& name = ledger.entries[entry].name;
  const auto line =
      std::find_if(ledger.lines.begin(), ledger.lines.end(), [&](const LedgerLine& each) { return each.name == name; });
  return static_cast<std::size_t>(line - ledger.lines.begin());
}

std::vector<double> limits_of(const PolicyLine& policy, const Ledger& ledger, std::size_t columns) {
  columns = std::min(columns, ledger.steps.size());
  std::vector<double> limits(columns);
  for (const PolicyEntry& entry : policy.entries) {
    double& limit = limits[ledger.entries[entry.entry].step * columns / ledger.steps.size()];
    if (entry.limit > 0 && (limit == 0 || entry.limit < limit)) limit = entry.limit;
  }
  return limits;
}

ScaleColumns make_columns(const Ledger& ledger, const PolicyComparison* policies, std::size_t columns) {
  ScaleColumns made;
  for (const LedgerLine& line : ledger.lines) made.lines.push_back(squeeze(ledger, line, columns));
  if (policies == nullptr) return made;
  for (const PolicyLine& policy : policies->policies) made.limits.push_back(limits_of(policy, ledger, columns));
  return made;
}

std::string clipped_words(const PolicyLine& policy, std::int64_t tokens) {
  return fmt::format("{}{} of {}", policy.exact ? "" : "at most ", policy.clipped_tokens, counted(tokens, "token"));
}

}  // namespace nanscope::gui
