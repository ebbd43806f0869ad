#include "instrument/diagnosis/detectors/leaking_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "core/blocks/block_scale.h"
#include "core/blocks/presets.h"
#include "core/counted.h"
#include "instrument/diagnosis/region.h"

namespace nanscope {
namespace {

/// Where a token reads a block under another scale than it has without later tokens.
struct BlockLeak {
  const Op* op = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* reader = nullptr;  ///< output of the op that reads what was quantized
  std::string operand;
  std::set<std::int64_t> tokens;  ///< that read it
  std::int64_t could = 0;         ///< tokens with later ones in their block
  // Of the largest ratio of scales:
  std::int64_t block = -1;
  std::int64_t channel = -1;
  std::int64_t token = -1;
  std::int64_t owner = -1;  ///< the token that decides on the block's scale
  double scale = 0;
  double past_scale = 0;  ///< of the tokens up to `token` alone
};

/// The op that attends to what the codes stand for, where it reads it in the tile of a row's own as elsewhere.
const Op* leaking_reader(Survey& survey, const Op& quantise, std::string& operand) {
  RunView& run = survey.run();
  const Tensor* codes = run.output(quantise, "codes");
  if (codes == nullptr) return nullptr;
  for (const Op* back : run.readers(*codes)) {
    const Tensor* read = back->kind == OpKind::block_dequantise ? run.result(*back) : nullptr;
    if (read == nullptr) continue;
    for (const Op* reader : run.readers(*read)) {
      if (reader->kind == OpKind::tile_mix) {
        const auto* form = reader->get<MixAttributes>();
        if (form == nullptr || form->diagonal.value_or("quantized") != "quantized") continue;
        operand = "v";
        return reader;
      }
      if (reader->kind != OpKind::attention_scores) continue;
      const Tensor* scores = run.result(*reader);
      const std::vector<const Op*> behind = scores != nullptr ? run.readers(*scores) : std::vector<const Op*>{};
      const bool exact = std::any_of(behind.begin(), behind.end(), [&](const Op* op) {
        return op->kind == OpKind::tile_softmax && run.input(*op, "exact_scores") != nullptr;
      });
      if (exact) continue;
      operand = "k";
      return reader;
    }
  }
  return nullptr;
}

/// One block of rows of x, of positions from `first` on.
struct Rows {
  std::int64_t number = 0;
  std::int64_t first = 0;
  std::vector<std::vector<float>> values;
};

/// Compares the scale of each channel with that of the rows up to each token of [from, context).
void look_at_block(const BlockFormat& format, const Rows& rows, const std::vector<float>& stored, std::int64_t from,
                   BlockLeak& leak) {
  const auto size = static_cast<std::int64_t>(rows.values.size());
  const std::int64_t first_token = std::max(rows.first, from);
  leak.could += std::max<std::int64_t>(rows.first + size - 1 - first_token, 0);
  for (std::size_t c = 0; c < stored.size(); ++c) {
    std::int64_t owner = 0;
    for (std::int64_t row = 1; row < size; ++row) {
      const auto at = [&](std::int64_t r) { return std::abs(rows.values[static_cast<std::size_t>(r)][c]); };
      if (at(row) > at(owner)) owner = row;
    }
    float past = 0;
    for (std::int64_t row = 0; row < owner; ++row) {
      past = std::max(past, std::abs(rows.values[static_cast<std::size_t>(row)][c]));
      const std::int64_t token = rows.first + row;
      if (token < first_token) continue;
      const float own = block_scale_value(format, block_scale(format, past, 1.0F, 0).code);
      if (own == stored[c]) continue;
      leak.tokens.insert(token);
      const auto ratio = [](double scale, double of) { return of > 0 ? scale / of : HUGE_VAL; };
      const double now = ratio(double{stored[c]}, double{own});
      if (leak.token >= 0 && !(now > ratio(leak.scale, leak.past_scale))) continue;
      leak.block = rows.number;
      leak.channel = static_cast<std::int64_t>(c);
      leak.token = token;
      leak.owner = rows.first + owner;
      leak.scale = double{stored[c]};
      leak.past_scale = double{own};
    }
  }
}

/// Whose span the keys that an op quantized are.
const Span* span_of_keys(const Step& step, const Tensor& x) {
  if (step.spans.size() == 1) return &step.spans.front();
  const auto at = static_cast<std::size_t>(std::max<std::int64_t>(x.sequence, 0));
  return at < step.spans.size() ? &step.spans[at] : nullptr;
}

BlockLeak leak_of_blocks(Survey& survey, const Op& op, bool& looked) {
  BlockLeak leak;
  RunView& run = survey.run();
  leak.op = &op;
  const Tensor* x = run.input(op, "x");
  leak.scales = run.output(op, "scales");
  const auto* form = op.get<BlockAttributes>();
  const BlockPreset* preset = form != nullptr && form->format ? find_block_preset(*form->format) : nullptr;
  const Op* reader = leaking_reader(survey, op, leak.operand);
  const Step* step = run.step(op.step);
  const bool known = x != nullptr && leak.scales != nullptr && x->known && leak.scales->known;
  if (!known || preset == nullptr || step == nullptr) return leak;
  looked = true;
  if (reader == nullptr) return leak;
  const Span* span = span_of_keys(*step, *x);
  const std::int64_t size = preset->format.block.columns;
  if (span == nullptr || size < 1) return leak;
  leak.reader = run.result(*reader);
  const std::int64_t end = std::min(x->tokens, span->context);
  for (std::int64_t block = span->first_token / size; block * size < end; ++block) {
    Rows rows{block, block * size, {}};
    for (std::int64_t row = rows.first; row < std::min(rows.first + size, end); ++row) {
      const auto values = run.row_values(*x, row);
      if (!values || static_cast<std::int64_t>(values->size()) != leak.scales->channels) return leak;
      rows.values.emplace_back(values->begin(), values->end());
    }
    const auto stored = run.row_values(*leak.scales, block);
    if (!stored) return leak;
    look_at_block(preset->format, rows, {stored->begin(), stored->end()}, span->first_token, leak);
  }
  return leak;
}

Finding finding_of_blocks(Survey& survey, const BlockLeak& leak) {
  Finding finding = finding_at(survey, *leak.scales, {leak.block});
  finding.certainty = kProved;
  const std::vector<std::int64_t> tokens(leak.tokens.begin(), leak.tokens.end());
  const std::string what = leak.operand == "v" ? "values" : "keys";
  finding.fault.where.channels = Range{leak.channel, leak.channel};
  finding.fault.evidence = {{"operand", leak.operand},      {"rows", static_cast<std::int64_t>(tokens.size())},
                            {"sharing", leak.could},        {"wrong_rows", ranges_text(tokens)},
                            {"block", leak.block},          {"token", leak.token},
                            {"owner", leak.owner},          {"scale", leak.scale},
                            {"past_scale", leak.past_scale}};
  if (leak.reader != nullptr) finding.shows_in = leak.reader->id;
  finding.fault.summary = fmt::format(
      "{} of {} that share a block of {} with later ones read it under a scale that those decide on: block {} of {} "
      "has "
      "the scale {:.4g}, which is token {}'s, where the tokens up to {} alone have {:.4g}",
      counted(tokens.size(), "token"), leak.could, what, leak.block, finding.fault.tensor, leak.scale, leak.owner,
      leak.token, leak.past_scale);
  finding.fault.fix =
      "read the tile on the diagonal unquantized, quantize a token's own block from its past alone, or lay the blocks "
      "along the channels";
  return finding;
}

}  // namespace

void look_at_blocks(Survey& survey, Findings& out, std::int64_t& looked_at) {
  for (const Op* op : survey.ops(OpKind::quantise_columns)) {
    bool looked = false;
    const BlockLeak leak = leak_of_blocks(survey, *op, looked);
    looked_at += looked ? 1 : 0;
    if (!leak.tokens.empty()) out.found.push_back(finding_of_blocks(survey, leak));
  }
}

}  // namespace nanscope
