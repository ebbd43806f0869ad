#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "instrument/diagnosis/births.h"
#include "instrument/diagnosis/casts.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {

/// An output that is not what its inputs and weights give: where its format, its scale or its mask was misread, another
/// way of doing it explains it.
struct Deviation {
  OpId op = 0;
  StepId step = 0;
  TensorId tensor = 0;
  Recomputed result;                     ///< under the healthy form
  std::vector<std::int64_t> rows;        ///< of somebody, that are not explained
  std::vector<Recomputed> alternatives;  ///< best first, looked at on those rows
  /// The best one, when it explains them.
  const Recomputed* explanation() const;
  /// The next one that explains about as much and is of another kind.
  const Recomputed* rival() const;
};

/// A module of an unknown name and without a weight: that it computes its output of its input alone is a guess.
bool is_guessed(RunView& run, const Op& op);
/// A link between two modules that were dumped, most of whose wrong rows is another: something that was not dumped may
/// have been added on the way, as features of a picture are.
bool may_be_added_to(const Op& op, const Tensor& out, const Recomputed& result);

/// All that detectors start from, gathered once.
struct Survey {
  Facts& facts;
  Recomputer& recomputer;
  std::vector<Birth> births = {};        ///< those that matter
  std::vector<StepId> birth_steps = {};  ///< that were looked at for them
  bool births_cut = false;               ///< not all that hold NaN or Inf were
  std::vector<Cast> casts = {};
  std::vector<Deviation> deviations = {};
  std::vector<Recomputed> tables = {};  ///< that steps were given, judged by KnownModel::tables
  bool recomputing = true;              ///< ops were to be done again
  std::size_t recomputed = 0;           ///< ops
  /// Ascending: outputs of ops that come out under no known form, in no layer.
  std::vector<TensorId> not_understood = {};

  RunView& run() { return facts.run; }
  Values& values() { return recomputer.values(); }
  const Op& op(const Birth& birth) { return *run().op(birth.op); }
  const Tensor& tensor(const Birth& birth) { return *run().tensor(birth.tensor); }
  /// Ops of a kind in all steps, in order of execution.
  std::vector<const Op*> ops(OpKind kind);
};

/// Gathers births and casts, and does ops again where `recompute` is set.
Survey survey_of(Facts& facts, Recomputer& recomputer, bool recompute);

}  // namespace nanscope
