#include "instrument/weights/checkpoint_files.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostIndex = 256u << 20;
constexpr std::size_t kMostShards = 4096;

/// A file of the same folder, not a path.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

CheckpointFiles::Held CheckpointFiles::Tensor::held() const {
  if (gguf == nullptr || gguf->as_stored()) return {bytes(), nullptr};
  const auto made = std::make_shared<std::vector<std::byte>>(gguf->values());
  return {*made, made};
}

std::string CheckpointFiles::Tensor::where() const {
  return fmt::format("{}: tensor '{}'", file->path.string(), one_line(entry->name));
}

Result<CheckpointFiles> CheckpointFiles::open(const fs::path& folder) {
  CheckpointFiles files;
  const auto gguf = gguf_of(folder);
  if (!gguf) return tl::unexpected(gguf.error());
  if (*gguf) {
    if (Status added = files.add_gguf(**gguf); !added) return tl::unexpected(added.error());
    return files;
  }
  const fs::path whole = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  std::error_code error;
  const bool sharded = fs::exists(index, error);
  if (!sharded && !fs::exists(whole, error)) {
    return fail(
        fmt::format("{}: neither model.safetensors nor model.safetensors.index.json is there", folder.string()));
  }
  if (Status opened = sharded ? files.open_index(folder, index) : files.add(whole, nullptr); !opened)
    return tl::unexpected(opened.error());
  return files;
}

Status CheckpointFiles::open_index(const fs::path& folder, const fs::path& index) {
  const auto bytes = read_file(index, kMostIndex);
  if (!bytes) return tl::unexpected(bytes.error());
  const std::string file = index.string();
  const auto parsed = parse_json(as_text(*bytes));
  if (!parsed) return fail(file + ": " + parsed.error().message);
  const nlohmann::json& json = *parsed;
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) return fail(file + ": no object weight_map");
  std::map<std::string, std::set<std::string, std::less<>>> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>())) {
      return fail(fmt::format("{}: '{}' lies in {}, which is no file of this folder", file, one_line(tensor),
                              one_line(shard.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))));
    }
    shards[shard.get<std::string>()].insert(tensor);
  }
  if (shards.empty() || shards.size() > kMostShards) {
    return fail(fmt::format("{}: names {} files, expected 1 to {}", file, shards.size(), kMostShards));
  }
  for (const auto& [shard, tensors] : shards) {
    if (Status added = add(folder / shard, &tensors); !added) return added;
  }
  return {};
}

Status CheckpointFiles::add(const fs::path& path, const std::set<std::string, std::less<>>* expected) {
  Result<SafetensorsFile> content = SafetensorsFile::open(path);
  if (!content) return tl::unexpected(content.error());
  files_.push_back(std::make_unique<File>(File{path, std::move(*content)}));
  const File& file = *files_.back();
  for (const SafetensorsEntry& entry : file.content->entries()) {
    if (expected != nullptr && !expected->contains(entry.name)) continue;
    if (!tensors_.emplace(entry.name, Tensor{&file, &entry}).second) {
      return fail(fmt::format("{}: tensor '{}' lies in another file too", path.string(), one_line(entry.name)));
    }
  }
  if (expected == nullptr) return {};
  for (const std::string& tensor : *expected) {
    if (!tensors_.contains(tensor)) {
      return fail(fmt::format("{}: no tensor '{}', which the index says is there", path.string(), one_line(tensor)));
    }
  }
  return {};
}

Status CheckpointFiles::add_gguf(const fs::path& path) {
  auto model = GgufModel::open(path);
  if (!model) return tl::unexpected(model.error());
  gguf_ = std::move(*model);
  if (!gguf_->undecoded().empty()) {
    const GgufTensor& first = *gguf_->undecoded().front();
    return fail(fmt::format("{}: tensor '{}' is of {}, which is not decoded", path.string(), one_line(first.name),
                            first.type_name()));
  }
  std::map<const GgufFile*, const File*> files;
  for (const auto& part : gguf_->parts()) {
    files_.push_back(std::make_unique<File>(File{part->path, std::nullopt}));
    files[&part->file] = files_.back().get();
  }
  for (const GgufWeight& weight : gguf_->weights()) {
    auto entry = std::make_unique<SafetensorsEntry>();
    entry->name = weight.name;
    entry->dtype = weight.tensor->type_name();
    entry->format = weight.format;
    entry->shape = weight.shape;
    entry->end = weight.end - weight.begin;
    if (!tensors_.emplace(weight.name, Tensor{files[weight.file], entry.get(), &weight}).second)
      return fail(fmt::format("{}: two tensors are '{}'", path.string(), one_line(weight.name)));
    made_.push_back(std::move(entry));
  }
  return {};
}

CheckpointFiles::Tensor CheckpointFiles::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Tensor{} : found->second;
}

Status CheckpointFiles::check_unchanged() const {
  if (gguf_ != nullptr) return gguf_->check();
  for (const auto& file : files_) {
    if (Status same = file->content->check(); !same) return same;
  }
  return {};
}

}  // namespace nanscope
