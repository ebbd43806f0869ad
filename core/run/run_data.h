#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/recording/reader.h"
#include "core/recording/rows.h"
#include "core/result.h"
#include "core/run/fact.h"

namespace nanscope {

/// The rows of a run, wherever they are: a recording, a view of a dump (see ViewRows), or rows made by hand in a test.
/// All functions return rows in logical order. A failed read gives an empty answer and is kept:
/// whoever asked checks status() once, at the end, instead of after every row.
class RunData {
 public:
  virtual ~RunData() = default;

  virtual const RunInfo& info() = 0;
  virtual RecordingCounts counts() = 0;
  /// It ended, or was copied, before the run did.
  virtual bool interrupted() { return false; }
  virtual std::span<const RequestRow> requests() = 0;
  virtual std::span<const StepRow> steps() = 0;
  virtual std::span<const WeightRow> weights() = 0;
  virtual std::span<const ScaleRow> scales() = 0;
  virtual std::span<const KvRow> kv_history() = 0;
  virtual std::vector<TokenRow> tokens(std::int64_t request) = 0;

  virtual std::vector<OpRow> ops(const OpFilter& filter) = 0;
  virtual std::vector<TensorRow> tensors(const TensorFilter& filter) = 0;
  /// Visits the ops of all steps, without their attributes; `visit` returns false to stop.
  virtual void each_op_name(const std::function<bool(const OpRow&)>& visit) = 0;
  /// Visits the tensors of one step, or of all.
  virtual void each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) = 0;
  virtual std::optional<OpRow> op(std::int64_t id) = 0;
  virtual std::optional<TensorRow> tensor(std::int64_t id) = 0;
  virtual std::vector<TensorRow> tensors_of(std::int64_t op) = 0;
  virtual std::vector<InputRow> inputs_of(std::int64_t op) = 0;
  /// Health of each token row; empty when the tensor was recorded without detail.
  virtual std::vector<Health> token_health(std::int64_t tensor) = 0;

  virtual std::vector<RunNote> notes() { return {}; }
  /// Compares the elements that are stored with their hashes, unless a read has done so: the tensors that are damaged.
  virtual std::vector<UnreadElements> damaged(const std::stop_token&) { return {}; }
  /// Content hash of the element bytes; 0 where there is none.
  virtual std::uint64_t hash(const TensorRow& tensor) { return tensor.hash; }

  /// The first error that a read met.
  virtual Status status() const = 0;

  // Conveniences over the above.
  const StepRow* step(std::int64_t id);
  const RequestRow* request(std::int64_t id);
  /// The first that works on a request at the given index, whatever else it works on.
  const StepRow* find_step(std::int64_t request, std::int64_t index);
  const WeightRow* weight(const std::string& name);
  /// The output of `op` called `role`.
  std::optional<TensorRow> output(std::int64_t op, const std::string& role);
  /// The tensor that `op` reads as `role`; nothing when that is a weight or the KV pool.
  std::optional<TensorRow> input(std::int64_t op, const std::string& role);
  /// The op called `name` of a layer of a step.
  std::optional<OpRow> find_op(std::int64_t step, std::int64_t layer, const std::string& name);
};

/// The rows of an open recording, which must outlive it. Small tables are read once.
class RecordingRun final : public RunData {
 public:
  explicit RecordingRun(const Recording& recording) : recording_(recording) {}

  const RunInfo& info() override;
  RecordingCounts counts() override;
  bool interrupted() override;
  std::span<const RequestRow> requests() override;
  std::span<const StepRow> steps() override;
  std::span<const WeightRow> weights() override;
  std::span<const ScaleRow> scales() override;
  std::span<const KvRow> kv_history() override;
  std::vector<TokenRow> tokens(std::int64_t request) override;
  std::vector<OpRow> ops(const OpFilter& filter) override;
  std::vector<TensorRow> tensors(const TensorFilter& filter) override;
  void each_op_name(const std::function<bool(const OpRow&)>& visit) override;
  void each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) override;
  std::optional<OpRow> op(std::int64_t id) override;
  std::optional<TensorRow> tensor(std::int64_t id) override;
  std::vector<TensorRow> tensors_of(std::int64_t op) override;
  std::vector<InputRow> inputs_of(std::int64_t op) override;
  std::vector<Health> token_health(std::int64_t tensor) override;
  std::vector<RunNote> notes() override;
  std::vector<UnreadElements> damaged(const std::stop_token& stop) override;
  Status status() const override;

 private:
  template <class T>
  T taken(Result<T> result);
  template <class T>
  std::optional<T> found(Result<T> result);
  void keep(Status status);

  const Recording& recording_;
  std::optional<Error> error_;
  std::optional<std::vector<RequestRow>> requests_;
  std::optional<std::vector<StepRow>> steps_;
  std::optional<std::vector<WeightRow>> weights_;
  std::optional<std::vector<ScaleRow>> scales_;
  std::optional<std::vector<KvRow>> kv_;
};

}  // namespace nanscope
