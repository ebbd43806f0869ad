#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"

namespace nanscope {

struct TextPart {
  std::string text;
  bool operator==(const TextPart&) const = default;
};

struct ImagePart {
  std::string name;            ///< where it came from; not part of the numerics
  std::vector<std::byte> png;  ///< the file's bytes
  bool operator==(const ImagePart&) const = default;
};

/// Tokens as the model counts them, where there is no tokenizer, or to say exactly what runs.
struct TokensPart {
  std::vector<std::int32_t> ids;  ///< from 0 on
  bool operator==(const TokensPart&) const = default;
};

using PromptPart = std::variant<TextPart, ImagePart, TokensPart>;

/// One request of a run: its prompt's parts in order, and how many tokens it may generate.
struct RequestSpec {
  std::string name;
  std::vector<PromptPart> parts;
  int max_tokens = 8;
  std::int64_t arrive = 0;  ///< step of a batch's schedule from which on it may run
  bool fresh = false;       ///< takes nothing from the prefix cache: every token of its prompt is computed
};

/// The prompt as RequestRow::prompt stores it: a JSON array of {"text": ...}, {"bytes": base64} for
/// text that is no valid UTF-8, {"image": name, "png": base64}, or {"tokens": [id, ...]}.
std::string prompt_to_json(const std::vector<PromptPart>& parts);

/// Reads it back, byte for byte. Errors say which part is wrong and how.
Result<std::vector<PromptPart>> prompt_from_json(std::string_view json);

}  // namespace nanscope
