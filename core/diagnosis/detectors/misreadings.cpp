#include "core/diagnosis/detectors/misreadings.h"

#include <algorithm>

namespace nanscope {

Misreadings misreadings(Facts& facts, bool (*kind)(const KvReading&)) {
  Misreadings found;
  for (const KvReading& reading : facts.readings()) {
    ++found.looked_at;
    found.rows += reading.rows;
    found.rows_as_stated += reading.rows_as_stated;
    if (!reading.wrong() || !kind(reading)) continue;
    found.wrong.push_back(&reading);
    found.rows_wrong += reading.rows;
    found.rows_explained += reading.rows_explained;
    found.rows_wrong_as_stated += reading.rows_as_stated;
  }
  return found;
}

FoundFault misreading_fault(Facts& facts, const Misreadings& found) {
  FoundFault fault;
  for (const KvReading* reading : found.wrong) {
    if (fault.ops.empty() || fault.ops.back() != reading->op.id) fault.ops.push_back(reading->op.id);
  }
  fault.fault.where = facts.where(found.wrong.front()->read);
  fault.fault.breaks = std::any_of(fault.ops.begin(), fault.ops.end(), [&](std::int64_t op) {
    const SickOp* sick = facts.sick(op);
    return sick != nullptr && sick->spoilt && sick->matters;
  });
  fault.fault.evidence = {{"reads", static_cast<std::int64_t>(found.wrong.size())},
                          {"rows", found.rows_wrong},
                          {"rows reproduced", found.rows_explained},
                          {"rows reproduced as written", found.rows_wrong_as_stated}};
  return fault;
}

}  // namespace nanscope
