#include "instrument/tokenizer/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

namespace nanscope {
namespace {

/// One character of UTF-8 text; length 0 at the end of the text, code point -1 for an invalid byte.
struct Character {
  utf8proc_int32_t code_point = -1;
  std::size_t length = 0;
};

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  Character character;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &character.code_point);
  if (length <= 0) return {-1, 1};
  character.length = static_cast<std::size_t>(length);
  return character;
}

Character last_character(std::string_view text) {
  if (text.empty()) return {};
  for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
    const Character character = first_character(text.substr(text.size() - length));
    if (character.code_point >= 0 && character.length == length) return character;
  }
  return {-1, 1};
}

bool is_space(Character c) {
  if (c.code_point < 0) return false;
  if ((c.code_point >= 9 && c.code_point <= 13) || c.code_point == 0x85) return true;
  const auto category = utf8proc_category(c.code_point);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(Character c) {
  if (c.code_point < 0) return false;
  switch (utf8proc_category(c.code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

/// NFC of the stretches that are valid UTF-8; other bytes stay as they are.
Result<std::string> normalize_nfc(std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = begin;
    while (end < text.size()) {
      const Character c = first_character(text.substr(end));
      if (c.code_point < 0) break;
      end += c.length;
    }
    if (end == begin) {
      out += text[begin++];
      continue;
    }
    utf8proc_uint8_t* mapped = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + begin),
                                     static_cast<utf8proc_ssize_t>(end - begin), &mapped,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (length < 0) return fail(std::string("cannot normalize the text: ") + utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
    begin = end;
  }
  return out;
}

}  // namespace

Result<Tokenizer> Tokenizer::none() { return Tokenizer(TokenizerParts{BpeModel({}, {}), {}, {}, {}, false, false}); }

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)), special_(parts_.token_bytes.size()) {
  for (std::size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& token = parts_.added[i];
    (token.normalized ? normalized_ : raw_)[token.content.front()].push_back(i);
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
  }
  for (Finder* finder : {&raw_, &normalized_}) {
    for (auto& [first, tokens] : *finder) {
      std::stable_sort(tokens.begin(), tokens.end(), [&](std::size_t a, std::size_t b) {
        return parts_.added[a].content.size() > parts_.added[b].content.size();
      });
    }
  }
}

/// Appends the ids of `text`, handing what lies between added tokens to `rest`.
template <class Rest>
Status Tokenizer::cut_added(std::string_view text, const Finder& finder, std::vector<std::int32_t>& ids,
                            Rest rest) const {
  std::size_t done = 0;
  std::size_t position = 0;
  while (!finder.empty() && position < text.size()) {
    const auto bucket = finder.find(text[position]);
    const AddedToken* token = nullptr;
    for (std::size_t i = 0; bucket != finder.end() && token == nullptr && i < bucket->second.size(); ++i) {
      const AddedToken& candidate = parts_.added[bucket->second[i]];
      if (text.substr(position).starts_with(candidate.content)) token = &candidate;
    }
    if (token == nullptr) {
      ++position;
      continue;
    }
    std::size_t begin = position;
    std::size_t end = position + token->content.size();
    position = end;
    if (token->single_word &&
        (is_word(last_character(text.substr(0, begin))) || is_word(first_character(text.substr(end))))) {
      continue;
    }
    while (token->lstrip && begin > done && is_space(last_character(text.substr(done, begin - done)))) {
      begin -= last_character(text.substr(done, begin - done)).length;
    }
    while (token->rstrip && end < text.size() && is_space(first_character(text.substr(end)))) {
      end += first_character(text.substr(end)).length;
    }
    if (begin > done) {
      if (const auto status = rest(text.substr(done, begin - done)); !status) return status;
    }
    ids.push_back(token->id);
    done = position = end;
  }
  return done < text.size() ? rest(text.substr(done)) : Status{};
}

Status Tokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::string prefixed;
  if (parts_.add_prefix_space && !text.starts_with(' ')) {
    prefixed.append(1, ' ').append(text);
    text = prefixed;
  }
  std::vector<std::string_view> pieces{text};
  for (const Splitter& splitter : parts_.splitters) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) {
      if (const auto status = splitter.split(piece, finer); !status) return status;
    }
    pieces = std::move(finer);
  }
  for (const std::string_view piece : pieces) parts_.model.encode(piece, ids);
  return {};
}

Status Tokenizer::encode_normalized(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::string composed;
  if (parts_.nfc) {
    auto result = normalize_nfc(text);
    if (!result) return tl::unexpected(result.error());
    composed = std::move(*result);
    text = composed;
  }
  return cut_added(text, normalized_, ids, [&](std::string_view rest) { return encode_plain(rest, ids); });
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  const auto status = cut_added(text, raw_, ids, [&](std::string_view rest) { return encode_normalized(rest, ids); });
  if (!status) return tl::unexpected(status.error());
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
  return text;
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& token : parts_.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

}  // namespace nanscope
