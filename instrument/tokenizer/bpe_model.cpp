#include "instrument/tokenizer/bpe_model.h"

#include <cstddef>
#include <queue>
#include <tuple>
#include <utility>

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

BpeModel::BpeModel(const std::array<std::int32_t, 256>& byte_tokens, const std::vector<BpeMerge>& merges,
                   std::unordered_map<std::string, std::int32_t> whole_pieces)
    : byte_tokens_(byte_tokens), whole_pieces_(std::move(whole_pieces)) {
  merges_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const BpeMerge& merge : merges) merges_[pair_key(merge.left, merge.right)] = {rank++, merge.result};
}

const BpeModel::Ranked* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (!whole_pieces_.empty()) {
    if (const auto whole = whole_pieces_.find(std::string(piece)); whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<Symbol> symbols(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    symbols[i] = {byte_tokens_[static_cast<unsigned char>(piece[i])], at - 1, i + 1 < piece.size() ? at + 1 : -1};
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
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

}  // namespace nanscope
