#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/spectral/model_scales.h"

/// A file of scales of attention's scores, queries and keys: safetensors, f32, one value a head. Names and metadata are
/// in docs/scales.md.
namespace nanscope {

struct FiledLayer {
  std::int64_t layer = 0;
  std::uint64_t identity = 0;  ///< LayerScales::identity of the weights that they are of
  std::vector<float> scores;   ///< scales, by query head
  std::vector<float> queries;  ///< by query head
  std::vector<float> keys;     ///< by key head
  std::vector<float> norms;    ///< of each head's interaction
};

struct ScaleFile {
  std::string file;        ///< what errors call it
  std::string checkpoint;  ///< what the weights were called
  std::string policy;
  std::vector<FiledLayer> layers;

  /// Null when it has none of that layer.
  const FiledLayer* find(std::int64_t layer) const;
};

/// The bytes of a file of `scales`, under the scales that they hold. Errors: a layer that nothing bounds, which has no
/// scales.
Result<std::vector<std::byte>> encode_scale_file(const ModelScales& scales, std::string_view checkpoint,
                                                 std::string_view policy);

/// Errors, each in one line with the file: it cannot be read, is no file of scales, or a scale of it is missing, of
/// another shape than the model's heads, zero, negative, NaN or infinite, named with layer and head.
Result<ScaleFile> read_scale_file(const std::filesystem::path& path, const ModelConfig& model);

/// Hash of the file's bytes, in hexadecimal. Errors: it cannot be read, or is larger than 64 MiB.
Result<std::string> scale_file_hash(const std::filesystem::path& path);

/// A warning for each layer whose weights are not those that the file's scales were made of, with how much too small
/// or too large the file's scale is for them; and for a layer that the file lacks.
void warn_of_other_weights(const ScaleFile& file, ModelScales& scales);

/// "scales.safetensors: layer 3: scales of other weights, of checkpoint 'Qwen2-7B'".
std::string other_weights_text(const ScaleFile& file, std::int64_t layer);

}  // namespace nanscope
