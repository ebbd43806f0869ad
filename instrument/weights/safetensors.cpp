#include "instrument/weights/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/numbers/codec.h"
#include "core/text/safe_text.h"
#include "instrument/files/json_view.h"
#include "instrument/files/read_budget.h"

namespace nanscope {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read in place, as the file's little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr int kMaxDepth = 4;  ///< of which the format uses three
constexpr std::size_t kMaxDimensions = 64;
/// What is kept of a tensor beside its entry: who opens the file lists it once more, or in a map by name.
constexpr std::uint64_t kListedTensor = 112;
/// Of one that cannot be read as numbers: its reason, in a list that doubles as it grows.
constexpr std::uint64_t kSkippedTensor = 400;
constexpr std::uint64_t kListedField = 128;  ///< a text in the map of metadata

struct DtypeRow {
  std::string_view name;
  int bits;
  std::optional<Format> format;  ///< packed sub-byte dtypes have none: nanscope holds one code per byte
};

constexpr std::array<DtypeRow, 22> kDtypes = {{
    {"F64", 64, std::nullopt},
    {"F32", 32, Format::f32},
    {"F16", 16, Format::f16},
    {"BF16", 16, Format::bf16},
    {"F8_E4M3", 8, Format::e4m3},
    {"F8_E5M2", 8, Format::e5m2},
    {"F8_E4M3FNUZ", 8, Format::e4m3fnuz},
    {"F8_E5M2FNUZ", 8, Format::e5m2fnuz},
    {"F8_E8M0", 8, Format::e8m0},
    {"F6_E3M2", 6, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F4", 4, std::nullopt},
    {"C64", 64, std::nullopt},
    {"I64", 64, std::nullopt},
    {"U64", 64, std::nullopt},
    {"I32", 32, Format::i32},
    {"U32", 32, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"I8", 8, Format::int8},
    {"U8", 8, std::nullopt},
    {"BOOL", 8, std::nullopt},
}};

const DtypeRow* find_dtype(std::string_view name) {
  const auto row = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& r) { return r.name == name; });
  return row == kDtypes.end() ? nullptr : &*row;
}

/// Builds one-line errors that name the file.
struct Reporter {
  std::string_view file;

  tl::unexpected<Error> operator()(const std::string& what) const { return fail(std::string(file) + ": " + what); }
  tl::unexpected<Error> tensor(std::string_view name, const std::string& what) const {
    return (*this)("tensor '" + printable_name(name) + "': " + what);
  }

  /// Names come from the file: keep messages to one short line.
  static std::string printable_name(std::string_view name) {
    constexpr std::size_t kLongestName = 120;
    return shortened(one_line(name), kLongestName);
  }
};

/// The header's JSON text and where the data begins.
struct HeaderText {
  std::string_view text;
  std::uint64_t data_begin;
};

Result<HeaderText> header_text(std::span<const std::byte> bytes, const Reporter& report) {
  if (bytes.size() < kLengthBytes) {
    return report("not a safetensors file: " + std::to_string(bytes.size()) + " bytes, expected at least 8");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeader) {
    return report("not a safetensors file: header length " + std::to_string(length) + " at offset 0, limit " +
                  std::to_string(kMaxSafetensorsHeader));
  }
  if (length > bytes.size() - kLengthBytes) {
    return report("header of " + std::to_string(length) + " bytes at offset 8 runs past the end of the file at " +
                  std::to_string(bytes.size()));
  }
  return HeaderText{as_text(bytes.subspan(kLengthBytes, length)), kLengthBytes + length};
}

/// The header's object, checked. Offsets are in the file.
Result<JsonView> header_json(std::string_view text, std::size_t file_bytes, const Reporter& report) {
  JsonLimits limits;
  limits.depth = kMaxDepth;
  // Trainers keep long texts in __metadata__, beside tensors that are longer.
  limits.longest_text = std::max(limits.longest_text, file_bytes / 8);
  const auto header = check_json(text, limits);
  if (!header) {
    return report("header: offset " + std::to_string(kLengthBytes + header.error().offset) + ": " +
                  header.error().what);
  }
  if (!header->is_object()) return report("header at offset 8 is not a JSON object");
  return *header;
}

/// Bytes that `shape` of `bits`-wide elements takes; none when it overflows or is no whole number of bytes.
std::optional<std::uint64_t> shape_bytes(const std::vector<std::int64_t>& shape, int bits) {
  std::uint64_t total = static_cast<std::uint64_t>(bits);
  // Extents beside a 0 are multiplied by others later: they must fit too.
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (const std::int64_t extent : shape) {
    if (extent == 0) continue;
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) return std::nullopt;
  }
  if (empty) return 0;
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

Result<SafetensorsEntry> parse_entry(const std::string& name, const JsonView& fields, const Reporter& report) {
  if (!fields.is_object()) return report.tensor(name, "not a JSON object");
  const auto dtype = fields.find("dtype");
  const auto shape = fields.find("shape");
  const auto offsets = fields.find("data_offsets");
  if (!dtype || !dtype->is_text()) return report.tensor(name, "no dtype");
  if (!shape || !shape->is_array() || shape->size() > kMaxDimensions) return report.tensor(name, "no valid shape");
  if (!offsets || !offsets->is_array() || offsets->size() != 2) return report.tensor(name, "no pair of data_offsets");
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = dtype->text();
  entry.shape.reserve(shape->size());
  for (const auto& [key, extent] : shape->items()) {
    const auto value = extent.natural();
    if (!value) return report.tensor(name, "shape holds something else than whole numbers from 0");
    entry.shape.push_back(*value);
  }
  auto pair = offsets->items().begin();
  const auto begin = pair->value.natural();
  const auto end = (++pair)->value.natural();
  if (!begin || !end || *begin > *end) return report.tensor(name, "data_offsets are no ascending pair");
  entry.begin = static_cast<std::uint64_t>(*begin);
  entry.end = static_cast<std::uint64_t>(*end);

  const DtypeRow* row = find_dtype(entry.dtype);
  entry.known = row != nullptr;
  const auto count = shape_bytes(entry.shape, 8);  // one byte each: the count itself must fit
  if (!count || *count > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return report.tensor(name, "shape has too many elements");
  }
  if (row == nullptr) return entry;
  entry.format = row->format;
  const auto expected = shape_bytes(entry.shape, row->bits);
  if (!expected || *expected != entry.end - entry.begin) {
    return report.tensor(name, std::to_string(entry.end - entry.begin) + " bytes, expected " +
                                   (expected ? std::to_string(*expected) : "another number") + " for its shape in " +
                                   entry.dtype);
  }
  return entry;
}

/// Makes the entries of a header's members, and charges them to what reading the file may take.
class HeaderReader {
 public:
  HeaderReader(std::uint64_t file_bytes, const Reporter& report) : budget_(file_bytes), report_(report) {}

  Result<SafetensorsHeader> read(const JsonView& fields) {
    const std::size_t members = fields.size();
    if (!budget_.take(members * (sizeof(SafetensorsEntry) + kListedTensor))) return too_much(members);
    header_.entries.reserve(members);
    for (const auto& [key, value] : fields.items()) {
      const bool is_metadata = key.equals("__metadata__");
      const auto done = is_metadata ? take_metadata(value) : take_entry(key, value);
      if (!done) return tl::unexpected(done.error());
    }
    return std::move(header_);
  }

 private:
  tl::unexpected<Error> too_much(std::size_t members) const {
    return report_("header at offset 8: the " + std::to_string(members) +
                   " members would take more than four times the file in memory, expected fewer");
  }

  Status take_entry(const JsonView& key, const JsonView& value) {
    const std::string name = key.text();
    auto entry = parse_entry(name, value, report_);
    if (!entry) return tl::unexpected(entry.error());
    const std::uint64_t texts = 2 * text_bytes(name.size()) + text_bytes(entry->dtype.size());
    const bool readable = entry->known && !entry->dtype.starts_with('C');
    if (!budget_.take(texts + 8 * entry->shape.size() + (readable ? 0 : kSkippedTensor))) {
      return too_much(header_.entries.size() + 1);
    }
    header_.entries.push_back(std::move(*entry));
    return {};
  }

  Status take_metadata(const JsonView& value) {
    if (!value.is_object()) return report_("__metadata__ is not a JSON object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_text()) return report_("__metadata__ holds something else than texts");
      if (!budget_.take(kListedField + 2 * key.source().size() + 2 * text.source().size())) {
        return too_much(header_.entries.size() + header_.metadata.size());
      }
      header_.metadata[key.text()] = text.text();
    }
    return {};
  }

  ReadBudget budget_;
  const Reporter& report_;
  SafetensorsHeader header_;
};

Status check_layout(const SafetensorsHeader& header, std::uint64_t file_size, const Reporter& report) {
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != position) {
      return report.tensor(entry.name, "begins at data offset " + std::to_string(entry.begin) +
                                           (entry.begin < position ? ", inside" : ", leaving a hole behind") +
                                           " the tensor before it, which ends at " + std::to_string(position));
    }
    position = entry.end;
    if (position > file_size - header.data_begin) {
      return report.tensor(entry.name, "ends at file offset " + std::to_string(header.data_begin + position) +
                                           ", the file at " + std::to_string(file_size) + " (truncated?)");
    }
  }
  const std::uint64_t rest = file_size - header.data_begin - position;
  if (rest != 0) return report(std::to_string(rest) + " bytes behind the last tensor belong to none");
  return {};
}

template <class T>
T load(std::span<const std::byte> bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T, class Convert>
std::vector<float> convert(std::span<const std::byte> bytes, Convert convert_one) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = convert_one(load<T>(bytes, i));
  return values;
}

std::vector<float> decode_all(Format format, std::span<const std::byte> bytes) {
  switch (info(format).storage_bytes()) {
    case 1:
      return convert<std::uint8_t>(bytes, [&](std::uint8_t code) { return decode(format, code); });
    case 2:
      return convert<std::uint16_t>(bytes, [&](std::uint16_t code) { return decode(format, code); });
    default:
      return convert<std::uint32_t>(bytes, [&](std::uint32_t code) { return decode(format, code); });
  }
}

}  // namespace

std::int64_t SafetensorsEntry::count() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::optional<int> safetensors_bits(std::string_view dtype) {
  const DtypeRow* row = find_dtype(dtype);
  return row == nullptr ? std::nullopt : std::optional<int>(row->bits);
}

std::string_view safetensors_dtype(Format format) {
  const auto row = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& r) { return r.format == format; });
  return row == kDtypes.end() ? std::string_view{} : row->name;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  const Reporter report{file};
  const auto text = header_text(bytes, report);
  if (!text) return tl::unexpected(text.error());
  const auto fields = header_json(text->text, bytes.size(), report);
  if (!fields) return tl::unexpected(fields.error());

  auto read = HeaderReader(bytes.size(), report).read(*fields);
  if (!read) return tl::unexpected(read.error());
  SafetensorsHeader& header = *read;
  header.data_begin = text->data_begin;
  // Empty tensors share their offset with a neighbour: the shorter one comes first.
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const auto layout = check_layout(header, bytes.size(), report);
  if (!layout) return tl::unexpected(layout.error());
  return read;
}

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (std::size_t i = 0; i < header_.entries.size(); ++i) by_name_.emplace(header_.entries[i].name, i);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return tl::unexpected(file.error());
  auto header = parse_safetensors(file->bytes(), path.string());
  if (!header) return tl::unexpected(header.error());
  return SafetensorsFile(std::move(*file), std::move(*header));
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(header_.data_begin + entry.begin, entry.end - entry.begin);
}

Result<std::vector<float>> safetensors_values(const SafetensorsEntry& entry, std::span<const std::byte> bytes) {
  if (entry.format) return decode_all(*entry.format, bytes);
  const auto number = [](auto value) { return static_cast<float>(value); };
  if (entry.dtype == "F64") {
    return convert<double>(bytes, [](double value) {
      return value != value ? std::bit_cast<float>(kCanonicalNan) : static_cast<float>(value);
    });
  }
  if (entry.dtype == "I64") return convert<std::int64_t>(bytes, number);
  if (entry.dtype == "U64") return convert<std::uint64_t>(bytes, number);
  if (entry.dtype == "U32") return convert<std::uint32_t>(bytes, number);
  if (entry.dtype == "I16") return convert<std::int16_t>(bytes, number);
  if (entry.dtype == "U16") return convert<std::uint16_t>(bytes, number);
  if (entry.dtype == "U8") return convert<std::uint8_t>(bytes, number);
  if (entry.dtype == "BOOL") return convert<std::uint8_t>(bytes, [](std::uint8_t b) { return b != 0 ? 1.0F : 0.0F; });
  return fail("tensor '" + Reporter::printable_name(entry.name) + "': dtype " + Reporter::printable_name(entry.dtype) +
              " cannot be read as numbers");
}

}  // namespace nanscope
