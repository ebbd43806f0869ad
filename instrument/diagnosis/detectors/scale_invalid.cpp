#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/counted.h"
#include "core/run/scales.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/why.h"
#include "instrument/recompute/scaled.h"

namespace nanscope {
namespace {

/// A scale that is none, and something that it did harm to.
struct Invalid {
  double value = 0;
  std::int64_t row = -1;  ///< of the codes
  std::int64_t channel = -1;
  std::int64_t count = 0;  ///< elements under such scales
};

bool is_scale(std::string_view role) { return role.find("scale") != std::string_view::npos; }

/// What an op does with codes and a scale: what the codes were made of, or what is made of them.
struct Use {
  const Tensor* codes = nullptr;
  const Tensor* source = nullptr;
  const Tensor* result = nullptr;
};

Use use_of(RunView& run, const Op& op, std::string_view role) {
  const bool plain = role == "scale";
  const std::string of(plain                        ? ""
                       : role.starts_with("weight") ? "weight"
                       : role.starts_with("x")      ? "codes"
                                                    : role.substr(0, 1));
  Use use;
  switch (op.kind) {
    case OpKind::kv_store:
      use.source = run.input(op, of);
      use.codes = run.output(op, of + "_cache");
      if (use.codes == nullptr) use.codes = run.output(op, of + "_codes");
      return use;
    case OpKind::kv_read:
      use.codes = run.input(op, of + "_cache");
      use.source = run.input(op, of);
      use.result = run.result(op);
      return use;
    case OpKind::dequantise:
      use.codes = plain ? run.input(op, "codes") : run.input(op, of);
      use.result = run.result(op);
      return use;
    default:
      use.codes = plain ? run.result(op) : run.input(op, of);
      use.source = plain ? run.input(op, "x") : use.codes;
      return use;
  }
}

/// Of scales whose codes were not dumped: one that makes no number of anything, in a row that is born bad.
std::optional<Invalid> invalid_at_birth(Survey& survey, const Op& user, const Tensor& scale) {
  for (const Birth& birth : survey.births) {
    const Tensor& out = survey.tensor(birth);
    if (birth.op != user.id || out.tokens != scale.tokens) continue;
    for (const std::int64_t row : birth.rows) {
      const auto scales = survey.run().row_values(scale, row);
      if (!scales) return std::nullopt;
      const auto bad = std::find_if(scales->begin(), scales->end(), [](float one) { return !std::isfinite(one); });
      if (bad != scales->end()) return Invalid{double{*bad}, row, -1, out.channels};
    }
  }
  return std::nullopt;
}

/// What codes were cast of, where the cast is in the graph.
const Tensor* cast_of(RunView& run, const Tensor& codes) {
  const Op* maker = run.maker(codes);
  if (maker == nullptr || (maker->kind != OpKind::quantise && maker->kind != OpKind::kv_store)) return nullptr;
  const std::string role = maker->kind == OpKind::quantise ? "x" : codes.role.substr(0, 1);
  return run.input(*maker, role);
}

/// Scales of codes that mean something: a zero that scales zeros alone harms nothing.
std::optional<Invalid> invalid_of(Survey& survey, const Use& use, const RowScale& scales) {
  const Tensor& codes = *use.codes;
  const ScaleGrid& grid = *scales.grid;
  RunView& run = survey.run();
  Invalid out;
  const bool parameter = run.maker(codes) != nullptr && run.maker(codes)->kind == OpKind::parameter;
  const bool any = std::any_of(grid.values().begin(), grid.values().end(),
                               [](float scale) { return !scale_complaint(double{scale}).empty(); });
  if (!any) return std::nullopt;
  const bool pool = codes.axis == Axis::slots || codes.axis == Axis::keys;
  const auto own = pool ? own_slots(survey.values(), codes) : std::unordered_map<std::int64_t, std::int64_t>{};
  const auto beside = [&](const Tensor* tensor, std::int64_t row) -> std::optional<Block> {
    if (tensor == nullptr || !survey.values().available(*tensor)) return std::nullopt;
    std::optional<std::int64_t> at = run.same_row(codes, row, *tensor);
    const auto stored = own.find(row);
    if (!at && stored != own.end() && tensor->axis == Axis::rows) at = stored->second;
    if (!at && tensor->axis == codes.axis && tensor->tokens == codes.tokens) at = row;
    return at ? survey.values().rows(*tensor, *at, 1) : std::nullopt;
  };
  for (std::int64_t row = 0; row < codes.tokens; ++row) {
    if (!parameter && !pool && !survey.facts.live(codes, row)) continue;
    const auto stored = own.find(row);
    if (pool && scales.by_step_row && stored == own.end()) continue;  // of another step, whose scale it is not
    const std::int64_t step_row = stored != own.end() ? stored->second : row;
    std::shared_ptr<const std::vector<float>> values;
    std::optional<Block> source;
    std::optional<Block> result;
    for (std::int64_t c = 0; c < codes.channels; ++c) {
      const double scale = scales.at(row, step_row, c);
      if (scale_complaint(scale).empty()) continue;
      if (!values) {
        values = run.row_values(codes, row);
        if (!values) break;
        source = beside(use.source, row);
        result = beside(use.result, row);
        // No largest value of a row of NaN is a number: that the scale is none follows from it.
        const auto from = beside(cast_of(run, codes), row);
        if (from && std::any_of(from->value.begin(), from->value.end(), [](float x) { return std::isnan(x); })) break;
      }
      const auto at = static_cast<std::size_t>(c);
      // A slot that this step did not write may hold anything, as long as nobody reads it.
      const bool somebodys = !pool || own.empty() || own.contains(row);
      const bool meant = (somebodys && (*values)[at] != 0) ||
                         (source && at < source->value.size() && source->value[at] != 0) ||
                         (result && at < result->value.size() && !std::isfinite(result->value[at]));
      if (!meant) continue;
      if (out.count++ == 0) out = {scale, row, c, 1};
    }
  }
  return out.count > 0 ? std::optional(out) : std::nullopt;
}

Finding finding_of(Survey& survey, const Op& user, const Tensor& scale, std::string_view role, const Invalid& invalid) {
  Finding finding = finding_at(survey, scale);
  finding.fault.where = survey.facts.where(user);
  finding.fault.where.role = role;
  finding.fault.ops = {user.id};
  finding.rank = Rank::recomputed;
  finding.fault.certainty = Certainty::proved;
  finding.fault.evidence = {{"scale", invalid.value}, {"elements", invalid.count}};
  if (invalid.row >= 0) finding.fault.evidence.push_back({"row", invalid.row});
  finding.fault.summary =
      fmt::format("{} is {}: {} of {} {} scaled by it", finding.fault.tensor, scale_complaint(invalid.value),
                  counted(invalid.count, "element"), user.name, invalid.count == 1 ? "is" : "are");
  finding.fault.fix = "check scales when they are loaded or computed; fall back to a scale from the values";
  return finding;
}

/// Births and casts that a scale's tensor lies behind.
void explain(Survey& survey, Finding& finding, TensorId scale) {
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Op& op = survey.op(survey.births[i]);
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](const Input& one) { return one.tensor == scale && scale != 0; });
    if (!reads) continue;
    finding.explains.push_back({Symptom::Kind::birth, i});
    finding.fault.breaks = true;
  }
  for (std::size_t i = 0; i < survey.casts.size(); ++i) {
    if (survey.casts[i].scale == scale && scale != 0) finding.explains.push_back({Symptom::Kind::cast, i});
  }
  for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
    const Op& op = *survey.run().op(survey.deviations[i].op);
    const bool reads = std::any_of(op.inputs.begin(), op.inputs.end(),
                                   [&](const Input& one) { return one.tensor == scale && scale != 0; });
    if (reads) finding.explains.push_back({Symptom::Kind::deviation, i});
  }
}

/// Whether rows that were healthy became bad when they were cast.
bool spoils_others(const Survey& survey, const Cast& cast) {
  return std::any_of(survey.births.begin(), survey.births.end(),
                     [&](const Birth& birth) { return birth.op == cast.op && birth.inputs_known; });
}

/// What is wrong with an entry of the ledger, or empty. One computed from NaN is a consequence of that NaN, as long as
/// it scales nothing else.
std::string_view complaint_of(const Survey& survey, const Cast& cast) {
  const ScaleRow& row = *cast.ledger;
  const bool follows = row.source == ScaleSource::calibrated && !std::isfinite(row.calibrated_absmax);
  if (follows && !spoils_others(survey, cast)) return {};
  const std::string_view by_value = scale_complaint(row.scale);
  return by_value.empty() && row.source == ScaleSource::sentinel ? "a sentinel" : by_value;
}

/// Of a scale computed over rows of several, whose row set it.
std::string whose_scale(Survey& survey, const Cast& cast) {
  const Step* step = survey.run().step(cast.step);
  const ScaleRow& row = *cast.ledger;
  if (step == nullptr || std::isfinite(row.calibrated_absmax) || row.calibrated_step != cast.step) return {};
  if (step->spans.size() == 1 && step->tokens() == step->rows) return {};
  const auto set = std::find_if(step->spans.begin(), step->spans.end(),
                                [&](const Span& span) { return span.request == row.calibrated_request; });
  return fmt::format(", set for all rows of the step by {}",
                     set == step->spans.end() ? std::string("its padding rows") : request_text(*set));
}

/// Scales of a recording, which are numbers in its ledger: told once, at the first.
void look_at_ledger(Survey& survey, Findings& out, std::int64_t& looked_at) {
  std::optional<Finding> first;
  std::int64_t entries = 0;
  for (std::size_t i = 0; i < survey.casts.size(); ++i) {
    const Cast& cast = survey.casts[i];
    if (cast.ledger == nullptr || cast.scale != 0) continue;
    ++looked_at;
    const std::string_view complaint = complaint_of(survey, cast);
    if (complaint.empty()) continue;
    ++entries;
    if (!first) {
      first = finding_at(survey, *survey.run().tensor(cast.codes));
      first->rank = Rank::recomputed;
      first->fault.certainty = Certainty::proved;
      first->fault.evidence = {{"scale", cast.ledger->scale}, {"target", cast.target}};
      first->fault.summary = fmt::format("the {} scale of layer {} is {}{}", cast.target, cast.layer.value_or(-1),
                                         complaint, whose_scale(survey, cast));
      first->fault.fix = "check scales when they are loaded or computed; fall back to a scale from the values";
    }
    first->fault.ops.push_back(cast.op);
    first->explains.push_back({Symptom::Kind::cast, i});
    for (std::size_t b = 0; b < survey.births.size(); ++b) {
      const Op& born = survey.op(survey.births[b]);
      const bool read_back = born.kind == OpKind::kv_read && born.step == cast.step && born.layer == cast.layer;
      if (survey.births[b].op != cast.op && !read_back) continue;
      first->explains.push_back({Symptom::Kind::birth, b});
      first->fault.breaks = true;
    }
  }
  if (!first) return;
  first->fault.evidence.push_back({"entries", entries});
  out.found.push_back(std::move(*first));
}

/// Padding, packing or cast: what made the scale of a block NaN.
std::string_view fix_of_block(const Op& quantise, std::int64_t channel) {
  const auto* how = quantise.get<BlockAttributes>();
  if (how != nullptr && how->blocks && channel >= *how->blocks)
    return "zero the table of scales when it is allocated, or read no more scales than there are blocks";
  if (how != nullptr && how->packing == "unmasked")
    return "round scales up to powers of two before they are packed, or mask their mantissas";
  return "let the cast of a scale saturate, and give the tensor a scale that its largest value allows";
}

/// Scales of blocks, which are an output of the op that casts.
void look_at_blocks(Survey& survey, Findings& out, std::int64_t& looked_at) {
  looked_at += static_cast<std::int64_t>(survey.ops(OpKind::block_quantise).size());
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const Birth& birth = survey.births[i];
    const Op& op = survey.op(birth);
    if (op.kind != OpKind::block_quantise || birth.rows.empty()) continue;
    const Tensor& scales = *survey.run().tensor(birth.tensor);
    const auto values = survey.run().row_values(scales, birth.rows.front());
    if (!values) continue;
    const auto bad = std::find_if(values->begin(), values->end(), [](float x) { return !std::isfinite(x); });
    const std::int64_t channel = bad - values->begin();
    if (bad == values->end()) continue;
    Finding finding = finding_at(survey, i);
    finding.rank = Rank::recomputed;
    finding.fault.certainty = Certainty::proved;
    finding.fault.where.channels = Range{channel, channel};
    const WhyPath path = walk(survey.facts, {scales.id, birth.rows.front(), channel});
    finding.fault.summary = "the scale of a block is NaN";
    if (!path.hops.empty()) finding.fault.summary += ": " + path.hops.front().text;
    finding.fault.fix = fix_of_block(op, channel);
    out.found.push_back(std::move(finding));
  }
}

/// The scale of an element that a store under a scheme made bad, and what is wrong with it.
struct SchemeScale {
  const Op* store = nullptr;
  const Tensor* scales = nullptr;
  std::int64_t row = 0;
  std::int64_t channel = 0;
  double value = 0;
  std::string letter;
};

/// Of a row of codes, or of one that was read of them.
std::optional<SchemeScale> bad_scale_of(Survey& survey, const Tensor& codes, std::int64_t row) {
  RunView& run = survey.run();
  const Op* store = run.maker(codes);
  if (store == nullptr || store->kind != OpKind::kv_store) return std::nullopt;
  const std::string letter = codes.role.substr(0, 1);
  const Tensor* scales = run.output(*store, letter + "_scales");
  const Tensor* made = run.output(*store, letter + "_codes");
  if (scales == nullptr || made == nullptr) return std::nullopt;
  const auto grid = ScaleGrid::of(run, *scales, *made);
  for (std::int64_t channel = 0; grid && channel < made->channels; ++channel) {
    const double value = std::abs(grid->at(row, channel));  // q4_0's have signs
    if (!scale_complaint(value).empty()) return SchemeScale{store, scales, row, channel, value, letter};
  }
  return std::nullopt;
}

std::optional<SchemeScale> bad_scale_behind(Survey& survey, const Birth& birth) {
  const Op& op = survey.op(birth);
  const Tensor* tensor = survey.run().tensor(birth.tensor);
  if (tensor == nullptr || birth.rows.empty()) return std::nullopt;
  const std::int64_t row = birth.rows.front();
  if (op.kind == OpKind::kv_store) return bad_scale_of(survey, *tensor, row);
  if (op.kind != OpKind::kv_read) return std::nullopt;
  const Step* step = survey.run().step(birth.step);
  for (const Span& span : step != nullptr ? std::span<const Span>(step->spans) : std::span<const Span>()) {
    const KeyRow key = survey.facts.cache.key_row(*tensor, *step, span, row, op.layer);
    if (!key.own || key.writer == nullptr || !key.slot) continue;
    const auto stored = survey.facts.cache.stored_row(*key.writer, *key.slot, op.layer, tensor->role.substr(0, 1));
    if (!stored) continue;
    if (auto scale = bad_scale_of(survey, *stored->codes, stored->row)) return scale;
  }
  return std::nullopt;
}

/// Scales that a scheme chose from the values themselves: of a constant row (max - min) / levels is 0, and 0 / 0 or
/// 0 x Inf follows. Those that follow from a value that is NaN or Inf are no fault of theirs.
void look_at_schemes(Survey& survey, Findings& out, std::int64_t& looked_at) {
  std::optional<Finding> first;
  std::int64_t stores = 0;
  for (const Cast& cast : survey.casts) {
    const Op* op = survey.run().op(cast.op);
    if (op != nullptr && survey.run().output(*op, cast.target + "_scales") != nullptr) ++looked_at;
  }
  for (std::size_t i = 0; i < survey.births.size(); ++i) {
    const auto scale = bad_scale_behind(survey, survey.births[i]);
    if (!scale) continue;
    const Tensor* source = survey.run().input(*scale->store, scale->letter);
    const auto from =
        source != nullptr ? survey.values().rows(*source, std::min(scale->row, source->tokens - 1), 1) : std::nullopt;
    if (from && std::any_of(from->value.begin(), from->value.end(), [](float x) { return !std::isfinite(x); }))
      continue;
    ++stores;
    if (!first) {
      first = finding_at(survey, *scale->scales, {scale->row});
      first->rank = Rank::recomputed;
      first->fault.certainty = Certainty::proved;
      first->fault.breaks = true;
      first->fault.evidence = {{"scale", scale->value}, {"target", scale->letter}};
      first->fault.summary = fmt::format(
          "the {} scale of a group of channels of layer {} is {}: what it was computed from is all alike, and nothing "
          "keeps the scale above zero",
          scale->letter, scale->store->layer.value_or(-1), scale_complaint(scale->value));
      first->fault.fix = "give scales a smallest value (smallest=1e-6 of a KvScheme), as vLLM's kernels do";
    }
    first->fault.ops.push_back(scale->store->id);
    first->explains.push_back({Symptom::Kind::birth, i});
  }
  if (!first) return;
  first->fault.evidence.push_back({"births", stores});
  out.found.push_back(std::move(*first));
}

}  // namespace

/// A scale that is zero, negative, infinite, NaN or a sentinel, and that something was scaled by.
Findings detect_scale_invalid(Survey& survey) {
  Findings out;
  std::set<TensorId> looked_at;
  std::set<TensorId> told;
  RunView& run = survey.run();
  for (const Step& step : run.steps()) {
    for (const Op& op : run.content(step.id).ops) {
      if (op.kind == OpKind::parameter) continue;
      for (const Input& input : op.inputs) {
        const Tensor* scale = is_scale(input.role) ? run.tensor(input.tensor) : nullptr;
        if (scale == nullptr || told.contains(scale->id)) continue;
        looked_at.insert(scale->id);
        const Use use = use_of(run, op, input.role);
        const bool second = input.role == "weight_scale_2";
        std::optional<Invalid> invalid;
        if (use.codes != nullptr && use.codes->known && !second) {
          const RowScale grid = row_scale(survey.values(), op, input.role, *use.codes);
          if (grid.grid) invalid = invalid_of(survey, use, grid);
        } else if (scale->known && scale->count() == 1) {
          const auto value = run.values(*scale);
          if (value && !scale_complaint(double{value->front()}).empty())
            invalid = Invalid{double{value->front()}, -1, -1, 1};
        } else if (scale->known && use.codes == nullptr) {
          invalid = invalid_at_birth(survey, op, *scale);
        }
        if (!invalid) continue;
        told.insert(scale->id);
        Finding finding = finding_of(survey, op, *scale, input.role, *invalid);
        explain(survey, finding, scale->id);
        out.found.push_back(std::move(finding));
      }
    }
  }
  merge_alike(out.found, true);
  auto scales = static_cast<std::int64_t>(looked_at.size());
  look_at_ledger(survey, out, scales);
  look_at_blocks(survey, out, scales);
  look_at_schemes(survey, out, scales);
  if (scales == 0) {
    out.not_in_dump("no scale was dumped");
  } else {
    out.excluded(
        fmt::format("{} hold finite numbers above zero wherever they scale something", counted(scales, "scale")));
  }
  return out;
}

}  // namespace nanscope
