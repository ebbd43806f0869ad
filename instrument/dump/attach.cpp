#include "instrument/dump/attach.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/dump/facts.h"
#include "core/dump/recorded_dump.h"
#include "core/recording/writer.h"
#include "instrument/dump/matrix.h"
#include "instrument/recorder/tensor_observer.h"
#include "kernels/health.h"

namespace nanscope {
namespace {

/// Places are made of letters, digits, '_' and '-'.
std::string place_word(std::string_view text) {
  std::string word;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    word += plain ? c : '_';
  }
  return word.empty() ? "tensor" : word;
}

std::string_view port_text(Port port) {
  return port == Port::input ? "input" : port == Port::output ? "output" : "state";
}

/// One pass after another into a writer.
class Attacher {
 public:
  Attacher(OpenDump& dump, DumpFacts& facts, RecordingWriter& writer, kernels::Device& device,
           const AttachOptions& options)
      : dump_(dump), facts_(facts), writer_(writer), observer_(device), options_(options) {}

  Result<Attached> run() {
    for (std::size_t pass = 0; pass < facts_.passes(); ++pass) {
      add_step(pass);
      for (const TensorIndex index : facts_.members(pass)) {
        if (options_.stop.stop_requested()) return fail("stopped");
        if (Status added = add_tensor(index); !added) return tl::unexpected(added.error());
        if (options_.progress) options_.progress(++done_, static_cast<std::int64_t>(facts_.size()));
      }
      if (Status committed = writer_.commit_step(); !committed) return tl::unexpected(committed.error());
    }
    return attached_;
  }

 private:
  void add_step(std::size_t pass) {
    const TensorName& at = facts_.tensor(facts_.members(pass).front()).at;
    TensorName whose = at;
    whose.step.reset();
    const auto [request, isnew] = requests_.emplace(whose.pass(), static_cast<std::int64_t>(requests_.size()));
    if (isnew) {
      RequestRow row;
      row.id = request->second;
      row.name = whose.pass().empty() ? "dump" : whose.pass();
      std::replace(row.name.begin(), row.name.end(), '|', ' ');
      row.prompt = "[]";
      writer_.add(std::move(row));
    }
    StepRow step;
    step.id = ++step_;
    step.request = request->second;
    step.index = std::max(at.step.value_or(0), next_index_[request->second]);
    next_index_[request->second] = step.index + 1;
    for (const TensorIndex i : facts_.members(pass)) {
      if (is_activation(facts_.tensor(i))) step.tokens = std::max(step.tokens, matrix_shape(facts_.tensor(i)).tokens);
    }
    step.kind = step.tokens > 1 ? StepKind::prefill : StepKind::decode;
    step.context = step.tokens;
    writer_.add(step);
    names_.clear();
  }

  /// A name that no other op of the step and layer has.
  std::string unique_name(const TensorName& at) {
    std::string name = place_word(at.op);
    if (at.expert) name += fmt::format("_{}", *at.expert);
    if (at.port == Port::input) name += "_input";
    if (at.port == Port::state && name != at.role) name += '_' + place_word(at.role);
    if (!at.tower.empty()) name = at.tower + '_' + name;
    const std::string first = name;
    for (int copy = 2; !names_.insert({at.layer.value_or(-1), name}).second; ++copy)
      name = fmt::format("{}_{}", first, copy);
    return name;
  }

  Status add_tensor(TensorIndex index) {
    const DumpTensor& tensor = facts_.tensor(index);
    const MatrixShape shape = matrix_shape(tensor);
    std::optional<std::vector<std::byte>> bytes;
    if (tensor.stated) {
      // A shape that no bytes bear out may be anything.
      if (tensor.count() <= kMostStated) bytes.emplace();
    } else {
      const Result<TensorBytes> held = dump_.bytes(tensor);
      if (!held) return tl::unexpected(held.error());
      bytes = matrix_bytes(tensor, shape, held->bytes);
    }
    if (!bytes) {
      ++attached_.left_out;
      return {};
    }
    if (tensor.stated) ++attached_.stated;
    if (!tensor.format && !tensor.stated) ++attached_.converted;
    OpRow op;
    op.id = ++op_;
    op.step = step_;
    op.layer = tensor.at.layer.value_or(-1);
    op.name = unique_name(tensor.at);
    op.kind = "dumped";
    nlohmann::json attributes{{"dumped_as", tensor.name}, {"shape", tensor.shape}, {"port", port_text(tensor.at.port)}};
    if (shape.heads_first) attributes["heads_first"] = true;
    if (tensor.stated) attributes["statistics_only"] = true;
    if (tensor.at.step) attributes["step"] = *tensor.at.step;  // the name of its file may have said it
    op.attributes = attributes.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::vector<InputRow> inputs;
    for (const TensorIndex input : facts_.inputs_of(index)) {
      const auto known = ids_.find(input);
      if (known != ids_.end()) inputs.push_back({op.id, place_word(facts_.tensor(input).at.role), known->second, {}});
    }
    writer_.add(op, inputs);
    return add_output(index, op, shape, std::move(*bytes));
  }

  Status add_output(TensorIndex index, const OpRow& op, const MatrixShape& shape, std::vector<std::byte> bytes) {
    TensorRow row;
    row.id = ++tensor_;
    row.op = op.id;
    row.role = place_word(facts_.tensor(index).at.role);
    row.format = recorded_format(facts_.tensor(index));
    row.tokens = shape.tokens;
    row.channels = shape.channels;
    row.heads = shape.heads;
    ids_[index] = row.id;
    if (facts_.tensor(index).stated) return add_stated(facts_.tensor(index), std::move(row));
    const kernels::TensorView view{bytes.data(), row.format, row.tokens, row.channels, row.channels};
    const Result<std::uint64_t> hash = observer_.hash(view);
    if (!hash) return tl::unexpected(hash.error());
    row.hash = *hash;
    row.health = empty_health();
    TensorDetail detail;
    if (view.elements() > 0) {
      const Result<std::span<const Health>> tiles = observer_.tiles(view, {}, {});
      if (!tiles) return tl::unexpected(tiles.error());
      const std::int64_t across = (row.channels + kTileChannels - 1) / kTileChannels;
      kernels::HealthSummary summary = kernels::summarize(*tiles, row.tokens, across);
      row.health = summary.tensor;
      detail.tokens = std::move(summary.rows);
      if (across > 1) detail.tiles.assign(tiles->begin(), tiles->end());
    }
    if (!options_.elements) bytes.clear();
    writer_.add(row, detail, std::move(bytes));
    ++attached_.tensors;
    return {};
  }

  /// A tensor of which the health is all there is: no rows of health, no bytes; its hash is that of the health.
  Status add_stated(const DumpTensor& tensor, TensorRow row) {
    row.health = tensor.health;
    auto* health = reinterpret_cast<std::byte*>(&row.health);
    const Result<std::uint64_t> hash =
        observer_.hash({health, Format::int8, 1, sizeof(row.health), sizeof(row.health)});
    if (!hash) return tl::unexpected(hash.error());
    row.hash = *hash;
    writer_.add(row, {}, {});
    ++attached_.tensors;
    return {};
  }

  static constexpr std::int64_t kMostStated = std::int64_t{1} << 48;  ///< elements that a recording may speak of

  OpenDump& dump_;
  DumpFacts& facts_;
  RecordingWriter& writer_;
  TensorObserver observer_;
  const AttachOptions& options_;
  Attached attached_;
  std::map<std::string, std::int64_t> requests_;
  std::map<std::int64_t, std::int64_t> next_index_;
  std::set<std::pair<std::int64_t, std::string>> names_;
  std::map<TensorIndex, std::int64_t> ids_;
  std::int64_t step_ = 0;
  std::int64_t op_ = 0;
  std::int64_t tensor_ = 0;
  std::int64_t done_ = 0;
};

RunInfo info_of(const OpenDump& dump, const kernels::DeviceInfo& device, const AttachOptions& options) {
  RunInfo info;
  info.nanscope_version = options.version;
  info.created = options.created;
  info.scenario = "";
  info.config = "{}";
  info.device = kDumpDevice;
  info.isa = dump.dump().producer;
  info.cpu_features = device.cpu_features;
  info.float_environment = device.float_environment;
  info.capture = options.elements ? "all" : "none";
  info.expected_ops = static_cast<std::int64_t>(dump.dump().tensors.size());
  return info;
}

/// A database left in the middle of a step leaves SQLite's files beside it as well.
void remove_unfinished(const std::filesystem::path& partial) {
  for (const std::string_view suffix : {"", "-journal", "-wal", "-shm"}) {
    std::filesystem::path file = partial;
    file += suffix;
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
}

}  // namespace

Result<Attached> attach(OpenDump& dump, const std::filesystem::path& recording, const AttachOptions& options) {
  std::error_code error;
  if (!options.overwrite && std::filesystem::exists(recording, error)) {
    return fail(fmt::format("{}: exists already; --force replaces it", recording.string()));
  }
  Result<std::unique_ptr<kernels::Device>> device = kernels::make_cpu_device();
  if (!device) return tl::unexpected(device.error());
  // Beside it first: what is there stays whole until the new one is.
  std::filesystem::path partial = recording;
  partial += ".partial";
  WriterOptions writing;
  writing.overwrite = true;
  auto writer = RecordingWriter::create(partial, info_of(dump, (*device)->info(), options), writing);
  if (!writer) return tl::unexpected(writer.error());
  DumpFacts facts(dump.dump(), dump);
  Result<Attached> attached = Attacher(dump, facts, **writer, **device, options).run();
  if (attached) {
    if (Status finished = (*writer)->finish(attached->tensors); !finished) attached = tl::unexpected(finished.error());
  }
  writer->reset();
  if (attached) {
    std::filesystem::rename(partial, recording, error);
    if (error) attached = fail(fmt::format("{}: cannot be written: {}", recording.string(), error.message()));
  }
  if (!attached) remove_unfinished(partial);
  return attached;
}

}  // namespace nanscope
