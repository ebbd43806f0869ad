#include "core/dump/natural_order.h"

#include <cstddef>

#include "core/dump/name_words.h"

namespace nanscope {
namespace {

/// A place in the order of letters, and how much of the text it took.
struct Letter {
  int place = 0;
  std::size_t length = 1;
};

/// Words of phases are letters of their own behind the d, or the others would not be in one order with them.
Letter letter(std::string_view text) {
  for (const std::string_view phase : {"prefill", "decode"}) {
    if (text.starts_with(phase)) return {4 * 'd' + (phase == "prefill" ? 1 : 2), phase.size()};
  }
  return {4 * static_cast<unsigned char>(text.front()), 1};
}

/// The end of the digits that begin at `begin`.
std::size_t end_of_digits(std::string_view text, std::size_t begin) {
  while (begin < text.size() && is_digit(text[begin])) ++begin;
  return begin;
}

/// The number at `begin` without its leading zeros.
std::string_view number_at(std::string_view text, std::size_t begin) {
  const std::size_t end = end_of_digits(text, begin);
  while (begin + 1 < end && text[begin] == '0') ++begin;
  return text.substr(begin, end - begin);
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number_at(a, i);
      const std::string_view y = number_at(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i = end_of_digits(a, i);
      j = end_of_digits(b, j);
      continue;
    }
    const Letter first = letter(a.substr(i));
    const Letter second = letter(b.substr(j));
    if (first.place != second.place) return first.place < second.place;
    i += first.length;
    j += second.length;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace nanscope
