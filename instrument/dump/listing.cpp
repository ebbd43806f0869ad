#include "instrument/dump/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include "core/dump/natural_order.h"

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

/// Of what is neither a file nor a folder.
std::string_view kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::fifo:
      return "a named pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    default:
      return "neither a file nor a folder";
  }
}

/// Of which there is not enough for anything else either.
bool is_exhausted(const std::error_code& error) {
  return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
         error == std::errc::not_enough_memory;
}

class Lister {
 public:
  Lister(DumpListing& into, bool follow_links) : into_(into), follow_links_(follow_links) {}

  Status list(const fs::path& folder, int depth) {
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
      if (Status done = take(*entry, depth); !done) return done;
    }
    if (!error) return {};
    if (depth == 0 || is_exhausted(error))
      return fail(fmt::format("{}: cannot list: {}", folder.string(), error.message()));
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
    } else if (!fs::is_regular_file(status)) {
      leave_out(entry.path(), fmt::format("{}, which is not read", kind_of(status.type())));
    } else if (link && !follow_links_ && !lies_below(entry.path(), into_.root)) {
      leave_out(entry.path(), "a link to a file out of the dump, which is not read without --follow-links");
    } else {
      return take_file(entry.path());
    }
    return {};
  }

  Status take_file(const fs::path& path) {
    const Result<FileState> state = state_of(path);
    if (!state) {
      leave_out(path, state.error().message);
      return {};
    }
    into_.files.push_back({path, path.lexically_relative(into_.root).generic_string(), *state});
    if (into_.files.size() <= kMostFiles) return {};
    return fail(fmt::format("{}: more than {} files", into_.root.string(), kMostFiles));
  }

  DumpListing& into_;
  bool follow_links_;
};

}  // namespace

bool lies_below(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return false;
  const fs::path root = fs::canonical(folder.empty() ? fs::path(".") : folder, error);
  const fs::path relative = real.lexically_relative(root);
  return !error && !relative.empty() && *relative.begin() != "..";
}

bool is_text_file(const DumpFile& file) {
  constexpr std::array<std::string_view, 14> kTexts = {".json", ".jsonl", ".txt", ".md",    ".log", ".toml", ".py",
                                                       ".yaml", ".yml",   ".csv", ".jinja", ".sh",  ".cfg",  ".ini"};
  const std::string extension = file.path.extension().string();
  return file.filename().starts_with('.') || std::find(kTexts.begin(), kTexts.end(), extension) != kTexts.end() ||
         file.filename() == "LICENSE";
}

std::string DumpFile::folder() const { return fs::path(shown).parent_path().generic_string(); }
std::string DumpFile::filename() const { return fs::path(shown).filename().string(); }
std::string DumpFile::stem() const { return fs::path(shown).stem().string(); }

Result<DumpListing> list_dump(const fs::path& path, bool follow_links) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error || !fs::exists(status)) {
    return fail(fmt::format("{}: {}", path.string(), error ? error.message() : "not there"));
  }
  DumpListing listing;
  if (fs::is_regular_file(status)) {
    const Result<FileState> state = state_of(path);
    if (!state) return tl::unexpected(state.error());
    listing.root = path.parent_path();
    listing.files.push_back({path, path.filename().generic_string(), *state});
    return listing;
  }
  if (!fs::is_directory(status)) {
    return fail(fmt::format("{}: {}, expected a file or a folder", path.string(), kind_of(status.type())));
  }
  listing.root = path;
  if (Status done = Lister(listing, follow_links).list(path, 0); !done) return tl::unexpected(done.error());
  std::sort(listing.files.begin(), listing.files.end(),
            [](const DumpFile& a, const DumpFile& b) { return natural_less(a.shown, b.shown); });
  return listing;
}

}  // namespace nanscope
