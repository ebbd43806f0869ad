#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/tensor_name.h"

/// The words that names are made of. Internal to parse_tensor_name().
namespace nanscope {

/// Lower case, words apart by '_': "selfAttn" and "self-attn" are "self_attn".
std::string in_words(std::string_view text);
std::vector<std::string_view> split_text(std::string_view text, char by);

/// What split_text() gives, one part at a time and without a list: tables of a thousand words are gone through for each
/// name.
class Parts {
 public:
  class Iterator {
   public:
    Iterator(std::string_view text, char by) : text_(text), by_(by) { find_end(); }
    std::string_view operator*() const { return text_.substr(begin_, end_ - begin_); }
    Iterator& operator++() {
      begin_ = end_ + 1;
      find_end();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return begin_ > text_.size(); }

   private:
    void find_end() { end_ = std::min(text_.find(by_, begin_), text_.size()); }

    std::string_view text_;
    char by_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
  };

  Parts(std::string_view text, char by) : text_(text), by_(by) {}
  Iterator begin() const { return {text_, by_}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::string_view text_;
  char by_;
};

/// Whether `word` is one of the words of `list`, which spaces separate.
bool listed(std::string_view list, std::string_view word);
std::optional<std::int64_t> number(std::string_view text);
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Words of a form at the end ("k_cache_dequant") or the beginning ("dequant_k_cache") of `text`, and what is left.
struct FormWords {
  Form form = Form::value;
  std::string stem;
};
/// The longest form that `text` ends with; nothing when it ends with none. The stem is empty where `text` is a form and
/// nothing else.
std::optional<FormWords> form_at_end(std::string_view text);
std::optional<FormWords> form_at_beginning(std::string_view text);

/// The later calls of a module in a step apart from its first, as calls of another: "mlp.output_again2.1" as
/// "mlp_again2.output.1". Its numbers are not those of the first call said twice. Earlier captures wrote "_again" once
/// for each call, and behind the index.
std::string calls_apart(std::string_view key);

/// What a word and its number say about where: "step_003", "rank1", "layer 3".
enum class PlaceWord : std::uint8_t { request, step, decode, rank, layer };
std::optional<PlaceWord> place_word(std::string_view word);

/// A word and the number behind it, together or apart by '_': "step_003", "l3".
struct Counted {
  std::string_view word;
  std::optional<std::int64_t> count;
};
Counted counted_word(std::string_view text);

/// The step in a file's name, "acts_step0" or "iter_0000100_acts": the number behind a word for steps, whatever other
/// words there are.
std::optional<std::int64_t> step_in(std::string_view stem);

}  // namespace nanscope
