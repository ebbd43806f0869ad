#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/run/kv_cache.h"
#include "core/run/run_view.h"
#include "core/run/scale_grid.h"
#include "instrument/recompute/recompute.h"

/// Which tensors of a step hold a layer's queries, keys and values, whatever the run is of: a recording, a dump with a
/// cache, one with q, k and v alone.
namespace nanscope {

/// Where attention ran in one step of one layer; null where the run has no such op.
struct AttentionOps {
  const Op* store = nullptr;
  std::vector<const Op*> scores;  ///< with queries and keys: of each span, or of all; ops of attention in one as well
  std::vector<const Op*> softmax;
  const Op* mix = nullptr;               ///< whose output is the attention's
  std::vector<const Op*> partial_mixes;  ///< of each span, where its values are read block by block
};

/// Those of the language model: towers beside it have names that begin with theirs.
AttentionOps attention_ops(RunView& run, const Step& step, std::int64_t layer);

/// How far a row of keys or queries is from its rotary embedding.
enum class Rotation : std::uint8_t {
  behind,   ///< what the rotation put out
  before,   ///< what it was given; its output was not dumped
  unknown,  ///< nothing says that there is one
};

/// Rows of one operand of a span.
struct AttentionOperand {
  const Tensor* own = nullptr;  ///< a row for each of the step's tokens
  const Tensor* own_scale = nullptr;
  std::shared_ptr<const Block> computed;  ///< rows of `own`, which was not dumped
  const Tensor* cached = nullptr;         ///< what attention reads, or the pool: rows of steps before as well
  const Tensor* cached_scale = nullptr;
  Rotation rotation = Rotation::unknown;

  bool there() const { return own != nullptr || cached != nullptr; }
  std::int64_t channels() const;
};

/// `role` is q, k or v. Values before they were stored are preferred to what a cache made of them.
/// What was not dumped is computed where `again` knows how.
AttentionOperand find_operand(RunView& run, const AttentionOps& ops, const Step& step, std::size_t span,
                              std::string_view role, Recomputer* again = nullptr);
/// The one of a span, or the only one; null where there is none.
const Op* op_of_span(RunView& run, const std::vector<const Op*>& ops, std::size_t span);

/// What a rotated tensor was made of; null where that was not dumped, or it was not rotated.
const Tensor* before_rotation(RunView& run, const Tensor& rotated);

/// Reads rows by positions, codes with their scales.
class OperandRows {
 public:
  OperandRows(RunView& run, KvCache& cache, const Step& step, const Span& span, const AttentionOperand& operand);

  /// 0 where there are no rows.
  std::int64_t channels() const { return operand_.channels(); }
  /// Rows of positions [first, first + count) behind each other at `into`. False: one of them cannot be had.
  bool read(std::int64_t first, std::int64_t count, float* into);

 private:
  bool read_own(std::int64_t first, std::int64_t count, float* into);
  bool read_cached(std::int64_t position, float* into);

  RunView& run_;
  KvCache& cache_;
  const Step& step_;
  const Span& span_;
  AttentionOperand operand_;
  std::optional<ScaleGrid> own_grid_;
  std::optional<ScaleGrid> cached_grid_;
};

}  // namespace nanscope
