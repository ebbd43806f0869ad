#include "instrument/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "core/text/safe_text.h"
#include "instrument/files/read_budget.h"

namespace nanscope {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read in place, as the file's little-endian");

using ValueKind = GgufValue::Kind;

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMostDimensions = 4;   ///< GGML_MAX_DIMS
constexpr std::uint64_t kLongestName = 65535;  ///< of a key, says the format; of a tensor it is far less
constexpr int kMostNested = 4;                 ///< lists in lists
constexpr std::uint64_t kListedValue = 160;    ///< a value in its map
constexpr std::uint64_t kListedTensor = 3 * sizeof(GgufTensor) + 128;  ///< in lists that grow, and in a set of names

template <class T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// Bytes of a value of a kind; 0: it says its own.
std::uint64_t width_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::u8:
    case ValueKind::i8:
    case ValueKind::flag:
      return 1;
    case ValueKind::u16:
    case ValueKind::i16:
      return 2;
    case ValueKind::u32:
    case ValueKind::i32:
    case ValueKind::f32:
      return 4;
    case ValueKind::u64:
    case ValueKind::i64:
    case ValueKind::f64:
      return 8;
    default:
      return 0;
  }
}

/// Walks through the file; every step is checked against its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return bytes_.size() - offset_; }
  std::span<const std::byte> since(std::uint64_t begin) const { return bytes_.subspan(begin, offset_ - begin); }

  template <class T>
  Result<T> take(std::string_view what) {
    if (left() < sizeof(T)) return ends(what, sizeof(T));
    const T value = load<T>(bytes_.subspan(offset_));
    offset_ += sizeof(T);
    return value;
  }

  Status skip(std::uint64_t bytes, std::string_view what) {
    if (left() < bytes) return ends(what, bytes);
    offset_ += bytes;
    return {};
  }

  Result<std::string_view> text(std::string_view what, std::uint64_t longest) {
    const std::uint64_t begin = offset_;
    const auto length = take<std::uint64_t>(what);
    if (!length) return tl::unexpected(length.error());
    if (*length > longest)
      return refuse(begin, fmt::format("{} of {} bytes, expected at most {}", what, *length, longest));
    if (Status skipped = skip(*length, what); !skipped) return tl::unexpected(skipped.error());
    return as_text(since(begin + sizeof(std::uint64_t)));
  }

  tl::unexpected<Error> refuse(std::uint64_t offset, std::string_view what) const {
    return fail(fmt::format("{}: offset {}: {}", file_, offset, what));
  }
  tl::unexpected<Error> ends(std::string_view what, std::uint64_t bytes) const {
    return refuse(offset_,
                  fmt::format("{} of {} bytes runs past the end of the file at {}", what, bytes, bytes_.size()));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::uint64_t offset_ = 0;
};

std::string shown(std::string_view name) { return shortened(one_line(name), 120); }

Status skip_list(Cursor& at, int depth);

/// Over the bytes of one value.
Status skip_value(Cursor& at, ValueKind kind, int depth) {
  if (kind == ValueKind::list) return skip_list(at, depth + 1);
  if (kind != ValueKind::text) return at.skip(width_of(kind), "a value");
  const auto text = at.text("a text", std::numeric_limits<std::uint64_t>::max());
  return text ? Status() : tl::unexpected(text.error());
}

Result<ValueKind> take_kind(Cursor& at) {
  const std::uint64_t begin = at.offset();
  const auto kind = at.take<std::uint32_t>("the type of a value");
  if (!kind) return tl::unexpected(kind.error());
  if (*kind > static_cast<std::uint32_t>(ValueKind::f64))
    return at.refuse(begin, fmt::format("a value of type {}, expected 0 to 12", *kind));
  return static_cast<ValueKind>(*kind);
}

Status skip_list(Cursor& at, int depth) {
  if (depth > kMostNested) return at.refuse(at.offset(), fmt::format("lists within more than {} lists", kMostNested));
  const auto kind = take_kind(at);
  if (!kind) return tl::unexpected(kind.error());
  const auto count = at.take<std::uint64_t>("the length of a list");
  if (!count) return tl::unexpected(count.error());
  const std::uint64_t least = width_of(*kind) > 0 ? width_of(*kind) : sizeof(std::uint64_t);
  if (*count > at.left() / least)
    return at.refuse(at.offset() - sizeof(std::uint64_t),
                     fmt::format("a list of {} items runs past the end of the file", *count));
  if (width_of(*kind) > 0) return at.skip(*count * width_of(*kind), "a list");
  for (std::uint64_t i = 0; i < *count; ++i) {
    if (Status skipped = skip_value(at, *kind, depth); !skipped) return skipped;
  }
  return {};
}

/// Reads the parts of a file one after the other.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view file)
      : at_(bytes, file), file_(file), size_(bytes.size()), budget_(bytes.size()) {}

  Result<GgufHeader> read() {
    const auto counts = read_counts();
    if (!counts) return tl::unexpected(counts.error());
    for (std::uint64_t i = 0; i < counts->values; ++i) {
      if (Status read = read_value(); !read) return tl::unexpected(read.error());
    }
    for (std::uint64_t i = 0; i < counts->tensors; ++i) {
      if (Status read = read_tensor(); !read) return tl::unexpected(read.error());
    }
    if (Status placed = place(); !placed) return tl::unexpected(placed.error());
    return std::move(header_);
  }

 private:
  struct Counts {
    std::uint64_t tensors = 0;
    std::uint64_t values = 0;
  };

  Result<Counts> read_counts() {
    const auto magic = at_.take<std::uint32_t>("the magic");
    const auto version = at_.take<std::uint32_t>("the version");
    if (!magic || !version || std::memcmp(&*magic, kMagic.data(), kMagic.size()) != 0)
      return at_.refuse(0, "not a GGUF file, which begins with GGUF and a version");
    if (*version != 0 && (*version & 0xFFFFU) == 0) return at_.refuse(4, "a big-endian file, which is not read");
    if (*version != 2 && *version != 3)
      return at_.refuse(4, fmt::format("version {}, expected 2 or 3{}", *version,
                                       *version == 1 ? ": convert the model again with a newer llama.cpp" : ""));
    header_.version = *version;
    const auto tensors = at_.take<std::uint64_t>("the number of tensors");
    const auto values = at_.take<std::uint64_t>("the number of values");
    if (!tensors) return tl::unexpected(tensors.error());
    if (!values) return tl::unexpected(values.error());
    return Counts{*tensors, *values};
  }

  tl::unexpected<Error> too_much() const {
    return at_.refuse(at_.offset(), "what is listed takes more than four times the file in memory, expected less");
  }

  Status read_value() {
    const std::uint64_t begin = at_.offset();
    const auto key = at_.text("a key", kLongestName);
    if (!key) return tl::unexpected(key.error());
    const auto kind = take_kind(at_);
    if (!kind) return tl::unexpected(kind.error());
    const std::uint64_t value = at_.offset();
    if (Status skipped = skip_value(at_, *kind, 0); !skipped) return skipped;
    if (!budget_.take(kListedValue + text_bytes(key->size()))) return too_much();
    if (!header_.metadata.emplace(std::string(*key), GgufValue(*kind, at_.since(value))).second)
      return at_.refuse(begin, fmt::format("the key '{}' is there twice", shown(*key)));
    return {};
  }

  Status read_tensor() {
    const std::uint64_t begin = at_.offset();
    const auto name = at_.text("a tensor's name", kLongestName);
    if (!name) return tl::unexpected(name.error());
    if (!budget_.take(kListedTensor + 3 * text_bytes(name->size()))) return too_much();
    GgufTensor tensor;
    tensor.name = *name;
    if (!names_.insert(tensor.name).second)
      return at_.refuse(begin, fmt::format("the tensor '{}' is there twice", shown(*name)));
    const auto dimensions = at_.take<std::uint32_t>("the dimensions of a tensor");
    if (!dimensions) return tl::unexpected(dimensions.error());
    if (*dimensions > kMostDimensions)
      return at_.refuse(begin, fmt::format("tensor '{}' has {} dimensions, expected at most {}", shown(*name),
                                           *dimensions, kMostDimensions));
    if (Status read = read_shape(*dimensions, tensor); !read) return read;
    const auto type = at_.take<std::uint32_t>("the type of a tensor");
    const auto offset = at_.take<std::uint64_t>("the offset of a tensor");
    if (!type) return tl::unexpected(type.error());
    if (!offset) return tl::unexpected(offset.error());
    tensor.type_id = *type;
    tensor.type = find_gguf_type(*type);
    tensor.begin = *offset;
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  Status read_shape(std::uint32_t dimensions, GgufTensor& tensor) {
    std::int64_t count = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const std::uint64_t begin = at_.offset();
      const auto extent = at_.take<std::int64_t>("an extent of a tensor");
      if (!extent) return tl::unexpected(extent.error());
      if (*extent < 1 || __builtin_mul_overflow(count, *extent, &count))
        return at_.refuse(begin, fmt::format("tensor '{}' has an extent of {}, expected at least 1, and a product "
                                             "below 2^63",
                                             shown(tensor.name), static_cast<std::uint64_t>(*extent)));
      tensor.shape.push_back(*extent);
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    return {};
  }

  Result<std::uint64_t> alignment() const {
    const auto stated = header_.metadata.find(kAlignmentKey);
    if (stated == header_.metadata.end()) return kDefaultAlignment;
    const std::int64_t value = stated->second.integer().value_or(0);
    if (value < 1 || value > (std::int64_t{1} << 30) || !std::has_single_bit(static_cast<std::uint64_t>(value)))
      return fail(fmt::format("{}: {}: expected a power of two up to 2^30", file_, kAlignmentKey));
    return static_cast<std::uint64_t>(value);
  }

  tl::unexpected<Error> misplaced(const GgufTensor& tensor, std::string_view what) const {
    return fail(fmt::format("{}: tensor '{}' {}", file_, shown(tensor.name), what));
  }

  /// Where tensors begin and end, in the file.
  Status place() {
    const auto unit = alignment();
    if (!unit) return tl::unexpected(unit.error());
    const std::uint64_t data = (at_.offset() + *unit - 1) / *unit * *unit;
    for (GgufTensor& tensor : header_.tensors) {
      if (tensor.begin % *unit != 0)
        return misplaced(tensor,
                         fmt::format("begins at data offset {}, which is no multiple of {}", tensor.begin, *unit));
      if (__builtin_add_overflow(tensor.begin, data, &tensor.begin) || tensor.begin > size_)
        return misplaced(tensor, fmt::format("begins beyond the end of the file at {} (truncated?)", size_));
      if (tensor.type == nullptr) continue;
      const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
      if (columns % tensor.type->elements != 0)
        return misplaced(tensor, fmt::format("has rows of {} elements, which are no whole blocks of {} of {}", columns,
                                             tensor.type->elements, tensor.type->name));
      const std::uint64_t blocks = static_cast<std::uint64_t>(tensor.count()) / tensor.type->elements;
      if (blocks > (size_ - tensor.begin) / tensor.type->bytes)
        return misplaced(tensor, fmt::format("of {} blocks of {} bytes at offset {} ends beyond the file at {} "
                                             "(truncated?)",
                                             blocks, tensor.type->bytes, tensor.begin, size_));
      tensor.end = tensor.begin + blocks * tensor.type->bytes;
    }
    return check_overlaps();
  }

  Status check_overlaps() {
    std::sort(header_.tensors.begin(), header_.tensors.end(), [](const GgufTensor& a, const GgufTensor& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t end = 0;
    for (const GgufTensor& tensor : header_.tensors) {
      if (tensor.begin < end)
        return misplaced(tensor, fmt::format("begins at offset {}, inside the tensor before it", tensor.begin));
      end = std::max(end, tensor.end);
    }
    return {};
  }

  Cursor at_;
  std::string_view file_;
  std::uint64_t size_;
  ReadBudget budget_;
  GgufHeader header_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace

std::optional<std::int64_t> GgufValue::integer() const {
  switch (kind_) {
    case ValueKind::u8:
      return load<std::uint8_t>(bytes_);
    case ValueKind::i8:
      return load<std::int8_t>(bytes_);
    case ValueKind::u16:
      return load<std::uint16_t>(bytes_);
    case ValueKind::i16:
      return load<std::int16_t>(bytes_);
    case ValueKind::u32:
      return load<std::uint32_t>(bytes_);
    case ValueKind::i32:
      return load<std::int32_t>(bytes_);
    case ValueKind::i64:
      return load<std::int64_t>(bytes_);
    case ValueKind::u64: {
      const auto value = load<std::uint64_t>(bytes_);
      if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return static_cast<std::int64_t>(value);
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number() const {
  if (kind_ == ValueKind::f32) return load<float>(bytes_);
  if (kind_ == ValueKind::f64) return load<double>(bytes_);
  const auto whole = integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<bool> GgufValue::flag() const {
  if (kind_ != ValueKind::flag) return std::nullopt;
  return bytes_[0] != std::byte{0};
}

std::optional<std::string> GgufValue::text() const {
  if (kind_ != ValueKind::text) return std::nullopt;
  return std::string(as_text(bytes_.subspan(sizeof(std::uint64_t))));
}

std::uint64_t GgufValue::size() const {
  return kind_ == ValueKind::list ? load<std::uint64_t>(bytes_.subspan(sizeof(std::uint32_t))) : 0;
}

std::optional<std::vector<GgufValue>> GgufValue::list() const {
  if (kind_ != ValueKind::list) return std::nullopt;
  const auto kind = static_cast<ValueKind>(load<std::uint32_t>(bytes_));
  if (kind == ValueKind::list) return std::nullopt;
  std::vector<GgufValue> items;
  std::span<const std::byte> rest = bytes_.subspan(sizeof(std::uint32_t) + sizeof(std::uint64_t));
  const auto least = std::max<std::uint64_t>(1, width_of(kind));
  // The file may be another one since it was checked.
  for (std::uint64_t left = size(); left > 0 && rest.size() >= least; --left) {
    std::uint64_t width = width_of(kind);
    if (kind == ValueKind::text) {
      if (rest.size() < sizeof(std::uint64_t)) break;
      width = std::min<std::uint64_t>(rest.size() - sizeof(std::uint64_t), load<std::uint64_t>(rest)) +
              sizeof(std::uint64_t);
    }
    items.emplace_back(kind, rest.first(width));
    rest = rest.subspan(width);
  }
  return items;
}

std::int64_t GgufTensor::count() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string GgufTensor::type_name() const {
  return type != nullptr ? std::string(type->name) : fmt::format("type {}", type_id);
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> bytes, std::string_view file) {
  return Reader(bytes, file).read();
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return tl::unexpected(file.error());
  auto header = parse_gguf(file->bytes(), path.string());
  if (!header) return tl::unexpected(header.error());
  return GgufFile(std::move(*file), std::move(*header));
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = header_.metadata.find(key);
  return found == header_.metadata.end() ? nullptr : &found->second;
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  if (tensor.type == nullptr) return {};
  return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

bool is_gguf(std::span<const std::byte> head) { return as_text(head).starts_with(kMagic); }

}  // namespace nanscope
