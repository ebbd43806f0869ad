#include "instrument/dump/containers/manifest.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/dump/containers/json_lines.h"
#include "instrument/dump/containers/strict_json.h"
#include "instrument/dump/containers/strided.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxManifest = 64 << 20;
constexpr std::size_t kMaxDimensions = 64;

/// What an entry says, before its file is looked at.
struct Entry {
  std::string name;
  std::string file;
  const Dtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  std::optional<std::uint64_t> offset;
  bool first_index_fastest = false;
  std::uint64_t bytes = 0;
};

class RawFiles final : public Container {
 public:
  RawFiles(std::filesystem::path folder, std::string manifest)
      : folder_(std::move(folder)), manifest_(std::move(manifest)) {}

  void describe(const std::string& key, const json& value) {
    metadata_[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }

  /// `where` and `offset` are the entry's place in the manifest, for errors.
  Status add(Entry entry, std::string_view where, std::uint64_t offset) {
    if (!names_.insert(entry.name).second)
      return refuse(where, offset, "the name " + in_quotes(entry.name) + " twice, expected once");
    if (entry.dtype->kind == DtypeKind::complex) {
      skipped_.push_back(
          {entry.name, "elements are complex, " + std::string(entry.dtype->name) + ", expected real numbers"});
      return {};
    }
    const auto found = find_file(entry.file, where, offset);
    if (!found) return tl::unexpected(found.error());
    if (*found == nullptr) {
      skipped_.push_back({entry.name, "its file " + printable(entry.file) + " is missing"});
      return {};
    }
    OpenFile& file = **found;
    const std::uint64_t size = file.data.bytes.size();
    const std::uint64_t begin = entry.offset.value_or(0);
    if (begin > size || entry.bytes > size - begin || (!entry.offset && entry.bytes != size)) {
      return refuse(where, offset,
                    in_quotes(entry.name) + ": " + std::to_string(size > begin ? size - begin : 0) + " bytes at " +
                        std::to_string(begin) + " of " + printable(entry.file) + ", expected " +
                        std::to_string(entry.bytes) + " for the shape " + shape_text(entry.shape) + " in " +
                        std::string(entry.dtype->name));
    }
    const auto apart = take_extent(file, begin, entry, where, offset);
    if (!apart) return apart;
    tensors_.push_back({std::move(entry.name), entry.dtype, entry.shape, begin, {}});
    places_.push_back({file.data, std::move(entry.shape), entry.first_index_fastest});
    return {};
  }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const ContainedTensor& wanted = tensors_.at(tensor);
    const Place& place = places_[tensor];
    const auto elements = place.file.bytes.subspan(wanted.offset, wanted.dtype->bytes(wanted.count()));
    if (!place.first_index_fastest) return TensorBytes{elements, place.file.owner};
    const StridedView view = first_index_fastest(place.shape);
    if (view.contiguous()) return TensorBytes{elements, place.file.owner};
    return gather(elements, view, static_cast<std::size_t>(wanted.dtype->bits / 8), place.file.name);
  }

 private:
  struct OpenFile {
    FileBytes data;
    std::map<std::uint64_t, std::uint64_t> extents;  ///< begin -> end of the tensors in it
  };
  struct Place {
    FileBytes file;
    std::vector<std::int64_t> shape;
    bool first_index_fastest;
  };

  /// Opens a file once; null when it is not there.
  Result<OpenFile*> find_file(const std::string& name, std::string_view where, std::uint64_t offset) {
    const auto known = files_.find(name);
    if (known != files_.end()) return &known->second;
    if (const auto problem = path_problem(name)) {
      return refuse(where, offset,
                    "the file " + in_quotes(name) + " " + *problem + ", expected one in the manifest's folder");
    }
    std::error_code error;
    const auto path = folder_ / name;
    if (!std::filesystem::exists(path, error)) return nullptr;
    const auto real = std::filesystem::canonical(path, error);
    const auto root = std::filesystem::canonical(folder_, error);
    const auto relative = real.lexically_relative(root);
    if (error || relative.empty() || *relative.begin() == "..") {
      return refuse(where, offset, "the file " + in_quotes(name) + " is a link out of the manifest's folder");
    }
    auto data = map_file(path);
    if (!data) return tl::unexpected(data.error());
    parts_.push_back(path);
    return &files_.emplace(name, OpenFile{std::move(*data), {}}).first->second;
  }

  static Status take_extent(OpenFile& file, std::uint64_t begin, const Entry& entry, std::string_view where,
                            std::uint64_t offset) {
    if (entry.bytes == 0) return {};
    const auto after = file.extents.lower_bound(begin);
    const bool into_next = after != file.extents.end() && after->first < begin + entry.bytes;
    const bool into_last = after != file.extents.begin() && std::prev(after)->second > begin;
    if (into_next || into_last) {
      return refuse(where, offset,
                    in_quotes(entry.name) + ": bytes " + std::to_string(begin) + " to " +
                        std::to_string(begin + entry.bytes) + " of " + printable(entry.file) +
                        " overlap those of another tensor");
    }
    file.extents.emplace(begin, begin + entry.bytes);
    return {};
  }

  std::filesystem::path folder_;
  std::string manifest_;
  std::map<std::string, OpenFile> files_;
  std::set<std::string> names_;
  std::vector<Place> places_;
};

/// Reads the fields of one entry and adds it.
class EntryReader {
 public:
  EntryReader(RawFiles& into, std::string_view where, std::uint64_t offset)
      : into_(into), where_(where), offset_(offset) {}

  Status read(const json& fields) {
    if (!fields.is_object()) return refused("an entry that is no object");
    for (const auto& [key, value] : fields.items()) {
      const auto taken = take(key, value);
      if (!taken) return taken;
    }
    if (!named_) return refused("an entry without a 'name'");
    if (entry_.file.empty()) return refused(in_quotes(entry_.name) + ": no 'file'");
    if (entry_.dtype == nullptr) return refused(in_quotes(entry_.name) + ": no 'dtype'");
    if (!shaped_) return refused(in_quotes(entry_.name) + ": no 'shape'");
    const auto count = checked_count(entry_.shape, *entry_.dtype);
    if (!count)
      return refused(in_quotes(entry_.name) + ": the shape " + shape_text(entry_.shape) + " has too many elements");
    if (entry_.first_index_fastest && entry_.dtype->bits < 8) {
      return refused(in_quotes(entry_.name) + ": the order F of packed elements, expected C");
    }
    entry_.bytes = entry_.dtype->bytes(*count);
    for (const auto& [key, value] : others_) into_.describe(entry_.name + "." + key, value);
    return into_.add(std::move(entry_), where_, offset_);
  }

 private:
  tl::unexpected<Error> refused(const std::string& what) const { return refuse(where_, offset_, what); }

  Status take(const std::string& key, const json& value) {
    if (key == "name" || key == "file") {
      if (!value.is_string()) return refused("'" + key + "' is no text");
      (key == "name" ? entry_.name : entry_.file) = value.get<std::string>();
      named_ = named_ || key == "name";
      return {};
    }
    if (key == "dtype") {
      entry_.dtype = value.is_string() ? find_dtype(value.get_ref<const std::string&>()) : nullptr;
      if (entry_.dtype == nullptr)
        return refused("the dtype " + printable(value.dump()) + ", expected one like f32, bf16, e4m3 or i64");
      return {};
    }
    if (key == "shape") return take_shape(value);
    if (key == "offset") {
      const auto offset = json_natural(value);
      if (!offset) return refused("the offset " + printable(value.dump()) + ", expected a whole number from 0");
      entry_.offset = static_cast<std::uint64_t>(*offset);
      return {};
    }
    if (key == "order") {
      if (value != "C" && value != "F")
        return refused("the order " + printable(value.dump()) + ", expected \"C\" or \"F\"");
      entry_.first_index_fastest = value == "F";
      return {};
    }
    others_.emplace_back(key, value);
    return {};
  }

  Status take_shape(const json& value) {
    shaped_ = value.is_array() && value.size() <= kMaxDimensions;
    if (shaped_) {
      for (const json& extent : value) {
        const auto number = json_natural(extent);
        shaped_ = shaped_ && number.has_value();
        entry_.shape.push_back(number.value_or(0));
      }
    }
    if (!shaped_) return refused("the shape " + printable(value.dump()) + ", expected at most 64 whole numbers from 0");
    return {};
  }

  RawFiles& into_;
  std::string_view where_;
  std::uint64_t offset_;
  Entry entry_;
  bool named_ = false;
  bool shaped_ = false;
  std::vector<std::pair<std::string, json>> others_;
};

Status read_whole(std::string_view text, const std::string& file, RawFiles& into) {
  const auto manifest = parse_strict_json(text, file, 0);
  if (!manifest) return tl::unexpected(manifest.error());
  const auto tensors = manifest->find("tensors");
  if (tensors == manifest->end() || !tensors->is_array()) {
    return refuse(file, 0, "no list 'tensors', expected a manifest of raw files");
  }
  for (const auto& [key, value] : manifest->items()) {
    if (key != "tensors") into.describe(key, value);
  }
  for (std::size_t i = 0; i < tensors->size(); ++i) {
    const auto read = EntryReader(into, file + ": entry " + std::to_string(i), 0).read((*tensors)[i]);
    if (!read) return read;
  }
  return {};
}

Status read_lines(std::span<const std::byte> text, const std::string& file, RawFiles& into) {
  return for_each_json_line(text, file, [&](const JsonLine& line) {
    return EntryReader(into, file + ": line " + std::to_string(line.number), line.offset).read(line.object);
  });
}

}  // namespace

Result<std::unique_ptr<Container>> read_manifest(std::span<const std::byte> text, const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  auto files = std::make_unique<RawFiles>(folder, path.string());
  const auto read = path.extension() == ".jsonl" ? read_lines(text, path.string(), *files)
                                                 : read_whole(as_text(text), path.string(), *files);
  if (!read) return tl::unexpected(read.error());
  return files;
}

Result<std::unique_ptr<Container>> open_manifest(const std::filesystem::path& path) {
  const auto text = read_file(path, kMaxManifest);
  if (!text) return tl::unexpected(text.error());
  return read_manifest(*text, path);
}

ContainerKind manifest_container() { return {"raw", {"manifest.json", "manifest.jsonl"}, nullptr, open_manifest}; }

}  // namespace nanscope
