#pragma once
#include <vector>

#include "core/diagnosis/diagnosis.h"
#include "core/diagnosis/run_data.h"
#include "core/diagnosis/tensor_source.h"
#include "core/dump/dump.h"

namespace nanscope {

/// What RunInfo::device is in a recording that was attached from a dump.
inline constexpr const char* kDumpDevice = "dump";

/// A dump that was attached as a recording, as the dump that it was: names and shapes are in the ops' attributes.
/// `run` and `tensors` must outlive it.
class RecordedDump final : public DumpElements {
 public:
  /// Errors: rows cannot be read, attributes that an attach does not write.
  static Result<RecordedDump> of(RunData& run, TensorSource& tensors, std::string target);

  const Dump& dump() const { return dump_; }
  /// The recorded tensor of a dumped one.
  const TensorRow& row(std::size_t index) const { return rows_[dump_.tensors[index].source]; }

  Result<std::vector<float>> values(const DumpTensor& tensor, std::int64_t first, std::int64_t count) override;
  Result<std::vector<std::uint32_t>> codes(const DumpTensor& tensor, std::int64_t first, std::int64_t count) override;
  Result<std::vector<Health>> row_health(const DumpTensor& tensor) override;

 private:
  explicit RecordedDump(TensorSource& tensors) : tensors_(tensors) {}
  Status add(RunData& run, const OpRow& op);

  CachedTensors tensors_;
  Dump dump_;
  std::vector<TensorRow> rows_;
  std::vector<bool> heads_first_;  ///< in the dump, one a row
};

/// diagnose() of a run, diagnose_dump() of an attached dump, whose faults are then placed in the recording.
Result<Diagnosis> diagnose_recorded(RunData& run, TensorSource& tensors, std::string target = {});

}  // namespace nanscope
