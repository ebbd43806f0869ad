#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/dtype.h"
#include "core/result.h"
#include "core/text/safe_text.h"
#include "instrument/files/source_file.h"
#include "instrument/files/utf8.h"

/// What every reader of a container needs: its file's bytes, errors in one line, sizes that cannot overflow.
namespace nanscope {

/// A file's bytes and what keeps them alive; `name` is what errors call the file.
struct FileBytes {
  std::string name;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const SourceFile> source = nullptr;  ///< where they come from; null for bytes of a program's own
};

Result<FileBytes> map_file(const std::filesystem::path& path);

/// A file that a container was made of, whose bytes are held while they are used: files that are large or hold many
/// tensors always, of which the system can map enough at once.
class KeptFile {
 public:
  explicit KeptFile(FileBytes file, std::size_t tensors = 1);

  /// Where it turns out to hold many.
  static constexpr std::size_t kMany = 64;
  void keep();

  const std::string& name() const { return file_.name; }
  std::uint64_t size() const { return size_; }
  /// All of it, of which `reads` bytes will be read. Thread-safe. Error: it is no longer what it was when it was
  /// opened.
  Result<FileBytes> hold(std::uint64_t reads = 0) const;

  /// Bytes of a mapped file that may be resident: after that many were read its pages are given back. Who still holds
  /// bytes reads them again from the file.
  static constexpr std::uint64_t kMostResident = std::uint64_t{128} << 20;
  Status check() const;

 private:
  FileBytes file_;  ///< without bytes where they are held while they are used
  std::uint64_t size_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> read_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

/// "FILE: offset N: what", which should say what was expected and what was found.
tl::unexpected<Error> refuse(std::string_view file, std::uint64_t offset, const std::string& what);

/// Text of a file as a message can hold it: short, one line, nothing in it that is not visible.
std::string printable(std::string_view text, std::size_t limit = 120);
/// The same between single quotes.
std::string in_quotes(std::string_view text);

/// Product of the extents; nothing when it, or its size in this dtype, does not fit in 63 bits.
std::optional<std::uint64_t> checked_count(std::span<const std::int64_t> shape, const Dtype& dtype);

/// "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

/// A little-endian number at `offset`; the bytes must hold it.
template <class T>
T little_endian(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(static_cast<std::uint64_t>(value) << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]));
  }
  return value;
}

/// Why a name of a file in an archive or a manifest may not be used: absolute, with "..", a backslash, a
/// drive or a NUL, or no UTF-8. Nothing when it stays in its folder.
std::optional<std::string> path_problem(std::string_view name);

}  // namespace nanscope
