#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace nanscope::gui {

/// A word of a script's line; quoted ones may hold spaces.
struct Word {
  std::string text;
  bool quoted = false;
};

/// The words of a line up to its comment. Errors: a quotation mark that is not closed.
Result<std::vector<Word>> split_words(std::string_view line);

/// The words of a line, one after the other.
class Words {
 public:
  explicit Words(std::vector<Word> words) : words_(std::move(words)) {}
  bool done() const { return at_ == words_.size(); }
  /// Null at the end.
  const Word* peek() const { return done() ? nullptr : &words_[at_]; }
  const Word* take() { return done() ? nullptr : &words_[at_++]; }
  /// Takes the next word if it is this one, not quoted.
  bool take_if(std::string_view word);
  /// Takes the next word if it is a number.
  std::optional<double> take_number();
  /// Takes the next word. Errors: there is none.
  Result<std::string> take_text(std::string_view expected);

 private:
  std::vector<Word> words_;
  std::size_t at_ = 0;
};

}  // namespace nanscope::gui
