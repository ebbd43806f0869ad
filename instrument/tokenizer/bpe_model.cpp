#include "instrument/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <queue>
#include <tuple>
#include <utility>

#include "instrument/tokenizer/character.h"

namespace nanscope {
namespace {

constexpr std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

/// A token of the piece being encoded, in a doubly linked list; id -1 marks one that was merged away.
struct Symbol {
  std::int32_t id;
  std::ptrdiff_t previous;
  std::ptrdiff_t next;
};

/// A merge that may be applied at symbol `at`, as long as its two tokens are still what they were.
struct Candidate {
  std::uint32_t rank;
  std::size_t at;
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;

  bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
};

}  // namespace

BpeModel::BpeModel(std::variant<ByteTokens, CharacterTokens> alphabet, const std::vector<BpeMerge>& merges,
                   std::unordered_map<std::string, std::int32_t> whole_pieces)
    : alphabet_(std::move(alphabet)), whole_pieces_(std::move(whole_pieces)) {
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const BpeMerge& merge : merges) merges_[pair_key(merge.left, merge.right)] = {rank++, merge.result};
}

const BpeModel::Ranked* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

Status BpeModel::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (!whole_pieces_.empty()) {
    if (const auto whole = whole_pieces_.find(std::string(piece)); whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
      return {};
    }
  }
  std::vector<std::int32_t> tokens;
  tokens.reserve(piece.size());
  if (auto status = begin(piece, tokens); !status) return status;
  merge(tokens);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  return {};
}

/// Appends the tokens of the single bytes or characters.
Status BpeModel::begin(std::string_view piece, std::vector<std::int32_t>& tokens) const {
  if (const auto* bytes = std::get_if<ByteTokens>(&alphabet_)) {
    // Bytes without a token are passed over, as the package does it: SmolLM2 lacks 21 of them.
    for (const char c : piece) {
      if (const std::int32_t token = (*bytes)[static_cast<unsigned char>(c)]; token >= 0) tokens.push_back(token);
    }
    return {};
  }
  const auto& characters = std::get<CharacterTokens>(alphabet_);
  const auto byte_token = [&](char c) { return characters.bytes[static_cast<unsigned char>(c)]; };
  // The package writes an unknown token before the next character that has a token or is unknown too; bytes pass it.
  bool owes_unknown = false;
  while (!piece.empty()) {
    const Character character = first_character(piece);
    const std::string_view bytes = piece.substr(0, character.length);
    piece.remove_prefix(character.length);
    const auto token = characters.tokens.find(character.code_point);
    if (token != characters.tokens.end()) {
      if (std::exchange(owes_unknown, false)) tokens.push_back(characters.unknown);
      tokens.push_back(token->second);
    } else if (std::ranges::all_of(bytes, [&](char c) { return byte_token(c) >= 0; })) {
      std::ranges::transform(bytes, std::back_inserter(tokens), byte_token);
    } else if (characters.unknown >= 0) {
      if (owes_unknown && !characters.fuse_unknown) tokens.push_back(characters.unknown);
      owes_unknown = true;
    } else {
      return fail((character.code_point < 0 ? fmt::format("byte 0x{:02X}", static_cast<unsigned char>(bytes[0]))
                                            : fmt::format("character U+{:04X}", character.code_point)) +
                  " has no token, and the tokenizer has neither tokens for its bytes nor one for what is unknown");
    }
  }
  if (owes_unknown) tokens.push_back(characters.unknown);
  return {};
}

/// Applies the merges to the tokens of a piece.
void BpeModel::merge(std::vector<std::int32_t>& tokens) const {
  std::vector<Symbol> symbols(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    symbols[i] = {tokens[i], at - 1, i + 1 < tokens.size() ? at + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::ptrdiff_t at) {
    if (at < 0) return;
    const Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (left.next < 0) return;
    const Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (const Ranked* merge = find(left.id, right.id)) {
      queue.push({merge->rank, static_cast<std::size_t>(at), left.id, right.id, merge->result});
    }
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) consider(static_cast<std::ptrdiff_t>(i));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.id != best.left || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = static_cast<std::ptrdiff_t>(best.at);
    consider(left.previous);
    consider(static_cast<std::ptrdiff_t>(best.at));
  }
  tokens.clear();
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) tokens.push_back(symbol.id);
  }
}

}  // namespace nanscope
