#include "instrument/dump/containers/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "instrument/dump/containers/strided.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace {

constexpr std::array<std::uint8_t, 6> kMagic = {0x93, 'N', 'U', 'M', 'P', 'Y'};

bool recognises_npy(std::span<const std::byte> head) {
  return head.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), head.begin(),
                    [](auto a, std::byte b) { return a == std::to_integer<std::uint8_t>(b); });
}

/// What a header's dictionary says.
struct Fields {
  std::optional<std::string> descriptor;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
  bool structured = false;
  std::uint64_t descriptor_offset = 0;
};

/// Reads the dictionary of a header: three keys of text, a flag and a tuple, as repr() spells them.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view file, std::uint64_t offset)
      : text_(text), file_(file), offset_(offset) {}

  Result<Fields> parse() {
    skip_space();
    if (!accept('{')) return expected("the '{' of a dictionary");
    for (skip_space(); !accept('}'); skip_space()) {
      const auto entry = parse_entry();
      if (!entry) return tl::unexpected(entry.error());
      skip_space();
      if (accept(',')) continue;
      if (!accept('}')) return expected("',' or '}'");
      break;
    }
    skip_space();
    if (at_ != text_.size()) return expected("the end of the header");
    if (!fields_.descriptor && !fields_.structured) return missing("descr");
    if (!fields_.fortran_order) return missing("fortran_order");
    if (!fields_.shape) return missing("shape");
    return fields_;
  }

 private:
  tl::unexpected<Error> expected(const std::string& what) const {
    const std::string found = at_ < text_.size() ? in_quotes(text_.substr(at_, 12)) : "the end of the header";
    return refuse(file_, offset_ + at_, "the header has " + found + " here, expected " + what);
  }
  tl::unexpected<Error> missing(const char* key) const {
    return refuse(file_, offset_,
                  std::string("the header has no '") + key + "', expected descr, fortran_order and shape");
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string> parse_text() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"' && !accept('"')) return expected("a quoted text");
    const std::size_t end = text_.find(quote, at_);
    const std::string_view inside = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    if (end == std::string_view::npos || inside.find('\\') != std::string_view::npos) {
      return expected("a text without escapes that ends in its quote");
    }
    at_ = end + 1;
    return std::string(inside);
  }

  Result<std::vector<std::int64_t>> parse_shape() {
    std::vector<std::int64_t> shape;
    if (!accept('(')) return expected("the '(' of a shape");
    for (skip_space(); !accept(')'); skip_space()) {
      std::int64_t extent = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc{} || extent < 0) return expected("an extent from 0 to 2^63 - 1");
      at_ = static_cast<std::size_t>(end - text_.data());
      shape.push_back(extent);
      if (shape.size() > kMaxDimensions) return expected("at most 64 extents");
      skip_space();
      if (accept(',')) continue;
      // (3) is a number in Python, only (3,) a tuple.
      if (shape.size() < 2 || !accept(')')) return expected("',' or ')'");
      break;
    }
    return shape;
  }

  Status parse_entry() {
    const std::uint64_t start = at_;
    const auto key = parse_text();
    if (!key) return tl::unexpected(key.error());
    skip_space();
    if (!accept(':')) return expected("':'");
    skip_space();
    const auto twice = [&] { return refuse(file_, offset_ + start, "the header names " + in_quotes(*key) + " twice"); };
    if (*key == "descr") {
      if (fields_.descriptor || fields_.structured) return twice();
      return parse_descriptor();
    }
    if (*key == "fortran_order") {
      if (fields_.fortran_order) return twice();
      if (accept_word("True")) {
        fields_.fortran_order = true;
      } else if (accept_word("False")) {
        fields_.fortran_order = false;
      } else {
        return expected("True or False");
      }
      return {};
    }
    if (*key != "shape") {
      return refuse(file_, offset_ + start,
                    "the header names " + in_quotes(*key) + ", expected descr, fortran_order or shape");
    }
    if (fields_.shape) return twice();
    auto shape = parse_shape();
    if (!shape) return tl::unexpected(shape.error());
    fields_.shape = std::move(*shape);
    return {};
  }

  /// A list of fields is stepped over: it is only to be named.
  Status parse_descriptor() {
    fields_.descriptor_offset = offset_ + at_;
    if (text_.substr(at_).starts_with('[') || text_.substr(at_).starts_with('(')) {
      fields_.structured = true;
      return skip_brackets();
    }
    auto descriptor = parse_text();
    if (!descriptor) return tl::unexpected(descriptor.error());
    fields_.descriptor = std::move(*descriptor);
    return {};
  }

  Status skip_brackets() {
    int depth = 0;
    do {
      if (at_ >= text_.size()) return expected("the end of a list of fields");
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        const auto text = parse_text();
        if (!text) return tl::unexpected(text.error());
        continue;
      }
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
      ++at_;
    } while (depth > 0);
    return {};
  }

  std::string_view text_;
  std::string_view file_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
  Fields fields_;
};

/// The header's text and where it begins.
struct HeaderText {
  std::string_view text;
  std::uint64_t offset;
};

Result<HeaderText> header_text(std::span<const std::byte> bytes, std::string_view name, std::uint64_t base) {
  const auto truncated = [&](std::uint64_t need) {
    return refuse(name, base + bytes.size(),
                  "the file ends inside the npy header, expected at least " + std::to_string(need) + " bytes");
  };
  if (!recognises_npy(bytes)) return refuse(name, base, "not a npy file, expected \\x93NUMPY");
  if (bytes.size() < 12) return truncated(12);
  const int major = std::to_integer<int>(bytes[6]);
  const int minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return refuse(name, base + 6,
                  "npy version " + std::to_string(major) + "." + std::to_string(minor) + ", expected 1.0, 2.0 or 3.0");
  }
  const std::uint64_t begin = major == 1 ? 10 : 12;
  const std::uint64_t length =
      major == 1 ? little_endian<std::uint16_t>(bytes, 8) : little_endian<std::uint32_t>(bytes, 8);
  if (length > kMaxNpyHeader) {
    return refuse(
        name, base + 8,
        "a header of " + std::to_string(length) + " bytes, expected at most " + std::to_string(kMaxNpyHeader));
  }
  if (length > bytes.size() - begin) return truncated(begin + length);
  return HeaderText{as_text(bytes.subspan(begin, length)), begin};
}

/// Finds the dtype of a descriptor; without one, `unreadable` says what it is.
void interpret(const std::string& descriptor, NpyArray& array) {
  const std::string_view code = descriptor.empty() ? std::string_view{} : std::string_view(descriptor).substr(1);
  if (descriptor == "<V2" || descriptor == "|V2") {
    array.dtype = find_dtype("bf16");
    array.note = "stored as " + descriptor + ", read as bf16, the only two-byte type that NumPy writes so";
  } else if (descriptor == "<V1" || descriptor == "|V1") {
    array.dtype = find_dtype("u8");
    array.note = "stored as " + descriptor + ": codes of an 8-bit type that the file does not name";
  } else {
    array.dtype = find_dtype(descriptor);
  }
  if (array.dtype != nullptr && array.dtype->kind != DtypeKind::complex) return;
  const Dtype* part = array.dtype == nullptr ? nullptr : part_of_complex(*array.dtype);
  if (part != nullptr && (!array.first_index_fastest || array.shape.empty())) {
    array.dtype = part;
    array.shape.push_back(2);
    array.note = "complex numbers, read as pairs of their real and imaginary parts";
    return;
  }
  const std::string name = in_quotes(descriptor);
  if (array.dtype != nullptr) {
    array.unreadable = "elements are complex, " + name + ", expected real numbers";
  } else if (descriptor.starts_with('>')) {
    array.unreadable = "elements are big-endian, " + name +
                       ", expected little-endian: save array.astype(array.dtype.newbyteorder('<'))";
  } else if (code == "O") {
    array.unreadable = "elements are Python objects, " + name + ", which are pickled code: expected numbers";
  } else {
    array.unreadable = "elements are " + name + ", expected numbers of a known type";
  }
  array.dtype = nullptr;
}

Status check_size(const NpyArray& array, std::uint64_t size, std::string_view name, std::uint64_t base) {
  const auto count = checked_count(array.shape, *array.dtype);
  if (!count) return refuse(name, base, "the shape " + shape_text(array.shape) + " has too many elements");
  const std::uint64_t expected = array.dtype->bytes(*count);
  const std::uint64_t found = size - array.data;
  if (found == expected) return {};
  return refuse(name, base + array.data,
                std::to_string(found) + " bytes of elements, expected " + std::to_string(expected) + " for the shape " +
                    shape_text(array.shape) + " in " + std::string(array.dtype->name) +
                    (found < expected ? " (truncated?)" : ""));
}

class Npy final : public Container {
 public:
  Npy(FileBytes file, NpyArray array)
      : file_(std::move(file)), place_{.data = array.data, .first_index_fastest = array.first_index_fastest} {
    tensors_.push_back({"", array.dtype, std::move(array.shape), array.data, std::move(array.note)});
  }
  Result<TensorBytes> bytes(std::size_t tensor) const override {
    const auto file = file_.hold();
    if (!file) return tl::unexpected(file.error());
    return npy_bytes(tensors_.at(tensor), place_, file->bytes, file->owner, file->name);
  }
  Status check() const override { return file_.check(); }

 private:
  KeptFile file_;
  NpyPlace place_;
};

Result<std::unique_ptr<Container>> open_npy_file(const std::filesystem::path& path) {
  auto file = map_file(path);
  if (!file) return tl::unexpected(file.error());
  return open_npy(std::move(*file));
}

}  // namespace

std::uint64_t npy_header_bytes(std::span<const std::byte> head) {
  if (head.size() < 12 || !recognises_npy(head)) return 0;
  const bool first = head[6] == std::byte{1};
  const std::uint64_t bytes = first ? 10 + std::uint64_t{little_endian<std::uint16_t>(head, 8)}
                                    : 12 + std::uint64_t{little_endian<std::uint32_t>(head, 8)};
  return std::min(bytes, kMaxNpyHeader + 12);
}

Result<NpyArray> parse_npy(std::span<const std::byte> head, std::uint64_t size, std::string_view name,
                           std::uint64_t base) {
  const auto header = header_text(head, name, base);
  if (!header) return tl::unexpected(header.error());
  auto fields = HeaderParser(header->text, name, base + header->offset).parse();
  if (!fields) return tl::unexpected(fields.error());
  NpyArray array;
  array.shape = std::move(*fields->shape);
  array.first_index_fastest = *fields->fortran_order;
  array.data = header->offset + header->text.size();
  array.descriptor = fields->descriptor_offset - base;
  if (fields->structured) {
    array.unreadable = "elements are records of several fields, expected plain numbers";
    return array;
  }
  interpret(*fields->descriptor, array);
  if (array.dtype == nullptr) return array;
  const auto fits = check_size(array, size, name, base);
  if (!fits) return tl::unexpected(fits.error());
  return array;
}

Result<std::unique_ptr<Container>> open_npy(FileBytes file) {
  auto array = parse_npy(file.bytes, file.bytes.size(), file.name, 0);
  if (!array) return tl::unexpected(array.error());
  if (array->dtype == nullptr) return refuse(file.name, array->descriptor, array->unreadable);
  return std::make_unique<Npy>(std::move(file), std::move(*array));
}

Result<TensorBytes> npy_bytes(const ContainedTensor& tensor, const NpyPlace& place, std::span<const std::byte> file,
                              const std::shared_ptr<const void>& owner, std::string_view name) {
  const auto elements = file.subspan(place.data);
  if (!place.first_index_fastest) return TensorBytes{elements, owner};
  const StridedView view = first_index_fastest(tensor.shape);
  if (view.contiguous()) return TensorBytes{elements, owner};
  return gather(elements, view, static_cast<std::size_t>(tensor.dtype->bits / 8), name);
}

ContainerKind npy_container() { return {"npy", {".npy"}, recognises_npy, open_npy_file}; }

}  // namespace nanscope
