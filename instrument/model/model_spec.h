#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/numbers/format.h"
#include "core/result.h"
#include "instrument/model/model_config.h"

namespace nanscope {

/// What a checkpoint says of its model: all that its config.json states, with the defaults of its family.
struct ModelSpec {
  ModelConfig model;
  RopeConfig rope;
  MoeConfig moe;
  float norm_eps = 1e-5F;
  Format format = Format::f32;      ///< that activations are meant to have
  bool quantized = false;           ///< its products' weights are codes with scales
  bool nvfp4_inputs = false;        ///< and what they read is to be NVFP4 under scales of the checkpoint
  bool fp8_inputs = false;          ///< or e4m3 under one scale of the checkpoint for each product
  bool casts_inputs = false;        ///< servers cast what products read, as the engine may do or not
  std::optional<Format> kv_format;  ///< of the cache; not given: that of activations
  /// How attention was computed where nanscope trained the model ("nanscope_attention"): settings by their full name,
  /// as "attention.blocks_k" with "mxfp4". Other programs do not read the key.
  std::vector<std::pair<std::string, std::string>> attention;
};

/// Reads the config.json of a Hugging Face checkpoint folder, or what a GGUF file says in its place; of that,
/// activations are f32. `model.weights` is the folder or the file, `model.tokenizer` its tokenizer.json, or the file
/// again, if there is one that is read. Errors are one line with the file and the key: a family that is not known, a
/// key that is missing, has another type, is out of range, or says something that the engine does not do.
Result<ModelSpec> read_model_spec(const std::filesystem::path& folder);

/// The same from the text of a config.json; `file` is what errors call it. Neither folder nor tokenizer are set.
Result<ModelSpec> parse_model_spec(std::string_view json, const std::string& file);

}  // namespace nanscope
