#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/safetensors.h"
#include "instrument/dump/containers/strict_json.h"
#include "instrument/files/file.h"
#include "instrument/files/read_budget.h"

/// model.safetensors.index.json: which shard holds which tensor, as Hugging Face writes it
/// (huggingface.co/docs/transformers/big_models, "Sharded checkpoints").
namespace nanscope {
namespace {

constexpr std::uint64_t kMaxIndex = 64 << 20;
constexpr std::uint64_t kListedName = 128;   ///< a name in a list that doubles as it grows, or in a map
constexpr std::uint64_t kListedShard = 160;  ///< its node in the map

class ShardedSafetensors final : public Container {
 public:
  void describe(const JsonView& fields) {
    for (const auto& [key, value] : fields.items()) {
      metadata_[key.text()] = value.is_text() ? value.text() : std::string(value.source());
    }
  }

  void skip(std::string key, std::string reason) { skipped_.push_back({std::move(key), std::move(reason)}); }

  /// Takes the tensors of a shard that the index assigns to it; `wanted` are their sorted names.
  void add(const std::filesystem::path& path, std::unique_ptr<Container> shard,
           const std::vector<std::string>& wanted) {
    const auto is_wanted = [&](const std::string& key) {
      return std::binary_search(wanted.begin(), wanted.end(), key);
    };
    const std::size_t before = tensors_.size() + skipped_.size();
    std::vector<std::string> unlisted;
    for (std::size_t i = 0; i < shard->tensors().size(); ++i) {
      if (!is_wanted(shard->tensors()[i].key)) {
        unlisted.push_back(shard->tensors()[i].key);
        continue;
      }
      tensors_.push_back(shard->tensors()[i]);
      places_.push_back({shards_.size(), i});
    }
    for (const SkippedTensor& tensor : shard->skipped()) {
      if (is_wanted(tensor.key)) skipped_.push_back(tensor);
    }
    if (tensors_.size() + skipped_.size() - before != wanted.size()) name_absent(path, *shard, wanted);
    for (std::string& key : unlisted) {
      skip(std::move(key), printable(path.filename().string()) + " holds it and the index does not list it");
    }
    parts_.push_back(path);
    shards_.push_back(std::move(shard));
  }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const Place& place = places_.at(tensor);
    return shards_[place.shard]->bytes(place.tensor);
  }
  Status check() const override {
    for (const std::unique_ptr<Container>& shard : shards_) {
      if (Status same = shard->check(); !same) return same;
    }
    return {};
  }

 private:
  struct Place {
    std::size_t shard;
    std::size_t tensor;
  };

  void name_absent(const std::filesystem::path& path, const Container& shard, const std::vector<std::string>& wanted) {
    std::vector<std::string> present;
    for (const ContainedTensor& tensor : shard.tensors()) present.push_back(tensor.key);
    for (const SkippedTensor& tensor : shard.skipped()) present.push_back(tensor.key);
    std::sort(present.begin(), present.end());
    for (const std::string& key : wanted) {
      if (std::binary_search(present.begin(), present.end(), key)) continue;
      skip(key, "the index puts it in " + printable(path.filename().string()) + ", which does not hold it");
    }
  }

  std::vector<std::unique_ptr<Container>> shards_;
  std::vector<Place> places_;
};

/// Shard -> its tensors, both in the order of their names.
using Shards = std::map<std::string, std::vector<std::string>>;

Result<Shards> read_map(const JsonView& index, std::string_view file, ReadBudget& budget) {
  const auto map = index.find("weight_map");
  if (!map || !map->is_object()) return refuse(file, 0, "no object weight_map, expected that of a sharded checkpoint");
  Shards shards;
  for (const auto& [name, value] : map->items()) {
    const std::string key = name.text();
    if (!value.is_text())
      return refuse(file, 0, "weight_map: " + in_quotes(key) + " is no text, expected a shard's file name");
    const std::string shard = value.text();
    const std::uint64_t texts = 2 * text_bytes(key.size()) + 2 * text_bytes(shard.size());
    if (!budget.take(texts + kListedName + (shards.contains(shard) ? 0 : kListedShard))) {
      return refuse(file, 0, "weight_map: more than four times the file in memory, expected fewer names");
    }
    if (const auto problem = path_problem(shard)) {
      return refuse(file, 0,
                    "weight_map: the shard " + in_quotes(shard) + " of " + in_quotes(key) + " " + *problem +
                        ", expected a file beside the index");
    }
    shards[shard].push_back(key);
  }
  // Writers list names in whatever order.
  for (auto& [shard, names] : shards) std::sort(names.begin(), names.end());
  return shards;
}

Result<std::unique_ptr<Container>> open_index(const std::filesystem::path& path) {
  const auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  if (file->bytes.size() > kMaxIndex) {
    return fail(path.string() + ": " + std::to_string(file->bytes.size()) + " bytes, expected at most " +
                std::to_string(kMaxIndex));
  }
  const auto index = parse_strict_json(as_text(file->bytes), path.string(), 0);
  if (!index) return tl::unexpected(index.error());
  ReadBudget budget(file->bytes.size());
  const auto shards = read_map(*index, path.string(), budget);
  if (!shards) return tl::unexpected(shards.error());
  auto sharded = std::make_unique<ShardedSafetensors>();
  const auto fields = index->find("metadata");
  if (fields && budget.take(kListedName * fields->size() + 2 * fields->source().size())) sharded->describe(*fields);
  for (const auto& [name, keys] : *shards) {
    const std::filesystem::path shard_path = path.parent_path() / name;
    std::error_code ignored;
    if (!std::filesystem::exists(shard_path, ignored)) {
      for (const std::string& key : keys) sharded->skip(key, "its shard " + printable(name) + " is missing");
      continue;
    }
    auto shard = open_safetensors(shard_path);
    if (!shard) {
      // The reason once: it is longer than what names may take.
      for (const std::string& key : keys) {
        sharded->skip(key, "its shard " + printable(name) + " cannot be read" +
                               (key == keys.front() ? ": " + shard.error().message : std::string()));
      }
      continue;
    }
    sharded->add(shard_path, std::move(*shard), keys);
  }
  return sharded;
}

}  // namespace

ContainerKind safetensors_index_container() {
  return {"safetensors-index", {".safetensors.index.json"}, nullptr, open_index};
}

}  // namespace nanscope
