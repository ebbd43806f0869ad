#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/parse_json.h"
#include "instrument/files/base64.h"
#include "scenarios/serve/protocol.h"

namespace nanscope::serve {

namespace {

constexpr int kDefaultTokens = 16;  // OpenAI's for completions
constexpr int kMostTokens = 4096;   // of an answer
constexpr std::size_t kMostStops = 16;
constexpr std::string_view kPng = "data:image/png;base64,";

using In = nlohmann::json;

const In& field(const In& body, const char* name) {
  static const In none;
  const auto found = body.find(name);
  return found == body.end() ? none : *found;
}

Result<int> whole(const In& body, const char* name, int otherwise, int least, int most) {
  const In& value = field(body, name);
  if (value.is_null()) return otherwise;
  const bool fits = value.is_number_integer() && value >= least && value <= most;
  return fits ? Result<int>(value.get<int>())
              : fail(fmt::format("{}: expected a whole number from {} to {}", name, least, most));
}

Result<bool> flag(const In& body, const char* name) {
  const In& value = field(body, name);
  if (value.is_null()) return false;
  return value.is_boolean() ? Result<bool>(value.get<bool>()) : fail(fmt::format("{}: expected true or false", name));
}

/// Fields that would change the answer; the value is the one that changes nothing.
Status check_refused(const In& body) {
  const std::array<std::pair<const char*, In>, 10> neutral{{{"n", 1},
                                                            {"best_of", 1},
                                                            {"temperature", 0},
                                                            {"presence_penalty", 0},
                                                            {"frequency_penalty", 0},
                                                            {"repetition_penalty", 1},
                                                            {"min_tokens", 0},
                                                            {"suffix", ""},
                                                            {"ignore_eos", false},
                                                            {"use_beam_search", false}}};
  for (const auto& [name, value] : neutral) {
    const In& given = field(body, name);
    if (given.is_null() || given == value) continue;
    return fail(fmt::format("{}: only {} is served, for answers are the most likely tokens", name, value.dump()));
  }
  for (const char* name : {"logit_bias", "tools", "guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    const In& given = field(body, name);
    if (!given.is_null() && !given.empty()) return fail(fmt::format("{}: is not served", name));
  }
  const In& format = field(body, "response_format");
  const bool plain = format.is_null() || (format.is_object() && field(format, "type") == "text");
  return plain ? Status() : fail("response_format: only {\"type\": \"text\"} is served");
}

Status read_stops(const In& body, Question& question) {
  const In& stops = field(body, "stop");
  if (stops.is_null()) return {};
  const In list = stops.is_array() ? stops : In::array({stops});
  if (list.size() > kMostStops) return fail(fmt::format("stop: at most {} texts", kMostStops));
  for (const In& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) {
      return fail("stop: expected a text or a list of texts");
    }
    question.stops.push_back(stop.get<std::string>());
  }
  return {};
}

Result<Question> read_common(const In& body, bool chat) {
  if (Status refused = check_refused(body); !refused) return tl::unexpected(refused.error());
  Question question;
  question.chat = chat;
  if (Status stops = read_stops(body, question); !stops) return tl::unexpected(stops.error());
  const char* most = chat && body.contains("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  const auto tokens = whole(body, most, kDefaultTokens, 1, kMostTokens);
  if (!tokens) return tl::unexpected(tokens.error());
  question.spec.max_tokens = *tokens;
  if (!field(body, "prompt_logprobs").is_null()) {
    const auto count = whole(body, "prompt_logprobs", 0, 0, kMostChances);
    if (!count) return tl::unexpected(count.error());
    question.prompt_chances = *count;
  }
  const std::array<std::pair<const char*, bool*>, 3> flags{
      {{"stream", &question.stream}, {"echo", &question.echo}, {"return_token_ids", &question.token_ids}}};
  for (const auto& [name, value] : flags) {
    const auto given = flag(body, name);
    if (!given) return tl::unexpected(given.error());
    *value = *given;
  }
  const In& options = field(body, "stream_options");
  question.stream_usage = options.is_object() && field(options, "include_usage") == true;
  return question;
}

Result<TokensPart> token_ids(const In& list) {
  TokensPart part;
  for (const In& id : list) {
    const bool fits = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    if (!fits) return fail("prompt: expected a text, or a list of token ids");
    part.ids.push_back(id.get<std::int32_t>());
  }
  return part;
}

Status read_prompt(const In& prompt, Question& question) {
  if (prompt.is_string()) {
    question.spec.parts.emplace_back(TextPart{prompt.get<std::string>()});
    return {};
  }
  if (!prompt.is_array() || prompt.empty()) return fail("prompt: expected a text, or a list of token ids");
  if (!prompt.front().is_number()) {
    if (prompt.size() != 1) return fail("prompt: one is served at a time");
    return read_prompt(prompt.front(), question);
  }
  auto ids = token_ids(prompt);
  if (!ids) return tl::unexpected(ids.error());
  question.spec.parts.emplace_back(std::move(*ids));
  return {};
}

Status read_part(const In& part, Question& question) {
  const In& type = field(part, "type");
  if (type == "text" && field(part, "text").is_string()) {
    question.spec.parts.emplace_back(TextPart{field(part, "text").get<std::string>()});
    return {};
  }
  if (type != "image_url") return fail("messages: a part is {\"type\": \"text\"} or {\"type\": \"image_url\"}");
  const In& image = field(part, "image_url");
  const In& url = image.is_object() ? field(image, "url") : image;
  if (!url.is_string() || !url.get_ref<const std::string&>().starts_with(kPng)) {
    return fail(fmt::format("messages: an image's url begins with {}; nothing is downloaded", kPng));
  }
  auto png = from_base64(std::string_view(url.get_ref<const std::string&>()).substr(kPng.size()));
  if (!png) return fail("messages: the image is no base64");
  question.spec.parts.emplace_back(ImagePart{"image.png", std::move(*png)});
  return {};
}

Status read_messages(const In& messages, Question& question) {
  if (!messages.is_array() || messages.empty()) return fail("messages: expected a list with a message");
  for (const In& message : messages) {
    if (!message.is_object()) return fail("messages: expected objects");
    const In& content = field(message, "content");
    if (content.is_string()) {
      question.spec.parts.emplace_back(TextPart{content.get<std::string>()});
      continue;
    }
    if (!content.is_array()) return fail("messages: expected the content as a text or a list of parts");
    for (const In& part : content) {
      if (!part.is_object()) return fail("messages: expected objects as parts");
      if (Status read = read_part(part, question); !read) return read;
    }
  }
  return {};
}

Result<In> object_of(std::string_view body) {
  auto json = parse_json<In>(body);
  if (!json) return fail("the body: " + json.error().message);
  if (!json->is_object()) return fail("the body: expected a JSON object");
  return json;
}

/// Without the prefix cache: what another request computed has no log probabilities here.
void compute_prompt(Question& question) {
  if (question.prompt_chances) question.spec.fresh = true;
}

}  // namespace

Result<Question> read_completion(std::string_view text) {
  const auto body = object_of(text);
  if (!body) return tl::unexpected(body.error());
  auto question = read_common(*body, false);
  if (!question) return question;
  if (Status prompt = read_prompt(field(*body, "prompt"), *question); !prompt) return tl::unexpected(prompt.error());
  if (!field(*body, "logprobs").is_null()) {
    const auto count = whole(*body, "logprobs", 0, 0, kMostChances);
    if (!count) return tl::unexpected(count.error());
    question->chances = *count;
    if (question->echo && !question->prompt_chances) question->prompt_chances = *count;
  }
  compute_prompt(*question);
  return question;
}

Result<Question> read_chat(std::string_view text) {
  const auto body = object_of(text);
  if (!body) return tl::unexpected(body.error());
  auto question = read_common(*body, true);
  if (!question) return question;
  if (question->echo) return fail("echo: is not served in a chat");
  if (Status read = read_messages(field(*body, "messages"), *question); !read) return tl::unexpected(read.error());
  const auto wanted = flag(*body, "logprobs");
  if (!wanted) return tl::unexpected(wanted.error());
  const auto count = whole(*body, "top_logprobs", 0, 0, kMostChances);
  if (!count) return tl::unexpected(count.error());
  if (*wanted) question->chances = *count;
  compute_prompt(*question);
  return question;
}

}  // namespace nanscope::serve
