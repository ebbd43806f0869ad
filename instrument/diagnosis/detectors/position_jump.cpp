#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"

namespace nanscope {
namespace {

/// The whole numbers of a step's parameter; nothing where it was not dumped or cannot be read.
std::optional<std::vector<std::int64_t>> integers_of(RunView& run, const Step& step, std::string_view role,
                                                     const Tensor** of) {
  for (const Op& op : run.content(step.id).ops) {
    const Tensor* tensor = op.kind == OpKind::parameter ? run.result(op) : nullptr;
    if (tensor == nullptr || tensor->role != role || !tensor->known || tensor->stated) continue;
    const auto values = run.values(*tensor);
    if (!values) return std::nullopt;
    *of = tensor;
    std::vector<std::int64_t> whole;
    for (const float one : *values) whole.push_back(static_cast<std::int64_t>(one));
    return whole;
  }
  return std::nullopt;
}

/// The first position of a span, as the dumped positions have it: one a row of the step, or of one sequence.
std::optional<std::int64_t> first_position(const Step& step, const Span& span, const std::vector<std::int64_t>& all) {
  const auto rows = static_cast<std::int64_t>(all.size());
  if (rows == step.rows && span.row < rows) return all[static_cast<std::size_t>(span.row)];
  if (step.spans.size() == 1 && rows == span.rows) return all.front();
  return std::nullopt;
}

Finding finding_of(Survey& survey, const Tensor& positions, const Span& span, std::int64_t first, std::int64_t expected,
                   std::string_view by) {
  Finding finding = finding_at(survey, positions);
  finding.fault.ops = {positions.op};
  finding.fault.where.request = span.request;
  finding.fault.evidence = {{"first_position", first}, {"expected", expected}, {"off_by", first - expected}};
  finding.fault.summary = fmt::format(
      "{} begins at position {}, where its sequence stands at {} by {}: {} {}", finding.fault.tensor, first, expected,
      by, counted(std::abs(first - expected), "position"), first > expected ? "left out" : "too early");
  finding.fault.fix =
      "compute the positions of a chunk from the length of its cache alone: an offset that the length counts already "
      "is "
      "added twice";
  return finding;
}

/// How many tokens a mask of ones shows of a sequence of the batch, its own of this step included; nothing where the
/// dumped mask is no such one.
std::optional<std::int64_t> tokens_shown(RunView& run, const Step& step, const Span& span) {
  const Tensor* of = nullptr;
  const auto mask = integers_of(run, step, "mask", &of);
  const std::int64_t length = step.rows / std::max<std::int64_t>(1, step.batch);
  if (!mask || of->tokens != step.batch || length <= 0 || of->channels < length) return std::nullopt;
  if (!std::all_of(mask->begin(), mask->end(), [](std::int64_t one) { return one == 0 || one == 1; }))
    return std::nullopt;
  const auto row = mask->begin() + span.row / length * of->channels;
  return std::count(row, row + of->channels, std::int64_t{1});
}

}  // namespace

/// Positions that contradict the length of the cache in the same step, or the tokens that its mask shows where those of
/// the step before did not, or that leave some out between two chunks of a prompt in consecutive steps. A sequence that
/// begins behind position 0, or goes back, may share a prefix or compute tokens again, and is no fault.
Findings detect_position_jump(Survey& survey) {
  Findings out;
  RunView& run = survey.run();
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<const Step*, std::int64_t>> stands;  // request, rank: where
  std::int64_t looked_at = 0;
  for (const Step& step : run.steps()) {
    const Tensor* of = nullptr;
    const Tensor* past_of = nullptr;
    const auto positions = integers_of(run, step, "positions", &of);
    const auto past = integers_of(run, step, "past_length", &past_of);
    for (std::size_t s = 0; positions && s < step.spans.size(); ++s) {
      const Span& span = step.spans[s];
      const auto first = first_position(step, span, *positions);
      if (!first) continue;
      ++looked_at;
      const auto known = stands.find({span.request, step.rank});
      // One length for a step of one sequence; with padding before it, positions count tokens and the length rows.
      const bool one = step.spans.size() == 1 && past && past->size() == 1 && span.row == 0;
      const bool chunk = known != stands.end() && span.rows > 1 && known->second.first->spans.size() == 1 &&
                         known->second.first->kind == StepKind::prefill && step.spans.size() == 1;
      if (one && past->front() > 0 && *first != past->front()) {
        out.found.push_back(finding_of(survey, *of, span, *first, past->front(), survey.facts.name_of(*past_of)));
        out.found.back().rank = Rank::recomputed;
        out.found.back().fault.certainty = Certainty::proved;
      } else if (chunk && *first > known->second.second) {
        out.found.push_back(finding_of(survey, *of, span, *first, known->second.second, "the chunk before it"));
        out.found.back().rank = Rank::counted;
        out.found.back().fault.certainty = Certainty::shown;
      } else if (known != stands.end() && *first > known->second.second &&
                 tokens_shown(run, step, span) == known->second.second + span.rows) {
        out.found.push_back(
            finding_of(survey, *of, span, *first, known->second.second, "its mask and the step before it"));
        out.found.back().rank = Rank::counted;
        out.found.back().fault.certainty = Certainty::proved;
        out.found.back().fault.fix =
            "compute each sequence's positions from its row of the attention mask: padding is part of the cache's "
            "length, and of no position";
      }
      stands[{span.request, step.rank}] = {&step, *first + span.rows};
    }
  }
  merge_alike(out.found);
  if (looked_at == 0) {
    out.not_in_dump("no positions were dumped");
  } else {
    out.excluded(fmt::format("{} of positions continue where their sequences stand", counted(looked_at, "span")));
  }
  return out;
}

}  // namespace nanscope
