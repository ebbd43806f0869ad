#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// The largest magnitude of what each product of a checkpoint's model reads over the tokens `ids`, by the module whose
/// weight it is in the files ("model.layers.0.mlp.up_proj"), in f32. Experts are shown every token, whoever routes.
/// Errors: those of loading the model; an id beyond the vocabulary; a product that reads NaN or Inf; stopped.
Result<std::map<std::string, float>> calibrate_inputs(const std::filesystem::path& folder,
                                                      const std::vector<std::int32_t>& ids, std::stop_token stop);

/// The first `most` tokens of a text by a checkpoint's tokenizer. Errors: its tokenizer.json cannot be read; a text
/// that makes no token.
Result<std::vector<std::int32_t>> tokens_of_text(const std::filesystem::path& folder, const std::string& text,
                                                 std::size_t most);

}  // namespace nanscope
