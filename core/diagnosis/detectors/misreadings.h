#pragma once
#include <cstdint>
#include <vector>

#include "core/diagnosis/detectors/detector.h"

/// Reads of the KV cache that gave attention something else than code x scale.
namespace nanscope {

struct Misreadings {
  std::vector<const KvReading*> wrong;  ///< of the kind asked for, in logical order; Facts keeps them
  std::int64_t rows_wrong = 0;          ///< rows of those
  std::int64_t rows_explained = 0;
  std::int64_t rows_wrong_as_stated = 0;
  std::int64_t looked_at = 0;  ///< reads, right or wrong
  std::int64_t rows = 0;
  std::int64_t rows_as_stated = 0;
};

Misreadings misreadings(Facts& facts, bool (*kind)(const KvReading&));

/// At the first of them, with the counts as evidence. It breaks when a NaN or Inf was born in one.
FoundFault misreading_fault(Facts& facts, const Misreadings& found);

}  // namespace nanscope
