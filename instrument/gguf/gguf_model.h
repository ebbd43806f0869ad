#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/gguf/config.h"
#include "instrument/gguf/gguf_file.h"
#include "instrument/gguf/names.h"
#include "instrument/gguf/tokenizer.h"

namespace nanscope {

/// A tensor as it was in the checkpoint that the file was converted from.
struct GgufWeight {
  std::string name;
  const GgufFile* file = nullptr;
  const GgufTensor* tensor = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< of its bytes in those of the tensor, of which an expert is a part
  std::uint64_t end = 0;
  GgufChange change = GgufChange::none;
  std::int64_t heads = 0;       ///< of GgufChange::heads and kv_heads
  Format format = Format::f32;  ///< of the values: the file's own, or f32 where they are decoded

  std::span<const std::byte> stored() const { return file->bytes(*tensor).subspan(begin, end - begin); }
  /// Whether its bytes are the values.
  bool as_stored() const;
  /// Elements of `format`, as the checkpoint had them, made anew.
  std::vector<std::byte> values() const;
};

/// A model in a GGUF file, or in the parts that such a file was split into. All are mapped.
class GgufModel {
 public:
  /// Errors: a damaged file; a part that is missing or is not the first; a tensor that is there twice; heads that do
  /// not share the rows of their projection.
  static Result<std::unique_ptr<GgufModel>> open(const std::filesystem::path& path);

  struct Part {
    std::filesystem::path path;
    GgufFile file;
  };

  /// Those that the model is made of; scales of rotary angles are a part of the config.
  std::span<const GgufWeight> weights() const { return weights_; }
  std::span<const std::unique_ptr<Part>> parts() const { return parts_; }
  /// Tensors of types that are not decoded, which weights() does not have.
  std::span<const GgufTensor* const> undecoded() const { return undecoded_; }
  /// As config.json has it; empty where the architecture is not known.
  std::string_view model_type() const { return model_type_of(header()); }
  /// As text; see config_of_gguf(). Errors are one line with the file.
  Result<std::string> config() const;
  /// Whether the metadata hold a tokenizer that is read.
  bool has_tokenizer() const { return nanscope::has_tokenizer(header()); }
  Status check() const;

 private:
  GgufModel() = default;
  Status add(const std::filesystem::path& path);
  Status add_parts(const std::filesystem::path& first);
  Status add_weights();
  Status add_weight(const Part& part, const GgufTensor& tensor, std::string_view model_type);
  const GgufHeader& header() const { return parts_.front()->file.header(); }
  std::vector<float> small_tensor(std::string_view name) const;
  /// Of query heads or of key heads; 0: not stated.
  std::int64_t heads_of(GgufChange change) const;

  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<GgufWeight> weights_;
  std::vector<const GgufTensor*> undecoded_;
};

/// The GGUF file that a path means: itself, or the one that a folder without safetensors holds; of a split one the
/// first part. Nothing: it means none. Error: the folder holds several.
Result<std::optional<std::filesystem::path>> gguf_of(const std::filesystem::path& path);

}  // namespace nanscope
