#include "instrument/dump/containers/zip_archive.h"

#define ZLIB_CONST  // the input is read only
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "instrument/files/file.h"

namespace nanscope {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint64_t kLocalHeaderBytes = 30;
constexpr std::uint64_t kEntryBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kLocatorBytes = 20;
constexpr std::uint64_t kMaxComment = 65535;
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint16_t kIn64 = 0xffff;
constexpr std::uint32_t kIn64Wide = 0xffffffff;

constexpr std::uint16_t kEncrypted = 1U << 0;
constexpr std::uint16_t kSizesBehind = 1U << 3;
constexpr std::uint16_t kPatched = 1U << 5;
constexpr std::uint16_t kStrongEncryption = 1U << 6;
constexpr std::uint16_t kMasked = 1U << 13;

constexpr std::uint64_t kMaxRatio = 1032;  // zlib.net/zlib_tech.html, "Maximum Compression Factor"
constexpr std::uint64_t kFreeGrowth = 256 << 20;
constexpr std::uint64_t kMaxGrowth = 64;

/// Where the directory lies and how many members it says to have.
struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t members = 0;
};

/// Fields that the directory and a local header have in common.
struct Header {
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t stored = 0;
  std::uint64_t size = 0;
  std::uint64_t local = 0;  ///< offset of the local header
};

class ArchiveReader {
 public:
  explicit ArchiveReader(const FileBytes& file) : file_(file) {}

  Result<std::vector<ZipMember>> read() {
    const auto directory = find_directory();
    if (!directory) return tl::unexpected(directory.error());
    directory_ = *directory;
    std::uint64_t at = directory_.begin;
    members_.reserve(directory_.members);
    extents_.reserve(directory_.members);
    for (std::uint64_t i = 0; i < directory_.members; ++i) {
      const auto next = read_entry(at);
      if (!next) return tl::unexpected(next.error());
      at = *next;
    }
    if (at != directory_.end) return refuse_at(at, "more bytes in the directory than its members, expected its end");
    auto checked = check_overlaps();
    if (checked) checked = check_growth();
    if (!checked) return tl::unexpected(checked.error());
    return std::move(members_);
  }

 private:
  struct Extent {
    std::uint64_t begin;
    std::uint64_t end;
  };

  tl::unexpected<Error> refuse_at(std::uint64_t offset, const std::string& what) const {
    return refuse(file_.name, offset, what);
  }
  template <class T>
  T number(std::uint64_t offset) const {
    return little_endian<T>(file_.bytes, offset);
  }
  std::uint16_t u16(std::uint64_t offset) const { return number<std::uint16_t>(offset); }
  std::uint32_t u32(std::uint64_t offset) const { return number<std::uint32_t>(offset); }
  std::uint64_t u64(std::uint64_t offset) const { return number<std::uint64_t>(offset); }

  /// The end record is the last one whose comment ends with the file.
  std::optional<std::uint64_t> find_end() const {
    const std::uint64_t size = file_.bytes.size();
    for (std::uint64_t comment = 0; comment <= kMaxComment && comment + kEndBytes <= size; ++comment) {
      const std::uint64_t at = size - kEndBytes - comment;
      if (u32(at) == kEnd && u16(at + 20) == comment) return at;
    }
    return std::nullopt;
  }

  Result<Directory> find_directory() const {
    const auto end = find_end();
    if (!end)
      return refuse_at(file_.bytes.size(),
                       "the file ends without a zip directory (truncated?), expected its end record");
    if (*end >= kLocatorBytes && u32(*end - kLocatorBytes) == kEnd64Locator)
      return find_directory64(*end - kLocatorBytes);
    if (u16(*end + 4) != 0 || u16(*end + 6) != 0 || u16(*end + 8) != u16(*end + 10)) {
      return refuse_at(*end, "an archive split over several files, expected a whole one");
    }
    return check_place({u32(*end + 16), u32(*end + 16) + std::uint64_t{u32(*end + 12)}, u16(*end + 10)}, *end);
  }

  Result<Directory> find_directory64(std::uint64_t locator) const {
    if (u32(locator + 4) != 0 || u32(locator + 16) > 1) {
      return refuse_at(locator, "an archive split over several files, expected a whole one");
    }
    const std::uint64_t at = u64(locator + 8);
    if (locator < kEnd64Bytes || at > locator - kEnd64Bytes || u32(at) != kEnd64) {
      return refuse_at(locator, "no zip64 end record at " + std::to_string(at) + ", where it is said to be");
    }
    if (u64(at + 4) != locator - at - 12)
      return refuse_at(at + 4, "a zip64 end record that does not end at its locator");
    if (u32(at + 16) != 0 || u32(at + 20) != 0 || u64(at + 24) != u64(at + 32)) {
      return refuse_at(at, "an archive split over several files, expected a whole one");
    }
    const std::uint64_t begin = u64(at + 48);
    const std::uint64_t bytes = u64(at + 40);
    if (bytes > at || begin > at - bytes) return refuse_at(at + 40, "a directory beyond the file's end");
    return check_place({begin, begin + bytes, u64(at + 32)}, at);
  }

  /// `record` is where the record behind the directory begins.
  Result<Directory> check_place(const Directory& directory, std::uint64_t record) const {
    if (directory.end != record) {
      return refuse_at(record, "a directory from " + std::to_string(directory.begin) + " to " +
                                   std::to_string(directory.end) + ", expected its end here, before its end record");
    }
    if (directory.members > (directory.end - directory.begin) / kEntryBytes) {
      return refuse_at(record, std::to_string(directory.members) + " members in a directory of " +
                                   std::to_string(directory.end - directory.begin) + " bytes, expected at most " +
                                   std::to_string((directory.end - directory.begin) / kEntryBytes));
    }
    return directory;
  }

  /// Reads one entry of the directory and gives the offset of the next.
  Result<std::uint64_t> read_entry(std::uint64_t at) {
    if (directory_.end - at < kEntryBytes || u32(at) != kDirectoryEntry) {
      return refuse_at(at,
                       "no entry of the zip directory, expected " + std::to_string(directory_.members) + " of them");
    }
    const std::uint64_t name_at = at + kEntryBytes;
    const std::uint64_t extra_at = name_at + u16(at + 28);
    const std::uint64_t comment_at = extra_at + u16(at + 30);
    const std::uint64_t end = comment_at + u16(at + 32);
    if (end > directory_.end) return refuse_at(at, "an entry of the zip directory that runs past its end");
    const std::string_view name = as_text(file_.bytes.subspan(name_at, extra_at - name_at));
    Header header{u16(at + 8), u16(at + 10), u32(at + 16), u32(at + 20), u32(at + 24), u32(at + 42)};
    auto checked = widen(header, at, extra_at, comment_at);
    if (checked) checked = check_header(header, name, at);
    if (!checked) return tl::unexpected(checked.error());
    const auto data = check_local(header, name);
    if (!data) return tl::unexpected(data.error());
    extents_.push_back({header.local, *data + header.stored});
    const bool folder = name.ends_with('/');
    if (folder && header.size != 0) return refuse_at(at, "the folder " + in_quotes(name) + " has content");
    if (!folder) {
      members_.push_back({std::string(name), header.size, header.stored, *data, header.crc, header.method == 8});
    }
    return end;
  }

  /// Replaces what does not fit in 32 bits by the zip64 field, which holds exactly those numbers in order.
  Status widen(Header& header, std::uint64_t entry, std::uint64_t extra, std::uint64_t extra_end) const {
    const bool other_disk = u16(entry + 34) != 0 && u16(entry + 34) != kIn64;
    if (other_disk) return refuse_at(entry + 34, "a member on another disk, expected a whole archive");
    if (header.size != kIn64Wide && header.stored != kIn64Wide && header.local != kIn64Wide) return {};
    for (std::uint64_t at = extra; extra_end - at >= 4; at += 4 + u16(at + 2)) {
      const std::uint64_t end = at + 4 + u16(at + 2);
      if (end > extra_end) return refuse_at(at, "an extra field that runs past its entry");
      if (u16(at) != kZip64Field) continue;
      std::uint64_t next = at + 4;
      for (std::uint64_t* value : {&header.size, &header.stored, &header.local}) {
        if (*value != kIn64Wide) continue;
        if (end - next < 8) return refuse_at(at, "a zip64 field without the size that its entry refers to");
        *value = u64(next);
        next += 8;
      }
      return {};
    }
    // Without the field the number means itself: such a member can be 4 GiB - 1 long.
    return {};
  }

  Status check_header(const Header& header, std::string_view name, std::uint64_t at) const {
    // Nothing is ever extracted: names that begin with '/', as those of an ONNX graph do, are names like others.
    const std::size_t begin = std::min(name.find_first_not_of('/'), name.size());
    if (const auto problem = path_problem(name.substr(begin))) {
      return refuse_at(at,
                       "the member's name " + in_quotes(name) + " " + *problem + ", expected one inside the archive");
    }
    if ((header.flags & (kEncrypted | kStrongEncryption | kMasked)) != 0) {
      return refuse_at(at + 8, "the member " + in_quotes(name) + " is encrypted, expected plain content");
    }
    if ((header.flags & kPatched) != 0 || (header.method != 0 && header.method != 8)) {
      return refuse_at(at + 10, "the member " + in_quotes(name) + " is compressed by method " +
                                    std::to_string(header.method) + ", expected 0 (stored) or 8 (deflate)");
    }
    if (header.method == 0 && header.size != header.stored) {
      return refuse_at(at + 20, "the member " + in_quotes(name) + " is stored in " + std::to_string(header.stored) +
                                    " bytes, expected its size of " + std::to_string(header.size));
    }
    if (header.size / kMaxRatio > header.stored) {
      return refuse_at(at + 24, "the member " + in_quotes(name) + " claims to unpack from " +
                                    std::to_string(header.stored) + " to " + std::to_string(header.size) +
                                    " bytes, expected at most 1032 to 1: a zip bomb");
    }
    return {};
  }

  /// Compares the local header with the directory's; gives the offset of the member's data.
  Result<std::uint64_t> check_local(const Header& header, std::string_view name) const {
    const std::uint64_t at = header.local;
    if (directory_.begin < kLocalHeaderBytes || at > directory_.begin - kLocalHeaderBytes || u32(at) != kLocalHeader) {
      return refuse_at(at,
                       "no local header of the member " + in_quotes(name) + ", expected it where the directory says");
    }
    const std::uint64_t name_at = at + kLocalHeaderBytes;
    const std::uint64_t data = name_at + u16(at + 26) + u16(at + 28);
    if (data > directory_.begin || header.stored > directory_.begin - data) {
      return refuse_at(at, "the member " + in_quotes(name) + " of " + std::to_string(header.stored) +
                               " bytes runs into the directory at " + std::to_string(directory_.begin));
    }
    const std::string_view local_name = as_text(file_.bytes.subspan(name_at, u16(at + 26)));
    // Sizes and checksum may be left out here (written behind the data), or stand in a zip64 field.
    const bool behind = (u16(at + 6) & kSizesBehind) != 0;
    const auto agrees = [&](std::uint64_t offset, std::uint64_t value) {
      return behind || u32(offset) == kIn64Wide || u32(offset) == value;
    };
    if (local_name != name || u16(at + 8) != header.method || ((u16(at + 6) ^ header.flags) & kEncrypted) != 0 ||
        !agrees(at + 18, header.stored) || !agrees(at + 22, header.size) || (!behind && u32(at + 14) != header.crc)) {
      return refuse_at(at, "the local header of " + in_quotes(local_name) + " differs from the directory's entry of " +
                               in_quotes(name));
    }
    return data;
  }

  /// Overlapping members make a small file unpack to anything, and one reader see what another does not.
  Status check_overlaps() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < extents_.size(); ++i) {
      if (extents_[i].begin < extents_[i - 1].end) {
        return refuse_at(extents_[i].begin, "a member that begins inside the one before it, which ends at " +
                                                std::to_string(extents_[i - 1].end));
      }
    }
    return {};
  }

  Status check_growth() const {
    const std::uint64_t limit = kFreeGrowth + kMaxGrowth * file_.bytes.size();
    std::uint64_t total = 0;
    for (const ZipMember& member : members_) {
      if (member.deflated) total += member.size;
      if (total > limit) {
        return refuse_at(member.data, "members unpack to more than " + std::to_string(limit) +
                                          " bytes, expected less of an archive of " +
                                          std::to_string(file_.bytes.size()) +
                                          ": a zip bomb, or save it without compression");
      }
    }
    return {};
  }

  const FileBytes& file_;
  Directory directory_;
  std::vector<ZipMember> members_;
  std::vector<Extent> extents_;
};

/// zlib's stream that ends with its owner.
struct Inflater {
  // Negative: raw deflate data, as zip has it.
  Inflater() : ready(inflateInit2(&stream, -MAX_WBITS) == Z_OK) {}
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
  z_stream stream{};
  bool ready;
};

/// Fills `to` with the beginning of what `from` unpacks to; with `whole`, what is more or less is an error.
bool unpack(std::span<const std::byte> from, std::span<std::byte> to, bool whole) {
  constexpr std::size_t kPortion = std::size_t{1} << 30;  // zlib counts in 32 bits
  Inflater inflater;
  if (!inflater.ready) return false;
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<const Bytef*>(from.data());
  stream.next_out = reinterpret_cast<Bytef*>(to.data());
  std::size_t in_left = from.size();
  std::size_t out_left = to.size();
  int status = Z_OK;
  while (status == Z_OK && (whole || out_left > 0)) {
    const std::size_t in = std::min(in_left, kPortion);
    const std::size_t out = std::min(out_left, kPortion);
    stream.avail_in = static_cast<uInt>(in);
    stream.avail_out = static_cast<uInt>(out);
    status = inflate(&stream, Z_NO_FLUSH);
    in_left -= in - stream.avail_in;
    out_left -= out - stream.avail_out;
  }
  return out_left == 0 && (!whole || (status == Z_STREAM_END && in_left == 0));
}

std::uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

bool is_zip(std::span<const std::byte> head) {
  return head.size() >= 4 && little_endian<std::uint32_t>(head, 0) == kLocalHeader;
}

Result<ZipArchive> ZipArchive::read(FileBytes file) {
  auto members = ArchiveReader(file).read();
  if (!members) return tl::unexpected(members.error());
  ZipArchive archive(std::move(file), std::move(*members));
  const auto& names = archive.by_name_;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const ZipMember& member = archive.members_[names[i]];
    if (member.name != archive.members_[names[i - 1]].name) continue;
    return refuse(archive.name(), member.data, "a second member named " + in_quotes(member.name) + ", expected one");
  }
  return archive;
}

ZipArchive::ZipArchive(FileBytes file, std::vector<ZipMember> members)
    : file_(std::move(file), members.size()), members_(std::move(members)), by_name_(members_.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return members_[a].name < members_[b].name; });
}

const ZipMember* ZipArchive::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::uint32_t i, std::string_view wanted) { return members_[i].name < wanted; });
  return found == by_name_.end() || members_[*found].name != name ? nullptr : &members_[*found];
}

Result<TensorBytes> ZipArchive::content(const ZipMember& member) const {
  if (!member.deflated) return stored(member, member.stored);
  auto made = unpacked(member, member.size);
  if (made && checksum(made->bytes) != member.crc) {
    return refuse(name(), member.data,
                  "the member " + in_quotes(member.name) + " has another checksum than the directory says");
  }
  return made;
}

Result<TensorBytes> ZipArchive::beginning(const ZipMember& member, std::uint64_t limit) const {
  const std::uint64_t size = std::min(limit, member.size);
  return member.deflated ? unpacked(member, size) : stored(member, size);
}

Result<TensorBytes> ZipArchive::stored(const ZipMember& member, std::uint64_t size) const {
  auto file = file_.hold(size);
  if (!file) return tl::unexpected(file.error());
  return TensorBytes{file->bytes.subspan(member.data, size), std::move(file->owner)};
}

Result<TensorBytes> ZipArchive::unpacked(const ZipMember& member, std::uint64_t size) const {
  const auto packed = stored(member, member.stored);
  if (!packed) return packed;
  auto made = std::make_shared<std::vector<std::byte>>();
  try {
    made->resize(size);
  } catch (const std::bad_alloc&) {
    return refuse(name(), member.data,
                  "no memory for the " + std::to_string(size) + " bytes of " + in_quotes(member.name));
  }
  if (!unpack(packed->bytes, *made, size == member.size)) {
    return refuse(name(), member.data,
                  "the member " + in_quotes(member.name) + " does not unpack to the " + std::to_string(member.size) +
                      " bytes that the directory says");
  }
  return TensorBytes{*made, made};
}

}  // namespace nanscope
