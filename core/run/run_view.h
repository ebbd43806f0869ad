#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/recording/reader.h"
#include "core/recording/rows.h"
#include "core/result.h"
#include "core/run/fact.h"
#include "core/run/run.h"
#include "core/run/tensor_source.h"

namespace nanscope {

/// Ops and tensors of one step, ids ascending.
struct StepContent {
  std::vector<Op> ops;
  std::vector<Tensor> tensors;
};

/// A token of a request, or nobody's.
struct RowToken {
  const Span* span = nullptr;
  std::int64_t position = 0;
};

/// One view of a run: a recording and a dump look the same through it. Rows of tables that cannot be read give an empty
/// answer, and status() has the first such error; elements that cannot be read are listed by unread(). Whoever
/// concludes something asks both. Pointers stay valid as long as the view. For one thread.
class RunView {
 public:
  virtual ~RunView() = default;

  virtual const RunInfo& info() = 0;
  virtual std::span<const RequestRow> requests() = 0;
  /// In logical order; kBeforeSteps is not among them.
  virtual std::span<const Step> steps() = 0;
  virtual const StepContent& content(StepId step) = 0;
  /// Steps in which a tensor holds a NaN or an Inf, ascending.
  virtual std::vector<StepId> bad_steps() = 0;
  virtual std::span<const WeightRow> weights() { return {}; }
  virtual std::span<const ScaleRow> scales() = 0;
  virtual std::span<const KvRow> kv_history() = 0;
  virtual std::vector<TokenRow> tokens(std::int64_t request) = 0;
  /// The step that an op, or a tensor, is of; 0 when there is none.
  virtual StepId step_of_op(OpId op) = 0;
  virtual StepId step_of_tensor(TensorId tensor) = 0;
  /// How many there are of what; of what was not dumped, nothing is counted.
  virtual RecordingCounts counts();
  /// It ended, or was copied, before the run did: what is not there may have gone wrong.
  virtual bool interrupted() { return false; }
  /// The first error of reading rows of tables.
  virtual Status status() const = 0;
  /// Tensors whose elements are there and could not be read, each once, in the order in which they were asked for.
  std::span<const UnreadElements> unread() const { return unread_; }
  /// Compares all elements that a recording stores with their hashes, also those that were not asked for: unread() then
  /// has every tensor that is damaged.
  virtual void check_stored(const std::stop_token&) {}
  /// Reads the bytes of a tensor whose format was a guess in another of the same width from now on.
  void read_as(TensorId tensor, Format format);
  /// Names that were not understood, files that were not read.
  virtual std::vector<RunNote> notes() { return {}; }

  /// Health of each row; empty when it is not known.
  const std::vector<Health>& rows(const Tensor& tensor);
  /// Rows [first, first + count) of a tensor as they are stored. absent: neither dumped nor recorded; unreadable: the
  /// read failed, which unread() keeps.
  Fact<TensorData> read(const Tensor& tensor, std::int64_t first, std::int64_t count);
  /// All values, decoded and not scaled; null when they cannot be had or are more than kMostValues.
  std::shared_ptr<const std::vector<float>> values(const Tensor& tensor);
  /// The stored bytes of a whole tensor where they lie, row-major in its format; nothing when they would have to be
  /// copied.
  virtual std::optional<ElementBytes> stored(const Tensor&) { return std::nullopt; }
  static constexpr std::int64_t kMostValues = std::int64_t{1} << 24;
  /// All values of any tensor, some rows at a time; `visit` returns false to stop. False when they cannot be had.
  bool each_block(const Tensor& tensor,
                  const std::function<bool(std::int64_t first_row, std::span<const float> values)>& visit);

  const Step* step(StepId id);
  const Op* op(OpId id);
  const Tensor* tensor(TensorId id);
  const Op* maker(const Tensor& tensor) { return op(tensor.op); }
  const Tensor* input(const Op& op, std::string_view role) { return tensor(op.input(role)); }
  /// The input of a role that is of a span, where an op reads one a sequence.
  const Tensor* input(const Op& op, std::string_view role, const Span& span);
  const Tensor* output(const Op& op, std::string_view role);
  /// The first output, or the one called `out`.
  const Tensor* result(const Op& op);
  /// The op called `name` of a layer of a step; null when there is none.
  const Op* find_op(StepId step, std::optional<std::int64_t> layer, std::string_view name);
  /// Ops of the same step that read a tensor.
  std::vector<const Op*> readers(const Tensor& tensor);
  const RequestRow* request(std::int64_t id);
  const WeightRow* weight(std::string_view name);
  /// Of a rank, or of the first that has one.
  const Step* find_step(std::int64_t request, std::int64_t index, std::optional<std::int64_t> rank = {});

  /// Whose row it is; no span for padding, parameters and rows of which nothing is known.
  RowToken token_of(const Tensor& tensor, std::int64_t row);
  /// The row of a tensor that stands at a position of a span's sequence.
  std::optional<std::int64_t> row_at(const Tensor& tensor, const Span& span, std::int64_t position);
  /// The row of `to` that stands where a row of `from` does.
  std::optional<std::int64_t> same_row(const Tensor& from, std::int64_t row, const Tensor& to);
  /// The values of one row, decoded; empty when they cannot be had.
  std::shared_ptr<const std::vector<float>> row_values(const Tensor& tensor, std::int64_t row);
  /// Holds what means something: NaN anywhere, Inf where it hides nothing.
  static bool symptomatic(const Tensor& tensor);
  static bool symptomatic(const Tensor& tensor, const Health& row);
  /// Rows that do, padding among them.
  std::vector<std::int64_t> bad_rows(const Tensor& tensor);

 protected:
  virtual void change_format(TensorId, Format) {}
  virtual std::vector<Health> read_rows(const Tensor& tensor) = 0;
  virtual Fact<TensorData> read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) = 0;
  /// Keeps for unread() that a tensor's elements could not be read; nothing where they are absent.
  void note(const Tensor& tensor, const NotKnown& reason);

 private:
  void drop_old_values();
  std::vector<UnreadElements> unread_;
  std::unordered_set<TensorId> unread_ids_;
  std::map<std::pair<TensorId, std::int64_t>, std::shared_ptr<const std::vector<float>>> row_values_;
  std::size_t row_bytes_ = 0;

  std::unordered_map<TensorId, std::vector<Health>> rows_;
  struct Held {
    std::shared_ptr<const std::vector<float>> values;
    std::uint64_t used = 0;
  };
  std::unordered_map<TensorId, Held> values_;
  std::size_t held_bytes_ = 0;
  std::uint64_t uses_ = 0;
};

/// -Inf hides keys from a query and tokens from a sampler: scores, logits and what a router chooses by may hold it.
bool may_hide(std::string_view role);

}  // namespace nanscope
