#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/recompute/scaled.h"

namespace nanscope {
namespace {

using BadRows = std::vector<std::uint8_t>;  // one a row; bits would be slow

/// Ops that cannot lose a NaN of their row: whatever they do with a number, NaN stays NaN.
bool keeps_nan(const Op& op) {
  switch (op.kind) {
    case OpKind::layer_norm:
    case OpKind::gemm:
    case OpKind::rope:
    case OpKind::activation:
    case OpKind::residual_add:
    case OpKind::gated_add:
    case OpKind::scale:
    case OpKind::softcap:
    case OpKind::copy:
    case OpKind::quantise:
    case OpKind::dequantise:
    case OpKind::token_softmax:
    case OpKind::softmax:
    case OpKind::combine_partials:
    case OpKind::route:
    case OpKind::all_reduce:
      return true;
    default:
      return false;
  }
}

bool carries(std::string_view role) {
  return role != "weight" && role != "bias" && role != "mask" && role != "positions" && role != "cos" &&
         role != "sin" && role != "other_cos" && role != "other_sin" && role.find("scale") == std::string_view::npos &&
         role != "amax_history" && role != "temperature";
}

/// Rows of NaN of one step, through what was not dumped.
class NanRows {
 public:
  NanRows(Survey& survey, StepId step) : survey_(survey), run_(survey.run()), content_(run_.content(step)) {}

  struct Washed {
    const Op* op = nullptr;
    const Tensor* out = nullptr;
    const Tensor* in = nullptr;
    std::vector<std::int64_t> rows;
  };

  std::vector<Washed> washed() {
    std::vector<Washed> found;
    for (const Op& op : content_.ops) {
      for (const TensorId id : op.outputs) {
        const Tensor* out = run_.tensor(id);
        if (out == nullptr) continue;
        Washed one{&op, out, nullptr, {}};
        look_at(op, *out, one);
        if (!one.rows.empty()) found.push_back(std::move(one));
      }
    }
    return found;
  }

 private:
  void look_at(const Op& op, const Tensor& out, Washed& one) {
    if (out.known) {
      if (out.health.nan > 0) nan_[out.id] = rows_of(out);
    }
    // What is read back of a cache that was not dumped is what was stored there.
    const Tensor* cache = op.kind == OpKind::kv_read ? run_.input(op, out.role.substr(0, 1) + "_cache") : nullptr;
    const bool unseen = op.kind == OpKind::kv_read && (cache == nullptr || !cache->known);
    if ((op.kind == OpKind::kv_store || unseen) && out.known) stored(op, out, one);
    // Which experts are chosen are integers.
    if (!keeps_nan(op) || out.tokens <= 0 || out.stated || out.format == Format::i32) return;
    BadRows inherited;
    std::map<std::size_t, const Tensor*> from_input;  // the first input of NaN, by row
    for (const Input& input : op.inputs) {
      const Tensor* in = run_.tensor(input.tensor);
      const auto bad = in != nullptr ? nan_.find(in->id) : nan_.end();
      if (bad == nan_.end() || !carries(input.role) || by_codes(op, input)) continue;
      inherited.resize(static_cast<std::size_t>(out.tokens));
      for (std::int64_t row = 0; row < out.tokens; ++row) {
        const auto from = run_.same_row(out, row, *in);
        if (!from || *from >= static_cast<std::int64_t>(bad->second.size()) ||
            bad->second[static_cast<std::size_t>(*from)] == 0)
          continue;
        inherited[static_cast<std::size_t>(row)] = 1;
        from_input.emplace(static_cast<std::size_t>(row), in);
      }
    }
    if (!out.known) {
      if (!from_input.empty()) nan_[out.id] = inherited;
      return;
    }
    const std::vector<Health>& rows = run_.rows(out);
    for (const auto& [at, in] : from_input) {
      const auto row = static_cast<std::int64_t>(at);
      if (at >= rows.size() || rows[at].nan > 0 || !survey_.facts.live(out, row)) continue;
      if (bad_unseen(survey_.facts, *in, row)) continue;
      if (one.in == nullptr) one.in = in;
      one.rows.push_back(row);
    }
  }

  /// What an op does is done to the codes where they were dumped: a NaN that they do not hold vanished in the cast.
  bool by_codes(const Op& op, const Input& input) {
    const Tensor* codes = input.role == "x" ? run_.input(op, "codes") : nullptr;
    return codes != nullptr && codes->known;
  }

  /// A cast into the cache.
  void stored(const Op& op, const Tensor& out, Washed& one) {
    const Tensor* in = run_.input(op, out.role.substr(0, 1));
    if (in == nullptr || out.stated) return;
    const auto bad = nan_.find(in->id);
    if (bad == nan_.end()) return;
    const bool pool = out.axis == Axis::slots || out.axis == Axis::keys;
    const auto slots = pool ? own_slots(survey_.values(), out) : std::unordered_map<std::int64_t, std::int64_t>{};
    const std::vector<Health>& rows = run_.rows(out);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const auto slot = slots.find(row);
      if (pool && slot == slots.end()) continue;
      const std::int64_t from = pool ? slot->second : run_.same_row(out, row, *in).value_or(-1);
      if (from < 0 || from >= static_cast<std::int64_t>(bad->second.size())) continue;
      if (bad->second[static_cast<std::size_t>(from)] == 0 || rows[i].bad() > 0) continue;
      one.in = in;
      one.rows.push_back(row);
    }
    std::sort(one.rows.begin(), one.rows.end());
  }

  BadRows rows_of(const Tensor& tensor) {
    BadRows bad;
    for (const Health& row : run_.rows(tensor)) bad.push_back(row.nan > 0 ? 1 : 0);
    return bad;
  }

  Survey& survey_;
  RunView& run_;
  const StepContent& content_;
  std::map<TensorId, BadRows> nan_;
};

/// The last op of the step that puts out a NaN in a row of a request; 0: none does.
OpId last_with_nan(Survey& survey, StepId step) {
  RunView& run = survey.run();
  const std::vector<Op>& ops = run.content(step).ops;
  const auto holds_nan = [&](const Op& op) {
    return std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      const Tensor* out = run.tensor(id);
      if (out == nullptr || !out->known || out->health.nan == 0) return false;
      const std::vector<std::int64_t> rows = run.bad_rows(*out);
      return std::any_of(rows.begin(), rows.end(), [&](std::int64_t row) { return survey.facts.live(*out, row); });
    });
  };
  const auto last = std::find_if(ops.rbegin(), ops.rend(), holds_nan);
  return last == ops.rend() ? 0 : last->id;
}

}  // namespace

/// A row that was NaN and is finite behind an op that cannot have made it so: a cast, a clamp or a maximum hid it.
Findings detect_nan_laundered(Survey& survey) {
  Findings out;
  for (const StepId step : survey.birth_steps) {
    const std::vector<NanRows::Washed> all = NanRows(survey, step).washed();
    const OpId last_nan = all.empty() ? 0 : last_with_nan(survey, step);
    for (const NanRows::Washed& washed : all) {
      Finding finding = finding_at(survey, *washed.out, washed.rows);
      finding.rank = Rank::deviation;
      finding.fault.certainty = Certainty::proved;
      finding.fault.ops = {washed.op->id};
      finding.stays = true;  // that it was hidden is a fact of its own, whatever made the NaN
      finding.fault.evidence = {{"rows", static_cast<std::int64_t>(washed.rows.size())},
                                {"in", survey.facts.name_of(*washed.in)},
                                {"absmax", double{washed.out->health.absmax}}};
      // A birth that only this explains: whatever made the NaN, that it vanished is the harm. Where NaN goes on past
      // the op, by the residual stream for example, the birth is a fault of its own.
      const bool vanished = last_nan <= washed.op->id;
      for (std::size_t i = 0; i < survey.births.size(); ++i) {
        if (survey.births[i].step == step && survey.births[i].op <= washed.op->id) {
          if (vanished) finding.explains.push_back({Symptom::Kind::birth, i});
          if (survey.births[i].tensor == washed.in->id)
            finding.fault.evidence.push_back({"born_in", survey.facts.name_of(survey.tensor(survey.births[i]))});
        }
      }
      finding.fault.summary = fmt::format(
          "{} of {} {} NaN and finite in {}: no {} makes a number of NaN, so a cast, a clamp or a maximum did",
          counted(washed.rows.size(), "row"), survey.facts.name_of(*washed.in), washed.rows.size() == 1 ? "is" : "are",
          finding.fault.tensor, name(washed.op->kind));
      finding.fault.fix = "check for NaN before the cast or clamp, or use one that keeps NaN";
      for (std::size_t i = 0; i < survey.deviations.size(); ++i) {
        if (survey.deviations[i].tensor != washed.out->id) continue;
        finding.explains.push_back({Symptom::Kind::deviation, i});
        // A clamp shows in what it cut off beside the NaN that it hid.
        const bool cut = std::abs(survey.deviations[i].result.worst.actual) == double{washed.out->health.absmax};
        if (cut) finding.rank = Rank::resemblance;
      }
      out.found.push_back(std::move(finding));
    }
  }
  merge_alike(out.found);
  exclude(out, survey, "no row that was NaN is finite behind an op that keeps NaN");
  return out;
}

}  // namespace nanscope
