#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/tokenizer/added_tokens.h"
#include "instrument/tokenizer/bpe_model.h"
#include "instrument/tokenizer/normalizer.h"
#include "instrument/tokenizer/splitter.h"

namespace nanscope {

/// What a tokenizer.json says, checked: the input of Tokenizer.
struct TokenizerParts {
  BpeModel model;
  std::vector<std::string> token_bytes;  ///< by id; empty for an id that no token has
  std::vector<AddedToken> added;
  AddedTokenFinder raw;         ///< for what is looked for in the text as given
  AddedTokenFinder normalized;  ///< for what is looked for in the normalized text
  std::vector<NormalizerStep> normalizer;
  std::vector<Splitter> splitters;  ///< applied one after the other
  bool add_prefix_space = false;
};

/// A byte-level BPE tokenizer as GPT-2, Llama-3 and Qwen2 have it. Immutable once loaded.
///
/// Every byte string encodes, valid UTF-8 or not, and decode(encode(text)) == text, unless the
/// file asks for normalization, for a prefix space, for stripping added tokens, or for a split
/// that removes text.
class Tokenizer {
 public:
  /// Reads a Hugging Face tokenizer.json. Supported: model BPE without prefix, suffix, dropout or
  /// unknown token use; pre_tokenizer ByteLevel, Split, Digits and sequences of them that end in
  /// ByteLevel; normalizer none or NFC; decoder ByteLevel; added_tokens. The post_processor is not
  /// applied: tokens that frame a prompt are the caller's to add. Errors say what is unsupported or
  /// wrong in one line.
  static Result<Tokenizer> load(const std::filesystem::path& path);
  /// The same from the file's text; `file` is what errors call it.
  static Result<Tokenizer> parse(std::string_view json, std::string_view file);

  /// Of a model without one: no text has tokens, no token has text.
  static Result<Tokenizer> none();

  explicit Tokenizer(TokenizerParts parts);

  /// The tokens of `text`. Error: a split pattern that gives up on this text.
  Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  /// The bytes of the tokens, one after the other. Ids without a token give nothing.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;
  /// The bytes of one token, which need not be valid UTF-8; empty for an id without a token.
  std::string_view token_text(std::int32_t id) const;
  /// The id of an added token by its content, e.g. "<|end|>".
  std::optional<std::int32_t> added_token(std::string_view content) const;

  /// One more than the largest id.
  std::size_t vocab_size() const { return parts_.token_bytes.size(); }

 private:
  Status encode_section(std::string_view text, std::vector<std::int32_t>& ids) const;
  Status encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const;

  TokenizerParts parts_;
  std::vector<bool> special_;
};

}  // namespace nanscope
