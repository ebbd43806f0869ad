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

/// What stands for the space in the text that a model sees, and goes before it.
struct SpaceMark {
  enum class Prefix : std::uint8_t {
    never,
    first,   ///< before what begins the text as given
    always,  ///< before every section between added tokens
  };
  std::string text = " ";
  Prefix prefix = Prefix::never;  ///< where it is put before a text that does not begin with it
};

/// What decode() takes away where a text begins: `text`, up to `count` times.
struct DecodedStrip {
  std::string text;
  std::uint64_t count = 0;
};

/// What a tokenizer.json says, checked: the input of Tokenizer.
struct TokenizerParts {
  BpeModel model;
  std::vector<std::string> token_bytes;  ///< by id, what it adds to a decoded text; empty for an id that no token has
  std::vector<AddedToken> added;
  AddedTokenFinder raw;         ///< for what is looked for in the text as given
  AddedTokenFinder normalized;  ///< for what is looked for in the normalized text
  std::vector<NormalizerStep> normalizer;
  SpaceMark space;
  std::vector<Splitter> splitters;  ///< applied one after the other
  DecodedStrip strip;
};

/// A BPE tokenizer over bytes, as GPT-2, Llama-3, Qwen and gpt-oss have it, or over characters, as
/// SentencePiece trains it and Llama-2, Mistral, Phi-3 and Gemma have it. Immutable once loaded.
///
/// Every byte string encodes, valid UTF-8 or not, when the model is over bytes or has a token for
/// each of them ("<0x00>" to "<0xFF>"): those stand for characters without a token and for bytes that
/// are no UTF-8. Without them the unknown token stands for both, and without one encode() fails. A model over bytes
/// that lacks some passes these over, as the `tokenizers` package does.
///
/// decode(encode(text)) == text, unless the file asks for normalization, for a space before the text
/// that decoding does not take away, for stripping added tokens, or for a split that removes text,
/// unless a token is unknown, and unless the text has the character that stands for the space ('\u2581'
/// in SentencePiece's). Where byte tokens are no UTF-8 together decode() gives the bytes; the
/// `tokenizers` package gives U+FFFD for each.
class Tokenizer {
 public:
  /// Reads a Hugging Face tokenizer.json. Supported: model BPE without prefix, suffix or dropout;
  /// normalizer NFC, Prepend and Replace of one character, and sequences of them; pre_tokenizer
  /// ByteLevel behind Split and Digits, or none, Metaspace, Split and Digits; decoder ByteLevel, or
  /// Replace of one character, ByteFallback, Fuse and Strip (where a text begins), in this order;
  /// added_tokens. The post_processor and chat templates are not applied: tokens that frame a prompt
  /// are the caller's to add; neither are truncation and padding. Errors say what is unsupported or
  /// wrong in one line. Or a GGUF file, whose metadata hold one (tokenizer_of_gguf()).
  static Result<Tokenizer> load(const std::filesystem::path& path);
  /// The same from the file's text; `file` is what errors call it.
  static Result<Tokenizer> parse(std::string_view json, std::string_view file);

  /// Of a model without one: no text has tokens, no token has text.
  static Result<Tokenizer> none();

  explicit Tokenizer(TokenizerParts parts);

  /// The tokens of `text`, in a time of O(n log n). Errors: a split pattern that gives up on this
  /// text; a character without any token.
  Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  /// The bytes of the tokens, one after the other, without what the file says is to be stripped from
  /// the beginning (a space). Ids without a token give nothing.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;
  /// The bytes that one token adds to a decoded text (" the" for "\u2581the"), which need not be valid
  /// UTF-8; empty for an id without a token.
  std::string_view token_text(std::int32_t id) const;
  /// The id of an added token by its content, e.g. "<|end|>".
  std::optional<std::int32_t> added_token(std::string_view content) const;

  /// One more than the largest id.
  std::size_t vocab_size() const { return parts_.token_bytes.size(); }

 private:
  Status encode_section(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const;
  Status encode_plain(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const;

  TokenizerParts parts_;
  std::vector<bool> special_;
};

}  // namespace nanscope
