#include <fmt/format.h>

#include <optional>

#include "core/counted.h"
#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

/// How many codes are the largest finite one of either sign; nothing without elements.
std::optional<std::int64_t> count_largest(Facts& facts, const TensorRow& codes) {
  const std::shared_ptr<const TensorData> data = facts.elements(codes);
  if (!data) return std::nullopt;
  const FormatInfo& format = info(codes.format);
  const std::uint32_t sign = format.has_sign ? 1U << (format.bits - 1) : 0U;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < data->count(); ++i) {
    if ((data->code(i) & ~sign) == format.max_finite_code) ++count;
  }
  return count;
}

}  // namespace

/// Link 4: values beyond the largest finite code were clamped to it.
Link detect_values_clipped(Facts& facts) {
  Link link;
  std::optional<TensorRow> first;
  std::int64_t clipped = 0;
  std::int64_t stored = 0;
  std::int64_t tensors = 0;
  for (const ScaleRow& scale : facts.run.scales()) {
    if (!(scale.headroom < 1)) continue;
    const std::optional<TensorRow> codes = facts.run.output(scale.op, scale.target + "_codes");
    if (!codes) continue;
    ++tensors;
    stored += static_cast<std::int64_t>(codes->health.count);
    clipped += static_cast<std::int64_t>(codes->health.clipped);
    if (!first && codes->health.clipped > 0 && codes->health.saturated > 0) first = *codes;
  }
  if (!first) {
    link.summary = tensors == 0
                       ? "0 stored tensors had values beyond their scale"
                       : fmt::format("{} of {} values beyond their scale were clamped to a finite code", 0, stored);
    return link;
  }
  link.state = LinkState::found;
  std::vector<std::int64_t> rows;
  const std::vector<Health>& health = facts.rows(*first);
  for (std::size_t i = 0; i < health.size(); ++i) {
    if (health[i].clipped > 0) rows.push_back(static_cast<std::int64_t>(i));
  }
  link.where = facts.where(*first, rows);
  const FormatInfo& format = info(first->format);
  const std::string code = code_text(first->format, format.max_finite_code);
  const std::optional<std::int64_t> largest = count_largest(facts, *first);
  link.evidence = {{"clipped", static_cast<std::int64_t>(first->health.clipped)},
                   {"values", static_cast<std::int64_t>(first->health.count)},
                   {"tokens with clipped values", static_cast<std::int64_t>(rows.size())},
                   {"raw code", code},
                   {"largest finite", double{format.max_finite}},
                   {"clipped in all tensors", clipped},
                   {"tensors", tensors}};
  if (largest) link.evidence.push_back({"codes of that magnitude", *largest});
  link.summary = fmt::format("{} of {} values of {} clipped at {:g}, raw code {}; {} in {}", first->health.clipped,
                             first->health.count, tensor_text(link.where), format.max_finite, code, clipped,
                             counted(tensors, "tensor"));
  return link;
}

}  // namespace nanscope
