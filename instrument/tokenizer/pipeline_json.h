#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "instrument/tokenizer/normalizer.h"
#include "instrument/tokenizer/splitter.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {

/// What a tokenizer.json says of how tokens become text, in a model over characters.
struct TokenDecoder {
  std::vector<std::pair<std::string, std::string>> replacements;  ///< from, to
  bool byte_fallback = false;                                     ///< "<0x41>" is the byte 0x41
  DecodedStrip strip;

  /// The bytes that the token written so adds to a text.
  std::string bytes_of(std::string token) const;
};

/// What a tokenizer.json says of the way from a text to pieces, and back.
struct Pipeline {
  std::vector<NormalizerStep> normalizer;
  SpaceMark space;
  std::vector<Splitter> splitters;
  bool byte_level = false;  ///< the model is over bytes, its tokens written in the byte alphabet
  TokenDecoder decoder;     ///< of a model over characters
};

/// Reads "normalizer", "pre_tokenizer" and "decoder" of a tokenizer.json. Errors: what is not supported, by name.
Result<Pipeline> read_pipeline(const nlohmann::json& root);

}  // namespace nanscope
