#include "gui/palette_match.h"

#include <algorithm>
#include <optional>

namespace nanscope::gui {
namespace {

constexpr int kLetter = 2;
constexpr int kTogether = 8;   ///< it follows the letter typed before it
constexpr int kWordStart = 7;  ///< it begins a word
constexpr int kVeryStart = 3;  ///< and the whole text with it
constexpr int kSkipped = 1;    ///< taken off for each letter between two, up to kMostSkipped
constexpr int kMostSkipped = 4;
constexpr int kInDetail = 2;           ///< a detail counts so many times less
constexpr int kLeastShare = 45;        ///< of the best score, in percent
constexpr std::size_t kLongest = 256;  ///< bytes of a text that are looked at
constexpr int kNever = -1'000'000;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool in_word(char c) {
  const char l = lower(c);
  return (l >= 'a' && l <= 'z') || (l >= '0' && l <= '9') || static_cast<unsigned char>(c) >= 0x80;
}

struct Found {
  int score = 0;
  std::vector<std::size_t> bytes;
};

/// The best way to find a word's letters in a text. One table: the best score of the first letters with the
/// last of them at each byte, and from which byte it came.
class Alignment {
 public:
  Alignment(std::string_view text, std::string_view word) : text_(text.substr(0, kLongest)), word_(word) {}

  std::optional<Found> best() {
    if (word_.empty() || word_.size() > text_.size()) return std::nullopt;
    score_.assign(word_.size() * text_.size(), kNever);
    from_.assign(score_.size(), 0);
    for (std::size_t letter = 0; letter < word_.size(); ++letter) {
      for (std::size_t at = letter; at < text_.size(); ++at) {
        if (lower(text_[at]) == lower(word_[letter])) place(letter, at);
      }
    }
    const std::size_t last = word_.size() - 1;
    std::size_t end = 0;
    for (std::size_t at = 0; at < text_.size(); ++at) {
      if (score_[cell(last, at)] > score_[cell(last, end)]) end = at;
    }
    if (score_[cell(last, end)] <= kNever / 2) return std::nullopt;
    Found found{score_[cell(last, end)], {}};
    for (std::size_t letter = word_.size(); letter-- > 0; end = from_[cell(letter, end)]) found.bytes.push_back(end);
    std::reverse(found.bytes.begin(), found.bytes.end());
    return found;
  }

 private:
  std::size_t cell(std::size_t letter, std::size_t at) const { return letter * text_.size() + at; }

  int alone(std::size_t at) const {
    if (at == 0) return kLetter + kWordStart + kVeryStart;
    return in_word(text_[at]) && !in_word(text_[at - 1]) ? kLetter + kWordStart : kLetter;
  }

  void place(std::size_t letter, std::size_t at) {
    const std::size_t here = cell(letter, at);
    if (letter == 0) {
      score_[here] = alone(at);
      return;
    }
    for (std::size_t before = letter - 1; before < at; ++before) {
      const int so_far = score_[cell(letter - 1, before)];
      if (so_far <= kNever / 2) continue;
      const int skipped = static_cast<int>(at - before) - 1;
      const int step = skipped == 0 ? kLetter + kTogether : alone(at) - kSkipped * std::min(skipped, kMostSkipped);
      if (so_far + step <= score_[here]) continue;
      score_[here] = so_far + step;
      from_[here] = before;
    }
  }

  std::string_view text_;
  std::string_view word_;
  std::vector<int> score_;
  std::vector<std::size_t> from_;
};

std::vector<std::string_view> words_of(std::string_view query) {
  std::vector<std::string_view> words;
  while (!query.empty()) {
    const std::size_t space = std::min(query.find(' '), query.size());
    if (space > 0) words.push_back(query.substr(0, space));
    query.remove_prefix(std::min(space + 1, query.size()));
  }
  return words;
}

std::optional<PaletteMatch> match(const Findable& one, std::span<const std::string_view> words) {
  PaletteMatch match;
  for (const std::string_view word : words) {
    const std::optional<Found> title = Alignment(one.title, word).best();
    const std::optional<Found> detail = Alignment(one.detail, word).best();
    if (!title && !detail) return std::nullopt;
    if (title && (!detail || title->score >= detail->score / kInDetail)) {
      match.score += title->score;
      match.bytes.insert(match.bytes.end(), title->bytes.begin(), title->bytes.end());
    } else {
      match.score += detail->score / kInDetail;
    }
  }
  std::sort(match.bytes.begin(), match.bytes.end());
  match.bytes.erase(std::unique(match.bytes.begin(), match.bytes.end()), match.bytes.end());
  return match;
}

}  // namespace

std::vector<PaletteMatch> find_in_palette(std::span<const Findable> all, std::string_view query) {
  const std::vector<std::string_view> words = words_of(query);
  std::vector<PaletteMatch> found;
  int best = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::optional<PaletteMatch> one = match(all[i], words);
    if (!one) continue;
    one->index = i;
    best = std::max(best, one->score);
    found.push_back(std::move(*one));
  }
  std::erase_if(found, [best](const PaletteMatch& one) { return one.score * 100 < best * kLeastShare; });
  std::stable_sort(found.begin(), found.end(), [&](const PaletteMatch& a, const PaletteMatch& b) {
    if (a.score != b.score) return a.score > b.score;
    // Of two that fit alike the shorter one is nearer to what was typed.
    return !words.empty() && all[a.index].title.size() < all[b.index].title.size();
  });
  return found;
}

}  // namespace nanscope::gui
