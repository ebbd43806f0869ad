#pragma once
#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "core/tensor/fact_key.h"
#include "core/tensor/health.h"

namespace nanscope {

/// A file of a dump as it was when the dump was opened. The key covers its size, the time of the last write, and those
/// of the files that are read through it.
struct DumpFileState {
  std::string shown;  ///< its path below the dump
  FactKey state;
};

/// What a scan of a tensor gave.
struct TensorFact {
  std::optional<Health> health;
  std::string unread;  ///< why its bytes cannot be had, where there is no health
};

/// Facts of tensors that were computed before.
class TensorFacts {
 public:
  virtual ~TensorFacts() = default;
  /// Error: the facts are of files that are not these.
  virtual Status check_files(std::span<const DumpFileState> files) const = 0;
  /// Null: not known.
  virtual const TensorFact* find(const FactKey& tensor) const = 0;
};

}  // namespace nanscope
