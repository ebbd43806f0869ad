#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/gguf/gguf_model.h"
#include "instrument/weights/safetensors.h"

namespace nanscope {

/// The tensors of a Hugging Face checkpoint folder, whatever model they are of: model.safetensors, or the files that
/// model.safetensors.index.json names. Or those of a GGUF file, under the names that they had before they were
/// converted. All files are mapped.
class CheckpointFiles {
 public:
  struct File {
    std::filesystem::path path;
    std::optional<SafetensorsFile> content;  ///< none: it is a GGUF file
  };
  /// A tensor's bytes, and what keeps them alive; null: they lie in a file, which another process may change.
  struct Held {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };
  struct Tensor {
    const File* file = nullptr;
    const SafetensorsEntry* entry = nullptr;  ///< of GGUF, made from what the file says
    const GgufWeight* gguf = nullptr;

    /// As they lie in the file.
    std::span<const std::byte> bytes() const { return gguf != nullptr ? gguf->stored() : file->content->bytes(*entry); }
    /// Elements of the entry's format.
    Held held() const;
    /// "FILE: tensor 'NAME'".
    std::string where() const;
  };

  /// A folder, or a GGUF file. Errors: no such files, an index that names files outside of the folder or files that are
  /// not there, a damaged file, a tensor in two files, a tensor of GGUF whose type is not decoded.
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
  Status add_gguf(const std::filesystem::path& path);
  Status open_index(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::vector<std::unique_ptr<File>> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::unique_ptr<GgufModel> gguf_;
  std::vector<std::unique_ptr<SafetensorsEntry>> made_;  ///< of the tensors of GGUF
};

}  // namespace nanscope
