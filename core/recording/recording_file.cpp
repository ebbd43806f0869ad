#include "core/recording/recording_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>

#include "core/files/output_file.h"
#include "core/recording/reader.h"
#include "core/recording/sqlite.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

/// Undoes what a writer that was killed left in its journal, which then is gone. Nothing happens to other databases.
void settle_journal(const fs::path& recording) {
  std::error_code ignored;
  if (fs::is_regular_file(recording, ignored)) std::ignore = Recording::open(recording);
}

/// What a writer leaves that was killed: a journal that is empty, or of a database that was: it undoes nothing.
bool undoes_nothing(const fs::path& journal) {
  constexpr std::array<unsigned char, 8> kMagic = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  constexpr std::size_t kPagesAt = 16;  // of the database before the transaction, 4 bytes
  std::array<char, kPagesAt + 4> header{};
  std::ifstream file(journal, std::ios::binary);
  file.read(header.data(), header.size());
  if (file.gcount() == 0) return file.eof();
  const auto same = [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); };
  return file && std::equal(kMagic.begin(), kMagic.end(), header.begin(), same) &&
         std::all_of(header.begin() + kPagesAt, header.end(), [](char byte) { return byte == 0; });
}

}  // namespace

Status check_beside(const fs::path& recording) {
  for (const char* suffix : {"-journal", "-wal"}) {
    const fs::path beside = recording.string() + suffix;
    std::error_code error;
    const auto status = fs::symlink_status(beside, error);
    if (!fs::exists(status)) continue;
    const bool journal = std::string_view(suffix) == "-journal" && fs::is_regular_file(status);
    if (journal && undoes_nothing(beside)) continue;
    return fail(fmt::format("{}: would be taken for a part of {}: move it away, or name another file", beside.string(),
                            recording.filename().string()));
  }
  return {};
}

bool is_held_locked(const Error& error) { return error.message.ends_with(sqlite::kHeldLocked); }

Result<OutputFile> create_recording_file(const fs::path& path, const OutputOptions& options, bool in_view) {
  if (Status allowed = check_output(path, options); !allowed) return tl::unexpected(allowed.error());
  settle_journal(path);
  if (Status alone = check_beside(path); !alone) return tl::unexpected(alone.error());
  return in_view ? OutputFile::create_in_view(path, options) : OutputFile::create(path, options);
}

Status rename_recording(const fs::path& from, const fs::path& path, const OutputOptions& options) {
  settle_journal(from);
  for (const fs::path& each : {from, path}) {
    if (Status alone = check_beside(each); !alone) return alone;
  }
  if (Status renamed = rename_output(from, path, options); !renamed) return renamed;
  std::error_code ignored;  // it is empty, and of no file any more
  fs::remove(from.string() + "-journal", ignored);
  return {};
}

}  // namespace nanscope
