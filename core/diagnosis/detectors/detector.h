#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/diagnosis/cascade.h"
#include "core/diagnosis/diagnosis.h"
#include "core/diagnosis/facts.h"
#include "core/diagnosis/why.h"

/// A detector reads recorded numbers through Facts and says what it found, or the figure that says
/// that there is nothing. docs/adding-a-detector.md shows how to add one.
namespace nanscope {

/// A fault and what ties it to others: the ops that it is about, and an element to walk back from.
struct FoundFault {
  Fault fault;
  std::vector<std::int64_t> ops;  ///< ascending, not empty
  std::optional<Element> element;
};

struct FaultReport {
  std::vector<FoundFault> faults;
  std::string figure;  ///< the number that supports or rejects the theory
};

struct FaultDetector {
  std::string_view fault_class;
  std::string_view looks_for;
  FaultReport (*detect)(Facts& facts);
};

struct LinkDetector {
  int number;
  std::string_view id;
  std::string_view title;
  Link (*detect)(Facts& facts);  ///< number, id and title are filled in by the caller
};

std::span<const FaultDetector> fault_detectors();
std::span<const LinkDetector> link_detectors();

}  // namespace nanscope
