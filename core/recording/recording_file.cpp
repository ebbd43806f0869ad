#include "core/recording/recording_file.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <system_error>
#include <tuple>

#include "core/files/output_file.h"
#include "core/recording/reader.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

/// Undoes what a writer that was killed left in its journal, which then is gone. Nothing happens to other databases.
void settle_journal(const fs::path& recording) {
  std::error_code ignored;
  if (fs::is_regular_file(recording, ignored)) std::ignore = Recording::open(recording);
}

}  // namespace

Status check_beside(const fs::path& recording) {
  for (const char* suffix : {"-journal", "-wal"}) {
    const fs::path beside = recording.string() + suffix;
    std::error_code error;
    const auto status = fs::symlink_status(beside, error);
    if (!fs::exists(status)) continue;
    // An empty journal is what a writer leaves that was killed between two transactions.
    const bool journal = std::string_view(suffix) == "-journal" && fs::is_regular_file(status);
    if (journal && fs::is_empty(beside, error)) continue;
    return fail(fmt::format("{}: would be taken for a part of {}: move it away, or name another file", beside.string(),
                            recording.filename().string()));
  }
  return {};
}

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
