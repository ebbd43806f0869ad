#include "scenarios/serve/protocol.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "core/parse_json.h"

namespace nanscope::serve {

namespace {

std::string id_of(const Question& question, std::int64_t request) {
  return fmt::format("{}-{}", question.chat ? "chatcmpl" : "cmpl", request);
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json bytes_json(std::string_view text) {
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

/// An object by token text. Texts that are no UTF-8, or that two tokens share, have the id as well.
Json top_by_text(const std::vector<Chance>& top) {
  Json object = Json::object();
  for (const Chance& one : top) {
    const bool taken = one.text.empty() || object.contains(one.text);
    object[taken ? fmt::format("token_id:{}", one.token) : one.text] = number(one.log_probability);
  }
  return object;
}

/// The chosen one first, as vLLM has it, then the most likely.
Json top_by_id(const Position& position) {
  Json object = Json::object();
  const auto add = [&](const Chance& one) {
    object[std::to_string(one.token)] = {
        {"logprob", number(one.log_probability)}, {"rank", one.rank}, {"decoded_token", one.text}};
  };
  add(position.chosen);
  for (const Chance& one : position.top) add(one);
  return object;
}

Json completion_logprobs(std::span<const Position> prompt, bool first_unknown, std::span<const Position> generated,
                         std::size_t offset) {
  Json tokens = Json::array();
  Json chances = Json::array();
  Json top = Json::array();
  Json offsets = Json::array();
  const auto add = [&](const Position& position, bool unknown) {
    tokens.push_back(position.chosen.text);
    chances.push_back(unknown ? Json(nullptr) : number(position.chosen.log_probability));
    top.push_back(unknown ? Json(nullptr) : top_by_text(position.top));
    offsets.push_back(offset);
    offset += position.chosen.text.size();
  };
  for (std::size_t i = 0; i < prompt.size(); ++i) add(prompt[i], first_unknown && i == 0);
  for (const Position& position : generated) add(position, false);
  return {{"text_offset", offsets}, {"token_logprobs", chances}, {"tokens", tokens}, {"top_logprobs", top}};
}

Json chat_logprobs(std::span<const Position> generated) {
  const auto entry = [](const Chance& one) {
    return Json{{"token", one.text}, {"logprob", number(one.log_probability)}, {"bytes", bytes_json(one.text)}};
  };
  Json content = Json::array();
  for (const Position& position : generated) {
    Json item = entry(position.chosen);
    item["top_logprobs"] = Json::array();
    for (const Chance& one : position.top) item["top_logprobs"].push_back(entry(one));
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}};
}

Json prompt_logprobs(const Answer& answer) {
  Json list = Json::array();
  for (const auto& position : answer.prompt) list.push_back(position ? top_by_id(*position) : Json(nullptr));
  return list;
}

/// The prompt's positions for echo: of what has no log probability the token alone.
std::vector<Position> echoed(const Answer& answer) {
  std::vector<Position> positions;
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < answer.prompt.size(); ++i) {
    const Position bare{{answer.row.prompt_tokens[i], kUnknown, 0, answer.prompt_texts[i]}, {}};
    positions.push_back(answer.prompt[i].value_or(bare));
  }
  return positions;
}

Json envelope_json(const Question& question, std::int64_t request, std::string_view object, const Envelope& envelope) {
  return {
      {"id", id_of(question, request)}, {"object", object}, {"created", envelope.created}, {"model", envelope.model}};
}

}  // namespace

std::string finish_reason(const Answer& answer, bool stopped) { return stopped || answer.ended ? "stop" : "length"; }

Json usage_json(const RequestRow& row) {
  return {{"prompt_tokens", row.prompt_tokens.size()},
          {"completion_tokens", row.output_tokens.size()},
          {"total_tokens", row.prompt_tokens.size() + row.output_tokens.size()},
          {"prompt_tokens_details", {{"cached_tokens", row.cached_tokens}}}};
}

Json answer_json(const Question& question, const Answer& answer, const Envelope& envelope) {
  const RequestRow& row = answer.row;
  const SoFar cut = cut_at_stop(answer.text, question.stops);
  Json choice{{"index", 0}};
  if (question.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", cut.text}};
    choice["logprobs"] = question.chances ? chat_logprobs(answer.generated) : Json(nullptr);
  } else {
    const std::vector<Position> prompt = question.echo ? echoed(answer) : std::vector<Position>();
    choice["text"] = (question.echo ? answer.prompt_text : std::string()) + cut.text;
    choice["logprobs"] = question.chances ? completion_logprobs(prompt, true, answer.generated, 0) : Json(nullptr);
  }
  choice["finish_reason"] = finish_reason(answer, cut.stopped);
  if (question.token_ids) {
    choice["token_ids"] = row.output_tokens;
    choice["prompt_token_ids"] = row.prompt_tokens;
  }
  if (question.prompt_chances && !question.chat) choice["prompt_logprobs"] = prompt_logprobs(answer);
  Json json = envelope_json(question, row.id, question.chat ? "chat.completion" : "text_completion", envelope);
  json["choices"] = Json::array({std::move(choice)});
  json["usage"] = usage_json(row);
  if (question.prompt_chances && question.chat) json["prompt_logprobs"] = prompt_logprobs(answer);
  return json;
}

Json event_json(const Question& question, std::int64_t request, std::string_view text,
                std::span<const Position> positions, std::string_view reason, const Envelope& envelope) {
  Json choice{{"index", 0}};
  Json chances = nullptr;
  if (question.chances) {
    chances = question.chat ? chat_logprobs(positions) : completion_logprobs({}, false, positions, 0);
  }
  if (question.chat) {
    choice["delta"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = text;
  }
  choice["logprobs"] = std::move(chances);
  choice["finish_reason"] = reason.empty() ? Json(nullptr) : Json(reason);
  if (question.token_ids) {
    choice["token_ids"] = Json::array();
    for (const Position& position : positions) choice["token_ids"].push_back(position.chosen.token);
  }
  Json json = envelope_json(question, request, question.chat ? "chat.completion.chunk" : "text_completion", envelope);
  json["choices"] = Json::array({std::move(choice)});
  return json;
}

Json usage_event(const Question& question, const RequestRow& row, const Envelope& envelope) {
  Json json = envelope_json(question, row.id, question.chat ? "chat.completion.chunk" : "text_completion", envelope);
  json["choices"] = Json::array();
  json["usage"] = usage_json(row);
  return json;
}

Json models_json(const Envelope& envelope, std::int64_t longest) {
  Json model{{"id", envelope.model}, {"object", "model"}, {"created", envelope.created}, {"owned_by", "nanscope"}};
  if (longest > 0) model["max_model_len"] = longest;
  return {{"object", "list"}, {"data", Json::array({std::move(model)})}};
}

Json error_json(std::string_view message, std::string_view kind, int code) {
  return {{"error", {{"message", message}, {"type", kind}, {"param", nullptr}, {"code", code}}}};
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace nanscope::serve
