#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/recording/rows.h"
#include "core/result.h"
#include "core/tensor/pyramid.h"

/// Reads a recording. Files are not trusted: they are opened read-only and defensively, the schema
/// is compared with the known one, every row is checked before it is believed.
namespace nanscope {

/// "ops of expected ops captured", and how much of what.
struct RecordingCounts {
  std::int64_t requests = 0;
  std::int64_t steps = 0;
  std::int64_t ops = 0;
  std::int64_t expected_ops = 0;      ///< 0 while unknown
  std::int64_t tensors = 0;           ///< without those that were never dumped
  std::int64_t stored_tensors = 0;    ///< those whose bytes are in the recording
  std::int64_t expected_tensors = 0;  ///< that a dump's producer speaks of, 0 when it does not
};

/// Conditions are joined by AND; what is left out does not restrict.
struct OpFilter {
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> layer;
  std::optional<std::string> name;
  std::optional<std::string> kind;
  std::int64_t first_id = 0;  ///< ops with a smaller id are left out
  std::int64_t limit = -1;    ///< at most so many rows, -1: all
};

struct TensorFilter {
  std::optional<std::int64_t> step;
  std::optional<std::string> role;
  bool bad_only = false;  ///< those that hold a NaN or an Inf
  std::int64_t first_id = 0;
  std::int64_t limit = -1;
};

struct ScaleFilter {
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> op;
  std::optional<std::int64_t> layer;
  std::optional<std::string> target;
};

struct KvFilter {
  std::optional<std::int64_t> block;
  std::optional<std::int64_t> request;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> up_to_step;  ///< what was known after that step
};

struct TileLevel {
  LevelShape shape;
  std::vector<Health> tiles;  ///< row-major; empty when the tensor was recorded without detail
};

struct BadOp {
  OpRow op;
  TensorRow tensor;  ///< its first output, in id order, that holds a NaN or an Inf
};

/// An open recording. Use it from one thread at a time. Every function that returns rows returns
/// them in logical order (ascending id).
class Recording {
 public:
  /// Errors, in one line: no such file, a folder, empty, not a recording, of a newer version,
  /// truncated, damaged, in need of recovery in a folder that may not be written.
  static Result<Recording> open(const std::filesystem::path& path);
  /// The same, and check(), which `stop` ends: what a command does before it believes anything.
  static Result<Recording> open_checked(const std::filesystem::path& path, std::stop_token stop = {});
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;
  ~Recording();

  /// Once a stop is requested, from whatever thread, reads that are under way and all later ones fail soon.
  void stop_with(std::stop_token stop);

  const std::filesystem::path& path() const;  ///< ":memory:" for one that was never a file
  const RunInfo& info() const;
  /// Version of its tables, from 1; docs/recording.md says what the older ones lack.
  std::uint32_t schema() const;
  /// `recording` while its writer lives, `interrupted` when it died before it was finished.
  Result<RunState> state() const;
  Result<RecordingCounts> counts() const;

  Result<std::vector<RequestRow>> requests() const;
  Result<RequestRow> request(std::int64_t id) const;
  Result<std::vector<StepRow>> steps(std::optional<std::int64_t> request = {}) const;
  Result<StepRow> step(std::int64_t id) const;
  Result<std::optional<StepRow>> find_step(std::int64_t request, std::int64_t index) const;

  Result<std::vector<OpRow>> ops(const OpFilter& filter = {}) const;
  /// Visits rows without holding them all; `visit` returns false to stop.
  Status for_each_op(const OpFilter& filter, const std::function<bool(const OpRow&)>& visit) const;
  /// The ops of all steps without their attributes, which most of the time to read a row goes to.
  Status for_each_op_name(const std::function<bool(const OpRow&)>& visit) const;
  Result<OpRow> op(std::int64_t id) const;
  Result<std::vector<InputRow>> inputs_of(std::int64_t op) const;

  Result<std::vector<TensorRow>> tensors(const TensorFilter& filter = {}) const;
  Status for_each_tensor(const TensorFilter& filter, const std::function<bool(const TensorRow&)>& visit) const;
  /// The tensors of one step, or of all.
  Status for_each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) const;
  /// Identity and hash of every tensor, in order: what a replay compares with.
  Result<std::vector<TensorHash>> tensor_hashes() const;
  Result<std::vector<TensorRow>> tensors_of(std::int64_t op) const;
  Result<TensorRow> tensor(std::int64_t id) const;
  /// First op, in logical order, with a NaN or Inf in an output; nothing when the run is clean.
  Result<std::optional<BadOp>> first_bad_op() const;

  /// Health of each token row; empty when the tensor was recorded without detail.
  Result<std::vector<Health>> token_health(std::int64_t tensor) const;
  /// One level of the tensor's pyramid, exact.
  Result<TileLevel> tiles(std::int64_t tensor, int level) const;
  /// The stored bytes, row-major; nothing when the tensor was not captured. Errors: they have not the recorded hash.
  Result<std::optional<std::vector<std::byte>>> tensor_bytes(std::int64_t tensor) const;
  /// `size` of them from `offset`, without reading the rest.
  Result<std::optional<std::vector<std::byte>>> tensor_bytes(std::int64_t tensor, std::int64_t offset,
                                                             std::int64_t size) const;

  Result<std::vector<WeightRow>> weights() const;
  Result<std::vector<ScaleRow>> scales(const ScaleFilter& filter = {}) const;
  Result<std::vector<KvRow>> kv_history(const KvFilter& filter = {}) const;
  Result<std::vector<TokenRow>> tokens(std::int64_t request) const;
  Result<std::vector<KernelRow>> kernels(std::optional<std::int64_t> op = {}) const;
  /// All of them, without their details.
  Status for_each_kernel(const std::function<bool(const KernelRow&)>& visit) const;

  Result<std::vector<RunNote>> notes() const;

  /// The diagnosis that was written into the recording, see write_events(); empty before.
  Result<std::vector<EventRow>> events() const;

  /// Compares all tables with each other: rows with the counts of them, ids with what they refer to, shapes with the
  /// health and the elements that are stored, positions with ranges. Elements themselves are compared with their hash
  /// when they are read.
  Status check() const;

 private:
  friend class RecordingWriter;
  class Impl;
  explicit Recording(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Replaces the events of a complete recording: the one thing that is added to it after its run. Errors: of an older
/// schema; those are not written to.
Status write_events(const std::filesystem::path& path, std::span<const EventRow> events);

}  // namespace nanscope
