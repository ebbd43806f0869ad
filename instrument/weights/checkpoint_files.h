#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {

/// The tensors of a Hugging Face checkpoint folder, whatever model they are of: model.safetensors, or the files that
/// model.safetensors.index.json names. All files are mapped.
class CheckpointFiles {
 public:
  struct File {
    std::filesystem::path path;
    SafetensorsFile content;
  };
  struct Tensor {
    const File* file = nullptr;
    const SafetensorsEntry* entry = nullptr;

    std::span<const std::byte> bytes() const { return file->content.bytes(*entry); }
    /// "FILE: tensor 'NAME'".
    std::string where() const;
  };

  /// Errors: no such files, an index that names files outside of the folder or files that are not there, a damaged
  /// file, a tensor in two files.
  static Result<CheckpointFiles> open(const std::filesystem::path& folder);

  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  /// Without a file where there is none of that name.
  Tensor find(std::string_view name) const;
  std::size_t file_count() const { return files_.size(); }
  /// Refuses files that were changed since they were opened.
  Status check_unchanged() const;

 private:
  CheckpointFiles() = default;
  Status add(const std::filesystem::path& path, const std::set<std::string, std::less<>>* expected);
  Status open_index(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::vector<std::unique_ptr<File>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace nanscope
