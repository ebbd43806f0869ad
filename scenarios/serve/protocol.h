#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/result.h"
#include "scenarios/serve/question.h"

/// The bodies of the OpenAI-compatible interface, with the fields that vLLM adds. Text in, text out: knows no sockets.
namespace nanscope::serve {

using Json = nlohmann::ordered_json;

/// Reads a body of /v1/completions or /v1/chat/completions. Errors name the field: what would change the answer and is
/// not done is refused, unknown fields are ignored.
Result<Question> read_completion(std::string_view body);
Result<Question> read_chat(std::string_view body);

/// What an answer says of itself besides its contents.
struct Envelope {
  std::string model;
  std::int64_t created = 0;
};

/// The body of an answer.
Json answer_json(const Question& question, const Answer& answer, const Envelope& envelope);

/// One event of a stream: `text` and the positions that came since the last one. `reason` empty: more follows.
Json event_json(const Question& question, std::int64_t request, std::string_view text,
                std::span<const Position> positions, std::string_view reason, const Envelope& envelope);
Json usage_json(const RequestRow& row);
/// The last event where a client asked for the usage.
Json usage_event(const Question& question, const RequestRow& row, const Envelope& envelope);
std::string finish_reason(const Answer& answer, bool stopped);

Json models_json(const Envelope& envelope, std::int64_t longest);
/// `kind` as the interface names it, such as invalid_request_error.
Json error_json(std::string_view message, std::string_view kind, int code);

/// JSON whose strings are UTF-8 whatever bytes the tokens are; a number that is none is null.
std::string dump(const Json& json);

}  // namespace nanscope::serve
