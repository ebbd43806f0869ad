#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "core/recording/rows.h"
#include "core/result.h"

/// Writes a recording while the run goes on. docs/recording.md describes the file and its states.
namespace nanscope {

struct WriterOptions {
  OutputOptions output{.mode = 0644};  ///< whether an existing file is replaced, and what is read meanwhile
  bool in_view = true;   ///< under its own name while it grows, where no file has that; else when it is complete
  bool durable = false;  ///< fsync every transaction: survives a power cut, not only a killed process
  std::size_t commit_bytes = std::size_t{32} << 20;  ///< commit whole steps once they hold this much
  std::chrono::milliseconds commit_interval{100};    ///< or this long after the last commit; 0: every step
  std::size_t queue_bytes = std::size_t{64} << 20;   ///< rows in flight before add() waits for the disk
  std::int64_t max_pages = 0;                        ///< limit of the file in pages, 0: none (for tests)
};

/// Health below the tensor as a whole. Both parts may be left empty: then they are not recorded.
struct TensorDetail {
  std::vector<Health> tokens;  ///< one a token row
  std::vector<Health> tiles;   ///< level 0 of the pyramid, row-major; empty also when it is `tokens`
                               ///< (tensors of at most kTileChannels channels)
};

/// A tensor as a device left it, whose health is yet to be merged.
struct ObservedTensor {
  std::span<const Health> tiles;             ///< level 0 of the pyramid, row-major
  std::vector<std::byte> bytes = {};         ///< as add() takes them
  std::span<const std::byte> elements = {};  ///< the same in `memory`, where `bytes` is empty
  /// What tiles and elements lie in, so that they need not be copied: any thread lets go of it, once they are written
  /// or dropped. Without it the tiles are copied.
  std::shared_ptr<const void> memory = {};
};

/// One background thread owns the database; add() copies a row into its queue and returns. Steps, ops and tensors are
/// added in logical order: ops of step 0, then a step, its ops, after each op its outputs, all with ascending ids. An
/// error (disk full, a row that contradicts itself) is latched: everything later is dropped, and commit_step(), flush()
/// and finish() return it. Rows are added and steps ended by one thread at a time, which pays no lock for a row;
/// flush(), buffer() and committed_steps() may be called by others meanwhile.
class RecordingWriter {
 public:
  /// Creates `path`; the thread then writes the schema, and until it has, a reader finds an empty file. A file that is
  /// to be replaced stays until finish(); without finish() it stays for good. Errors: it exists (unless options.output
  /// replaces it), another process is writing it, a database's journal lies there, the folder does not exist or may not
  /// be written.
  static Result<std::unique_ptr<RecordingWriter>> create(const std::filesystem::path& path, const RunInfo& info,
                                                         const WriterOptions& options = {});
  /// The same into a file that create_recording_file() made.
  static Result<std::unique_ptr<RecordingWriter>> create(OutputFile file, const RunInfo& info,
                                                         const WriterOptions& options = {});
  /// A recording in memory, for runs that are looked at and thrown away; see finish_in_memory().
  static Result<std::unique_ptr<RecordingWriter>> create_in_memory(const RunInfo& info,
                                                                   const WriterOptions& options = {});
  /// Commits the whole steps that were added. Without finish() a recording in view counts as interrupted, another is
  /// removed.
  ~RecordingWriter();
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  void add(RequestRow row);
  void update_request(RequestRow row);  ///< replaces the row of the same id
  void add(StepRow row);
  void add(const OpRow& row, std::span<const InputRow> inputs);  ///< InputRow::op is set to row.id
  /// `bytes` is empty, or the tensor's tokens * channels * storage_bytes(format) bytes, row-major.
  /// `row.stored` is ignored: it is true of a tensor exactly when its bytes are in the file.
  void add(const TensorRow& row, const TensorDetail& detail = {}, std::vector<std::byte> bytes = {});
  /// The same, and the background thread makes row.health and that of token rows of the tiles.
  void add_observed(const TensorRow& row, ObservedTensor observed);
  /// Bytes of a tensor whose row was added before: a capture ring that was flushed by a fault.
  void add_bytes(std::int64_t tensor, std::vector<std::byte> bytes);
  /// The next bytes of a tensor that is too large to be held, whose row was added before without bytes. Parts come one
  /// after the other, all but the last of kPartBytes.
  static constexpr std::size_t kPartBytes = std::size_t{1} << 20;
  void add_part(std::int64_t tensor, std::vector<std::byte> bytes);
  void add(WeightRow row);
  void add(ScaleRow row);
  void add(KvRow row);
  void add(TokenRow row);
  void add(KernelRow row);
  void add(RunNote note);

  /// A vector of `size` bytes, recycled from written tensors where possible: memory that was
  /// touched before is several times faster than fresh memory.
  std::vector<std::byte> buffer(std::size_t size);

  /// Ends a step: everything added since the last call belongs to one transaction, and a reader
  /// sees all of it or nothing. Does not wait for the disk.
  Status commit_step();
  /// Waits until every step ended so far is committed.
  Status flush();
  /// How many commit_step() calls are committed.
  std::int64_t committed_steps() const;

  /// The number of ops that the run will execute, once it is known.
  void set_expected_ops(std::int64_t ops);
  /// The number of tensors that a dump's producer speaks of.
  void set_expected_tensors(std::int64_t tensors);
  /// RunInfo::config of a run whose requests were not known when it began.
  void set_config(std::string config);
  /// Commits everything, sets the state to complete and closes the file, which has its name then. `expected_ops` 0
  /// keeps what was set before.
  Status finish(std::int64_t expected_ops = 0);
  /// The same for a recording in memory, which is then read through the result.
  Result<Recording> finish_in_memory(std::int64_t expected_ops = 0);

 private:
  class Impl;
  explicit RecordingWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanscope
