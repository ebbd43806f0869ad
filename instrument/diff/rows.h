#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "instrument/diff/groups.h"
#include "instrument/diff/sequences.h"

namespace nanscope::align {

/// How the tensors of several ranks are one.
enum class Join : std::uint8_t {
  alone,       ///< one rank
  columns,     ///< side by side: column parallel, heads, vocabulary
  each,        ///< both runs have as many: rank by rank
  replicated,  ///< the same on each rank
  sum,         ///< partial sums
};
std::string_view name(Join join);

/// Columns of a group's joined row: a part of a fused tensor, or all.
struct Part {
  Join join = Join::alone;
  std::int64_t every = 1;  ///< of column ranks: one in so many, where ranks share heads
  std::int64_t first = 0;  ///< of each rank's columns
  std::int64_t width = 0;  ///< of each rank's columns; 0: all
  std::int64_t total = 0;  ///< columns that count of the joined row, without the padding of a vocabulary; 0: all
};

/// One row of a tensor of each rank.
struct RowRef {
  std::size_t sheet = 0;  ///< of its group
  std::int64_t row = 0;
};
struct Occurrence {
  std::int64_t context = 0;  ///< keys that were visible when it was read; tells reads of one key apart
  std::vector<RowRef> ranks;
};
/// How many rows there are to read of what ranks hold more than once.
std::size_t readings(const Part& part, const Occurrence& at);
using RowIndex = std::map<RowPlace, std::vector<Occurrence>>;

/// The rows of a group by their places. `names`: what both runs call this one's sequences.
RowIndex index_rows(const Group& group, const Sequences& places, const std::vector<std::int64_t>& names);

/// What an index of rows depends on: groups of equal ones have equal indices.
std::string index_key(const Group& group);

/// Reads rows of one run, some at a time.
class RowReader {
 public:
  /// `elements`: that are read at a time.
  RowReader(RunView& run, std::int64_t elements) : run_(run), elements_(elements) {}
  /// Empty when the elements cannot be had.
  std::span<const float> row(const Sheet& sheet, std::int64_t row);

 private:
  struct Block {
    std::int64_t first = 0;
    std::int64_t rows = 0;
    std::vector<float> values;
  };
  RunView& run_;
  std::int64_t elements_;
  std::map<TensorId, Block> blocks_;  ///< the last of each tensor that was read lately
};

/// Reads joined rows of a group.
class JoinedRows {
 public:
  static constexpr std::int64_t kBlockElements = std::int64_t{1} << 18;
  JoinedRows(RunView& run, const Sequences& places, const Group& group, Part part,
             std::int64_t elements = kBlockElements)
      : reader_(run, elements), places_(places), group_(group), part_(part) {}
  /// Columns of the row of `rank` where ranks are replicated, of all joined otherwise; of columns that several ranks
  /// share, those of one in so many. For scores and masks, columns by
  /// head and position up to `keys`. False when elements cannot be had.
  bool read(const Occurrence& at, std::size_t rank, std::int64_t keys, std::vector<float>& into);
  /// The last position of a key that a row of scores has, and one.
  std::int64_t keys(const Occurrence& at) const;
  const Part& part() const { return part_; }

 private:
  bool add(const RowRef& ref, std::int64_t keys, std::vector<float>& into);

  RowReader reader_;
  const Sequences& places_;
  const Group& group_;
  Part part_;
};

}  // namespace nanscope::align
