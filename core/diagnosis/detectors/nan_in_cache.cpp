#include <fmt/format.h>

#include <map>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

/// The NaN code that occurs most; the format's canonical one without elements.
std::string nan_code(Facts& facts, const TensorRow& codes, bool& seen) {
  const std::shared_ptr<const TensorData> data = facts.elements(codes);
  seen = data != nullptr;
  std::map<std::uint32_t, std::int64_t> counts;
  for (std::int64_t i = 0; data && i < data->count(); ++i) {
    if (data->value(i) != data->value(i)) ++counts[data->code(i)];
  }
  std::uint32_t code = info(codes.format).canonical_nan_code;
  std::int64_t most = 0;
  for (const auto& [candidate, count] : counts) {
    if (count <= most) continue;
    most = count;
    code = candidate;
  }
  return code_text(codes.format, code);
}

}  // namespace

/// Link 12: NaN is stored in the KV cache, where it outlives the request.
Link detect_nan_in_cache(Facts& facts) {
  Link link;
  const TensorRow* first = nullptr;
  std::int64_t nans = 0;
  std::int64_t tensors = 0;
  for (const SickOp& sick : facts.sick_ops()) {
    if (sick.op.kind != "kv_store") continue;
    for (const TensorRow& codes : sick.outputs) {
      if (codes.health.nan == 0) continue;
      if (first == nullptr) first = &codes;
      nans += static_cast<std::int64_t>(codes.health.nan);
      ++tensors;
    }
  }
  if (first == nullptr) {
    link.summary = "0 NaN codes were stored in the KV cache";
    return link;
  }
  link.state = LinkState::found;
  const std::vector<std::int64_t> rows = facts.bad_rows(*first);
  link.where = facts.where(*first, rows);
  bool seen = false;
  const std::string code = nan_code(facts, *first, seen);
  link.evidence = {{"NaN codes", static_cast<std::int64_t>(first->health.nan)},
                   {"tokens", static_cast<std::int64_t>(rows.size())},
                   {"raw code", code},
                   {"format", std::string(name(first->format))},
                   {"NaN codes in all tensors", nans},
                   {"tensors", tensors}};
  link.summary = fmt::format("{} of {} in {}, raw code {}{}; {} in {}", counted(first->health.nan, "NaN code"),
                             counted(rows.size(), "token"), tensor_text(link.where), code,
                             seen ? "" : " (the format's, elements not available)", nans, counted(tensors, "tensor"));
  return link;
}

}  // namespace nanscope
