#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

/// JSON (RFC 8259) that was written by somebody else, read where it lies: a document is checked as a whole, then
/// looked at value by value. nlohmann::json checks it, by events; nothing is kept but the text itself, so that no
/// document takes more memory than its size, however it nests.
namespace nanscope {

enum class JsonKind : std::uint8_t { null, boolean, number, text, array, object };

struct JsonMember;
class JsonItems;

/// A value of a checked document: a view of its text.
class JsonView {
 public:
  JsonView() = default;
  /// `source` must be one value of a document that check_json() accepted, without space around it.
  explicit JsonView(std::string_view source) : source_(source) {}

  std::string_view source() const { return source_; }
  JsonKind kind() const;
  bool is_object() const { return kind() == JsonKind::object; }
  bool is_array() const { return kind() == JsonKind::array; }
  bool is_text() const { return kind() == JsonKind::text; }
  /// A text without its quotes and escapes; empty for other kinds.
  std::string text() const;
  /// Whether it is this text.
  bool equals(std::string_view text) const;
  /// A whole number from 0 to 2^63 - 1, written without fraction and exponent; nothing for any other value.
  std::optional<std::int64_t> natural() const;
  /// A number, rounded to the nearest; also NaN and infinities where bare words were allowed.
  std::optional<double> number() const;
  /// The members of an object or the elements of an array, in the order of the text; none of other kinds.
  JsonItems items() const;
  /// How many there are. Takes a look at all of them.
  std::size_t size() const;
  /// The member of that key, if this is an object that has it. Takes a look at those before it.
  std::optional<JsonView> find(std::string_view key) const;

 private:
  std::string_view source_ = "null";
};

/// A member of an object, or an element of an array, which has no key.
struct JsonMember {
  JsonView key;
  JsonView value;
};

class JsonItems {
 public:
  class Iterator {
   public:
    using value_type = JsonMember;
    using difference_type = std::ptrdiff_t;

    Iterator(std::string_view rest, bool keyed) : rest_(rest), keyed_(keyed) { read(); }
    const JsonMember& operator*() const { return member_; }
    const JsonMember* operator->() const { return &member_; }
    Iterator& operator++() {
      read();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return done_; }

   private:
    void read();

    std::string_view rest_;  ///< behind the bracket, or behind the member
    bool keyed_;
    bool done_ = false;
    JsonMember member_;
  };

  JsonItems(std::string_view inside, bool keyed) : inside_(inside), keyed_(keyed) {}
  Iterator begin() const { return {inside_, keyed_}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::string_view inside_;
  bool keyed_;
};

/// Where a text is no JSON, and what is wrong there.
struct JsonProblem {
  std::size_t offset = 0;  ///< in the text
  std::string what;
};

struct JsonLimits {
  int depth = 32;           ///< of arrays and objects within each other
  bool bare_words = false;  ///< whether NaN, Infinity and -Infinity are numbers, as Python writes them
  /// Bytes of a text, its quotes with it: while it is read up to five times as many live at once.
  std::size_t longest_text = std::size_t{512} << 10;
};

/// Checks that `text` is one JSON value and nothing else: its grammar, UTF-8, the range of numbers, no key twice in
/// an object.
tl::expected<JsonView, JsonProblem> check_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace nanscope
