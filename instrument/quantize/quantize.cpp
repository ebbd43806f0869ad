#include "instrument/quantize/quantize.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "core/files/folder_lock.h"
#include "core/files/output_file.h"
#include "core/parse_json.h"
#include "core/system_reason.h"
#include "core/tensor/content_hash.h"
#include "core/text/safe_text.h"
#include "core/threads/parallel.h"
#include "instrument/files/file.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/quantize/encode_weight.h"
#include "instrument/quantize/plan.h"
#include "instrument/quantized/quantization_config.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostConfig = 16u << 20;
constexpr std::uint64_t kMostState = 1u << 30;
constexpr std::string_view kState = "quantize.json";
constexpr std::string_view kOtherState = ".nanscope-quantize.json";  ///< where the checkpoint has a file of that name
constexpr std::size_t kPiece = 1u << 20;                             ///< of what is copied

/// A file of fixed size that is written at places.
class PlacedFile {
 public:
  static Result<PlacedFile> create(const fs::path& path, std::uint64_t size) {
    PlacedFile file;
    file.path_ = path;
    file.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file.fd_ < 0) return fail(fmt::format("{}: {}", path.string(), system_reason(errno)));
    // So that a full disk is known before the work is done.
    const int error = ::posix_fallocate(file.fd_, 0, static_cast<off_t>(size));
    if (error != 0) return fail(fmt::format("{}: {}", path.string(), system_reason(error)));
    return file;
  }
  PlacedFile(PlacedFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;
  PlacedFile& operator=(PlacedFile&&) = delete;
  ~PlacedFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  Status write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t wrote = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return fail(fmt::format("{}: {}", path_.string(), system_reason(errno)));
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
      offset += static_cast<std::uint64_t>(wrote);
    }
    return {};
  }

 private:
  PlacedFile() = default;
  fs::path path_;
  int fd_ = -1;
};

Json json_of(const QuantizedWeight& one) {
  return Json{{"module", one.module},   {"rows", one.rows},     {"columns", one.columns},
              {"signal", one.signal},   {"noise", one.noise},   {"clipped", one.clipped},
              {"flushed", one.flushed}, {"blocks", one.blocks}, {"owned", one.owned}};
}

QuantizedWeight weight_of(const Json& json) {
  QuantizedWeight one;
  one.module = json.value("module", "");
  one.rows = json.value("rows", std::int64_t{0});
  one.columns = json.value("columns", std::int64_t{0});
  one.signal = json.value("signal", 0.0);
  one.noise = json.value("noise", 0.0);
  one.clipped = json.value("clipped", std::int64_t{0});
  one.flushed = json.value("flushed", std::int64_t{0});
  one.blocks = json.value("blocks", std::int64_t{0});
  one.owned = json.value("owned", std::int64_t{0});
  return one;
}

bool has_own(const fs::path& folder, std::string_view name) {
  std::error_code error;
  return fs::exists(fs::symlink_status(folder / name, error));
}

class Quantizer {
 public:
  Quantizer(fs::path from, fs::path to, const QuantizeOptions& options, CheckpointFiles files, QuantizePlan plan)
      : from_(std::move(from)),
        to_(std::move(to)),
        partial_(to_.string() + ".partial"),
        options_(options),
        state_file_(has_own(from_, kState) ? kOtherState : kState),
        files_(std::move(files)),
        plan_(std::move(plan)) {}

  Result<QuantizeReport> run() {
    if (Status begun = begin(); !begun) return tl::unexpected(begun.error());
    std::map<std::string, std::vector<std::string>> shards;
    for (const auto& [name, tensor] : files_.tensors()) {
      shards[tensor.file->path.filename().string()].push_back(name);
      total_ += tensor.bytes().size();
    }
    for (const auto& [shard, names] : shards) {
      if (Status done = do_shard(shard, names); !done) return tl::unexpected(done.error());
    }
    if (Status ended = end(shards.size() > 1 || shards.begin()->first != "model.safetensors"); !ended) {
      return tl::unexpected(ended.error());
    }
    report_.kept = plan_.kept;
    report_.input_scales = writes_inputs(options_) ? plan_.weights.size() : 0;
    report_.bytes_before = total_;
    return std::move(report_);
  }

 private:
  /// What is made of what: where any of it changed, a partial folder is another's.
  std::string about() const {
    std::string text =
        fmt::format("{}|{}|{}", fs::absolute(from_).string(), options_.target->to, options_.target->layout);
    for (const std::string& one : options_.ignore) text += '|' + one;
    if (writes_inputs(options_)) {
      for (const auto& [module, amax] : options_.inputs) text += fmt::format("|{}={:a}", module, amax);
    }
    std::set<std::string> seen;
    for (const auto& [name, tensor] : files_.tensors()) {
      if (!seen.insert(tensor.file->path.string()).second) continue;
      const auto state = state_of(tensor.file->path);
      if (state)
        text += fmt::format("|{}:{}:{}.{}", tensor.file->path.filename().string(), state->size, state->modified_s,
                            state->modified_ns);
    }
    return text;
  }

  Status begin() {
    std::error_code error;
    if (fs::exists(fs::symlink_status(to_, error)))
      return fail(to_.string() + ": is there already, and is not written over");
    if (Status locked = lock(); !locked) return locked;
    state_["about"] = about();
    state_["done"] = Json::object();
    if (!fs::exists(partial_, error) || was_only_made()) {
      fs::create_directories(partial_, error);
      if (error) return fail(fmt::format("{}: {}", partial_.string(), error.message()));
      return write_output(partial_ / state_file_, state_.dump(1));
    }
    const auto bytes = read_file(partial_ / state_file_, kMostState);
    const Json known = bytes ? parse_json_or_none<Json>(as_text(*bytes)) : Json();
    if (!known.is_object() || known.value("about", Json()) != state_["about"] ||
        !known.value("done", Json()).is_object()) {
      return fail(
          fmt::format("{}: is there, and not of this command with these arguments; move it away", partial_.string()));
    }
    state_ = known;
    return remove_unfinished();
  }

  Status lock() {
    auto taken = FolderLock::take(to_, "quantize");
    if (!taken) return tl::unexpected(taken.error());
    lock_.emplace(std::move(*taken));
    return {};
  }

  /// Whether a call that was killed left no more than the folder, and its state under a name of work.
  bool was_only_made() const {
    std::error_code error;
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(partial_, error)) all.push_back(entry.path());
    const std::string begun = state_file_ + '.';
    const bool only = !error && std::all_of(all.begin(), all.end(), [&](const fs::path& path) {
      return path.filename().string().starts_with(begun) && path.extension() == ".tmp";
    });
    for (const fs::path& path : all) {
      if (only) fs::remove(path, error);
    }
    return only;
  }

  /// What a call that was killed had begun: files under names of work, which would become part of the result.
  Status remove_unfinished() const {
    std::error_code error;
    std::vector<fs::path> unfinished;
    for (const auto& entry : fs::directory_iterator(partial_, error)) {
      const std::string name = entry.path().filename().string();
      if (name != state_file_ && !state_["done"].contains(name)) unfinished.push_back(entry.path());
    }
    for (const fs::path& path : unfinished) {
      if (!error) fs::remove(path, error);
    }
    if (error) return fail(fmt::format("{}: {}", partial_.string(), error.message()));
    return {};
  }

  Status do_shard(const std::string& shard, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto weight = plan_.weights.find(name);
      if (weight == plan_.weights.end()) {
        map_[name] = shard;
        continue;
      }
      for (const SafetensorsSpec& spec : stored_as(options_, weight->second)) map_[spec.name] = shard;
    }
    const auto known = state_["done"].find(shard);
    std::error_code error;
    if (known != state_["done"].end() && is_whole(shard, *known)) {
      for (const Json& one : (*known)["weights"]) report_.weights.push_back(weight_of(one));
      for (const std::string& name : names) read_ += files_.find(name).bytes().size();
      report_.bytes_after += fs::file_size(partial_ / shard, error);
      ++report_.resumed;
      return {};
    }
    std::vector<SafetensorsSpec> specs;
    for (const std::string& name : names) {
      const auto weight = plan_.weights.find(name);
      const SafetensorsEntry& entry = *files_.find(name).entry;
      if (weight == plan_.weights.end()) {
        specs.push_back({name, entry.dtype, entry.shape});
        continue;
      }
      for (SafetensorsSpec& spec : stored_as(options_, weight->second)) specs.push_back(std::move(spec));
    }
    const auto layout =
        lay_out_safetensors(std::move(specs), files_.find(names.front()).file->content->header().metadata);
    if (!layout) return tl::unexpected(layout.error());
    return write_shard(shard, names, *layout);
  }

  /// Whether a shard holds what it held when it was finished.
  bool is_whole(const std::string& shard, const Json& known) const {
    if (!known.is_object() || !known.value("weights", Json()).is_array()) return false;
    const auto hash = hash_of(partial_ / shard);
    return hash && known.value("hash", Json()) == *hash;
  }

  static Result<std::string> hash_of(const fs::path& path) {
    const auto mapped = MappedFile::open(path);
    if (!mapped) return tl::unexpected(mapped.error());
    ContentHash hash;
    hash.add(mapped->bytes());
    return fmt::format("{:016x}", hash.finish());
  }

  Status write_shard(const std::string& shard, const std::vector<std::string>& names, const SafetensorsLayout& layout) {
    const fs::path writing = partial_ / (shard + ".writing");
    const auto file = PlacedFile::create(writing, layout.size);
    if (!file) return tl::unexpected(file.error());
    if (Status wrote = file->write(0, layout.header); !wrote) return wrote;
    Json done = Json::array();
    for (const std::string& name : names) {
      if (options_.stop.stop_requested()) return fail("stopped");
      const auto weight = plan_.weights.find(name);
      const CheckpointFiles::Tensor tensor = files_.find(name);
      if (weight == plan_.weights.end()) {
        if (Status kept = keep(tensor, layout.offsets.find(name)->second, *file); !kept) return kept;
      } else {
        const auto lost = write_weight(weight->second, layout, *file);
        if (!lost) return tl::unexpected(lost.error());
        done.push_back(json_of(*lost));
        report_.weights.push_back(*lost);
      }
      read_ += tensor.bytes().size();
      if (options_.progress) options_.progress(read_, total_);
    }
    if (Status same = files_.check_unchanged(); !same) return same;
    std::error_code error;
    fs::rename(writing, partial_ / shard, error);
    if (error) return fail(fmt::format("{}: {}", (partial_ / shard).string(), error.message()));
    report_.bytes_after += layout.size;
    const auto hash = hash_of(partial_ / shard);
    if (!hash) return tl::unexpected(hash.error());
    state_["done"][shard] = {{"hash", *hash}, {"weights", std::move(done)}};
    return write_output(partial_ / state_file_, state_.dump(1), {.replace = true});
  }

  /// Copies a tensor as it is.
  Status keep(const CheckpointFiles::Tensor& tensor, std::uint64_t offset, const PlacedFile& file) const {
    struct Nothing {};
    const std::span<const std::byte> bytes = tensor.bytes();
    const auto pieces = static_cast<std::int64_t>((bytes.size() + kPiece - 1) / kPiece);
    return for_each_part<Nothing>(pieces, options_.threads, options_.stop, [&](std::int64_t piece, Nothing&) {
      const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
      return file.write(offset + begin, bytes.subspan(begin, std::min(kPiece, bytes.size() - begin)));
    });
  }

  Result<QuantizedWeight> write_weight(const QuantizePlan::Weight& weight, const SafetensorsLayout& layout,
                                       const PlacedFile& file) {
    const std::vector<SafetensorsSpec> parts = stored_as(options_, weight);
    float amax = 0;
    if (options_.target->whole || !options_.target->second.empty()) {
      const auto found = amax_of(weight);
      if (!found) return tl::unexpected(found.error());
      amax = *found;
    }
    if (writes_inputs(options_)) {
      const float scale = options_.target->input_scale(options_.inputs.at(weight.module));
      const std::uint64_t offset = layout.offsets.find(parts.back().name)->second;
      if (Status wrote = file.write(offset, std::as_bytes(std::span(&scale, 1))); !wrote)
        return tl::unexpected(wrote.error());
    }
    return encode_weight(weight, amax, options_,
                         [&](std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes) {
                           return file.write(layout.offsets.find(parts[part].name)->second + offset, bytes);
                         });
  }

  /// Of all that shares a weight's scale of the whole.
  Result<float> amax_of(const QuantizePlan::Weight& weight) {
    float amax = 0;
    const std::string own = weight.module + ".weight";
    for (const std::string& name : options_.target->shared ? weight.shared : std::vector<std::string>{own}) {
      auto known = amax_.find(name);
      if (known == amax_.end()) {
        const CheckpointFiles::Tensor tensor = files_.find(name);
        auto found = largest_magnitude(tensor, options_);
        if (!found) return found;
        if (!std::isfinite(*found)) return fail(tensor.where() + " holds NaN or Inf, which no scale is made of");
        known = amax_.emplace(name, *found).first;
      }
      amax = std::max(amax, known->second);
    }
    return amax;
  }

  Status end(bool sharded) {
    if (sharded) {
      Json index;
      std::uint64_t size = 0;
      for (const auto& [name, shard] : map_) index["weight_map"][name] = shard;
      for (const auto& entry : fs::directory_iterator(partial_)) {
        if (entry.path().extension() == ".safetensors") size += entry.file_size();
      }
      index["metadata"] = {{"total_size", size}};
      Status wrote = write_output(partial_ / "model.safetensors.index.json", index.dump(2) + "\n", {.replace = true});
      if (!wrote) return wrote;
    }
    if (Status wrote = write_config(); !wrote) return wrote;
    if (Status copied = copy_others(); !copied) return copied;
    std::error_code error;
    if (fs::exists(fs::symlink_status(to_, error)))
      return fail(to_.string() + ": was made meanwhile; the result is in " + partial_.string());
    fs::rename(partial_, to_, error);
    if (error)
      return fail(fmt::format("{}: {}; the result is in {}", to_.string(), error.message(), partial_.string()));
    // Behind the renaming: whoever is killed here leaves a whole folder with one file too many, not one that nobody
    // knows the state of.
    fs::remove(to_ / state_file_, error);
    return {};
  }

  Status write_config() {
    const auto bytes = read_file(from_ / "config.json", kMostConfig);
    if (!bytes) return tl::unexpected(bytes.error());
    Json config = parse_json_or_none<Json>(as_text(*bytes));
    if (!config.is_object()) return fail((from_ / "config.json").string() + ": not a JSON object");
    config["quantization_config"] = options_.target->config(*options_.target, ignored(), writes_inputs(options_));
    return write_output(partial_ / "config.json", config.dump(2) + "\n", {.replace = true});
  }

  /// Of the matrices that stay floats, those that a loader would take for products of the model.
  std::vector<std::string> ignored() const {
    std::vector<std::string> names;
    for (const std::string& module : plan_.kept) {
      const std::string_view leaf = std::string_view(module).substr(module.rfind('.') + 1);
      if (leaf.find("embed") == std::string_view::npos && leaf != "wte" && leaf != "wpe") names.push_back(module);
    }
    // A tied head is a module without a tensor.
    if (std::find(names.begin(), names.end(), "lm_head") == names.end()) names.emplace_back("lm_head");
    return names;
  }

  /// Whether a link leads out of the checkpoint. The hub's cache keeps the files of a snapshot in a folder beside it.
  bool leads_out(const fs::directory_entry& entry) const {
    std::error_code error;
    if (!entry.is_symlink(error)) return false;
    const fs::path target = fs::canonical(entry.path(), error);
    const fs::path own = fs::canonical(from_, error);
    if (error) return true;
    const fs::path blobs = own.parent_path().parent_path() / "blobs";
    const auto within = [&](const fs::path& folder) {
      const fs::path relative = target.lexically_relative(folder);
      return !relative.empty() && *relative.begin() != "..";
    };
    return !within(own) && !(own.parent_path().filename() == "snapshots" && within(blobs));
  }

  /// Tokenizer, generation config and the like.
  Status copy_others() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(from_, error)) {
      const std::string name = entry.path().filename().string();
      const std::string end = entry.path().extension().string();
      if (end == ".safetensors" || name == "config.json" || name == "model.safetensors.index.json") continue;
      const bool weights =
          end == ".bin" || end == ".pt" || end == ".pth" || end == ".gguf" || end == ".h5" || end == ".msgpack";
      if (name == state_file_ || !entry.is_regular_file(error) || weights || leads_out(entry)) {
        report_.not_copied.push_back(name);
        continue;
      }
      fs::copy_file(entry.path(), partial_ / name, fs::copy_options::overwrite_existing, error);
      if (error) return fail(fmt::format("{}: {}", (partial_ / name).string(), error.message()));
    }
    std::sort(report_.not_copied.begin(), report_.not_copied.end());
    return {};
  }

  fs::path from_, to_, partial_;
  const QuantizeOptions& options_;
  std::string state_file_;
  CheckpointFiles files_;
  QuantizePlan plan_;
  QuantizeReport report_;
  Json state_;
  std::map<std::string, std::string> map_;  ///< tensor to file
  std::map<std::string, float> amax_;
  std::optional<FolderLock> lock_;
  std::uint64_t read_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

double QuantizedWeight::error() const { return signal > 0 ? std::sqrt(noise / signal) : 0; }

double QuantizedWeight::snr() const {
  return noise > 0 ? 10 * std::log10(signal / noise) : std::numeric_limits<double>::infinity();
}

double QuantizeReport::predicted_error() const {
  // A branch is what adds to the residual stream: the attention or the MLP of a layer.
  std::map<std::string, double> branches;
  for (const QuantizedWeight& one : weights) {
    branches[one.module.substr(0, one.module.rfind('.'))] += one.signal > 0 ? one.noise / one.signal : 0;
  }
  double sum = 0;
  for (const auto& [name, noise] : branches) sum += noise;
  return branches.empty() ? 0 : std::sqrt(sum / static_cast<double>(branches.size()));
}

Result<QuantizeReport> quantize_checkpoint(const fs::path& from, const fs::path& to, const QuantizeOptions& options) {
  const auto gguf = gguf_of(from);
  if (!gguf) return tl::unexpected(gguf.error());
  if (*gguf) return fail((*gguf)->string() + ": is a GGUF file: give the safetensors that it was made from");
  const auto config = read_quantization_config(from);
  if (!config) return tl::unexpected(config.error());
  if (config->method != QuantMethod::none) {
    return fail(fmt::format("{}: is quantized already ({})", (from / "config.json").string(), config->text()));
  }
  auto files = CheckpointFiles::open(from);
  if (!files) return tl::unexpected(files.error());
  auto plan = plan_quantization(*files, options);
  if (!plan) return tl::unexpected(plan.error());
  return Quantizer(from, to.has_filename() ? to : to.parent_path(), options, std::move(*files), std::move(*plan)).run();
}

}  // namespace nanscope
