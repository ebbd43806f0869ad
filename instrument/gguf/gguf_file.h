#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/files/file.h"
#include "instrument/gguf/block_type.h"

/// The GGUF file, versions 2 and 3, little-endian: a header, metadata, what the tensors are, and their bytes
/// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
namespace nanscope {

/// A value of the metadata where it lies in the file, whose sizes were checked.
class GgufValue {
 public:
  enum class Kind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, flag, text, list, u64, i64, f64 };

  GgufValue(Kind kind, std::span<const std::byte> bytes) : kind_(kind), bytes_(bytes) {}
  Kind kind() const { return kind_; }
  /// Whole numbers that fit.
  std::optional<std::int64_t> integer() const;
  /// Any number.
  std::optional<double> number() const;
  std::optional<bool> flag() const;
  std::optional<std::string> text() const;
  /// Nothing where it is no list, or one of lists.
  std::optional<std::vector<GgufValue>> list() const;
  /// Items of a list; 0 of anything else.
  std::uint64_t size() const;

 private:
  Kind kind_;
  std::span<const std::byte> bytes_;  ///< behind its kind; of a list, the items' kind first
};

struct GgufTensor {
  std::string name;
  std::uint32_t type_id = 0;
  const GgufType* type = nullptr;   ///< null: not decoded, and its size was not checked
  std::vector<std::int64_t> shape;  ///< rows first, as other files have it: the reverse of what is written
  std::uint64_t begin = 0;          ///< in the file
  std::uint64_t end = 0;            ///< 0 where the type is not decoded

  /// Product of the shape.
  std::int64_t count() const;
  /// "Q4_K", or "type 41".
  std::string type_name() const;
};

struct GgufHeader {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  ///< in the order of their bytes
};

/// Reads and checks the header of the file `bytes`, of which it keeps views; `file` is what errors call it. Refused:
/// other versions, big-endian files, sizes beyond the file, names that are there twice, tensors that overlap, end
/// beyond the file, or whose rows are no whole blocks.
Result<GgufHeader> parse_gguf(std::span<const std::byte> bytes, std::string_view file);

/// An open file, mapped into memory.
class GgufFile {
 public:
  static Result<GgufFile> open(const std::filesystem::path& path);

  const GgufHeader& header() const { return header_; }
  /// Null where there is none.
  const GgufValue* find(std::string_view key) const;
  /// Empty where its type is not decoded.
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;
  std::uint64_t size() const { return file_.bytes().size(); }
  /// Error: the file is another one now, or was written to, since it was opened.
  Status check() const { return file_.check(); }

 private:
  GgufFile(MappedFile file, GgufHeader header) : file_(std::move(file)), header_(std::move(header)) {}

  MappedFile file_;
  GgufHeader header_;
};

/// Whether a file begins as GGUF does.
bool is_gguf(std::span<const std::byte> head);

}  // namespace nanscope
