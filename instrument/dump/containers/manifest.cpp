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
#include "instrument/files/read_budget.h"

namespace nanscope {
namespace {

constexpr std::uint64_t kMaxManifest = 64 << 20;
/// What is kept of a file that is named, beside its size: that of a page.
constexpr std::uint64_t kOpenFile = 4096;
/// Of a tensor: its name in a set, its extent in a map, beside what Container and Place hold.
constexpr std::uint64_t kListedTensor = 144;
constexpr std::uint64_t kListedField = 128;  ///< a text in the map of metadata

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
  RawFiles(std::filesystem::path folder, std::uint64_t manifest_bytes)
      : folder_(std::move(folder)), budget_(manifest_bytes) {}

  /// Makes room for so many tensors; `where` names the manifest, for errors.
  Status expect(std::size_t tensors, std::string_view where) {
    if (!budget_.take(tensors * (sizeof(ContainedTensor) + sizeof(Place)))) return too_much(where, 0);
    tensors_.reserve(tensors);
    places_.reserve(tensors);
    return {};
  }

  Status describe(std::string_view key, const JsonView& value, std::string_view where, std::uint64_t offset) {
    if (!budget_.take(kListedField + 2 * key.size() + 2 * value.source().size())) return too_much(where, offset);
    metadata_[std::string(key)] = value.is_text() ? value.text() : std::string(value.source());
    return {};
  }

  /// `where` and `offset` are the entry's place in the manifest, for errors.
  Status add(Entry entry, std::string_view where, std::uint64_t offset) {
    if (!budget_.take(kListedTensor + 3 * entry.name.size() + 16 * entry.shape.size())) return too_much(where, offset);
    if (!names_.insert(entry.name).second)
      return refuse(where, offset, "the name " + in_quotes(entry.name) + " twice, expected once");
    if (const Dtype* part = part_of_complex(*entry.dtype); part != nullptr && !entry.first_index_fastest) {
      entry.dtype = part;
      entry.shape.push_back(2);
    }
    if (entry.dtype->kind == DtypeKind::complex) {
      return skip(entry.name, "elements are complex, " + std::string(entry.dtype->name) + ", expected real numbers",
                  where, offset);
    }
    const auto found = find_file(entry.file, where, offset);
    if (!found) return tl::unexpected(found.error());
    if (*found == nullptr) {
      return skip(entry.name, "its file " + printable(entry.file) + " is missing", where, offset);
    }
    OpenFile& file = **found;
    const std::uint64_t size = file.data.size();
    const std::uint64_t begin = entry.offset.value_or(0);
    if (begin > size || entry.bytes > size - begin || (!entry.offset && entry.bytes != size)) {
      return refuse(where, offset,
                    in_quotes(entry.name) + ": " + std::to_string(size > begin ? size - begin : 0) + " bytes at " +
                        std::to_string(begin) + " of " + printable(entry.file) + ", expected " +
                        std::to_string(entry.bytes) + " for the shape " + shape_text(entry.shape) + " in " +
                        std::string(entry.dtype->name));
    }
    auto apart = take_extent(file, begin, entry, where, offset);
    if (!apart) return apart;
    if (++file.tensors == KeptFile::kMany) file.data.keep();
    tensors_.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), begin, {}});
    places_.push_back({&file, entry.first_index_fastest});
    return {};
  }

  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const ContainedTensor& wanted = tensors_.at(tensor);
    const Place& place = places_[tensor];
    const std::uint64_t size = wanted.dtype->bytes(wanted.count());
    const auto file = place.file->data.hold(size);
    if (!file) return tl::unexpected(file.error());
    const auto elements = file->bytes.subspan(wanted.offset, size);
    if (!place.first_index_fastest) return TensorBytes{elements, file->owner};
    const StridedView view = first_index_fastest(wanted.shape);
    if (view.contiguous()) return TensorBytes{elements, file->owner};
    return gather(elements, view, static_cast<std::size_t>(wanted.dtype->bits / 8), file->name);
  }

  Status check() const override {
    for (const auto& [name, file] : files_) {
      if (Status same = file.data.check(); !same) return same;
    }
    return {};
  }

 private:
  struct OpenFile {
    KeptFile data;
    std::size_t tensors = 0;
    std::map<std::uint64_t, std::uint64_t> extents;  ///< begin -> end of the tensors in it
  };
  struct Place {
    const OpenFile* file;  ///< in the map, where it stays
    bool first_index_fastest;
  };

  static tl::unexpected<Error> too_much(std::string_view where, std::uint64_t offset) {
    return refuse(where, offset, "the manifest lists more than four times its size in memory, expected fewer entries");
  }

  Status skip(const std::string& name, std::string reason, std::string_view where, std::uint64_t offset) {
    // Twice, because the list doubles as it grows.
    if (!budget_.take(3 * sizeof(SkippedTensor) + name.size() + reason.size())) return too_much(where, offset);
    skipped_.push_back({name, std::move(reason)});
    return {};
  }

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
    budget_.grow(data->bytes.size() + kOpenFile);
    return &files_.emplace(name, OpenFile{KeptFile(std::move(*data)), 0, {}}).first->second;
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
  ReadBudget budget_;
  std::map<std::string, OpenFile> files_;
  std::set<std::string> names_;
  std::vector<Place> places_;
};

/// Reads the fields of one entry and adds it.
class EntryReader {
 public:
  EntryReader(RawFiles& into, std::string_view where, std::uint64_t offset)
      : into_(into), where_(where), offset_(offset) {}

  Status read(const JsonView& fields) {
    if (!fields.is_object()) return refused("an entry that is no object");
    for (const auto& [key, value] : fields.items()) {
      auto taken = take(key, value);
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
    for (const auto& [key, value] : fields.items()) {
      if (is_known(key)) continue;
      auto described = into_.describe(entry_.name + "." + key.text(), value, where_, offset_);
      if (!described) return described;
    }
    return into_.add(std::move(entry_), where_, offset_);
  }

 private:
  tl::unexpected<Error> refused(const std::string& what) const { return refuse(where_, offset_, what); }

  static bool is_known(const JsonView& key) {
    constexpr std::string_view kFields[] = {"name", "file", "dtype", "shape", "offset", "order"};
    return std::any_of(std::begin(kFields), std::end(kFields), [&](std::string_view one) { return key.equals(one); });
  }

  Status take(const JsonView& key, const JsonView& value) {
    const std::string shown = printable(value.source());
    if (key.equals("name") || key.equals("file")) {
      const bool is_name = key.equals("name");
      if (!value.is_text()) return refused(is_name ? "'name' is no text" : "'file' is no text");
      (is_name ? entry_.name : entry_.file) = value.text();
      named_ = named_ || is_name;
    } else if (key.equals("dtype")) {
      entry_.dtype = find_dtype(value.text());
      if (entry_.dtype == nullptr) return refused("the dtype " + shown + ", expected one like f32, bf16, e4m3 or i64");
    } else if (key.equals("shape")) {
      return take_shape(value);
    } else if (key.equals("offset")) {
      const auto offset = value.natural();
      if (!offset) return refused("the offset " + shown + ", expected a whole number from 0");
      entry_.offset = static_cast<std::uint64_t>(*offset);
    } else if (key.equals("order")) {
      if (!value.equals("C") && !value.equals("F")) return refused("the order " + shown + ", expected \"C\" or \"F\"");
      entry_.first_index_fastest = value.equals("F");
    }
    return {};
  }

  Status take_shape(const JsonView& value) {
    shaped_ = value.is_array();
    for (const auto& [key, extent] : value.items()) {
      const auto number = extent.natural();
      shaped_ = shaped_ && number.has_value() && entry_.shape.size() < kMaxDimensions;
      if (!shaped_) break;
      entry_.shape.push_back(*number);
    }
    if (shaped_) return {};
    return refused("the shape " + printable(value.source()) + ", expected at most 64 whole numbers from 0");
  }

  RawFiles& into_;
  std::string_view where_;
  std::uint64_t offset_;
  Entry entry_;
  bool named_ = false;
  bool shaped_ = false;
};

Status read_whole(std::string_view text, const std::string& file, RawFiles& into) {
  const auto manifest = parse_strict_json(text, file, 0);
  if (!manifest) return tl::unexpected(manifest.error());
  const auto tensors = manifest->find("tensors");
  if (!tensors || !tensors->is_array()) {
    return refuse(file, 0, "no list 'tensors', expected a manifest of raw files");
  }
  auto status = into.expect(tensors->size(), file);
  for (const auto& [key, value] : manifest->items()) {
    if (status && !key.equals("tensors")) status = into.describe(key.text(), value, file, 0);
  }
  std::size_t number = 0;
  for (const auto& [key, entry] : tensors->items()) {
    if (!status) return status;
    const auto offset = static_cast<std::uint64_t>(entry.source().data() - text.data());
    status = EntryReader(into, file + ": entry " + std::to_string(number++), offset).read(entry);
  }
  return status;
}

Status read_lines(std::span<const std::byte> text, const std::string& file, RawFiles& into) {
  const std::string_view all = as_text(text);
  const auto lines = static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n')) + 1;
  // The shortest entry, so that a file of empty lines makes no room.
  constexpr std::size_t kShortest = 40;
  auto expected = into.expect(std::min(lines, all.size() / kShortest + 1), file);
  if (!expected) return expected;
  return for_each_json_line(text, file, [&](const JsonLine& line) {
    return EntryReader(into, file + ": line " + std::to_string(line.number), line.offset).read(line.object);
  });
}

}  // namespace

Result<std::unique_ptr<Container>> read_manifest(std::span<const std::byte> text, const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  auto files = std::make_unique<RawFiles>(folder, text.size());
  const auto read = path.extension() == ".jsonl" ? read_lines(text, path.string(), *files)
                                                 : read_whole(as_text(text), path.string(), *files);
  if (!read) return tl::unexpected(read.error());
  return files;
}

Result<std::unique_ptr<Container>> open_manifest(const std::filesystem::path& path) {
  const auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  if (file->bytes.size() > kMaxManifest) {
    return fail(path.string() + ": " + std::to_string(file->bytes.size()) + " bytes, expected at most " +
                std::to_string(kMaxManifest));
  }
  return read_manifest(file->bytes, path);
}

ContainerKind manifest_container() { return {"raw", {"manifest.json", "manifest.jsonl"}, nullptr, open_manifest}; }

}  // namespace nanscope
