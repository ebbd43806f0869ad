#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/recompute/keys.h"

namespace nanscope {
namespace {

bool is_softmax(OpKind kind) {
  return kind == OpKind::softmax || kind == OpKind::tile_softmax || kind == OpKind::attention ||
         kind == OpKind::token_softmax;
}

/// The op that chooses among the keys for `op`: of a mix over probabilities that were not dumped, the softmax before
/// it; of tiles, whose sum divides at the end, the one that made the sum.
const Op& softmax_of(Survey& survey, const Op& op) {
  const Tensor* sum = op.kind == OpKind::tile_mix ? survey.run().input(op, "sum") : nullptr;
  if (const Op* tiles = sum != nullptr ? survey.run().maker(*sum) : nullptr; tiles != nullptr) return *tiles;
  const Tensor* probs = op.kind == OpKind::attention_mix ? survey.run().input(op, "probs") : nullptr;
  const Op* softmax = probs != nullptr && !probs->known ? survey.run().maker(*probs) : nullptr;
  return softmax != nullptr ? *softmax : op;
}

/// Heads of a row of scores in which no key is above -Inf.
std::int64_t empty_heads(Survey& survey, const Tensor& scores, std::int64_t row) {
  constexpr float kNothing = -1e30F;
  const auto values = survey.run().row_values(scores, row);
  if (!values) return 0;
  const std::int64_t heads = std::max<std::int64_t>(1, scores.heads);
  const std::int64_t keys = scores.channels / heads;
  std::int64_t empty = 0;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto begin = values->begin() + head * keys;
    empty += std::all_of(begin, begin + keys, [](float score) { return score <= kNothing; }) ? 1 : 0;
  }
  return empty;
}

/// Whether the op itself says that a row has no key: of a window that begins behind it, of a grammar without a token.
bool stated_empty(const Op& op, std::int64_t row) {
  if (const auto* softmax = op.get<SoftmaxAttributes>()) {
    return softmax->first_key && softmax->first_position && *softmax->first_key > *softmax->first_position + row;
  }
  const auto* tokens = op.get<TokenSoftmaxAttributes>();
  return tokens != nullptr && tokens->legal == 0;
}

/// The sequence whose row it is, or in whose frame it is padding.
const Span* span_of_frame(const Step& step, const RowToken& token, std::int64_t row) {
  if (token.span != nullptr) return token.span;
  const std::int64_t frame = step.rows / std::max<std::int64_t>(1, step.batch);
  if (frame <= 0 || (step.batch <= 1 && step.spans.size() != 1)) return nullptr;
  const auto found = std::find_if(step.spans.begin(), step.spans.end(),
                                  [&](const Span& span) { return span.row / frame == row / frame; });
  return found == step.spans.end() ? nullptr : &*found;
}

/// Whether the mask of an op hides every key from a row.
bool masked_away(Survey& survey, const Op& op, const Tensor& out, std::int64_t row) {
  RunView& run = survey.run();
  const Step* step = run.step(out.step);
  if (step == nullptr || op.input("mask") == 0) return false;
  const RowToken token = run.token_of(out, row);
  const Span* span = span_of_frame(*step, token, row);
  if (span == nullptr) return false;
  const std::int64_t columns = out.role == "probs" ? keys_of(out) : key_columns(survey.values(), op, *step, *span);
  if (!has_mask(survey.values(), op, columns)) return false;
  // Of more columns than a sequence has keys from its first token on: those of another, as a decoder's over its
  // encoder's, or slots of a cache that is not filled. Which of them are its own is not known.
  const std::int64_t length = step->rows / std::max<std::int64_t>(1, step->batch);
  if (span->first_token == 0 && run.tensor(op.input("mask"))->channels > std::max(columns, length)) return false;
  const auto positions = column_positions(*step, *span, columns);
  const std::int64_t step_row = token.span != nullptr ? span->row + token.position - span->first_token : row;
  const auto hides_all = [&](int variant) {
    OpForm given;
    given.variant = variant;
    const auto mask = row_mask(survey.values(), op, *step, *span, step_row, positions, given);
    return mask && std::none_of(mask->visible.begin(), mask->visible.end(), [](bool one) { return one; });
  };
  // A row of left padding has padding before it alone, and a causal mask hides what comes behind.
  const bool left = token.span == nullptr && row < span->row && step->kind == StepKind::prefill;
  return hides_all(kGivenMask) || (left && hides_all(kGivenCausal));
}

struct Emptied {
  std::vector<std::int64_t> rows;
  std::int64_t heads = 0;
  bool by_mask = false;
};

Emptied emptied(Survey& survey, const Op& op, const Tensor& out, const std::vector<std::int64_t>& rows) {
  Emptied found;
  const Tensor* scores = survey.run().input(op, "scores");
  if (scores == nullptr) scores = survey.run().input(op, "logits");
  for (const std::int64_t row : rows) {
    const auto from = scores != nullptr && scores->known ? survey.run().same_row(out, row, *scores) : std::nullopt;
    const std::int64_t heads = from ? empty_heads(survey, *scores, *from) : 0;
    const bool mask = heads == 0 && (stated_empty(op, row) || masked_away(survey, op, out, row));
    if (heads == 0 && !mask) continue;
    found.rows.push_back(row);
    found.heads = std::max(found.heads, heads);
    found.by_mask = found.by_mask || mask;
  }
  return found;
}

/// Of a sampler's softmax: the keys are tokens, and a grammar hides them.
void describe_tokens(Finding& finding, const Emptied& found) {
  finding.fault.evidence = {{"rows", static_cast<std::int64_t>(found.rows.size())}, {"legal_tokens", std::int64_t{0}}};
  finding.fault.summary =
      fmt::format("{} of {} {} no token to choose: {}, and -Inf minus -Inf is NaN", counted(found.rows.size(), "row"),
                  finding.fault.tensor, found.rows.size() == 1 ? "has" : "have",
                  found.by_mask ? "the grammar allows none" : "every logit is -Inf");
  finding.fault.fix = "end the request, or sample from the logits as they are, where no token is allowed";
}

void describe(Finding& finding, const Emptied& found, bool nan) {
  finding.fault.evidence = {{"rows", static_cast<std::int64_t>(found.rows.size())}, {"heads", found.heads}};
  finding.fault.summary = fmt::format(
      "{} of {} {} no key to attend to: {}, and {}", counted(found.rows.size(), "row"), finding.fault.tensor,
      found.rows.size() == 1 ? "has" : "have", found.by_mask ? "the mask hides every one" : "every score is -Inf",
      nan ? "-Inf minus -Inf is NaN" : "what comes out is the same for every key, hidden ones too");
  finding.fault.fix = "give each row at least its own key, or write zeros where a row's sum is zero";
}

/// Whether the probabilities of a row are the same for every key, in some head: what a softmax makes of nothing.
bool alike(Survey& survey, const Tensor& probs, std::int64_t row) {
  const auto values = survey.run().row_values(probs, row);
  const std::int64_t keys = keys_of(probs);
  if (!values || keys <= 1) return false;
  for (std::size_t head = 0; head + static_cast<std::size_t>(keys) <= values->size();
       head += static_cast<std::size_t>(keys)) {
    const auto begin = values->begin() + static_cast<std::ptrdiff_t>(head);
    const auto [least, most] = std::minmax_element(begin, begin + keys);
    if (*least > 0 && *least == *most) return true;
  }
  return false;
}

/// Rows that come out finite though they have no key: as if all keys were alike.
void look_at_finite(Survey& survey, const Op& op, Findings& out, std::int64_t& unsure) {
  const Tensor* probs = survey.run().result(op);
  if (probs == nullptr || !probs->known || probs->stated || op.kind == OpKind::token_softmax) return;
  if (op.kind == OpKind::attention && op.input("mask") == 0) return;
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < probs->tokens; ++row) {
    if (survey.facts.live(*probs, row) && row_finite(survey, *probs, row)) rows.push_back(row);
  }
  const Emptied found = emptied(survey, op, *probs, rows);
  if (found.rows.empty()) return;
  // A pass without any key at all may be a mask that is read the wrong way round: its probabilities show it.
  if (found.rows.size() == rows.size() &&
      !(probs->role == "probs" && std::all_of(found.rows.begin(), found.rows.end(),
                                              [&](std::int64_t row) { return alike(survey, *probs, row); }))) {
    ++unsure;
    return;
  }
  Finding finding = finding_at(survey, *probs, found.rows);
  finding.rank = Rank::counted;
  finding.fault.certainty = Certainty::shown;
  describe(finding, found, false);
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    if (survey.deviations[i].tensor == probs->id) finding.explains.push_back({Symptom::Kind::deviation, i});
  }
  out.found.push_back(std::move(finding));
}

}  // namespace

/// A softmax row without a key to attend to.
Findings detect_softmax_fully_masked(Survey& survey) {
  Findings out;
  std::int64_t looked_at = 0;
  std::int64_t unsure = 0;
  for (const OpKind kind : {OpKind::softmax, OpKind::tile_softmax, OpKind::attention}) {
    for (const Op* op : survey.ops(kind)) {
      const Tensor* scores = survey.run().input(*op, "scores");
      looked_at += op->input("mask") != 0 || (scores != nullptr && scores->known) ? 1 : 0;
      // Tiles leave zeros of no key, and what divides by their sum shows it.
      if (kind != OpKind::tile_softmax) look_at_finite(survey, *op, out, unsure);
    }
  }
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = softmax_of(survey, survey.op(birth));
    if (!is_softmax(op.kind) || birth.read != 0 || !birth.bad_parameters.empty()) continue;
    const Emptied found = emptied(survey, op, survey.tensor(birth), birth.rows);
    if (found.rows.empty()) continue;
    Finding finding = finding_at(survey, i);
    finding.rank = Rank::counted;
    finding.fault.certainty = Certainty::proved;
    if (op.kind == OpKind::token_softmax) {
      describe_tokens(finding, found);
    } else {
      describe(finding, found, true);
    }
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
  if (looked_at == 0) {
    out.not_in_dump("no softmax was dumped with its scores or its mask");
  } else if (unsure > 0) {
    out.not_looked_at(fmt::format("every row of {} has no key above -Inf, and what comes out does not show it",
                                  counted(unsure, "softmax op")));
  } else {
    exclude(out, survey,
            fmt::format("every row of a request in {} has a key above -Inf", counted(looked_at, "softmax op")));
  }
  return out;
}

}  // namespace nanscope
