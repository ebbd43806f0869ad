#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnosis/cascade.h"
#include "core/diagnosis/evidence.h"
#include "core/diagnosis/run_data.h"
#include "core/diagnosis/tensor_source.h"
#include "core/result.h"

namespace nanscope {

/// One fault: a class of detectors/detectors.def, where it is, and the numbers that prove it.
struct Fault {
  std::string fault_class;  ///< "kv-scale-locked", "variance-collapse" ...
  Where where;
  std::string tensor;  ///< the tensor's name in the target: its place
  std::vector<Evidence> evidence;
  std::string summary;                 ///< one sentence
  std::string fix;                     ///< one sentence
  bool breaks = false;                 ///< NaN or Inf is born here or enters a request here
  std::optional<std::size_t> because;  ///< index in Diagnosis::faults of the fault that led to it
};

/// A theory that was put to a numeric test.
struct Hypothesis {
  std::string fault_class;
  bool supported = false;
  std::string figure;  ///< the number that supports or rejects it
};

/// What is no fault yet and tends to become one: a number that was healthy, and how far it is from where it is not.
struct Warning {
  std::string kind;  ///< "headroom-falling", "outlier-owns-scale" ...
  Where where;
  std::string tensor;
  std::vector<Evidence> evidence;
  std::string summary;    ///< one sentence
  std::string advice;     ///< one sentence
  std::int64_t more = 0;  ///< tensors that show the same, less
};

struct Spread {
  std::string first_bad_tensor;  ///< empty when nothing is bad
  std::int64_t bad_tokens = 0;   ///< tokens with a NaN or Inf in a tensor of theirs
  std::int64_t tokens = 0;       ///< tokens processed, over all steps
  bool at_least = false;         ///< more may be bad: of some tensors only statistics are known
};

struct Completeness {
  std::int64_t read = 0;      ///< ops
  std::int64_t expected = 0;  ///< 0: unknown
};

struct Diagnosis {
  std::string target;
  std::vector<Fault> faults;              ///< in logical order; `because` points backwards
  std::optional<std::size_t> root_cause;  ///< index in faults
  std::vector<Hypothesis> hypotheses;     ///< all classes that have a detector
  std::vector<Warning> warnings;          ///< of dumps; a kind at most once, where it is worst
  Spread spread;
  Completeness completeness;

  bool clean() const { return faults.empty(); }
};

/// Applies every registered detector to the recorded numbers. `target` names the recording in the
/// report. Errors: the rows cannot be read.
Result<Diagnosis> diagnose(RunData& run, TensorSource& tensors, std::string target = {});

/// Schema "nanscope.diagnosis/1". NaN and infinities of the evidence are the strings "nan", "inf", "-inf".
nlohmann::ordered_json to_json(const Diagnosis& diagnosis);
/// [{"class", "supported", "figure"}], not part of the schema above.
nlohmann::ordered_json to_json(const std::vector<Hypothesis>& hypotheses);

}  // namespace nanscope
