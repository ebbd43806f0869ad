#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/recording/detail_codec.h"
#include "core/recording/sqlite.h"
#include "core/recording/writer.h"

/// Rows into tables: what the writer's thread does. Private to core/recording.
namespace nanscope::insert {

struct AddRequest {
  RequestRow row;
  bool replace = false;
};
struct AddOp {
  OpRow row;
  std::vector<InputRow> inputs;
};
struct AddTensor {
  TensorRow row;
  detail_codec::HealthView health;        ///< in `detail` or in `lent`
  std::span<const std::byte> elements;    ///< in `bytes` or in `lent`
  bool merged = true;                     ///< else `health` has tiles alone, and the row none
  TensorDetail detail;                    ///< memory, kept from one row to the next
  std::vector<std::byte> bytes;           ///< memory that is given away when it is written
  std::shared_ptr<const void> lent = {};  ///< memory of others
};
/// Merges the health of token rows and of the tensor, where that is yet to be done.
void merge_health(AddTensor& tensor);
struct AddBytes {
  std::int64_t tensor = 0;
  std::vector<std::byte> bytes;
};
struct AddPart {
  std::int64_t tensor = 0;
  std::vector<std::byte> bytes;
};
struct ExpectedOps {
  std::int64_t ops = 0;
};
struct ExpectedTensors {
  std::int64_t tensors = 0;
};
struct SetConfig {
  std::string config;
};
struct EndStep {};

/// What a run adds seldom; ops and tensors, which are nearly all, are kept by themselves.
using Item = std::variant<AddBytes, AddPart, AddRequest, StepRow, WeightRow, ScaleRow, KvRow, TokenRow, KernelRow,
                          RunNote, ExpectedOps, ExpectedTensors, SetConfig, EndStep>;

/// About how much memory and disk they take.
std::size_t weight(const Item& item);
std::size_t weight(const AddOp& item);
std::size_t weight(const AddTensor& item);

/// Owns the database while it is written. From begin() on a transaction is always open: its lock
/// tells readers that the writer lives.
class Inserter {
 public:
  /// Of a file that is there and empty, and stays open while this lives; none makes a database in memory.
  static Result<Inserter> create(const OutputFile* file, const WriterOptions& options);
  /// Writes the schema and what is known of the run. The first call, before any row.
  Status begin(const RunInfo& info);

  /// Elements that an item owns may be taken from it.
  Status apply(Item& item);
  Status apply(const AddOp& item);
  Status apply(AddTensor& item);
  Status commit();    ///< and begins the next transaction
  Status abandon();   ///< forgets what came after the last commit, and leaves no journal behind; nothing can follow
  Status complete();  ///< sets the state, commits, leaves no journal behind
  /// The database, without the statements that wrote it.
  sqlite::Database release();

 private:
  enum Name {
    kRequest,
    kReplaceRequest,
    kStep,
    kSpan,
    kOp,
    kTensor,
    kDetail,
    kChunk,
    kWeight,
    kScale,
    kKv,
    kToken,
    kKernel,
    kNote,
    kProgress,
    kShape,
    kBegin,
    kCommit,
    kNameCount
  };
  struct Progress {
    std::string_view state = "recording";
    std::int64_t expected_ops = 0;
    std::int64_t requests = 0;
    std::int64_t steps = 0;
    std::int64_t ops = 0;
    std::int64_t tensors = 0;
    std::int64_t stored_tensors = 0;
    std::int64_t unknown_tensors = 0;
    std::int64_t expected_tensors = 0;
  };

  Status open(const OutputFile* file, const WriterOptions& options);
  Status create_schema(const RunInfo& info);
  Status add_views();
  Status prepare_all();
  void close_blobs();
  Status end_transaction();
  Status write_progress();
  /// The bytes that the shape of a tensor that was added needs.
  Result<std::size_t> bytes_of(std::int64_t tensor);
  Status write_tensor(const TensorRow& row, std::int64_t detail);
  Status write_chunks(std::int64_t tensor, std::span<const std::byte> elements);
  Status write_chunk(std::int64_t id, std::span<const std::byte> elements);
  Status write_detail(const TensorRow& row, const detail_codec::Encoded& detail);

  Status write(const AddRequest& item);
  Status write(AddBytes& item);
  Status write(AddPart& item);
  Status write(const StepRow& row);
  Status write(const WeightRow& row);
  Status write(const ScaleRow& row);
  Status write(const KvRow& row);
  Status write(const TokenRow& row);
  Status write(const KernelRow& row);
  Status write(const RunNote& note);
  Status write(const ExpectedOps& item);
  Status write(const ExpectedTensors& item);
  Status write(const SetConfig& item);
  Status write(const EndStep&) { return {}; }

  sqlite::Database db_;
  std::vector<sqlite::Statement> statements_;
  sqlite::BlobWriter chunk_{"chunks", "data"};
  sqlite::BlobWriter tiles_{"detail", "tiles"};
  detail_codec::Encoder encoder_;
  std::vector<std::byte> joined_;  ///< tiles of several levels
  std::string inputs_;             ///< of an op, as it is written
  Progress progress_;
  Progress committed_;
  bool in_memory_ = false;

  // The last ids that were written: rows must come in logical order, so that what belongs to a step
  // or an op is a range of ids and needs no index.
  std::int64_t last_step_ = 0;
  std::int64_t last_op_ = 0;
  std::int64_t last_tensor_ = 0;

  /// The tensor whose parts are being added; nothing is committed while some are missing.
  struct Parts {
    std::int64_t tensor = 0;
    std::size_t written = 0;
    std::size_t expected = 0;
    Status check() const;
  };
  Parts parts_;
};

}  // namespace nanscope::insert
