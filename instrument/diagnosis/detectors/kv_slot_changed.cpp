#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/region.h"

namespace nanscope {
namespace {

/// A cache of one layer as a step left it.
struct Pool {
  const Step* step = nullptr;
  const Op* op = nullptr;
  const Tensor* tensor = nullptr;
};

/// Caches in order of execution, by run, rank, layer and role. Codes of 8 bits and fewer are left out: a new scale
/// changes them by right.
std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::string>, std::vector<Pool>> pools_of(Survey& survey) {
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::string>, std::vector<Pool>> found;
  for (const Step& step : survey.run().steps()) {
    for (const Op& op : survey.run().content(step.id).ops) {
      if (op.kind != OpKind::kv_store) continue;
      for (const TensorId id : op.outputs) {
        const Tensor* tensor = survey.run().tensor(id);
        const bool counts = tensor != nullptr && tensor->known && !tensor->stated &&
                            (tensor->axis == Axis::slots || tensor->axis == Axis::keys) &&
                            info(tensor->format).bits > 8;
        if (counts) found[{step.run, step.rank, op.layer.value_or(-1), tensor->role}].push_back({&step, &op, tensor});
      }
    }
  }
  return found;
}

const Span* span_of(const Step& step, std::int64_t request) {
  const auto found =
      std::find_if(step.spans.begin(), step.spans.end(), [&](const Span& span) { return span.request == request; });
  return found == step.spans.end() ? nullptr : &*found;
}

class Slots {
 public:
  explicit Slots(Survey& survey) : survey_(survey), run_(survey.run()) {}

  /// Rows of `now` that hold positions of a request from before this step, and differ from what `before` holds of them.
  /// `compared`: how many could be compared.
  std::vector<std::int64_t> changed(const Pool& before, const Pool& now, std::int64_t& compared) {
    std::vector<std::int64_t> rows;
    const std::set<std::int64_t> written = written_rows(now);
    for (const Span& span : now.step->spans) {
      const Span* then = span_of(*before.step, span.request);
      if (then == nullptr || then->index + 1 != span.index) continue;
      const std::int64_t end = std::min({then->context, span.first_token, KvCache::end_in(*now.tensor)});
      for (std::int64_t position = 0; position < end; ++position) {
        const auto a = survey_.facts.cache.row_of(*before.tensor, *before.step, *then, position);
        const auto b = survey_.facts.cache.row_of(*now.tensor, *now.step, span, position);
        if (!a || !b || written.contains(*b)) continue;
        const auto left = run_.row_values(*before.tensor, *a);
        const auto right = run_.row_values(*now.tensor, *b);
        if (!left || !right || left->size() != right->size()) continue;
        ++compared;
        if (!same_bits(*left, *right)) rows.push_back(*b);
      }
    }
    std::sort(rows.begin(), rows.end());
    return rows;
  }

 private:
  static bool same_bits(std::span<const float> a, std::span<const float> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    });
  }

  /// Slots that the step itself wrote, for whichever request.
  std::set<std::int64_t> written_rows(const Pool& now) {
    std::set<std::int64_t> written;
    for (const Span& span : now.step->spans) {
      for (std::int64_t at = 0; at < span.rows; ++at) {
        const auto row = survey_.facts.cache.row_of(*now.tensor, *now.step, span, span.first_token + at);
        if (row) written.insert(*row);
      }
    }
    return written;
  }

  Survey& survey_;
  RunView& run_;
};

}  // namespace

/// A KV cache keeps what was written: a slot whose bits change between two steps of its sequence, though no op of the
/// later step wrote it, was overwritten, moved or exchanged by what was not dumped (a transfer, an offload, another
/// kernel).
Findings detect_kv_slot_changed(Survey& survey) {
  Findings out;
  Slots slots(survey);
  std::int64_t compared = 0;
  for (const auto& [place, pools] : pools_of(survey)) {
    for (std::size_t i = 1; i < pools.size(); ++i) {
      const std::vector<std::int64_t> rows = slots.changed(pools[i - 1], pools[i], compared);
      if (rows.empty()) continue;
      Finding finding = finding_at(survey, *pools[i].tensor, rows);
      finding.rank = Rank::bits_changed;
      finding.fault.certainty = Certainty::proved;
      finding.fault.ops = {pools[i].op->id};
      finding.fault.evidence = {{"slots", static_cast<std::int64_t>(rows.size())},
                                {"rows", ranges_text(rows)},
                                {"before", survey.facts.name_of(*pools[i - 1].tensor)}};
      finding.fault.summary = fmt::format(
          "{} of {} ({}) {} not the bits that {} has of the same positions, and no op of this step wrote {}",
          counted(rows.size(), "slot"), finding.fault.tensor, ranges_text(rows), rows.size() == 1 ? "holds" : "hold",
          survey.facts.name_of(*pools[i - 1].tensor), rows.size() == 1 ? "it" : "them");
      finding.fault.fix =
          "look for what moves or overwrites blocks between the steps: a transfer, an offload, a defragmentation, a "
          "store with a wrong slot";
      out.found.push_back(std::move(finding));
      break;
    }
  }
  merge_alike(out.found);
  if (compared == 0) {
    out.not_in_dump("no KV cache of more than 8 bits was dumped in two steps of one sequence");
  } else {
    out.excluded(fmt::format("{} compared with the step before, bit for bit", counted(compared, "slot")));
  }
  return out;
}

}  // namespace nanscope
