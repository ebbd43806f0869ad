#pragma once
#include <functional>
#include <optional>

#include "core/run/run.h"
#include "core/tensor/fact_key.h"

namespace nanscope {

struct Recomputed;

/// Outputs that were recomputed before. A judgement depends on the bytes of the output and of what it is made of alone;
/// see Recomputer::judged_alone().
class Judgements {
 public:
  virtual ~Judgements() = default;
  /// Names the bytes of a dumped tensor and how they are a matrix; nothing where they have no name.
  virtual std::optional<FactKey> identity(const Tensor& tensor) = 0;
  /// Null: not known. Op, step, tensor and form of what is given have no meaning.
  virtual const Recomputed* find(const FactKey& judgement) const = 0;
  virtual void found(const FactKey&, const Recomputed&) {}
};

/// Whether a result that was kept can be one of an output: rows of it are looked up by their numbers.
bool fits(const Recomputed& kept, const Tensor& out);

}  // namespace nanscope
