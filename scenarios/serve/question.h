#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/recording/rows.h"
#include "instrument/engine/request.h"

/// What a client of the server asks, and what it is told.
namespace nanscope::serve {

/// The most tokens whose log probability an answer states for one position.
inline constexpr int kMostChances = 20;

struct Question {
  RequestSpec spec;
  std::optional<int> chances;         ///< tokens of the answer with their log probability, and how many others
  std::optional<int> prompt_chances;  ///< the same of the prompt
  std::vector<std::string> stops;     ///< texts that end the answer
  bool echo = false;                  ///< the prompt stands before the answer
  bool stream = false;
  bool stream_usage = false;
  bool token_ids = false;
  bool chat = false;
};

/// A token and its log probability, which is NaN where a logit is.
struct Chance {
  std::int32_t token = 0;
  double log_probability = 0;
  std::int64_t rank = 1;  ///< 1: no token is more likely
  std::string text;       ///< bytes
};

/// The token of a position, and the most likely ones there.
struct Position {
  Chance chosen;
  std::vector<Chance> top;
};

struct Answer {
  RequestRow row;
  std::string text;                       ///< of the tokens, before a stop cuts it
  std::string prompt_text;                ///< for echo
  std::vector<std::string> prompt_texts;  ///< by token, for echo
  std::vector<Position> generated;
  std::vector<std::optional<Position>> prompt;  ///< of the first token there is none, nor of an image's
  bool refused = false;                         ///< the server answers nothing where logits are NaN
  bool ended = false;                           ///< by a token that ends texts
};

/// What a request has answered so far: the text, cut where a stop begins.
struct SoFar {
  std::string text;
  bool stopped = false;
};
SoFar cut_at_stop(std::string text, const std::vector<std::string>& stops);

/// How much of `text` can be told although more will follow: no part of a character, and nothing that may turn out to
/// be the beginning of a stop.
std::size_t certain(const std::string& text, const std::vector<std::string>& stops);

}  // namespace nanscope::serve
