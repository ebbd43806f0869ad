#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/diagnosis/diagnosis.h"

namespace nanscope {

/// What makes two faults the same from one run to the next: the class, and where in the model it is. Requests, steps,
/// ranks, tokens and the folders of a dump are of one run, and so are evidence and summary.
struct KnownFault {
  std::string fault_class;
  std::optional<std::int64_t> layer;
  std::string op;
  std::string tensor;                                   ///< its name behind the last '/' or ':'
  auto operator<=>(const KnownFault&) const = default;  // NOLINT(modernize-use-nullptr)
};

KnownFault known_form(const Fault& fault);
/// "f16-overflow in model.layers.3.mlp.output".
std::string to_string(const KnownFault& fault);

/// Faults that are known and accepted: those of diagnoses that were written as JSON earlier.
class Baseline {
 public:
  /// Reads a diagnosis (schema "nanscope.diagnosis/3", or 2), or a list of them ("nanscope.diagnoses/1"), of which
  /// targets that could not be read hold no faults. Errors, in one line: no JSON, another schema, a fault without class
  /// or tensor.
  static Result<Baseline> parse(std::string_view json);

  bool knows(const Fault& fault) const { return known_.contains(known_form(fault)); }
  /// Those of which none of the faults is one.
  std::vector<KnownFault> gone(const std::vector<const Diagnosis*>& diagnoses) const;

 private:
  std::set<KnownFault> known_;
};

}  // namespace nanscope
