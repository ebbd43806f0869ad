#pragma once
#include <memory>
#include <vector>

#include "core/dump/dump.h"
#include "core/recording/reader.h"
#include "core/result.h"

namespace nanscope {

/// Schema 1 holds an attached dump as a list of tensors, whose names and shapes are in the ops' attributes: this is the
/// dump that it was, to be understood as any other. Later schemas hold what was understood.
class RecordedDump final : public DumpElements {
 public:
  static bool is_one(const Recording& recording);
  /// `recording` must outlive it. Errors: rows cannot be read, attributes that an attach did not write.
  static Result<std::unique_ptr<RecordedDump>> of(const Recording& recording);

  const Dump& dump() const { return dump_; }
  Result<ElementBytes> bytes(const DumpTensor& tensor) override;
  Result<std::vector<Health>> row_health(const DumpTensor& tensor) override;

 private:
  explicit RecordedDump(const Recording& recording) : recording_(recording) {}
  Status add(const OpRow& op);

  const Recording& recording_;
  Dump dump_;
  std::vector<TensorRow> rows_;    ///< DumpTensor::source is an index of them
  std::vector<bool> heads_first_;  ///< in the dump, one a row
};

}  // namespace nanscope
