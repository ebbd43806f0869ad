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

#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/files/file.h"

/// The safetensors file: 8 bytes of little-endian header length, a JSON header, then the tensors'
/// bytes (https://github.com/huggingface/safetensors, "Format").
namespace nanscope {

/// One tensor of a file: what the header says, checked against the file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;             ///< as written in the file: F32, BF16, F8_E4M3, BOOL ...
  std::optional<Format> format;  ///< none when the dtype is no format of nanscope (F64 I64 U8 BOOL ...)
  bool known = true;             ///< false: the dtype's width is unknown, its size was not checked
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< in bytes, from the end of the header
  std::uint64_t end = 0;

  /// Product of the shape; 1 for a scalar.
  std::int64_t count() const;
};

/// The checked header of a file. Entries are in the order of their bytes.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  ///< offset in the file of the first tensor's byte
};

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  ///< the reference implementation's limit

/// Reads and checks the header of the file `bytes`; `file` is what errors call it. Refused: a
/// header that is larger than kMaxSafetensorsHeader or than the file, is no JSON object, names a
/// tensor twice or lacks a field; tensors that overlap, leave holes or bytes behind them, or whose
/// size is not dtype times shape. A file that ends inside a tensor is refused, with what is missing.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, std::string_view file);

/// An open file, mapped into memory. Entries' bytes are views that live as long as it does.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  std::span<const SafetensorsEntry> entries() const { return header_.entries; }
  /// Null when there is no tensor of that name.
  const SafetensorsEntry* find(std::string_view name) const;
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// Error: the file is another one now, or was written to, since it was opened.
  Status check() const { return file_.check(); }

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header);

  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

/// Values of a tensor as f32: float formats and integers of 8 to 32 bits decoded as core/numbers
/// does (NaN becomes the canonical one), F64 and I64 rounded to nearest, BOOL as 0 or 1.
/// Error: a dtype without such a reading (packed 4 and 6 bit formats, complex, unknown ones).
Result<std::vector<float>> safetensors_values(const SafetensorsEntry& entry, std::span<const std::byte> bytes);

/// A file that is to be written: its first bytes, and where each tensor's begin behind them.
struct SafetensorsLayout {
  std::vector<std::byte> header;                              ///< with the length before it
  std::map<std::string, std::uint64_t, std::less<>> offsets;  ///< in the file
  std::uint64_t size = 0;
};

/// A tensor by name, dtype and shape.
struct SafetensorsSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

/// Tensors are laid out by falling element width, then by name, as the reference implementation does, so that every
/// tensor is aligned; the header is padded with spaces to a multiple of 8. Errors: a dtype that is not known, a shape
/// that cannot be, a name that is there twice.
Result<SafetensorsLayout> lay_out_safetensors(std::vector<SafetensorsSpec> tensors,
                                              const std::map<std::string, std::string>& metadata = {});

/// One tensor to write.
struct SafetensorsInput {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// The file's bytes, as lay_out_safetensors() has them. The same input gives the same bytes in whatever order it is
/// listed.
Result<std::vector<std::byte>> encode_safetensors(const std::vector<SafetensorsInput>& tensors,
                                                  const std::map<std::string, std::string>& metadata = {});

/// Bits of one element of a dtype, or none when the dtype is unknown.
std::optional<int> safetensors_bits(std::string_view dtype);

/// The dtype that stores a format, e.g. F8_E4M3 for e4m3; empty when there is none.
std::string_view safetensors_dtype(Format format);

}  // namespace nanscope
