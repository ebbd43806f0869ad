#include "instrument/dump/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

namespace nanscope {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostFiles = 1'000'000;
constexpr int kDeepest = 32;

/// What nanscope_capture.py writes a step under until it is whole.
bool is_unfinished(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with(".step_") && name.ends_with(".partial");
}

class Lister {
 public:
  explicit Lister(DumpListing& into) : into_(into) {}

  Status list(const fs::path& folder, int depth) {
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
      if (Status done = take(*entry, depth); !done) return done;
    }
    if (!error) return {};
    if (depth == 0) return fail(fmt::format("{}: cannot list: {}", folder.string(), error.message()));
    leave_out(folder, fmt::format("a folder that cannot be listed: {}", error.message()));
    return {};
  }

 private:
  void leave_out(const fs::path& path, std::string why) {
    into_.left_out.push_back({path.lexically_relative(into_.root).generic_string(), std::move(why)});
  }

  Status take(const fs::directory_entry& entry, int depth) {
    std::error_code error;
    const bool link = entry.is_symlink(error);
    const fs::file_status status = entry.status(error);
    if (link && (error || !fs::exists(status))) {
      leave_out(entry.path(), "a link that leads nowhere, or to itself");
    } else if (fs::is_directory(status)) {
      if (link) {
        leave_out(entry.path(), "a link to a folder, which is not followed: it may lead back");
      } else if (depth + 1 > kDeepest) {
        leave_out(entry.path(), fmt::format("a folder more than {} deep", kDeepest));
      } else if (is_unfinished(entry.path())) {
        leave_out(entry.path(), "a step that was not written to its end");
      } else {
        return list(entry.path(), depth + 1);
      }
    } else if (fs::is_regular_file(status)) {
      into_.files.push_back({entry.path(), entry.path().lexically_relative(into_.root).generic_string()});
      if (into_.files.size() > kMostFiles) {
        return fail(fmt::format("{}: more than {} files", into_.root.string(), kMostFiles));
      }
    } else {
      leave_out(entry.path(), "neither a file nor a folder");
    }
    return {};
  }

  DumpListing& into_;
};

}  // namespace

std::string DumpFile::folder() const { return fs::path(shown).parent_path().generic_string(); }
std::string DumpFile::filename() const { return fs::path(shown).filename().string(); }
std::string DumpFile::stem() const { return fs::path(shown).stem().string(); }

Result<DumpListing> list_dump(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error || !fs::exists(status)) {
    return fail(fmt::format("{}: {}", path.string(), error ? error.message() : "not there"));
  }
  DumpListing listing;
  if (!fs::is_directory(status)) {
    listing.root = path.parent_path();
    listing.files.push_back({path, path.filename().generic_string()});
    return listing;
  }
  listing.root = path;
  if (Status done = Lister(listing).list(path, 0); !done) return tl::unexpected(done.error());
  std::sort(listing.files.begin(), listing.files.end(),
            [](const DumpFile& a, const DumpFile& b) { return natural_less(a.shown, b.shown); });
  return listing;
}

}  // namespace nanscope
