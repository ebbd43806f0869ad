#pragma once
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/diagnosis.h"
#include "core/dump/facts.h"

/// A detector of a dump reads numbers through DumpFacts and says which fault they prove, or the figure that
/// says that there is none. docs/adding-a-dump-detector.md shows how to add one.
namespace nanscope {

/// A fault and the tensors that it is about.
struct DumpFinding {
  Fault fault;                        ///< class and tensor are filled in by the caller
  TensorIndex carrier = 0;            ///< what carries the cause: the scale, the codes, the weight, the norm's input
  std::vector<TensorIndex> symptoms;  ///< tensors that show it and are not as intended, ascending, not empty
};

struct DumpReport {
  std::vector<DumpFinding> findings;  ///< in order of execution
  std::string figure;                 ///< the number that supports or rejects the theory
};

/// What detectors before this one have explained. A general theory does not name again what a specific one proved.
struct Explained {
  std::set<TensorIndex> tensors;  ///< symptoms and carriers of findings so far

  bool has(TensorIndex index) const { return tensors.contains(index); }
};

struct DumpDetector {
  std::string_view fault_class;
  std::string_view looks_for;
  DumpReport (*detect)(DumpFacts& facts, const Explained& explained);
};

/// From the most specific to the most general.
std::span<const DumpDetector> all_dump_detectors();

/// A finding at `symptom`, with its place.
DumpFinding finding_at(DumpFacts& facts, TensorIndex carrier, std::vector<TensorIndex> symptoms,
                       const std::vector<std::int64_t>& rows = {});

}  // namespace nanscope
