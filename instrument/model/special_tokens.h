#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/result.h"
#include "instrument/tokenizer/tokenizer.h"

namespace nanscope {

/// A token with a role of its own.
struct SpecialToken {
  std::string role;  ///< "begin", "end", "pad" or "unknown"
  std::int64_t id = 0;
  std::string source;  ///< the files or the keys that say so: "config.json, generation_config.json"
};

/// What a checkpoint says of such tokens, by role: config.json, generation_config.json and tokenizer_config.json of a
/// folder, or the metadata of a GGUF file. A file that is missing says nothing. Errors are one line with the file: it
/// cannot be read, or is no JSON object; an id that is no whole number.
Result<std::vector<SpecialToken>> special_tokens(const std::filesystem::path& checkpoint, const Tokenizer& tokenizer);

}  // namespace nanscope
