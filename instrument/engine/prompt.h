#pragma once
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "instrument/engine/config.h"
#include "instrument/engine/forward.h"
#include "instrument/engine/request.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {

/// A request as the engine runs it.
struct Prompt {
  std::vector<std::int32_t> tokens;      ///< by position, padding included; -1 is an image token
  std::vector<std::int32_t> patch_rows;  ///< by position: row among all patches, 0 for text; empty: no image
  std::vector<std::uint64_t> keys;       ///< by position: what the prefix cache tells tokens apart by
  std::vector<PromptImage> images;
  std::int64_t padding = 0;  ///< leading pad tokens
};

/// Tokenizes text and cuts images into patches (samples in [0, 1]), in the order of the parts.
/// Errors name the request: no token at all, a damaged image, sides that patches do not divide.
Result<Prompt> make_prompt(const RequestSpec& request, const EngineConfig& config, const Tokenizer& tokenizer);

/// `tokens` tokens of id 0: what a warm-up runs on.
Prompt warm_up_prompt(std::int64_t tokens);

/// The tokens that end a request: model.end_tokens, or the one that the tokenizer calls so, or none.
std::vector<std::int32_t> end_tokens(const ModelConfig& model, const Tokenizer& tokenizer);

}  // namespace nanscope
