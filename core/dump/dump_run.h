#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/dump/dump.h"
#include "core/dump/layout.h"
#include "core/result.h"
#include "core/run/memory_run.h"

namespace nanscope {

/// A dump as a run: names say which op made a tensor and what it was made of, shapes say whose rows its rows are, and
/// where names fail, content decides. What was not dumped stands in the graph as a tensor that is not known.
class DumpRun final : public MemoryRun {
 public:
  /// `elements` must outlive it. Once `stop` is asked for, no elements are read any more. `known`: of the language
  /// model's attention, where more is known than shapes tell.
  DumpRun(Dump dump, DumpElements& elements, std::stop_token stop = {}, Geometry known = {});

  const Dump& dump() const { return dump_; }
  /// The dumped tensor behind one of the run's; null for those that were not dumped.
  const DumpTensor* dumped(TensorId tensor) const;
  /// The run's tensor of a dumped one, by its index in Dump::tensors; 0 when it was left out.
  TensorId tensor_of(std::size_t dumped) const { return by_dumped_[dumped]; }
  /// What the dump's files leave open, then tensors that were scanned and not understood, each with its reason.
  std::vector<RunNote> notes() override;
  RecordingCounts counts() override;
  Layout layout_of(TensorId tensor) const;
  std::optional<ElementBytes> stored(const Tensor& tensor) override;

 protected:
  void change_format(TensorId tensor, Format format) override;
  std::vector<Health> read_rows(const Tensor& tensor) override;
  Fact<TensorData> read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) override;

 private:
  friend class PassBuilder;
  struct Source {
    std::size_t dumped = 0;
    Layout layout;
    std::int64_t first_channel = 0;  ///< of a part of a fused projection
  };

  void build();
  void add_request_rows();
  void find_masked_scores();
  std::vector<Health> rows_by_elements(const Tensor& tensor);

  Dump dump_;  ///< with names settled by what else is there
  DumpElements& elements_;
  std::stop_token stop_;
  Geometry known_;
  std::unordered_map<TensorId, Source> sources_;
  std::vector<TensorId> by_dumped_;
  std::vector<RunNote> not_understood_;
  bool has_ranks_ = false;
};

/// The format that holds a dumped tensor's elements in a run: its own, f32 for f64, i32 for integers and booleans.
Format run_format(const DumpTensor& tensor);

}  // namespace nanscope
