#include "instrument/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "instrument/tokenizer/character.h"

namespace nanscope {

AddedTokenFinder::AddedTokenFinder(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::ranges::stable_sort(entries_, {}, &Entry::sought);
  const auto alike = [](const Entry& a, const Entry& b) { return a.sought == b.sought; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), alike), entries_.end());
  for (const Entry& entry : entries_) begins_[static_cast<unsigned char>(entry.sought.front())] = true;
}

/// The longest entry that `text` begins with.
const AddedTokenFinder::Entry* AddedTokenFinder::longest(std::string_view text) const {
  const Entry* best = nullptr;
  auto begin = entries_.begin();  // begin..end: the entries that share the first `depth` bytes with the text
  auto end = entries_.end();
  for (std::size_t depth = 0; begin != end; ++depth) {
    if (begin->sought.size() == depth) best = &*begin++;
    if (depth == text.size()) break;
    const auto byte_at = [&](const Entry& entry) { return static_cast<unsigned char>(entry.sought[depth]); };
    const auto byte = static_cast<unsigned char>(text[depth]);
    begin = std::partition_point(begin, end, [&](const Entry& entry) { return byte_at(entry) < byte; });
    end = std::partition_point(begin, end, [&](const Entry& entry) { return byte_at(entry) <= byte; });
  }
  return best;
}

std::vector<TextSection> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<TextSection> sections;
  std::size_t done = 0;         // everything before is in a section
  std::size_t blank_begin = 0;  // the last white space that a token took along behind it
  std::size_t blank_end = 0;
  for (std::size_t position = 0; position < text.size();) {
    const Entry* entry = begins_[static_cast<unsigned char>(text[position])] ? longest(text.substr(position)) : nullptr;
    if (entry == nullptr) {
      ++position;
      continue;
    }
    std::size_t begin = position;
    std::size_t end = position + entry->sought.size();
    position = end;
    if (entry->token.single_word &&
        (is_word(last_character(text.substr(0, begin))) || is_word(first_character(text.substr(end))))) {
      continue;
    }
    if (entry->token.lstrip) {
      while (begin > done && is_space(last_character(text.substr(done, begin - done)))) {
        begin -= last_character(text.substr(done, begin - done)).length;
      }
      begin = std::max(begin, done);
    }
    if (entry->token.rstrip) {
      // Many tokens can begin in one white space; looking for its end each time would take the square of its length.
      if (end < blank_begin || end > blank_end) {
        blank_begin = blank_end = end;
        while (is_space(first_character(text.substr(blank_end)))) {
          blank_end += first_character(text.substr(blank_end)).length;
        }
      }
      end = blank_end;
    }
    if (begin >= end) continue;
    if (begin > done) sections.push_back({text.substr(done, begin - done), -1});
    sections.push_back({text.substr(begin, end - begin), entry->token.id});
    done = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done), -1});
  return sections;
}

}  // namespace nanscope
