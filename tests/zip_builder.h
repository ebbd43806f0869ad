#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace nanscope {

/// Zip archives for tests, with every field open to be wrong.
struct ZipEntry {
  std::string name{};
  std::string data{};  ///< as it is stored
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t size = 0xffffffff;  ///< of the content; all ones: that of the data
  std::uint32_t crc = 0;            ///< in directory and local header
  std::string local_name{};         ///< in the local header; empty: the same
  std::uint16_t disk = 0;
  std::int64_t local_shift = 0;  ///< added to the offset of the local header
  std::string extra{};           ///< in the directory
};

class ZipBuilder {
 public:
  explicit ZipBuilder(const std::vector<ZipEntry>& entries) {
    for (const ZipEntry& entry : entries) add(entry);
    directory_begin = bytes.size();
    bytes += directory_;
    end_begin = bytes.size();
    number(0x06054b50, 4, bytes);
    number(0, 4, bytes);
    number(entries.size(), 2, bytes);
    number(entries.size(), 2, bytes);
    number(directory_.size(), 4, bytes);
    number(directory_begin, 4, bytes);
    number(0, 2, bytes);
  }

  static void number(std::uint64_t value, int width, std::string& to) {
    // Shifted a byte at a time: wider numbers end in zeros.
    for (int i = 0; i < width; ++i, value >>= 8U) to += static_cast<char>(value & 0xffU);
  }

  /// What raw deflate makes of a text.
  static std::string deflated(const std::string& text) {
    std::string out(text.size() + 100, '\0');
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }
  static std::uint32_t crc_of(const std::string& text) {
    return static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  }

  std::string bytes;
  std::uint64_t directory_begin = 0;
  std::uint64_t end_begin = 0;

 private:
  static void common(const ZipEntry& entry, std::string& to) {
    number(entry.flags, 2, to);
    number(entry.method, 2, to);
    number(0, 4, to);
    number(entry.crc, 4, to);
    number(entry.data.size(), 4, to);
    number(entry.size == 0xffffffff ? entry.data.size() : entry.size, 4, to);
  }

  void add(const ZipEntry& entry) {
    const std::uint64_t local = bytes.size();
    const std::string& local_name = entry.local_name.empty() ? entry.name : entry.local_name;
    number(0x04034b50, 4, bytes);
    number(20, 2, bytes);
    common(entry, bytes);
    number(local_name.size(), 2, bytes);
    number(0, 2, bytes);
    bytes += local_name + entry.data;

    number(0x02014b50, 4, directory_);
    number(20, 2, directory_);
    number(20, 2, directory_);
    common(entry, directory_);
    number(entry.name.size(), 2, directory_);
    number(entry.extra.size(), 2, directory_);
    number(0, 2, directory_);
    number(entry.disk, 2, directory_);
    number(0, 6, directory_);
    number(local + static_cast<std::uint64_t>(entry.local_shift), 4, directory_);
    directory_ += entry.name + entry.extra;
  }

  std::string directory_;
};

}  // namespace nanscope
