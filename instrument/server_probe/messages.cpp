#include "instrument/server_probe/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/parse_json.h"

namespace nanscope::server_probe {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kTop = 5;  // most likely tokens of a position: what OpenAI's interface gives at most

/// 64 x 48 pixels, dark, with one bright square of 16 x 16.
constexpr const char* kPicture =
    "data:image/"
    "png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAAAwCAIAAAAuKetIAAAAR0lEQVR42u3XMQ0AAAjAME78GwYNPCSQzkHPRR4vAAAAAAAAAAAAAADWADUMAAAAAA"
    "AAAAAAAOAPwJEBAAAAAAAAAAAAvAE0W2wFPV8Zd+EAAAAASUVORK5CYII=";

const Json& field(const Json& object, const char* name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

double number(const Json& value) { return value.is_number() ? value.get<double>() : kNan; }

std::vector<std::int32_t> ids_of(const Json& list) {
  std::vector<std::int32_t> ids;
  for (const Json& id : list) {
    if (id.is_number_integer()) ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

/// Of /v1/completions.
void read_lists(const Json& chances, Reply& reply) {
  const Json& tokens = field(chances, "tokens");
  const Json& values = field(chances, "token_logprobs");
  const Json& top = field(chances, "top_logprobs");
  if (!tokens.is_array() || !values.is_array() || tokens.size() != values.size()) return;
  reply.has_chances = true;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Spot spot{text_of(tokens[i]), number(values[i]), {}};
    if (top.is_array() && i < top.size() && top[i].is_object()) {
      for (const auto& item : top[i].items()) spot.top.push_back(number(item.value()));
    }
    std::sort(spot.top.begin(), spot.top.end(), std::greater<>());
    reply.spots.push_back(std::move(spot));
  }
}

/// Of /v1/chat/completions.
void read_contents(const Json& contents, Reply& reply) {
  if (!contents.is_array()) return;
  reply.has_chances = true;
  for (const Json& one : contents) {
    Spot spot{text_of(field(one, "token")), number(field(one, "logprob")), {}};
    for (const Json& other : field(one, "top_logprobs")) spot.top.push_back(number(field(other, "logprob")));
    std::sort(spot.top.begin(), spot.top.end(), std::greater<>());
    reply.spots.push_back(std::move(spot));
  }
}

/// vLLM's: for each token an object by id, the prompt's own token first.
void read_prompt(const Json& list, Reply& reply) {
  if (!list.is_array()) return;
  for (const Json& one : list) {
    if (!one.is_object() || one.empty()) {
      reply.prompt.emplace_back();
      continue;
    }
    const auto first = one.items().begin();
    PromptSpot spot{0, number(field(first.value(), "logprob"))};
    const std::string& key = first.key();
    const bool digits = !key.empty() && key.size() < 10 &&
                        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) spot.id = std::stoi(key);
    reply.prompt.emplace_back(spot);
  }
}

/// What servers say when a log probability is NaN and their JSON has no word for it.
bool speaks_of_nan(const std::string& error) {
  return error.find("not JSON compliant") != std::string::npos || error.find("hold a NaN") != std::string::npos ||
         error.find("probability tensor contains") != std::string::npos;
}

std::string error_of(const Json& json, int status) {
  const Json& error = field(json, "error");
  std::string text = text_of(error.is_object() ? field(error, "message") : error);
  if (text.empty()) text = text_of(field(json, "message"));
  if (text.empty()) text = text_of(field(json, "detail"));
  return fmt::format("status {}{}{}", status, text.empty() ? "" : ": ", text);
}

}  // namespace

Body body_of(const Ask& ask, const Abilities& abilities) {
  Json body{{"model", abilities.model}, {"max_tokens", ask.tokens}, {"temperature", 0}, {"seed", 0}};
  if (ask.image) {
    body["messages"] =
        Json::array({{{"role", "user"},
                      {"content", Json::array({{{"type", "image_url"}, {"image_url", {{"url", kPicture}}}},
                                               {{"type", "text"}, {"text", ask.text}}})}}});
    if (abilities.log_probabilities) body["logprobs"] = true;
    return {"/chat/completions", body.dump()};
  }
  body["prompt"] = ask.ids.empty() ? Json(ask.text) : Json(ask.ids);
  if (abilities.log_probabilities) body["logprobs"] = kTop;
  if (ask.of_prompt) body["prompt_logprobs"] = 0;
  if (abilities.token_ids) {
    body["return_token_ids"] = true;
    body["repetition_penalty"] = 1.0;  // a checkpoint's generation_config.json may state another
  }
  return {"/completions", body.dump()};
}

bool Reply::nan_in_answer() const {
  return has_chances &&
         std::any_of(spots.begin(), spots.end(), [](const Spot& s) { return std::isnan(s.log_probability); });
}

bool Reply::nan_in_prompt() const {
  return std::any_of(prompt.begin(), prompt.end(), [](const auto& s) { return s && std::isnan(s->log_probability); });
}

Reply read_reply(int status, std::string_view body) {
  Reply reply;
  reply.status = status;
  const auto json = parse_json_or_none<Json>(body);
  if (status != 200 || !field(json, "error").is_null()) {
    reply.error = error_of(json, status);
    reply.says_nan = speaks_of_nan(reply.error);
    return reply;
  }
  const Json& choices = field(json, "choices");
  if (!choices.is_array() || choices.empty()) {
    reply.error = "the answer has no choices";
    return reply;
  }
  const Json& choice = choices.front();
  const Json& message = field(choice, "message");
  reply.text = text_of(message.is_object() ? field(message, "content") : field(choice, "text"));
  const Json& chances = field(choice, "logprobs");
  read_lists(chances, reply);
  read_contents(field(chances, "content"), reply);
  read_prompt(field(choice, "prompt_logprobs"), reply);
  read_prompt(field(json, "prompt_logprobs"), reply);
  reply.ids = ids_of(field(choice, "token_ids"));
  reply.prompt_ids = ids_of(field(choice, "prompt_token_ids"));
  const Json& usage = field(json, "usage");
  if (const Json& count = field(usage, "prompt_tokens"); count.is_number_integer()) reply.prompt_tokens = count;
  const Json& cached = field(field(usage, "prompt_tokens_details"), "cached_tokens");
  if (cached.is_number_integer()) reply.cached = cached;
  return reply;
}

}  // namespace nanscope::server_probe
