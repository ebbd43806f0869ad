#include "instrument/files/json_view.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "instrument/files/utf8.h"

namespace nanscope {
namespace {

constexpr std::string_view kSpace = " \t\n\r";
constexpr std::string_view kBareWords[] = {"NaN", "Infinity", "-Infinity"};

std::string_view without_space(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

/// The length of a text with its quotes, of which `source` begins with the first.
std::size_t text_length(std::string_view source) {
  std::size_t at = 1;
  while (at < source.size() && source[at] != '"') at += source[at] == '\\' ? 2 : 1;
  return std::min(at + 1, source.size());
}

/// The length of the value that `source` begins with.
std::size_t value_length(std::string_view source) {
  if (source.starts_with('"')) return text_length(source);
  if (!source.starts_with('{') && !source.starts_with('[')) {
    return std::min(source.find_first_of(",]} \t\n\r"), source.size());
  }
  int depth = 0;
  for (std::size_t at = 0; at < source.size();) {
    const char c = source[at];
    if (c == '"') {
      at += text_length(source.substr(at));
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return at + 1;
    ++at;
  }
  return source.size();
}

std::uint32_t hex4(std::string_view digits) {
  std::uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) return put(point);
  if (point < 0x800) {
    put(0xc0 | point >> 6);
  } else {
    if (point < 0x10000) {
      put(0xe0 | point >> 12);
    } else {
      put(0xf0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3f));
    }
    put(0x80 | (point >> 6 & 0x3f));
  }
  put(0x80 | (point & 0x3f));
}

/// A text between its quotes, of a checked document, with its escapes undone.
std::string unescaped(std::string_view inside) {
  if (inside.find('\\') == std::string_view::npos) return std::string(inside);
  std::string out;
  out.reserve(inside.size());
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '\\') {
      out += inside[i];
      continue;
    }
    constexpr std::string_view kLetters = "bfnrt";
    constexpr std::string_view kMeanings = "\b\f\n\r\t";
    const char letter = inside[++i];
    if (letter != 'u') {
      const std::size_t which = kLetters.find(letter);
      out += which == std::string_view::npos ? letter : kMeanings[which];
      continue;
    }
    std::uint32_t point = hex4(inside.substr(i + 1, 4));
    i += 4;
    if (point >= 0xd800 && point < 0xdc00) {
      point = 0x10000 + ((point - 0xd800) << 10) + (hex4(inside.substr(i + 3, 4)) - 0xdc00);
      i += 6;
    }
    append_utf8(out, point);
  }
  return out;
}

std::string_view inside_quotes(std::string_view source) { return source.substr(1, source.size() - 2); }

/// FNV-1a. Two keys of one hash are taken for the same, which only a file made for it can suffer from.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

class Checker {
 public:
  Checker(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  tl::expected<JsonView, JsonProblem> check() {
    skip_space();
    const std::size_t begin = at_;
    const bool good = value(0);
    const std::size_t end = at_;
    skip_space();
    if (!good || at_ != text_.size()) {
      if (problem_.what.empty()) problem_ = {at_, "not JSON here"};
      return tl::unexpected(std::move(problem_));
    }
    return JsonView(text_.substr(begin, end - begin));
  }

 private:
  bool wrong(std::string what, std::size_t offset) {
    if (problem_.what.empty()) problem_ = {offset, std::move(what)};
    return false;
  }
  void skip_space() {
    while (at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool value(int depth) {
    switch (peek()) {
      case '{':
        return collection(depth + 1, true);
      case '[':
        return collection(depth + 1, false);
      case '"':
        return text();
      case 't':
        return accept("true");
      case 'f':
        return accept("false");
      case 'n':
        return accept("null");
      default:
        if (limits_.bare_words && (accept(kBareWords[0]) || accept(kBareWords[1]) || accept(kBareWords[2])))
          return true;
        return number();
    }
  }

  bool collection(int depth, bool keyed) {
    if (depth > limits_.depth) {
      return wrong("nested too deeply, expected at most " + std::to_string(limits_.depth), at_);
    }
    const std::size_t begin = at_;
    const char close = keyed ? '}' : ']';
    const std::size_t first_key = keys_.size();
    ++at_;
    skip_space();
    if (!accept(close)) {
      do {
        skip_space();
        if (keyed && !key()) return false;
        if (!value(depth)) return false;
        skip_space();
      } while (accept(','));
      if (!accept(close)) return false;
    }
    return !keyed || keys_differ(first_key, begin);
  }

  bool key() {
    const std::size_t begin = at_;
    if (peek() != '"' || !text()) return false;
    const std::string_view inside = inside_quotes(text_.substr(begin, at_ - begin));
    const bool plain = inside.find('\\') == std::string_view::npos;
    keys_.push_back(plain ? hash_of(inside) : hash_of(unescaped(inside)));
    skip_space();
    if (!accept(':')) return false;
    skip_space();
    return true;
  }

  /// Of the object from `begin` to here, whose keys are the last ones; forgets them.
  bool keys_differ(std::size_t first_key, std::size_t begin) {
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(first_key);
    std::sort(first, keys_.end());
    const auto twice = std::adjacent_find(first, keys_.end());
    if (twice == keys_.end()) {
      keys_.resize(first_key);
      return true;
    }
    for (const JsonMember& member : JsonView(text_.substr(begin, at_ - begin)).items()) {
      const std::string name = member.key.text();
      if (hash_of(name) != *twice) continue;
      std::string shown;
      for (const char c : name.substr(0, 120)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
      return wrong("names '" + shown + (name.size() > 120 ? "..." : "") + "' twice", 0);
    }
    return wrong("names a key twice", begin);
  }

  bool text() {
    const std::size_t begin = ++at_;
    for (;; ++at_) {
      if (at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) return false;
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\' && !escape()) return false;
    }
    const std::string_view inside = text_.substr(begin, at_ - begin);
    if (!is_utf8(inside)) return wrong("not JSON here", begin);
    ++at_;
    return true;
  }

  /// Steps to the last character of an escape.
  bool escape() {
    ++at_;
    if (peek() != 'u') return peek() != '\0' && std::string_view("\"\\/bfnrt").find(peek()) != std::string_view::npos;
    const auto first = hexadecimal();
    if (!first) return false;
    if (*first >= 0xdc00 && *first < 0xe000) return false;  // the second half of a pair
    if (*first < 0xd800 || *first >= 0xdc00) return true;
    ++at_;
    if (!accept('\\') || peek() != 'u') return false;
    const auto second = hexadecimal();
    return second && *second >= 0xdc00 && *second < 0xe000;
  }

  /// The four digits behind 'u'; stays at the last.
  std::optional<std::uint32_t> hexadecimal() {
    const std::string_view digits = text_.substr(at_ + 1).substr(0, 4);
    const bool good =
        digits.size() == 4 && digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
    if (!good) return std::nullopt;
    at_ += 4;
    return hex4(digits);
  }

  bool digits() {
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > begin;
  }

  bool number() {
    const std::size_t begin = at_;
    accept('-');
    if (!accept('0') && !digits()) return false;
    if (accept('.') && !digits()) return false;
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return false;
    }
    if (JsonView(text_.substr(begin, at_ - begin)).number()) return true;
    return wrong("a number is beyond the range of JSON's numbers here", begin);
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::size_t at_ = 0;
  std::vector<std::uint64_t> keys_;  ///< hashes of the keys of the objects that are open
  JsonProblem problem_;
};

}  // namespace

JsonKind JsonView::kind() const {
  switch (source_.empty() ? 'n' : source_.front()) {
    case '{':
      return JsonKind::object;
    case '[':
      return JsonKind::array;
    case '"':
      return JsonKind::text;
    case 't':
    case 'f':
      return JsonKind::boolean;
    case 'n':
      return JsonKind::null;
    default:
      return JsonKind::number;
  }
}

std::string JsonView::text() const { return is_text() ? unescaped(inside_quotes(source_)) : std::string(); }

bool JsonView::equals(std::string_view text) const {
  if (!is_text()) return false;
  const std::string_view inside = inside_quotes(source_);
  return inside.find('\\') == std::string_view::npos ? inside == text : unescaped(inside) == text;
}

std::optional<std::int64_t> JsonView::natural() const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(source_.data(), source_.data() + source_.size(), value);
  const bool whole = error == std::errc{} && end == source_.data() + source_.size();
  if (!whole || source_.starts_with('-')) return std::nullopt;
  return value;
}

std::optional<double> JsonView::number() const {
  if (kind() != JsonKind::number) return std::nullopt;
  if (source_ == kBareWords[0]) return std::numeric_limits<double>::quiet_NaN();
  if (source_ == kBareWords[1]) return std::numeric_limits<double>::infinity();
  if (source_ == kBareWords[2]) return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(source_.data(), source_.data() + source_.size(), value);
  if (error == std::errc{}) return value;
  // Too small and too large are one error there.
  value = std::strtod(std::string(source_).c_str(), nullptr);
  if (std::isinf(value)) return std::nullopt;
  return value;
}

JsonItems JsonView::items() const {
  const bool holds = is_object() || is_array();
  return {holds ? source_.substr(1) : std::string_view("]"), is_object()};
}

std::size_t JsonView::size() const {
  std::size_t count = 0;
  for ([[maybe_unused]] const JsonMember& member : items()) ++count;
  return count;
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  for (const JsonMember& member : items()) {
    if (member.key.equals(key)) return member.value;
  }
  return std::nullopt;
}

void JsonItems::Iterator::read() {
  rest_ = without_space(rest_);
  if (rest_.starts_with(',')) rest_ = without_space(rest_.substr(1));
  done_ = rest_.empty() || rest_.front() == '}' || rest_.front() == ']';
  if (done_) return;
  const auto take = [&] {
    const std::size_t length = value_length(rest_);
    const JsonView taken(rest_.substr(0, length));
    rest_ = without_space(rest_.substr(length));
    return taken;
  };
  member_.key = JsonView();
  if (keyed_) {
    member_.key = take();
    rest_ = without_space(rest_.substr(1));  // the colon
  }
  member_.value = take();
}

tl::expected<JsonView, JsonProblem> check_json(std::string_view text, const JsonLimits& limits) {
  return Checker(text, limits).check();
}

}  // namespace nanscope
