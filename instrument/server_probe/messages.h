#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

/// What the probe asks a server, and what it reads of the answer. Bodies of the OpenAI-compatible interface.
namespace nanscope::server_probe {

/// What this server understands of what others do not.
struct Abilities {
  std::string model;
  bool log_probabilities = true;
  bool prompt_log_probabilities = true;
  bool token_ids = true;
  bool images = true;
  std::int64_t longest = 0;  ///< tokens of a prompt with its answer; 0: it does not say
};

struct Ask {
  std::string text;
  std::vector<std::int32_t> ids;  ///< in place of the text
  bool image = false;             ///< a picture with one bright patch, and then the text
  int tokens = 8;
  bool of_prompt = false;  ///< log probabilities of the prompt
};

/// The path below /v1 and the body.
struct Body {
  std::string path;
  std::string text;
};
Body body_of(const Ask& ask, const Abilities& abilities);

/// One generated token.
struct Spot {
  std::string token;
  double log_probability = 0;  ///< NaN: the server gives none, or says that it is none
  std::vector<double> top;     ///< log probabilities of the most likely tokens, descending
};

/// One token of the prompt, from the second on.
struct PromptSpot {
  std::int32_t id = 0;
  double log_probability = 0;
};

struct Reply {
  int status = 0;     ///< of HTTP; 0: no answer
  std::string error;  ///< one line; empty: an answer
  std::string text;
  std::vector<Spot> spots;
  std::vector<std::optional<PromptSpot>> prompt;
  std::vector<std::int32_t> ids;         ///< of the answer; empty: not told
  std::vector<std::int32_t> prompt_ids;  ///< empty: not told
  std::int64_t prompt_tokens = 0;
  std::int64_t cached = -1;  ///< tokens of the prompt; -1: not told
  bool has_chances = false;  ///< log probabilities were told
  bool says_nan = false;     ///< the server failed because of a NaN, by its own words

  bool answered() const { return error.empty(); }
  /// A log probability of the answer, or of the prompt, is none.
  bool nan_in_answer() const;
  bool nan_in_prompt() const;
};

Reply read_reply(int status, std::string_view body);

}  // namespace nanscope::server_probe
