#include "gui/prepare/foreign_scales.h"

#include <cmath>

namespace nanscope::gui {

ForeignScales::ForeignScales(RunView& run) {
  for (const ScaleRow& row : run.scales()) {
    if (row.calibrated_step != row.step) found_.emplace(std::pair(row.op, row.target), Entry{row.absmax, row.headroom});
  }
}

const ForeignScales::Entry* ForeignScales::find(OpId op, std::string_view role) const {
  const auto at = found_.find(std::pair(op, std::string(role.substr(0, role.find('_')))));
  return at == found_.end() ? nullptr : &at->second;
}

double ForeignScales::headroom(OpId op, std::string_view role, Format of, float absmax) const {
  const FormatInfo& format = info(of);
  if (format.storage_bytes() < 2 && find(op, role) == nullptr) return 0;
  return absmax > 0 ? static_cast<double>(format.max_finite) / static_cast<double>(absmax) : 0;
}

ForeignScales::Reach ForeignScales::reach(OpId op, std::string_view role, Format format, float absmax) const {
  if (format == Format::i32) return {};  // ids and indices
  if (info(format).storage_bytes() >= 2) return {static_cast<double>(absmax), headroom(op, role, format, absmax)};
  const Entry* entry = find(op, role);
  if (entry == nullptr) return {};
  if (std::isfinite(entry->headroom) && entry->headroom > 0) return {entry->absmax, entry->headroom};
  return {0, headroom(op, role, format, absmax)};
}

}  // namespace nanscope::gui
