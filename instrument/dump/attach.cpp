#include "instrument/dump/attach.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/dump/dump_run.h"
#include "core/files/output_file.h"
#include "core/recording/writer.h"
#include "core/run/view_rows.h"
#include "core/tensor/content_hash.h"
#include "instrument/recorder/tensor_observer.h"

namespace nanscope {
namespace {

/// Larger tensors are read twice, a block of rows at a time: once to look at them, once to store them.
constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;
/// Elements that a recording may speak of. A shape that no bytes bear out may be anything.
constexpr std::int64_t kMostStated = std::int64_t{1} << 48;
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;  ///< rows and channels

/// Cuts what it is given into the parts of one tensor.
class PartWriter {
 public:
  PartWriter(RecordingWriter& writer, TensorId tensor) : writer_(writer), tensor_(tensor) {}

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t taken = std::min(bytes.size(), RecordingWriter::kPartBytes - part_.size());
      part_.insert(part_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
      bytes = bytes.subspan(taken);
      if (part_.size() == RecordingWriter::kPartBytes) finish();
    }
  }
  /// After the last byte.
  void finish() {
    if (!part_.empty()) writer_.add_part(tensor_, std::exchange(part_, {}));
  }

 private:
  RecordingWriter& writer_;
  TensorId tensor_;
  std::vector<std::byte> part_;
};

/// The rows of a view, one step after another, into a writer.
class Attacher {
 public:
  Attacher(DumpRun& run, RecordingWriter& writer, kernels::Device& device, const AttachOptions& options)
      : run_(run), writer_(writer), observer_(device), options_(options) {}

  Result<Attached> write() {
    for (const RequestRow& request : run_.requests()) writer_.add(request);
    if (Status added = add_step(kBeforeSteps); !added) return tl::unexpected(added.error());
    for (const Step& step : run_.steps()) {
      writer_.add(row_of(step));
      if (Status added = add_step(step.id); !added) return tl::unexpected(added.error());
    }
    for (const ScaleRow& scale : run_.scales()) writer_.add(scale);
    for (const KvRow& kv : run_.kv_history()) writer_.add(kv);
    for (const RequestRow& request : run_.requests()) {
      for (TokenRow& token : run_.tokens(request.id)) writer_.add(std::move(token));
    }
    add_notes();
    writer_.set_expected_tensors(run_.counts().expected_tensors);
    attached_.left_out += static_cast<std::int64_t>(run_.dump().tensors.size()) - done_;
    return attached_;
  }

  std::int64_t ops() const { return ops_; }

 private:
  Status add_step(StepId id) {
    const StepContent& content = run_.content(id);
    auto tensor = content.tensors.begin();
    for (const Op& op : content.ops) {
      std::vector<InputRow> inputs;
      for (const Input& input : op.inputs) {
        const Tensor* read = run_.tensor(input.tensor);
        if (read == nullptr || !is_left_out(*read)) inputs.push_back({op.id, input.role, input.tensor, input.weight});
      }
      writer_.add(row_of(op), inputs);
      ++ops_;
      for (; tensor != content.tensors.end() && tensor->op == op.id; ++tensor) {
        if (options_.stop.stop_requested()) return fail("stopped");
        if (Status added = add_tensor(*tensor); !added) return added;
      }
    }
    return writer_.commit_step();
  }

  void add_notes() {
    for (RunNote& note : run_.notes()) writer_.add(std::move(note));
  }

  Status add_tensor(const Tensor& tensor) {
    const DumpTensor* dumped = run_.dumped(tensor.id);
    // Parts of a fused tensor are several of one that was dumped.
    if (dumped != nullptr && run_.tensor_of(static_cast<std::size_t>(dumped - run_.dump().tensors.data())) == tensor.id)
      count(*dumped);
    TensorRow row = row_of(tensor);
    if (!tensor.known || tensor.stated) return add_without_elements(tensor, std::move(row));
    TensorDetail detail;
    std::vector<std::byte> bytes;
    ContentHash hash;
    const bool keep = options_.elements && size_of(tensor) <= kBlockBytes;
    detail.tokens = run_.rows(tensor);
    const bool tiled = tensor.channels > kTileChannels && !detail.tokens.empty();
    Status looked = each_block(tensor, [&](std::int64_t first, TensorData block) -> Status {
      hash.add(block.bytes);
      if (tiled) {
        if (Status added = add_tiles(first, block, detail.tiles); !added) return added;
      }
      if (keep) bytes.insert(bytes.end(), block.bytes.begin(), block.bytes.end());
      return {};
    });
    if (!looked) return looked;
    row.hash = hash.finish();
    writer_.add(row, detail, std::move(bytes));
    if (keep || !options_.elements) return {};
    PartWriter parts(writer_, tensor.id);
    Status stored = each_block(tensor, [&](std::int64_t, const TensorData& block) -> Status {
      parts.add(block.bytes);
      return {};
    });
    parts.finish();
    return stored;
  }

  /// Of a shape that no bytes bear out and that no recording may speak of.
  static bool is_left_out(const Tensor& tensor) {
    if (tensor.known && !tensor.stated) return false;
    const bool sides = tensor.tokens <= kMostRows && tensor.channels <= kMostRows;
    return !sides || (tensor.channels > 0 && tensor.tokens > kMostStated / tensor.channels);
  }

  /// Its health is all there is, and its hash is that of the health.
  Status add_without_elements(const Tensor& tensor, TensorRow row) {
    if (is_left_out(tensor)) {
      ++attached_.left_out;
      --attached_.tensors;
      return {};
    }
    if (tensor.stated) {
      ContentHash hash;
      hash.add(std::as_bytes(std::span(&row.health, 1)));
      row.hash = hash.finish();
    }
    writer_.add(row);
    return {};
  }

  void count(const DumpTensor& dumped) {
    ++done_;
    ++attached_.tensors;
    if (dumped.stated) ++attached_.stated;
    if (!dumped.format && !dumped.stated) ++attached_.converted;
    if (options_.progress) options_.progress(done_, static_cast<std::int64_t>(run_.dump().tensors.size()));
  }

  static std::int64_t size_of(const Tensor& tensor) {
    return tensor.count() * static_cast<std::int64_t>(info(tensor.format).storage_bytes());
  }

  Status each_block(const Tensor& tensor, auto&& visit) {
    const std::int64_t row = std::max<std::int64_t>(1, size_of(tensor) / std::max<std::int64_t>(1, tensor.tokens));
    const std::int64_t at_once = std::max<std::int64_t>(1, kBlockBytes / row);
    for (std::int64_t first = 0; first < tensor.tokens && tensor.channels > 0; first += at_once) {
      if (options_.stop.stop_requested()) return fail("stopped");
      Fact<TensorData> block = run_.read(tensor, first, std::min(at_once, tensor.tokens - first));
      if (!block) return fail(std::move(block.error()));
      if (Status visited = visit(first, std::move(*block)); !visited) return visited;
    }
    return {};
  }

  Status add_tiles(std::int64_t first, TensorData& block, std::vector<Health>& tiles) {
    const kernels::TensorView view{block.bytes.data(), block.format, block.tokens, block.channels, block.channels};
    const Result<std::span<const Health>> seen = observer_.tiles(view, {}, {});
    if (!seen) return tl::unexpected(seen.error());
    for (Health tile : *seen) {
      if (tile.first_bad >= 0) tile.first_bad += first * block.channels;
      tiles.push_back(tile);
    }
    return {};
  }

  DumpRun& run_;
  RecordingWriter& writer_;
  TensorObserver observer_;
  const AttachOptions& options_;
  Attached attached_;
  std::int64_t ops_ = 0;
  std::int64_t done_ = 0;
};

RunInfo info_of(DumpRun& run, const kernels::DeviceInfo& device, const AttachOptions& options) {
  RunInfo info = run.info();
  info.nanscope_version = options.version;
  info.created = options.created;
  info.cpu_features = device.cpu_features;
  info.float_environment = device.float_environment;
  info.capture = options.elements ? "all" : "none";
  return info;
}

}  // namespace

Result<Attached> attach(OpenDump& dump, const std::filesystem::path& recording, const AttachOptions& options) {
  WriterOptions writing;
  writing.output = options.output;
  writing.output.durable = true;
  writing.in_view = false;  // half a dump is no evidence
  if (Status allowed = check_output(recording, writing.output); !allowed) return tl::unexpected(allowed.error());
  Result<std::unique_ptr<kernels::Device>> device = kernels::make_cpu_device();
  if (!device) return tl::unexpected(device.error());
  DumpRun run(dump.dump(), dump, options.stop);
  auto writer = RecordingWriter::create(recording, info_of(run, (*device)->info(), options), writing);
  if (!writer) return tl::unexpected(writer.error());
  Attacher attacher(run, **writer, **device, options);
  Result<Attached> attached = attacher.write();
  // Of more weight than what failed for it.
  if (Status same = dump.check(); !same) return tl::unexpected(same.error());
  if (!attached) return attached;
  if (Status finished = (*writer)->finish(attacher.ops()); !finished) return tl::unexpected(finished.error());
  return attached;
}

}  // namespace nanscope
