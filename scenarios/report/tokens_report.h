#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "instrument/model/special_tokens.h"
#include "instrument/tokenizer/tokenizer.h"
#include "scenarios/report/text.h"

/// What `nanscope tokens` says of a tokenizer and a text.
namespace nanscope::report {

struct TokensOf {
  std::string file;                 ///< of the tokenizer
  std::optional<std::string> text;  ///< as given; none: ids were given, or neither
  std::vector<std::int32_t> ids;
  std::vector<SpecialToken> special;
};

/// A line for each token (index, id, piece, bytes), what they decode to, and the tokens with roles, token 0 first.
std::string tokens_text(const Tokenizer& tokenizer, const TokensOf& made, const Terminal& terminal);
/// `nanscope.tokens/1`: `tokenizer`, `vocabulary`, `text`, `decoded`, `tokens` and `special`, each with `id`, `piece`
/// and `bytes` (hexadecimal).
std::string tokens_json(const Tokenizer& tokenizer, const TokensOf& made);

}  // namespace nanscope::report
