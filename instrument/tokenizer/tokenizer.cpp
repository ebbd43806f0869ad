#include "instrument/tokenizer/tokenizer.h"

#include <utility>

#include "instrument/tokenizer/character.h"

namespace nanscope {

Result<Tokenizer> Tokenizer::none() {
  return Tokenizer(TokenizerParts{.model = BpeModel(ByteTokens{}, {}),
                                  .token_bytes = {},
                                  .added = {},
                                  .raw = {},
                                  .normalized = {},
                                  .normalizer = {},
                                  .space = {},
                                  .splitters = {},
                                  .strip = {}});
}

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)), special_(parts_.token_bytes.size()) {
  for (const AddedToken& token : parts_.added) {
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
  }
}

/// What lies between added tokens, normalized.
Status Tokenizer::encode_plain(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const {
  const SpaceMark& space = parts_.space;
  std::string marked;
  if (space.text != " ") text = marked = replace_all(text, " ", space.text);
  using Prefix = SpaceMark::Prefix;
  if ((space.prefix == Prefix::always || (space.prefix == Prefix::first && begins_text)) &&
      !text.starts_with(space.text)) {
    marked = space.text + std::string(text);
    text = marked;
  }
  std::vector<std::string_view> pieces{text};
  for (const Splitter& splitter : parts_.splitters) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) {
      if (auto status = splitter.split(piece, finer); !status) return status;
    }
    pieces = std::move(finer);
  }
  for (const std::string_view piece : pieces) {
    if (auto status = parts_.model.encode(piece, ids); !status) return status;
  }
  return {};
}

/// What lies between added tokens that are looked for in the text as given.
Status Tokenizer::encode_section(std::string_view text, bool begins_text, std::vector<std::int32_t>& ids) const {
  const std::string normalized = normalize(text, parts_.normalizer);
  for (const TextSection& section : parts_.normalized.cut(normalized)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else if (auto status = encode_plain(section.text, begins_text && section.text.data() == normalized.data(), ids);
               !status) {
      return status;
    }
  }
  return {};
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const TextSection& section : parts_.raw.cut(text)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else if (const auto status = encode_section(section.text, section.text.data() == text.data(), ids); !status) {
      return tl::unexpected(status.error());
    }
  }
  return ids;
}

std::string_view Tokenizer::token_text(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= parts_.token_bytes.size()) return {};
  return parts_.token_bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string_view bytes = token_text(id);
    if (bytes.empty() || (skip_special && special_[static_cast<std::size_t>(id)])) continue;
    text += bytes;
  }
  std::string_view stripped = text;
  for (std::uint64_t left = parts_.strip.count; left > 0 && stripped.starts_with(parts_.strip.text); --left) {
    stripped.remove_prefix(parts_.strip.text.size());
  }
  text.erase(0, text.size() - stripped.size());
  return text;
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& token : parts_.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

}  // namespace nanscope
