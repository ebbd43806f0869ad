#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"

/// Zip files as NumPy and PyTorch write them: stored or deflated members, zip64 (PKWARE's APPNOTE 6.3,
/// pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT).
namespace nanscope {

struct ZipMember {
  std::string name;
  std::uint64_t size = 0;    ///< of the content
  std::uint64_t stored = 0;  ///< bytes that it takes in the archive
  std::uint64_t data = 0;    ///< offset in the archive of the first of them
  std::uint32_t crc = 0;     ///< of the content
  bool deflated = false;
};

/// The directory of an archive, checked as a whole before anything is read: the directory ends where its
/// end record begins, each member's local header says the same as the directory, members neither overlap
/// nor reach into the directory, no two have one name, and no name leaves the archive's folder. Encrypted,
/// split and patched archives are refused, and so is one whose members would grow beyond any honest
/// compression: deflate cannot exceed 1032 to 1, and an archive may unpack to 256 MiB plus 64 times its
/// size.
class ZipArchive {
 public:
  static Result<ZipArchive> read(FileBytes file);

  const std::string& name() const { return file_.name(); }
  std::uint64_t bytes() const { return file_.size(); }
  /// Error: the file was written to or replaced since it was read.
  Status check() const { return file_.check(); }
  /// In the order of the directory; folders are left out.
  const std::vector<ZipMember>& members() const { return members_; }
  /// Null when there is none of that name.
  const ZipMember* find(std::string_view name) const;
  /// A member's content: a view of a stored one, whose checksum is not looked at because that would read
  /// gigabytes; a deflated one is unpacked and must match its size and checksum. Thread-safe.
  Result<TensorBytes> content(const ZipMember& member) const;
  /// Its first `limit` bytes, or all when it has fewer; without a look at the checksum.
  Result<TensorBytes> beginning(const ZipMember& member, std::uint64_t limit) const;

 private:
  /// Its first bytes as they lie in the file.
  Result<TensorBytes> stored(const ZipMember& member, std::uint64_t size) const;
  Result<TensorBytes> unpacked(const ZipMember& member, std::uint64_t size) const;

  ZipArchive(FileBytes file, std::vector<ZipMember> members);

  KeptFile file_;
  std::vector<ZipMember> members_;
  std::vector<std::uint32_t> by_name_;
};

/// The four bytes that every such archive with a member begins with.
bool is_zip(std::span<const std::byte> head);

}  // namespace nanscope
