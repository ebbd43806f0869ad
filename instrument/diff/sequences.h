#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/run/run_view.h"

namespace nanscope::align {

/// Whose row of a run it is: a place in a sequence. Negative: of no sequence, as padding is.
struct RowPlace {
  std::int64_t sequence = -1;
  std::int64_t position = -1;
  auto operator<=>(const RowPlace&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// One sequence of tokens of a run, whatever steps it was computed in.
struct Sequence {
  std::string run;
  std::int64_t request = 0;
  std::map<std::int64_t, std::int32_t> tokens;  ///< by position; of a dump without ids, none
  std::int64_t first = -1;                      ///< positions that a step computed
  std::int64_t last = -1;
  bool cached = false;  ///< a step began behind positions that no step computed
};

/// The sequences of a run, and the places of its rows. Positions that begin anew within one span, as in packed input,
/// begin another sequence. The run must outlive it.
class Sequences {
 public:
  explicit Sequences(RunView& run);

  const std::vector<Sequence>& all() const { return all_; }
  /// With spans as they were found here; null when there is none.
  const Step* step(StepId id) const;
  RowPlace place(const Tensor& tensor, std::int64_t row) const;
  /// Of a row of a step, whatever tensor has it.
  RowPlace place_in_step(StepId step, std::int64_t row) const;
  /// The span that a row of a step is in; null for padding.
  const Span* span(StepId step, std::int64_t row) const;

 private:
  struct Placed {
    Step step;
    std::vector<std::int64_t> sequences;  ///< by span
  };
  using Values = std::optional<std::vector<float>>;
  void add(const Step& step);
  void add_span(Placed& placed, const Span& span, bool anew, const Values& ids);
  bool is_other(const Sequence& sequence, const Span& span, const Values& ids, bool computed) const;
  Values column(StepId step, std::string_view op, std::int64_t rows) const;

  RunView& run_;
  std::vector<Sequence> all_;
  /// By run and request; several where a request's tokens begin anew.
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::int64_t>> known_;
  /// Of a rank, which of them it is at.
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::size_t> at_;
  std::map<StepId, Placed> steps_;
};

/// Two sequences that are one.
struct SequencePair {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t tokens = 0;                  ///< equal ones at the same positions; 0 where ids are missing
  std::optional<std::int64_t> first_apart;  ///< the first position whose tokens differ
};

/// Pairs sequences by their tokens; those without ids in their order.
std::vector<SequencePair> pair_sequences(const Sequences& a, const Sequences& b);

}  // namespace nanscope::align
