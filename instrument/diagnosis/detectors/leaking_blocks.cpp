#include "instrument/diagnosis/detectors/leaking_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/blocks/block_scale.h"
#include "core/blocks/presets.h"
#include "core/counted.h"
#include "instrument/diagnosis/region.h"

namespace nanscope {
namespace {

/// Where a token reads a block under another scale than it has without rows that the mask hides from it.
struct BlockLeak {
  const Op* op = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* reader = nullptr;  ///< output of the op that reads what was quantized
  std::string operand;
  bool gradient = false;          ///< what they read it for is the gradient of their queries
  bool padding = false;           ///< the rows are those that pad the prompt, else later tokens
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

/// The op that attends to what codes stand for; or, in a backward pass, makes the gradient of queries of keys, dq = ds
/// k, in which the keys of a block share a scale as well. The other products of attention's gradient sum over a token's
/// own channels, or over the queries behind a key.
struct Reader {
  const Op* op = nullptr;
  std::string operand;
  bool own_tile = true;        ///< it reads them in the tile of a row's own as elsewhere
  std::int64_t first_key = 0;  ///< what stands before pads the prompt, and is hidden

  bool is_gradient() const { return op != nullptr && op->kind == OpKind::attention_scores_gradient; }
};

std::int64_t first_key_of(const std::vector<const Op*>& behind) {
  for (const Op* op : behind) {
    const auto* form = op->kind == OpKind::tile_softmax ? op->get<SoftmaxAttributes>() : nullptr;
    if (form != nullptr) return form->first_key.value_or(0);
  }
  return 0;
}

Reader reader_of(Survey& survey, const Op& quantise) {
  RunView& run = survey.run();
  const Tensor* codes = run.output(quantise, "codes");
  if (codes == nullptr) return {};
  for (const Op* back : run.readers(*codes)) {
    const Tensor* read = back->kind == OpKind::block_dequantise ? run.result(*back) : nullptr;
    if (read == nullptr) continue;
    for (const Op* reader : run.readers(*read)) {
      if (reader->kind == OpKind::tile_mix) {
        const auto* form = reader->get<MixAttributes>();
        if (form == nullptr) continue;
        return {reader, "v", form->diagonal.value_or("quantized") == "quantized", form->first_key.value_or(0)};
      }
      if (reader->kind == OpKind::attention_scores_gradient && run.input(*reader, "k") == read) {
        return {reader, "k", run.input(*reader, "exact_k") == nullptr};
      }
      if (reader->kind != OpKind::attention_scores) continue;
      const Tensor* scores = run.result(*reader);
      const std::vector<const Op*> behind = scores != nullptr ? run.readers(*scores) : std::vector<const Op*>{};
      const bool exact = std::any_of(behind.begin(), behind.end(), [&](const Op* op) {
        return op->kind == OpKind::tile_softmax && run.input(*op, "exact_scores") != nullptr;
      });
      return {reader, "k", !exact, first_key_of(behind)};
    }
  }
  return {};
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

/// Compares the scale of each channel with that of the rows from `first_key` on, which every token reads that stands
/// there or behind.
void look_at_padding(const BlockFormat& format, const Rows& rows, const std::vector<float>& stored,
                     std::int64_t first_key, std::int64_t end, BlockLeak& leak) {
  const auto size = static_cast<std::int64_t>(rows.values.size());
  const std::int64_t padding = std::min(first_key - rows.first, size);
  if (padding <= 0 || padding == size) return;
  leak.could += end - first_key;
  for (std::size_t c = 0; c < stored.size(); ++c) {
    const auto at = [&](std::int64_t r) { return std::abs(rows.values[static_cast<std::size_t>(r)][c]); };
    float past = 0;
    std::int64_t owner = 0;
    for (std::int64_t row = 0; row < padding; ++row) owner = at(row) > at(owner) ? row : owner;
    for (std::int64_t row = padding; row < size; ++row) past = std::max(past, at(row));
    const float own = block_scale_value(format, block_scale(format, past, 1.0F, 0).code);
    if (!(at(owner) > past) || own == stored[c]) continue;
    leak.padding = true;
    for (std::int64_t token = first_key; token < end; ++token) leak.tokens.insert(token);
    const auto ratio = [](double scale, double of) { return of > 0 ? scale / of : HUGE_VAL; };
    if (leak.token >= 0 && !(ratio(double{stored[c]}, double{own}) > ratio(leak.scale, leak.past_scale))) continue;
    leak.block = rows.number;
    leak.channel = static_cast<std::int64_t>(c);
    leak.token = first_key;
    leak.owner = rows.first + owner;
    leak.scale = double{stored[c]};
    leak.past_scale = double{own};
  }
}

/// Whose span the keys that an op quantized are.
const Span* span_of_keys(const Step& step, const Tensor& x) {
  if (step.spans.size() == 1) return &step.spans.front();
  const auto at = static_cast<std::size_t>(std::max<std::int64_t>(x.sequence, 0));
  return at < step.spans.size() ? &step.spans[at] : nullptr;
}

/// What an op that quantizes in blocks leaks: of later tokens, and of rows that pad the prompt.
struct BlockLeaks {
  BlockLeak later, padding;
  bool looked = false;
};

BlockLeaks leaks_of_blocks(Survey& survey, const Op& op) {
  BlockLeaks leaks;
  RunView& run = survey.run();
  const Tensor* x = run.input(op, "x");
  const Tensor* scales = run.output(op, "scales");
  const auto* form = op.get<BlockAttributes>();
  const BlockPreset* preset = form != nullptr && form->format ? find_block_preset(*form->format) : nullptr;
  const Step* step = run.step(op.step);
  const bool known = x != nullptr && scales != nullptr && x->known && scales->known;
  if (!known || preset == nullptr || step == nullptr) return leaks;
  leaks.looked = true;
  const Reader reader = reader_of(survey, op);
  const Span* span = span_of_keys(*step, *x);
  const std::int64_t size = preset->format.block.columns;
  if (reader.op == nullptr || span == nullptr || size < 1) return leaks;
  for (BlockLeak* leak : {&leaks.later, &leaks.padding}) {
    leak->op = &op;
    leak->scales = scales;
    leak->reader = run.result(*reader.op);
    leak->operand = reader.operand;
    leak->gradient = reader.is_gradient();
  }
  const std::int64_t end = std::min(x->tokens, span->context);
  const std::int64_t from = std::max(span->first_token, reader.first_key);
  // In a decode, the block that padding shares with tokens stands before what is new.
  std::set<std::int64_t> blocks;
  for (std::int64_t block = span->first_token / size; block * size < end; ++block) blocks.insert(block);
  if (reader.first_key > 0) blocks.insert(reader.first_key / size);
  for (const std::int64_t block : blocks) {
    Rows rows{block, block * size, {}};
    for (std::int64_t row = rows.first; row < std::min(rows.first + size, end); ++row) {
      const auto values = run.row_values(*x, row);
      if (!values || static_cast<std::int64_t>(values->size()) != scales->channels) return leaks;
      rows.values.emplace_back(values->begin(), values->end());
    }
    const auto stored = run.row_values(*scales, block);
    if (!stored) return leaks;
    const std::vector<float> of_channels(stored->begin(), stored->end());
    const bool own = reader.own_tile && rows.first + size > from;
    if (own) look_at_block(preset->format, rows, of_channels, from, leaks.later);
    look_at_padding(preset->format, rows, of_channels, reader.first_key, end, leaks.padding);
  }
  return leaks;
}

Finding of_padding(const BlockLeak& leak, const std::string& what, Finding finding) {
  finding.fault.evidence.push_back({"padding", leak.owner});
  finding.fault.summary = fmt::format(
      "{} read a block of {} under a scale that hidden rows, which pad the prompt, decide on: block {} of {} has the "
      "scale {:.4g}, which is padding row {}'s, where its tokens alone have {:.4g}",
      counted(leak.tokens.size(), "token"), what, leak.block, finding.fault.tensor, leak.scale, leak.owner,
      leak.past_scale);
  finding.fault.fix = "set rows that pad a prompt to zero before a block of tokens is quantized, or do not pad";
  return finding;
}

Finding finding_of_blocks(Survey& survey, const BlockLeak& leak) {
  Finding finding = finding_at(survey, *leak.scales, {leak.block});
  finding.rank = Rank::recomputed;
  finding.fault.certainty = Certainty::proved;
  const std::vector<std::int64_t> tokens(leak.tokens.begin(), leak.tokens.end());
  const std::string what = leak.operand == "v" ? "values" : "keys";
  finding.fault.where.channels = Range{leak.channel, leak.channel};
  finding.fault.evidence = {{"operand", leak.operand},      {"rows", static_cast<std::int64_t>(tokens.size())},
                            {"sharing", leak.could},        {"wrong_rows", ranges_text(tokens)},
                            {"block", leak.block},          {"token", leak.token},
                            {"owner", leak.owner},          {"scale", leak.scale},
                            {"past_scale", leak.past_scale}};
  if (leak.reader != nullptr) finding.shows_in = leak.reader->id;
  if (leak.padding) return of_padding(leak, what, std::move(finding));
  finding.fault.summary = fmt::format(
      "{} of {} that share a block of {} with later ones read it{} under a scale that those decide on: block {} of {} "
      "has the scale {:.4g}, which is token {}'s, where the tokens up to {} alone have {:.4g}",
      counted(tokens.size(), "token"), leak.could, what, leak.gradient ? " for the gradient of their queries" : "",
      leak.block, finding.fault.tensor, leak.scale, leak.owner, leak.token, leak.past_scale);
  finding.fault.fix =
      "read the tile on the diagonal unquantized, quantize a token's own block from its past alone, or lay the blocks "
      "along the channels";
  if (leak.gradient) finding.fault.fix = "read the tile on the diagonal unquantized in the gradient, too, or all of it";
  return finding;
}

}  // namespace

namespace {

/// The name of an op without the number of its sequence: "k_quantise_1", "scores_1_k_quantise_grad".
std::string of_all_sequences(std::string_view op) {
  std::string name;
  while (!op.empty()) {
    const std::size_t end = std::min(op.find('_', 1), op.size());
    const std::string_view part = op.substr(0, end);
    const bool number = part.size() > 1 && part.find_first_not_of("0123456789", 1) == std::string_view::npos;
    if (!number) name += part;
    op.remove_prefix(end);
  }
  return name;
}

/// Of a training run, which does the same to every sequence of every step: the first of each op stays.
void merge_training(Survey& survey, std::vector<Finding>& found) {
  std::vector<Finding> kept;
  for (Finding& one : found) {
    const Step* step = survey.run().step(survey.run().tensor(one.tensor)->step);
    const auto same = std::find_if(kept.begin(), kept.end(), [&](const Finding& other) {
      return other.fault.where.layer == one.fault.where.layer &&
             of_all_sequences(other.fault.where.op) == of_all_sequences(one.fault.where.op);
    });
    const bool trains = step != nullptr && step->kind != StepKind::prefill && step->kind != StepKind::decode;
    if (!trains || same == kept.end()) {
      kept.push_back(std::move(one));
      continue;
    }
    same->explains.insert(same->explains.end(), one.explains.begin(), one.explains.end());
    same->fault.ops.insert(same->fault.ops.end(), one.fault.ops.begin(), one.fault.ops.end());
  }
  found = std::move(kept);
}

}  // namespace

void look_at_blocks(Survey& survey, Findings& out, std::int64_t& looked_at) {
  std::vector<Finding> found;
  for (const Op* op : survey.ops(OpKind::quantise_columns)) {
    const BlockLeaks leaks = leaks_of_blocks(survey, *op);
    looked_at += leaks.looked ? 1 : 0;
    for (const BlockLeak* leak : {&leaks.later, &leaks.padding}) {
      if (!leak->tokens.empty()) found.push_back(finding_of_blocks(survey, *leak));
    }
  }
  merge_training(survey, found);
  for (Finding& one : found) out.found.push_back(std::move(one));
}

}  // namespace nanscope
