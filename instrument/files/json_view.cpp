#include "instrument/files/json_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/parse_json.h"
#include "core/text/safe_text.h"

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

std::string_view inside_quotes(std::string_view source) { return source.substr(1, source.size() - 2); }

/// FNV-1a. Two keys of one hash are taken for the same, which only a file made for it can suffer from.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// Listens to nlohmann::json reading a text: it checks the grammar, UTF-8 and numbers, and keeps no tree. What it
/// lets pass, and files that others wrote must not hold, is noticed here: depth and keys that occur twice.
class Listener final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Listener(int depth) : most_(depth) {}
  /// One that is to find the key of a hash.
  Listener(int depth, std::uint64_t wanted) : most_(depth), wanted_(wanted) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    objects_.push_back(keys_.size());
    return enter();
  }
  bool key(std::string& name) override {
    keys_.push_back(hash_of(name));
    if (keys_.back() != wanted_) return true;
    found_ = std::move(name);
    return false;
  }
  bool end_object() override {
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(objects_.back());
    std::sort(first, keys_.end());
    const auto twice = std::adjacent_find(first, keys_.end());
    if (twice != keys_.end()) {
      twice_ = *twice;
      return false;
    }
    keys_.resize(objects_.back());
    objects_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t read, const std::string& token, const nlohmann::json::exception& error) override {
    constexpr int kOutOfRange = 406;  // as nlohmann::json numbers its errors
    problem_ = error.id == kOutOfRange ? JsonProblem{read - std::min(read, token.size()),
                                                     "a number is beyond the range of JSON's numbers here"}
                                       : JsonProblem{read > 0 ? read - 1 : 0, "not JSON here"};
    return false;
  }

  const std::optional<std::uint64_t>& twice() const { return twice_; }
  const std::string& found() const { return found_; }
  bool too_deep() const { return too_deep_; }
  const JsonProblem& problem() const { return problem_; }

 private:
  bool enter() {
    if (++depth_ <= most_) return true;
    problem_ = {0, fmt::format("nested too deeply, expected at most {}", most_)};
    too_deep_ = true;
    return false;
  }

  int most_;
  int depth_ = 0;
  std::optional<std::uint64_t> wanted_;
  std::vector<std::uint64_t> keys_;   ///< hashes of the keys of the objects that are open
  std::vector<std::size_t> objects_;  ///< where the keys of each begin
  std::optional<std::uint64_t> twice_;
  std::string found_;
  bool too_deep_ = false;
  JsonProblem problem_;
};

bool read_json(std::string_view text, Listener& listener) { return nlohmann::json::sax_parse(text, &listener); }

/// Where the nesting first goes beyond `depth`; texts are well formed up to there.
std::size_t offset_beyond(std::string_view text, int depth) {
  int open = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '[') && ++open > depth) return at;
    if (c == '}' || c == ']') --open;
    at += c == '"' ? text_length(text.substr(at)) : 1;
  }
  return 0;
}

/// Names a key that occurs twice. It comes from a stranger and is shown without its control characters.
std::string twice_text(std::string_view text, int depth, std::uint64_t hash) {
  constexpr std::size_t kShown = 120;
  Listener search(depth, hash);
  static_cast<void>(read_json(text, search));
  return fmt::format("names '{}' twice", shortened(one_line(search.found()), kShown));
}

/// Texts grow while they are read: up to five times their length lives at once.
std::optional<JsonProblem> too_long_text(std::string_view text, std::size_t most) {
  for (std::size_t at = text.find('"'); at < text.size(); at = text.find('"', at)) {
    const std::size_t length = text_length(text.substr(at));
    if (length > most) return JsonProblem{at, fmt::format("a text of {} bytes, expected at most {}", length, most)};
    at += length;
  }
  return std::nullopt;
}

/// Python's bare words where a value may stand, as numbers of the same length, for a reader that knows none.
std::string with_numbers(std::string_view text) {
  std::string out(text);
  char before = ',';  // the last character that is no space
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = text[at] == '"' ? text_length(text.substr(at)) : 1;
    const bool begins = std::string_view("[:,").find(before) != std::string_view::npos;
    for (const std::string_view word : kBareWords) {
      const std::string_view rest = text.substr(at);
      if (!begins || !rest.starts_with(word) || value_length(rest) != word.size()) continue;
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(at), word.size(), '1');
      length = word.size();
    }
    if (kSpace.find(text[at]) == std::string_view::npos) before = text[at];
    at += length;
  }
  return out;
}

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

std::string JsonView::text() const {
  const auto parsed = is_text() ? parse_json_or_none(source_) : nlohmann::json();
  return parsed.is_string() ? parsed.get<std::string>() : std::string();
}

bool JsonView::equals(std::string_view text) const {
  if (!is_text()) return false;
  const std::string_view inside = inside_quotes(source_);
  return inside.find('\\') == std::string_view::npos ? inside == text : this->text() == text;
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
  const auto parsed = parse_json_or_none(source_);
  return parsed.is_number() ? std::optional(parsed.get<double>()) : std::nullopt;
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
  // nlohmann::json takes a NUL for the end of the text, and what follows for nothing.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return tl::unexpected(JsonProblem{nul, "not JSON here"});
  }
  if (auto problem = too_long_text(text, limits.longest_text)) return tl::unexpected(std::move(*problem));
  Listener listener(limits.depth);
  const std::string numbers = limits.bare_words ? with_numbers(text) : std::string();
  if (!read_json(limits.bare_words ? std::string_view(numbers) : text, listener)) {
    if (listener.twice()) return tl::unexpected(JsonProblem{0, twice_text(text, limits.depth, *listener.twice())});
    JsonProblem problem = listener.problem();
    if (listener.too_deep()) problem.offset = offset_beyond(text, limits.depth);
    return tl::unexpected(std::move(problem));
  }
  const std::string_view begun = without_space(text);
  return JsonView(begun.substr(0, value_length(begun)));
}

}  // namespace nanscope
