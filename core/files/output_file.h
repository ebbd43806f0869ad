#pragma once
#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

/// Whatever a command leaves behind is written here: under a name of its own beside the target, which then is renamed.
/// What had the target's name stays whole until the new one is.
namespace nanscope {

/// A file itself, whatever its names.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  bool operator==(const FileIdentity&) const = default;
};
/// Of what a name leads to, or of the link that has the name; nothing where there is neither.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path, bool follow_link = true);

struct OutputOptions {
  bool replace = false;                       ///< what exists, as --force asks
  std::optional<FileIdentity> replaces = {};  ///< without `replace`, this file alone; no link to it
  /// What is read to make the output. It is never replaced, nor is any file in a folder among these.
  std::vector<std::filesystem::path> inputs = {};
  bool durable = false;  ///< on the disk before it has its name: for evidence
  mode_t mode = 0666;    ///< less the process's umask; a file that is replaced hands its mode on
};

/// Whether an output can be written, for a command to ask before it works. A pipe or a device needs no `replace`: it
/// loses nothing. Errors: it exists; it is an input, or lies within one; another process is writing it; it is a folder;
/// its folder is not there.
Status check_output(const std::filesystem::path& target, const OutputOptions& options);

/// Writes a whole file. What is no file (a pipe, /dev/stdout) is written to directly. Errors: those of check_output();
/// the disk is full; another made the file meanwhile. Then nothing is left, and what was there is as before.
Status write_output(const std::filesystem::path& target, std::span<const std::byte> bytes,
                    const OutputOptions& options = {});
Status write_output(const std::filesystem::path& target, std::string_view text, const OutputOptions& options = {});

/// Gives what lies at `from`, in the same folder, the name `target`: for an output that another process wrote.
/// Errors: those of check_output(); then it stays where it is.
Status rename_output(const std::filesystem::path& from, const std::filesystem::path& target,
                     const OutputOptions& options);

/// Whether another process has it in view and writes it, see OutputFile::create_in_view().
bool is_being_written(const std::filesystem::path& path);

/// Whether `target` is what this process's standard output leads to, or another thing that is no file.
bool is_stream(const std::filesystem::path& target);

/// A file that is being written by its name. Without commit() it is removed.
class OutputFile {
 public:
  /// Errors: those of check_output(); it is a stream.
  static Result<OutputFile> create(const std::filesystem::path& target, OutputOptions options);
  /// The same, but where nothing has the target's name the file has it from the beginning: for those that are read
  /// while they grow. While this object lives no other process replaces the file.
  static Result<OutputFile> create_in_view(const std::filesystem::path& target, OutputOptions options);

  /// For commit_as(), in the folder of `target`, whatever has that name.
  static Result<OutputFile> create_beside(const std::filesystem::path& target, OutputOptions options);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Where it is now, and where it is to be.
  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& target() const { return target_; }
  /// Open for reading and writing until commit(); -1 then.
  int descriptor() const { return file_; }
  /// What is in view has content from here on that is worth to be kept without commit(). Others are not changed.
  void keep();
  Status write(std::span<const std::byte> bytes);
  /// Gives it its name. Errors: another took that meanwhile; the disk is full; then it is removed.
  Status commit();
  /// The same under another name in the same folder, which nothing has. False: something has it.
  Result<bool> commit_as(const std::filesystem::path& name);

 private:
  OutputFile(std::filesystem::path target, OutputOptions options)
      : target_(std::move(target)), options_(std::move(options)) {}
  Status settle();
  void discard();

  std::filesystem::path target_;
  OutputOptions options_;
  std::filesystem::path path_;
  int file_ = -1;
  bool temporary_ = false;  ///< `path_` must not stay
};

/// A folder of files that gets its name when all are there. Into one that exists the files are moved, each as a whole,
/// when all are there.
class OutputFolder {
 public:
  /// Errors: it exists and is not empty (unless options.replace), it is no folder, or it cannot be made.
  static Result<OutputFolder> create(const std::filesystem::path& target, OutputOptions options);

  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&& other) noexcept;
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  /// A file of it; folders on the way are made.
  Status write(const std::filesystem::path& name, std::span<const std::byte> bytes);
  /// Errors: the folder was made meanwhile; a file may not be replaced; then what was not moved is removed.
  Status commit();

 private:
  OutputFolder(std::filesystem::path target, OutputOptions options)
      : target_(std::move(target)), options_(std::move(options)) {}
  Status move_files();

  std::filesystem::path target_;
  OutputOptions options_;
  std::filesystem::path path_;  ///< empty: nothing is to be removed
  bool into_existing_ = false;
};

}  // namespace nanscope
