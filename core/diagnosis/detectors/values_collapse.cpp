#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {
namespace {

// Rows are looked up per clipped tensor; the first collapse is what is wanted.
constexpr std::size_t kMaxClips = 256;

struct Collapse {
  TensorRow codes;
  std::optional<TensorRow> source;
  std::vector<std::int64_t> rows;  ///< of one value now, of several before
};

/// Rows of codes that hold one value although their source held more than one.
Collapse collapse_of(Facts& facts, const Clip& clip) {
  Collapse found{*clip.codes, clip.source, {}};
  for (const std::int64_t row : facts.constant_rows(*clip.codes)) {
    if (facts.rows(*clip.codes)[static_cast<std::size_t>(row)].clipped == 0) continue;
    const std::vector<Health>* before = clip.source ? &facts.rows(*clip.source) : nullptr;
    const auto at = static_cast<std::size_t>(row);
    if (before != nullptr && at < before->size() && (*before)[at].min == (*before)[at].max) continue;
    found.rows.push_back(row);
  }
  return found;
}

std::int64_t distinct(const TensorData& data, std::int64_t row) {
  std::set<std::uint32_t> codes;
  for (std::int64_t i = 0; i < data.channels; ++i) codes.insert(data.code(row, i));
  return static_cast<std::int64_t>(codes.size());
}

/// The clip whose collapse led to the NaN, when one did, else the first.
std::optional<Collapse> choose(Facts& facts, std::int64_t& rows, double& share) {
  std::optional<Collapse> chosen;
  bool at_birth = false;
  const SickOp* birth = first_norm_birth(facts);
  std::size_t looked_at = 0;
  for (const Clip& clip : facts.clips()) {
    if (!clip.codes || looked_at++ >= kMaxClips) continue;
    for (const Health& row : facts.rows(*clip.codes)) {
      if (row.count > 0) share = std::max(share, static_cast<double>(row.clipped) / static_cast<double>(row.count));
    }
    Collapse found = collapse_of(facts, clip);
    if (found.rows.empty()) continue;
    rows += static_cast<std::int64_t>(found.rows.size());
    const bool here = birth != nullptr && clip.scale.step == birth->op.step && clip.scale.layer == birth->op.layer;
    // Values feed the mix and the norm after it; keys only decide the weights.
    const bool better = !chosen || (here && (!at_birth || clip.scale.target == "v"));
    if (better) chosen = std::move(found);
    at_birth = at_birth || here;
  }
  return chosen;
}

}  // namespace

/// Link 5: rows of many different values became rows of one code.
Link detect_values_collapse(Facts& facts) {
  Link link;
  std::int64_t rows = 0;
  double share = 0;
  const std::optional<Collapse> chosen = choose(facts, rows, share);
  if (!chosen) {
    link.summary = facts.clips().empty()
                       ? "0 tensors were clipped"
                       : fmt::format("0 rows became one value: at most {:.1f} % of a row was clipped", 100 * share);
    return link;
  }
  link.state = LinkState::found;
  link.where = facts.where(chosen->codes, chosen->rows);
  const std::int64_t row = chosen->rows.front();
  const Health& after = facts.rows(chosen->codes)[static_cast<std::size_t>(row)];
  link.evidence = {{"collapsed tokens", static_cast<std::int64_t>(chosen->rows.size())},
                   {"tokens", chosen->codes.tokens},
                   {"channels", chosen->codes.channels},
                   {"distinct codes in the row", std::int64_t{1}},
                   {"the one value (unscaled)", double{after.max}},
                   {"collapsed rows in all tensors", rows}};
  std::string before = "several values";
  if (chosen->source) {
    const std::shared_ptr<const TensorData> data = facts.elements(*chosen->source);
    if (data) {
      const std::int64_t many = distinct(*data, row);
      link.evidence.push_back({"distinct values before", many});
      before = fmt::format("{} distinct values", many);
    }
    const std::vector<Health>& health = facts.rows(*chosen->source);
    if (static_cast<std::size_t>(row) < health.size()) {
      const Health& was = health[static_cast<std::size_t>(row)];
      link.evidence.push_back({"smallest before", double{was.min}});
      link.evidence.push_back({"largest before", double{was.max}});
      before += fmt::format(" from {:.4g} to {:.4g}", was.min, was.max);
    }
  }
  link.summary =
      fmt::format("{} of {} tokens of {} became one value: {} are now {:g} in all {} channels", chosen->rows.size(),
                  chosen->codes.tokens, tensor_text(link.where), before, after.max, chosen->codes.channels);
  const std::optional<OpRow> store = facts.run.op(chosen->codes.op);
  const std::optional<OpRow> mix = store ? facts.run.find_op(store->step, store->layer, "attn_mix") : std::nullopt;
  const std::optional<TensorRow> mixed = mix ? facts.run.output(mix->id, "out") : std::nullopt;
  if (mixed) {
    const auto same = static_cast<std::int64_t>(facts.constant_rows(*mixed).size());
    link.evidence.push_back({"constant rows of attn_mix", same});
    link.summary += fmt::format("; {} of {} rows of the attention output are constant", same, mixed->tokens);
  }
  return link;
}

}  // namespace nanscope
