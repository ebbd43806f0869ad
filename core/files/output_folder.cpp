#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/files/output_file.h"
#include "core/files/rename.h"
#include "core/files/temporary.h"
#include "core/system_reason.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> cannot(const fs::path& path, const std::error_code& error) {
  return fail(fmt::format("{}: cannot be written: {}", path.string(), system_reason(error.value())));
}

/// Whoever may read the files may enter.
mode_t folder_mode(mode_t files) { return files | ((files & 0444) >> 2); }

/// "dump" of "dump/".
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

Result<OutputFolder> OutputFolder::create(const fs::path& target, OutputOptions options) {
  OutputFolder folder(without_slash(target), std::move(options));
  std::error_code error;
  const fs::file_status status = fs::status(folder.target_, error);
  folder.into_existing_ = fs::is_directory(status);
  if (!folder.into_existing_ && fs::exists(fs::symlink_status(folder.target_, error))) {
    return fail(target.string() + ": exists and is no folder");
  }
  if (folder.into_existing_ && !folder.options_.replace && !fs::is_empty(folder.target_, error)) {
    if (error) return cannot(target, error);
    return fail(target.string() + ": is not empty; --force writes into it");
  }
  if (!folder.into_existing_ && folder.target_.has_parent_path()) {
    fs::create_directories(folder.target_.parent_path(), error);
    if (error) return cannot(target, error);
  }
  const auto made = temporaries::name_beside(folder.into_existing_ ? folder.target_ / "export" : folder.target_);
  if (!made) return tl::unexpected(made.error());
  if (Status entered = temporaries::enter(*made); !entered) return tl::unexpected(entered.error());
  if (::mkdir(made->c_str(), folder_mode(folder.options_.mode)) != 0) {
    const int reason = errno;
    temporaries::leave(*made);
    return fail(fmt::format("{}: cannot create: {}", target.string(), system_reason(reason)));
  }
  folder.path_ = *made;
  return folder;
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : target_(std::move(other.target_)),
      options_(std::move(other.options_)),
      path_(std::exchange(other.path_, {})),
      into_existing_(other.into_existing_) {}

OutputFolder& OutputFolder::operator=(OutputFolder&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(options_, other.options_);
  std::swap(path_, other.path_);
  std::swap(into_existing_, other.into_existing_);
  return *this;
}

OutputFolder::~OutputFolder() {
  if (path_.empty()) return;
  temporaries::discard(path_);
  temporaries::leave(path_);
}

Status OutputFolder::write(const fs::path& name, std::span<const std::byte> bytes) {
  // Refused before the others are made, not when they are moved.
  if (into_existing_) {
    std::error_code ignored;
    const fs::path there = target_ / name;
    if (fs::exists(fs::symlink_status(there, ignored))) {
      if (Status allowed = check_output(there, options_); !allowed) return allowed;
    }
  }
  const fs::path file = path_ / name;
  for (fs::path folder = path_; const fs::path& part : name.parent_path()) {
    folder /= part;
    if (::mkdir(folder.c_str(), folder_mode(options_.mode)) != 0 && errno != EEXIST) {
      return fail(fmt::format("{}: cannot create: {}", (target_ / name).string(), system_reason(errno)));
    }
  }
  OutputOptions options;
  options.durable = options_.durable;
  options.mode = options_.mode;
  return write_output(file, bytes, options);
}

Status OutputFolder::move_files() {
  std::error_code error;
  for (fs::recursive_directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const fs::path there = target_ / it->path().lexically_relative(path_);
    if (it->is_directory(error)) {
      fs::create_directory(there, error);
      if (error) return cannot(there, error);
      continue;
    }
    const auto fresh = files::rename_to_new(it->path(), there);
    if (!fresh) return tl::unexpected(fresh.error());
    if (*fresh) continue;
    if (Status allowed = check_output(there, options_); !allowed) return allowed;
    if (Status over = files::rename_over(it->path(), there); !over) return over;
  }
  return error ? Status(cannot(target_, error)) : Status{};
}

Status OutputFolder::commit() {
  if (into_existing_) {
    if (Status moved = move_files(); !moved) return moved;
    temporaries::discard(path_);
  } else {
    const auto named = files::rename_to_new(path_, target_);
    if (!named) return tl::unexpected(named.error());
    if (!*named) return fail(target_.string() + ": was made by another process meanwhile; name another folder");
  }
  temporaries::leave(path_);
  path_.clear();
  return {};
}

}  // namespace nanscope
