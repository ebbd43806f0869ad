#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/run/run_view.h"
#include "instrument/diagnosis/compare.h"
#include "instrument/diagnosis/evidence.h"
#include "instrument/diff/partners.h"
#include "instrument/diff/pattern.h"

namespace nanscope {

enum class DifferenceKind : std::uint8_t {
  only_in_a,
  only_in_b,
  shape,       ///< tokens, channels or format differ
  content,     ///< bits, or numbers by more than rounding, differ
  not_finite,  ///< a NaN or an Inf in one alone
};

/// What of a tensor is beyond the noise.
struct Outstanding {
  bool whole = false;      ///< most rows, where the inputs are healthy
  std::uint64_t rows = 0;  ///< that stand out
  std::uint64_t of = 0;
  std::vector<align::RowPlace> places;  ///< of these rows, by A's sequences; the first few
  std::optional<align::RowPattern> pattern;
  std::optional<std::int64_t> sequence;  ///< the only one
  std::optional<std::int64_t> rank;      ///< of B, the only one
  std::optional<Range> channels;         ///< that hold nearly all of the difference, where these are few
  std::optional<Range> heads;
  double floor = 0;    ///< median of the relative differences of all rows
  double largest = 0;  ///< of those that stand out
  double chance = 1;   ///< that chance gives such a row
};

struct Difference {
  DifferenceKind kind = DifferenceKind::content;
  Where where;  ///< ids are A's, or B's when it is only there
  std::optional<Tensor> a;
  std::optional<Tensor> b;
  std::optional<TensorComparison> elements;  ///< bit for bit, when both sides' elements could be had
  std::string reason;                        ///< why it has no partner
  std::string candidate;                     ///< the nearest
  // As numbers.
  std::int64_t count = 0;  ///< elements that were compared
  std::int64_t differing = 0;
  std::int64_t first = -1;  ///< row-major index of the element that `value_a` and `value_b` are, in A's tensor
  std::int64_t token = -1;  ///< its row
  double value_a = 0;
  double value_b = 0;
  double relative = 0;    ///< the largest difference, of the root mean square of A's elements
  double expected = 0;    ///< the same that rounding explains
  bool is_noise = false;  ///< the noise of its rows was measured, and none stands out of it
  std::optional<Outstanding> outstanding;
  std::string summary;  ///< one sentence
};

/// A tensor that was compared as numbers, with the noise in it.
struct NoiseLine {
  std::string tensor;
  std::optional<std::int64_t> layer;
  std::string op;
  std::uint64_t rows = 0;
  double median = 0;     ///< of the relative differences of rows
  double deviation = 0;  ///< of their logarithms, robust
  double rounding = 0;   ///< that rounding explains, of a row's largest element
};

/// Ops of a run whose ranks are joined in one way.
struct Joined {
  std::string side;
  align::Join join = align::Join::alone;
  std::vector<std::string> ops;
};

struct DiffReport {
  bool bits = false;            ///< both are recordings, compared bit for bit; else numbers
  std::uint64_t compared = 0;   ///< tensors of A that met one of B
  std::uint64_t differing = 0;  ///< of them, bit for bit or by more than rounding
  std::uint64_t equal = 0;
  std::uint64_t rounding = 0;        ///< differ by no more than rounding
  std::uint64_t noise = 0;           ///< differ by no more than A and its repetition do
  std::uint64_t unmatched = 0;       ///< tensors of one side alone
  std::uint64_t unknown = 0;         ///< pairs of which neither hashes nor elements could be had
  std::uint64_t layout = 0;          ///< tensors that say where rows lie, which are not compared
  std::uint64_t rows = 0;            ///< pairs of rows
  std::uint64_t rows_only_in_a = 0;  ///< places of tensors that have a partner
  std::uint64_t rows_only_in_b = 0;
  std::uint64_t outstanding = 0;  ///< tensors in which something stands out
  std::vector<align::SequencePair> sequences;
  std::vector<Joined> joined;    ///< how ranks were
  std::vector<NoiseLine> floor;  ///< in the order of execution
  /// What stands out in logical order, then other differences, then what has no partner; `limit` of each sort.
  std::vector<Difference> differences;
  bool same() const { return differing == 0 && unmatched == 0; }
};

struct DiffOptions {
  std::size_t limit = 1;  ///< differences of each sort to describe, with their elements
  align::NameMap names;
  RunView* repeat = nullptr;  ///< A again
};

/// Aligns two runs: sequences by their tokens, rows by sequence and position, tensors by name, op, parts and content,
/// ranks joined. Recordings are compared bit for bit, by hashes where rows are the same; others as numbers. Errors:
/// rows cannot be read.
Result<DiffReport> diff(RunView& a, RunView& b, const DiffOptions& options = {});

nlohmann::ordered_json to_json(const DiffReport& report);
std::string_view name(DifferenceKind kind);

}  // namespace nanscope
