#include "instrument/tokenizer/split_pattern.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "instrument/tokenizer/character.h"

namespace nanscope {
namespace {

/// What `\w` stands for inside a class, and what it takes besides where it stands alone (Oniguruma 6.9.10).
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordAlone = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Copies a pattern piece by piece; what it does not know to be the same in both it refuses.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> run() {
    while (!rest_.empty()) {
      if (const Status status = element(); !status) return tl::unexpected(status.error());
    }
    return lines_ ? "(?m)" + out_ : out_;
  }

 private:
  static tl::unexpected<Error> refuse(std::string_view what) {
    return fail("split pattern has " + std::string(what) + ", which is not supported");
  }

  void copy(std::size_t size) {
    out_ += rest_.substr(0, size);
    rest_.remove_prefix(std::min(size, rest_.size()));
  }

  Status element() {
    const char c = rest_.front();
    if (c == '{') return repetition();
    if (c == '*' || c == '+' || c == '?') {
      copy(1);
      return {};
    }
    if (c == ')' && !groups_.empty()) {
      last_ = groups_.back();
      groups_.pop_back();
    } else {
      last_ = out_.size();
    }
    if (rest_.starts_with("\\w") || rest_.starts_with("\\W")) {
      out_.append(rest_[1] == 'w' ? "[" : "[^").append(kWord).append(kWordAlone).append("]");
      rest_.remove_prefix(2);
      return {};
    }
    if (c == '\\') return escape();
    if (c == '[') return character_class();
    if (c == '(') return group();
    lines_ = lines_ || c == '^' || c == '$';
    copy(first_character(rest_).length);
    return {};
  }

  Status group() {
    groups_.push_back(out_.size());
    if (rest_.starts_with("(*")) return refuse("(*");
    if (!rest_.starts_with("(?")) {
      copy(1);
      return {};
    }
    constexpr std::array<std::string_view, 8> kKnown = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    for (const std::string_view known : kKnown) {
      if (!rest_.starts_with(known)) continue;
      copy(known.size());
      return {};
    }
    return refuse(rest_.substr(0, 3));
  }

  /// `{n}`, `{n,}` and `{n,m}`; any other brace stands for itself.
  Status repetition() {
    std::size_t size = 1;
    while (size < rest_.size() && (is_digit(rest_[size]) || rest_[size] == ',')) ++size;
    const std::string_view inside = rest_.substr(1, size - 1);
    if (inside.empty() || size == rest_.size() || rest_[size] != '}') {
      copy(1);
      return {};
    }
    if (inside.front() == ',') return refuse("{,");
    copy(size + 1);
    if (rest_.starts_with('+')) {
      out_.insert(last_, "(?:").append(")");
      copy(1);
    } else if (rest_.starts_with('?') && inside.find(',') == std::string_view::npos) {
      return refuse("{n}?");
    }
    return {};
  }

  Status character_class() {
    copy(rest_.starts_with("[^") ? 2 : 1);
    for (bool first = true; !rest_.empty(); first = false) {
      if (rest_.front() == ']' && !first) {
        copy(1);
        return {};
      }
      if (rest_.front() == '[') return refuse("a class inside a class");
      if (rest_.starts_with("&&")) return refuse("&& inside a class");
      if (rest_.front() != '\\') {
        copy(1);
      } else if (rest_.starts_with("\\w")) {
        out_ += kWord;
        rest_.remove_prefix(2);
      } else if (auto status = escape(); !status) {
        return status;
      }
    }
    return refuse("a class without an end");
  }

  Status escape() {
    if (rest_.size() < 2) return refuse("a \\ at its end");
    const char c = rest_[1];
    if (c == 'p' || c == 'P') return property();
    constexpr std::string_view kSame = "sSdDrntfAz";
    const bool code_point = rest_.starts_with("\\x{");
    if ((is_letter(c) && !code_point && kSame.find(c) == std::string_view::npos) || is_digit(c)) {
      return refuse(rest_.substr(0, 2));
    }
    copy(2);
    return {};
  }

  Status property() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos) return refuse(rest_.substr(0, 3));
    std::string_view name = rest_.substr(3, end - 3);
    out_ += rest_.substr(0, 3);
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    if (!std::ranges::all_of(name, [](char c) { return is_letter(c) || c == '_'; }))
      return refuse(rest_.substr(0, end + 1));
    // General categories have one letter or two. PCRE2 takes a script's bare name for its extensions too.
    if (name.size() > 2) out_ += "sc:";
    out_.append(name).append("}");
    rest_.remove_prefix(end + 1);
    return {};
  }

  std::string_view rest_;
  std::string out_;
  std::size_t last_ = 0;             // where in out_ what a repetition repeats begins
  std::vector<std::size_t> groups_;  // where in out_ the open groups begin
  bool lines_ = false;
};

}  // namespace

Result<std::string> pcre2_pattern(std::string_view pattern) { return PatternTranslator(pattern).run(); }

}  // namespace nanscope
